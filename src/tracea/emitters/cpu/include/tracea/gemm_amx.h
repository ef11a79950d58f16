// A block of C = A B on matrix tiles, from operands that are packed as sums of bf16 terms (pack_terms.h).
//
// A tile of C is 32 x 32 in four tile registers, summed granule by granule (amx_granule.h).
//
//   amx_block<3>(rows, columns, depth, a, a_pitch, b, b_pitch, amx_sink(c, c_stride, accumulate, finish, out, row_step, column_step, epilogue));
//
// Sums start from zero in the tiles; what C held is added when they leave. While the tiles multiply, which leaves the vector units idle, the vectors of the
// tile before go through the epilogue into C: a few for every granule. Where sums are results as they are, of few steps, the tiles store them into C.
#ifndef TRACEA_GEMM_AMX_H
#define TRACEA_GEMM_AMX_H

#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "tracea/amx.h"
#include "tracea/amx_granule.h"
#include "tracea/config.h"
#include "tracea/gemm_store.h"
#include "tracea/pack_terms.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// Up to so many granules sums that are results as they are go from the tiles to C (shallow_block; benchmarks/NOTES.md).
constexpr int64_t kShallowGranules = 12;

// Where finished vectors go: sums in `c`, to which the tile's are added if `accumulate`; at the finish through the epilogue into `out`.
template <class Storage, class Epilogue>
struct AmxSink {
    float* c;
    int64_t c_stride;
    bool accumulate;
    bool finish;
    Storage* out;
    int64_t row_step;
    int64_t column_step;
    Epilogue epilogue;

    // Whether a tile's sums are what C shall hold, as they are.
    TRACEA_INLINE bool stores_sums() const {
        return !accumulate && (!finish || (std::is_same_v<Epilogue, IdentityEpilogue> && out_is_c()));
    }
    TRACEA_INLINE bool out_is_c() const {
        return static_cast<const void*>(out) == static_cast<const void*>(c) && std::is_same_v<Storage, float>;
    }
    TRACEA_INLINE float* place(int64_t row, int64_t column) const { return c + row * c_stride + column; }

    // Asks for what one row of a whole tile will touch: the epilogue's operands and, if `sums` says so, C. C is worth it where it has sums already, or where a
    // tile has few granules, so that its stores wait; else stores wait by themselves, and asking cost a tenth.
    TRACEA_INLINE void ask(int64_t row, int64_t column, bool sums) const {
        if (sums) {
            prefetch_l2(c + row * c_stride + column);
            prefetch_l2(c + row * c_stride + column + kAmxTile - 1);
        }
        if (finish) epilogue.prefetch(row, column);
    }

    // `count` vectors of a whole tile at (row, column) of the block, from vector `first` on.
    TRACEA_NOINLINE void whole(const float* sums, int64_t row, int64_t column, int64_t first, int64_t count) const {
        constexpr int per_row = kAmxTile / VecF::lanes;
        for (int64_t v = first; v < first + count; ++v) {
            const int64_t i = row + v / per_row;
            const int64_t j = column + v % per_row * VecF::lanes;
            VecF x = load<VecF>(sums + v * VecF::lanes);
            if (accumulate) x = add(load<VecF>(c + i * c_stride + j), x);
            if (!finish) {
                store(c + i * c_stride + j, x);
            } else if (column_step == 1) {
                store(out + i * row_step + j, epilogue(x, i, j, VecF::lanes));
            } else {
                store_strided(out + i * row_step + j * column_step, column_step, epilogue(x, i, j, VecF::lanes),
                              VecF::lanes);
            }
        }
    }

    TRACEA_NOINLINE void part(const float* sums, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t i = row + r;
            for (int64_t first = 0; first < columns; first += VecF::lanes) {
                const int64_t n = columns - first < VecF::lanes ? columns - first : VecF::lanes;
                const int64_t j = column + first;
                VecF x = load<VecF>(sums + r * kAmxTile + first);
                if (accumulate) x = add(load_partial<VecF>(c + i * c_stride + j, n), x);
                if (!finish) {
                    store_partial(c + i * c_stride + j, x, n);
                } else if (column_step == 1) {
                    store_partial(out + i * row_step + j, epilogue(x, i, j, n), n);
                } else {
                    store_strided(out + i * row_step + j * column_step, column_step, epilogue(x, i, j, n), n);
                }
            }
        }
    }
};

template <class Storage, class Epilogue>
TRACEA_INLINE AmxSink<Storage, Epilogue> amx_sink(float* c, int64_t c_stride, bool accumulate, bool finish,
                                                  Storage* out, int64_t row_step, int64_t column_step,
                                                  const Epilogue& epilogue) {
    return {c, c_stride, accumulate, finish, out, row_step, column_step, epilogue};
}

