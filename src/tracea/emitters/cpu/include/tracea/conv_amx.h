// A band of a convolution on matrix tiles: windows of a halo of bf16 terms (halo_terms.h) times filters in panels of terms (pack_terms.h).
//
// The pixels of a phase of the halo are one axis, rows one after the other: result (y, x) is at y * pitch + x, and a tap moves all of them by the same
// distance. Tiles of 32 pixels run along it, over the ends of rows; what they compute there is dropped when a tile leaves.
//
//   amx_conv<3, Once>(window, halo, shape, panels, panel_pitch, sink)
//
// Once: taps of a row are lanes, so that a tile's pixels are read again a row of results later at the earliest. The halo then passes the first-level cache
// by, in which a panel of filters stays: the stem of 7 x 7 taps 1120 us, or 1035 (benchmarks/NOTES.md). Where nine taps read pixels, these should stay.
//
// As in gemm_amx.h the vectors of a finished tile leave while the next one multiplies, and granules with unsafe values are multiplied by float fused
// multiply-adds into sums of their own.
#ifndef TRACEA_CONV_AMX_H
#define TRACEA_CONV_AMX_H

#include <stdint.h>
#include <string.h>

#include "tracea/amx.h"
#include "tracea/config.h"
#include "tracea/gemm_amx.h"
#include "tracea/halo_terms.h"
#include "tracea/transpose.h"
#include "tracea/vec.h"

// A pixel's granule is two vectors of sixteen: with shorter ones the header is empty, and no variant asks for it.
#if !defined(TRACEA_ISA_AVX2) && !defined(TRACEA_ISA_NEON)

TRACEA_BEGIN_NAMESPACE

struct ConvWindow {
    int64_t rows;  // of results
    int64_t columns;
    int64_t filters;
    int64_t tap_rows;
    int64_t tap_columns;
    int64_t gap_rows;  // between taps
    int64_t gap_columns;
};

// Which of 32 pixels of the axis are results, and the number of the first of them.
struct TilePixels {
    uint32_t valid;
    int64_t first;

    TRACEA_INLINE int64_t number(int i) const { return first + __builtin_popcount(valid & ((uint32_t{1} << i) - 1)); }
};

TRACEA_INLINE TilePixels tile_pixels(int64_t begin, int64_t pitch, const ConvWindow& window) {
    if (pitch == window.columns) {  // every pixel of the axis is a result
        const int64_t count = window.rows * window.columns - begin;
        return {count >= kAmxTile ? ~uint32_t{0} : (uint32_t{1} << count) - 1, begin};
    }
    int64_t y = begin / pitch, x = begin % pitch;
    const int64_t columns = window.columns;
    TilePixels pixels{0, y * columns + (x < columns ? x : columns)};
    for (int i = 0; i < kAmxTile && y < window.rows; x = 0, ++y) {
        const int64_t row_end = i + pitch - x;
        for (const int64_t end = i + columns - x; i < end && i < kAmxTile; ++i) pixels.valid |= uint32_t{1} << i;
        i = static_cast<int>(row_end < kAmxTile ? row_end : kAmxTile);
    }
    return pixels;
}

// The lanes of `v` that are in `lanes`, next to each other from lane 0.
TRACEA_INLINE VecF compressed(VecF v, uint32_t lanes) {
#if defined(TRACEA_ISA_AVX512)
    return {_mm512_maskz_compress_ps(static_cast<__mmask16>(lanes), v.reg)};
#else
    float all[VecF::lanes], kept[VecF::lanes] = {};
    store(all, v);
    for (int i = 0, n = 0; i < VecF::lanes; ++i) {
        if ((lanes >> i & 1) != 0) kept[n++] = all[i];
    }
    return load<VecF>(kept);
#endif
}

// Where finished tiles go: result `number` of filter f at out + number * pixel_step + f * filter_step. Planar: pixel_step is 1 and vectors run along pixels,
// else filter_step is 1 and they run along filters. A tile leaves in `parts` parts.
template <bool Planar, class Storage, class Epilogue>
struct PixelSink {
    static constexpr int parts = Planar ? 4 : kAmxTile;
    Storage* out;
    int64_t step;  // between pixels, or between filters where they are planar
    Epilogue epilogue;