namespace detail {

// The tile at (row, column) of C where `rows` or `columns`, what is left of them, are at most 16: its sums, and their way out. A routine of its own: what
// the loop of whole tiles has to keep besides costs their epilogue 4 %.
template <int Terms, class Sink>
TRACEA_NOINLINE void edge_tile(TileRegisters& tiles, const bf16* a, const bf16* b, int64_t granules, int64_t rows,
                               int64_t columns, int64_t row, int64_t column, const Sink& sink) {
    alignas(64) float sums[kAmxTile * kAmxTile];
    alignas(64) float apart[kAmxTile * kAmxTile];
    bool some_apart = false;
    for (int64_t g = 0; g < granules; ++g, a += granule_elements<Terms>, b += granule_elements<Terms>) {
        if (TRACEA_UNLIKELY(is_unsafe<Terms>(a) || is_unsafe<Terms>(b))) {
            if (!some_apart) memset(apart, 0, sizeof apart);
            some_apart = true;
            multiply_values<Terms>(a, b, apart);
        } else if (rows > kTileRows) {
            multiply_edge<Terms, 2, 1>(tiles, a, b);
        } else if (columns > kTileColumns) {
            multiply_edge<Terms, 1, 2>(tiles, a, b);
        } else {
            multiply_edge<Terms, 1, 1>(tiles, a, b);
        }
    }
    take_sums(tiles, some_apart, apart, sums);
    sink.part(sums, row, column, rows < kAmxTile ? rows : kAmxTile, columns < kAmxTile ? columns : kAmxTile);
}

// As amx_block for few granules, whose sums are results as they are: they go from the tiles to C, because a tile has too few granules to hide a way through
// vectors under. C's lines are asked for, or the stores wait.
template <int Terms, class Sink>
TRACEA_NOINLINE void shallow_block(int64_t rows, int64_t columns, int64_t granules, const bf16* a, int64_t a_pitch,
                                   const bf16* b, int64_t b_pitch, const Sink& sink) {
    alignas(64) float sums[kAmxTile * kAmxTile];
    alignas(64) float apart[kAmxTile * kAmxTile];
    alignas(64) float unread[kTileRows * kTileColumns];
    const int64_t rows_share = (kAmxTile + granules - 1) / granules;
    TileRegisters tiles;
    for (int64_t j = 0; j < columns; j += kAmxTile, b += b_pitch) {
        const bf16* a_panel = a;
        for (int64_t i = 0; i < rows; i += kAmxTile, a_panel += a_pitch) {
            clear_sums(tiles);
            if (rows - i <= kTileRows || columns - j <= kTileColumns) {
                edge_tile<Terms>(tiles, a_panel, b, granules, rows - i, columns - j, i, j, sink);
                continue;
            }
            bool some_apart = false;
            for (int64_t g = 0; g < granules; ++g) {
                const bf16* a_granule = a_panel + g * granule_elements<Terms>;
                const bf16* b_granule = b + g * granule_elements<Terms>;
                const int64_t asked = i + g * rows_share;
                const int64_t asked_end = asked + rows_share < rows ? asked + rows_share : rows;
                const auto errand = [&](auto slot) TRACEA_LAMBDA {
                    if constexpr (slot % 2 == 1) {
                        if (asked + slot / 2 < asked_end) sink.ask(asked + slot / 2, j, true);
                    }
                };
                if (TRACEA_LIKELY(!is_unsafe<Terms>(a_granule) && !is_unsafe<Terms>(b_granule))) {
                    multiply_granule<Terms>(tiles, a_granule, b_granule, errand);
                } else {
                    if (!some_apart) memset(apart, 0, sizeof apart);
                    some_apart = true;
                    multiply_values<Terms>(a_granule, b_granule, apart);
                }
                if (g % awake_granules<Terms> == awake_granules<Terms> - 1) tiles.store<7>(unread, kTileColumns);
            }
            if (rows - i >= kAmxTile && columns - j >= kAmxTile && !some_apart) {
                store_sums(tiles, sink.place(i, j), sink.c_stride);
            } else {
                take_sums(tiles, some_apart, apart, sums);
                sink.part(sums, i, j, rows - i < kAmxTile ? rows - i : kAmxTile,
                          columns - j < kAmxTile ? columns - j : kAmxTile);
            }
        }
    }
}

}  // namespace detail