    // Part `part` of the tile of filters first .. first + filters.
    TRACEA_INLINE void leave(const float* sums, const TilePixels& pixels, int64_t first, int64_t filters,
                             int part) const {
        constexpr int L = VecF::lanes;
        static_assert(L == kTileColumns, "half a tile is a vector");
        if constexpr (Planar) {
            const int row = part / 2 * L, column = part % 2 * L;
            const uint32_t lanes = pixels.valid >> row & 0xffffU;
            const int64_t n = filters - column < L ? filters - column : L;
            if (lanes == 0 || n <= 0) return;
            VecF block[L];
            for (int i = 0; i < L; ++i) block[i] = load<VecF>(sums + (row + i) * kAmxTile + column);
            transpose(block);
            const int64_t number = pixels.number(row);
            Storage* target = out + (first + column) * step + number;
            if (TRACEA_LIKELY(lanes == 0xffffU && n == L)) {
                for (int f = 0; f < L; ++f) store(target + f * step, epilogue(block[f], first + column + f, number, L));
                return;
            }
            const int64_t count = __builtin_popcount(lanes);
            for (int f = 0; f < n; ++f) {
                store_partial(target + f * step,
                              epilogue(compressed(block[f], lanes), first + column + f, number, count), count);
            }
        } else {
            if ((pixels.valid >> part & 1) == 0) return;
            const int64_t number = pixels.number(part);
            Storage* target = out + number * step + first;
            for (int column = 0; column < kAmxTile && column < filters; column += L) {
                const VecF x = load<VecF>(sums + part * kAmxTile + column);
                const int64_t n = filters - column;
                if (TRACEA_LIKELY(n >= L)) {
                    store(target + column, epilogue(x, number, first + column, L));
                } else {
                    store_partial(target + column, epilogue(x, number, first + column, n), n);
                }
            }
        }
    }

    TRACEA_NOINLINE void leave(const float* sums, const TilePixels& pixels, int64_t first, int64_t filters, int begin,
                               int end) const {
        if constexpr (!Planar) {
            if (TRACEA_LIKELY(pixels.valid == ~uint32_t{0} && filters >= kAmxTile)) {
                Storage* target = out + (pixels.first + begin) * step + first;
                for (int part = begin; part < end; ++part, target += step) {
                    for (int column = 0; column < kAmxTile; column += VecF::lanes) {
                        const VecF x = load<VecF>(sums + part * kAmxTile + column);
                        store(target + column, epilogue(x, pixels.first + part, first + column, VecF::lanes));
                    }
                }
                return;
            }
        }
        for (int part = begin; part < end; ++part) leave(sums, pixels, first, filters, part);
    }
};

template <bool Planar, class Storage, class Epilogue>
TRACEA_INLINE PixelSink<Planar, Storage, Epilogue> pixel_sink(Storage* out, int64_t step, const Epilogue& epilogue) {
    return {out, step, epilogue};
}

namespace detail {

// sums += a * b of one granule in float arithmetic, step after step.
template <int Terms>
TRACEA_NOINLINE void multiply_pixel_values(const bf16* a, int64_t a_term, const bf16* marks, const bf16* b,
                                           float* sums) {
    alignas(64) float a_values[kGranule * kGranule];
    alignas(64) float b_values[kGranule * kGranule];
    pixel_values<Terms>(a, a_term, marks, a_values);
    multiply_rows(a_values, granule_values<Terms, true>(b, b_values), sums);
}

TRACEA_INLINE bool any_marked(const bf16* marks) {
#if defined(TRACEA_ISA_AVX512)
    const __m512i all = _mm512_loadu_si512(marks);
    return _mm512_test_epi32_mask(all, all) != 0;
#else
    uint16_t all = 0;
    for (int i = 0; i < kAmxTile; ++i) all |= marks[i].bits;
    return all != 0;
#endif
}

}  // namespace detail

// Few tiles of pixels walk a panel of many channels and taps in parts, all tiles one part before the next, and keep their sums meanwhile: a part stays in the
// second-level cache from tile to tile, beside the halo and the part that is asked for, which a panel of 512 channels and nine taps does not
// (benchmarks/NOTES.md).
constexpr int kPartedTiles = 4;
constexpr int64_t kPartBytes = 128 << 10;

// All filters of a band, from panels that lie b_pitch elements apart.
template <int Terms, bool Once = false, class Sink>
TRACEA_NOINLINE void amx_conv(const ConvWindow& window, const bf16* halo, const HaloShape& shape, const bf16* b,
                              int64_t b_pitch, const Sink& sink) {
    if (window.rows <= 0 || window.filters <= 0) return;
    alignas(64) float sums[2][kAmxTile * kAmxTile];
    alignas(64) float kept[kPartedTiles][kAmxTile * kAmxTile];
    alignas(64) float apart[kPartedTiles][kAmxTile * kAmxTile];
    alignas(64) float unread[kTileRows * kTileColumns];
    const int64_t pitch = shape.pitch();
    const int64_t pixels = (window.rows - 1) * pitch + window.columns;
    const int64_t term = shape.term() * kGranule;
    const int64_t taps = window.tap_rows * window.tap_columns;
    const int64_t row_tiles = (pixels + kAmxTile - 1) / kAmxTile;
    constexpr int64_t granule_bytes = granule_elements<Terms> * sizeof(bf16);
    const bool parted =
        row_tiles > 1 && row_tiles <= kPartedTiles && shape.blocks * taps * granule_bytes > 2 * kPartBytes;
    const int64_t fitting = kPartBytes / granule_bytes > taps ? kPartBytes / granule_bytes / taps : 1;
    const int64_t parts = parted ? (shape.blocks + fitting - 1) / fitting : 1;
    const int64_t part_blocks = (shape.blocks + parts - 1) / parts;
    // A finished tile leaves while the next one takes the last part, or another panel's first.
    const int64_t last_granules = ((shape.blocks - 1) % part_blocks + 1) * taps;
    const int share = static_cast<int>((Sink::parts + last_granules - 1) / last_granules);
    constexpr int64_t granule_lines = granule_bytes / 64;
    const int64_t lines_apart = (granule_lines + row_tiles - 1) / row_tiles;
    const bf16* marks = halo + shape.blocks * Terms * term;
    int current = 0;
    int left = Sink::parts;  // the first part of the tile before that has not left yet, and that tile's place
    TilePixels left_pixels{0, 0};
    int64_t left_first = 0, left_filters = 0;

    TileRegisters tiles;
    for (int64_t j = 0; j < window.filters; j += kAmxTile, b += b_pitch) {
        const int64_t filters = window.filters - j < kAmxTile ? window.filters - j : kAmxTile;
        const bf16* next_b = j + kAmxTile < window.filters ? b + b_pitch : b;
        uint32_t some_apart = 0;
        for (int64_t first_block = 0; first_block < shape.blocks; first_block += part_blocks) {
            const int64_t end_block =
                first_block + part_blocks < shape.blocks ? first_block + part_blocks : shape.blocks;
            const bf16* b_part = b + first_block * taps * granule_elements<Terms>;
            const bf16* next_part = end_block < shape.blocks ? b + end_block * taps * granule_elements<Terms> : next_b;
            for (int64_t f = 0; f < pixels; f += kAmxTile) {
                const int slot = parted ? static_cast<int>(f / kAmxTile) : 0;
                const bool half = pixels - f <= kTileRows;
                const bf16* upcoming = next_part + f / kAmxTile * lines_apart * 32;
                if (first_block == 0) {
                    tiles.zero<0>();
                    tiles.zero<1>();
                    tiles.zero<2>();
                    tiles.zero<3>();
                    some_apart &= ~(uint32_t{1} << slot);
                } else {
                    const float* before = kept[slot];
                    tiles.load<0>(before, kAmxTile);
                    tiles.load<1>(before + kTileColumns, kAmxTile);
                    tiles.load<2>(before + kTileRows * kAmxTile, kAmxTile);
                    tiles.load<3>(before + kTileRows * kAmxTile + kTileColumns, kAmxTile);
                }
                const bf16* b_granule = b_part;
                int64_t g = 0;
                for (int64_t block = first_block; block < end_block; ++block) {
                    const bf16* a_block = halo + block * Terms * term + f * kGranule;
                    const bf16* marks_block = marks + block * shape.term() + f;
                    for (int64_t r = 0; r < window.tap_rows; ++r) {
                        for (int64_t s = 0; s < window.tap_columns; ++s, ++g, b_granule += granule_elements<Terms>) {
                            const int64_t place = shape.pixel(r * window.gap_rows, s * window.gap_columns);
                            const bf16* a_granule = a_block + place * kGranule;
                            const bf16* lines = upcoming + g * granule_elements<Terms>;
                            const auto errand = [&](auto slot) TRACEA_LAMBDA {
                                if constexpr (slot % 2 == 0) {
                                    prefetch_l2(lines + slot / 2 * 32);
                                }
                            };
                            const bool safe = !detail::any_marked(marks_block + place) && !is_unsafe<Terms>(b_granule);
                            if (TRACEA_UNLIKELY(!safe)) {
                                if ((some_apart >> slot & 1) == 0) memset(apart[slot], 0, sizeof apart[slot]);
                                some_apart |= uint32_t{1} << slot;
                                detail::multiply_pixel_values<Terms>(a_granule, term, marks_block + place, b_granule,
                                                                     apart[slot]);
                            } else if (TRACEA_LIKELY(!half)) {
                                detail::multiply_granule<Terms, Once>(tiles, a_granule, b_granule, errand, term);
                            } else {
                                detail::multiply_edge<Terms, 1, 2>(tiles, a_granule, b_granule, term);
                            }
                            if (g % awake_granules<Terms> == awake_granules<Terms> - 1)
                                tiles.store<7>(unread, kTileColumns);
                            if (left < Sink::parts) {
                                const int end = left + share < Sink::parts ? left + share : Sink::parts;
                                sink.leave(sums[1 - current], left_pixels, left_first, left_filters, left, end);
                                left = end;
                            }
                        }
                    }
                }
                const bool last = end_block == shape.blocks;
                float* done = last ? sums[current] : kept[slot];
                tiles.store<0>(done, kAmxTile);
                tiles.store<1>(done + kTileColumns, kAmxTile);
                tiles.store<2>(done + kTileRows * kAmxTile, kAmxTile);
                tiles.store<3>(done + kTileRows * kAmxTile + kTileColumns, kAmxTile);
                if (!last) continue;
                if ((some_apart >> slot & 1) != 0) {
                    for (int64_t v = 0; v < kAmxTile * kAmxTile; v += VecF::lanes)
                        store(done + v, add(load<VecF>(done + v), load<VecF>(apart[slot] + v)));
                }
                left = 0;
                left_pixels = tile_pixels(f, pitch, window);
                left_first = j;
                left_filters = filters;
                current = 1 - current;
            }
        }
    }
    sink.leave(sums[1 - current], left_pixels, left_first, left_filters, left, Sink::parts);
}

TRACEA_END_NAMESPACE

#endif

#endif