// rows x columns of C from panels that lie a_pitch and b_pitch elements apart, over `depth` steps.
template <int Terms, class Sink>
TRACEA_NOINLINE void amx_block(int64_t rows, int64_t columns, int64_t depth, const bf16* a, int64_t a_pitch,
                               const bf16* b, int64_t b_pitch, const Sink& sink) {
    constexpr int64_t vectors = kAmxTile * kAmxTile / VecF::lanes;
    constexpr int64_t granule_lines = Terms * 2 * kTileElements * 2 / 64;
    if (rows <= 0 || columns <= 0) return;
    alignas(64) float sums[2][kAmxTile * kAmxTile];
    alignas(64) float apart[kAmxTile * kAmxTile];
    alignas(64) float unread[kTileRows * kTileColumns];
    const int64_t granules = (depth + kGranule - 1) / kGranule;
    if (granules == 0) {
        if (sink.accumulate && !sink.finish) return;
        memset(sums, 0, sizeof sums);
        for (int64_t i = 0; i < rows; i += kAmxTile) {
            for (int64_t j = 0; j < columns; j += kAmxTile)
                sink.part(sums[0], i, j, rows - i < kAmxTile ? rows - i : kAmxTile,
                          columns - j < kAmxTile ? columns - j : kAmxTile);
        }
        return;
    }
    if (granules <= kShallowGranules && sink.stores_sums()) {
        detail::shallow_block<Terms>(rows, columns, granules, a, a_pitch, b, b_pitch, sink);
        return;
    }
    const int64_t share = (vectors + granules - 1) / granules;
    const int64_t rows_share = (kAmxTile + granules - 1) / granules;
    const int64_t row_tiles = (rows + kAmxTile - 1) / kAmxTile;
    const int64_t lines_apart = (granule_lines + row_tiles - 1) / row_tiles;
    int current = 0;
    int64_t left = 0, left_row = 0,
            left_column = 0;  // vectors of the tile before that have not left yet, and its place

    TileRegisters tiles;
    for (int64_t j = 0; j < columns; j += kAmxTile, b += b_pitch) {
        const bf16* a_panel = a;
        const bf16* next_b = b + (j + kAmxTile < columns ? b_pitch : 0);
        for (int64_t i = 0; i < rows; i += kAmxTile, a_panel += a_pitch) {
            detail::clear_sums(tiles);
            if (rows - i <= kTileRows || columns - j <= kTileColumns) {
                detail::edge_tile<Terms>(tiles, a_panel, b, granules, rows - i, columns - j, i, j, sink);
                continue;
            }
            bool some_apart = false;
            const bf16* upcoming = next_b + i / kAmxTile * lines_apart * 32;
            for (int64_t g = 0; g < granules; ++g) {
                const bf16* a_granule = a_panel + g * granule_elements<Terms>;
                const bf16* b_granule = b + g * granule_elements<Terms>;
                // Lines are asked for one at a time: in bursts they would hold every line-fill buffer, which the tiles' loads need.
                const int64_t asked = i + g * rows_share;
                const int64_t asked_end = asked + rows_share < rows ? asked + rows_share : rows;
                const bf16* lines = upcoming + g * granule_elements<Terms>;
                const auto errand = [&](auto slot) TRACEA_LAMBDA {
                    if constexpr (slot % 2 == 0) {
                        prefetch_l2(lines + slot / 2 * 32);
                    } else if (asked + slot / 2 < asked_end) {
                        sink.ask(asked + slot / 2, j, sink.accumulate);
                    }
                };
                if (TRACEA_LIKELY(!is_unsafe<Terms>(a_granule) && !is_unsafe<Terms>(b_granule))) {
                    detail::multiply_granule<Terms>(tiles, a_granule, b_granule, errand);
                } else {
                    if (!some_apart) memset(apart, 0, sizeof apart);
                    some_apart = true;
                    detail::multiply_values<Terms>(a_granule, b_granule, apart);
                }
                if (g % awake_granules<Terms> == awake_granules<Terms> - 1) tiles.store<7>(unread, kTileColumns);
                if (left > 0) {
                    const int64_t count = left < share ? left : share;
                    sink.whole(sums[1 - current], left_row, left_column, vectors - left, count);
                    left -= count;
                }
            }
            float* done = sums[current];
            detail::take_sums(tiles, some_apart, apart, done);
            if (rows - i >= kAmxTile && columns - j >= kAmxTile) {
                left = vectors;
                left_row = i;
                left_column = j;
                current = 1 - current;
            } else {
                sink.part(done, i, j, rows - i < kAmxTile ? rows - i : kAmxTile,
                          columns - j < kAmxTile ? columns - j : kAmxTile);
            }
        }
    }
    if (left > 0) sink.whole(sums[1 - current], left_row, left_column, vectors - left, left);
}

TRACEA_END_NAMESPACE

#endif
