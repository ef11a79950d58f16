// The halo of a convolution as sums of bf16 terms (pack_terms.h): what matrix tiles read windows of in place.
//
// A halo is `rows` x `columns` pixels in blocks of 32 channels, the last one filled up with zeros. Windows move by `down` rows and `right` columns, so rows and
// columns are dealt to down * right phases, in each of which the pixels of neighbouring windows are neighbours. For each block, term and phase there is a plane
// of pixels, 64 bytes each, one row after the other: 16 pixels next to each other are a tile of A. Word w of a pixel is channel w / 2 + 16 * (w % 2).
//
// Behind the planes lies one mark for each block and pixel: not zero where a channel is neither zero nor within 2^-50 .. 2^60. Such a pixel keeps its 32
// floats in the places of its second and third term, and zeros in that of its first; of fewer terms, which hold narrow numbers, it keeps the terms.
#ifndef TRACEA_HALO_TERMS_H
#define TRACEA_HALO_TERMS_H

#include <stdint.h>
#include <string.h>

#include "tracea/amx.h"
#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/pack_terms.h"
#include "tracea/transpose.h"
#include "tracea/vec.h"

// A pixel's granule is two vectors of sixteen: with shorter ones the header is empty, and no variant asks for it.
#if !defined(TRACEA_ISA_AVX2) && !defined(TRACEA_ISA_NEON)

TRACEA_BEGIN_NAMESPACE

struct HaloShape {
    int64_t blocks;
    int64_t rows;     // a multiple of down
    int64_t columns;  // a multiple of right
    int64_t down;
    int64_t right;

    TRACEA_INLINE int64_t pitch() const { return columns / right; }        // pixels from a row of a phase to the next
    TRACEA_INLINE int64_t plane() const { return rows / down * pitch(); }  // pixels of a phase
    TRACEA_INLINE int64_t term() const { return rows * columns; }          // pixels of a term of a block
    TRACEA_INLINE int64_t pixel(int64_t row, int64_t column) const {
        return (row % down * right + column % right) * plane() + row / down * pitch() + column / right;
    }
};

// The taps of the windows: how many, and how far apart.
struct HaloTaps {
    int64_t rows;
    int64_t columns;
    int64_t gap_rows;
    int64_t gap_columns;
};

// Which of `step` phases some tap reads, as bits; all of them where there are more than bits.
TRACEA_INLINE uint64_t phases_read(int64_t taps, int64_t gap, int64_t step) {
    if (step > 64) return ~uint64_t{0};
    uint64_t read = 0;
    for (int64_t tap = 0; tap < taps; ++tap) read |= uint64_t{1} << (tap * gap % step);
    return read;
}

template <int Terms>
TRACEA_INLINE bf16* halo_marks(bf16* halo, const HaloShape& shape) {
    return halo + shape.blocks * Terms * shape.term() * kGranule;
}

namespace detail {

// Whether the terms of an element hold it.
TRACEA_INLINE bool has_terms(float x) {
    const uint32_t magnitude = bits_of(x) & 0x7fffffffU;
    return magnitude == 0 || (magnitude >= kSafeLow && magnitude <= kSafeHigh);
}

// The terms of one element, `term` elements apart.
template <int Terms>
TRACEA_INLINE void split_element(float x, bf16* target, int64_t term) {
    for (int t = 0; t < Terms; ++t) {
        const uint32_t near = bits_of(x) + 0x8000U;
        target[t * term].bits = static_cast<uint16_t>(near >> 16);
        x -= float_of(near & 0xffff0000U);
    }
}

#if defined(TRACEA_ISA_AVX512)
// The lanes that terms do not hold.
TRACEA_INLINE __mmask16 without_terms(VecF x) {
    const __m512i size = _mm512_and_si512(_mm512_castps_si512(x.reg), _mm512_set1_epi32(0x7fffffff));
    const __m512i above = _mm512_sub_epi32(size, _mm512_set1_epi32(static_cast<int>(kSafeLow)));
    return _mm512_mask_cmpgt_epu32_mask(_mm512_test_epi32_mask(size, size), above,
                                        _mm512_set1_epi32(static_cast<int>(kSafeHigh - kSafeLow)));
}

// The terms of 16 elements and of 16 others, interleaved: word 2i of a term is that of x[i], word 2i + 1 that of y[i].
template <int Terms>
TRACEA_INLINE void split_interleaved(VecF x, VecF y, bf16* target, int64_t term) {
    const __m512i half = _mm512_set1_epi32(0x8000);
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
    __m512 rest_x = x.reg, rest_y = y.reg;
    unroll<Terms>([&](auto t) TRACEA_LAMBDA {
        const __m512i near_x = _mm512_add_epi32(_mm512_castps_si512(rest_x), half);
        const __m512i near_y = _mm512_add_epi32(_mm512_castps_si512(rest_y), half);
        _mm512_storeu_si512(target + t * term,
                            _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(near_x, 16), near_y));
        rest_x = _mm512_sub_ps(rest_x, _mm512_castsi512_ps(_mm512_and_si512(near_x, upper)));
        rest_y = _mm512_sub_ps(rest_y, _mm512_castsi512_ps(_mm512_and_si512(near_y, upper)));
    });
}
#endif

// What is left of an f16 that is not finite is a NaN, and a NaN of all digits was rounded to zero: its first term is all of it.
TRACEA_NOINLINE inline void settle_pixel(VecF x, VecF y, bf16* target, int64_t term) {
    float all[2][kTileColumns];
    store(all[0], x);
    store(all[1], y);
    for (int i = 0; i < kTileWords; ++i) {
        const float value = all[i % 2][i / 2];
        if (__builtin_isfinite(value)) continue;
        target[i] = from_float<bf16>(value);
        target[term + i].bits = 0;
    }
}

// Splits one block of one pixel, channels 0 .. 15 in x and 16 .. 31 in y. The terms lie `term` elements apart.
template <int Terms>
TRACEA_INLINE void split_pixel(VecF x, VecF y, bf16* target, int64_t term, bf16* mark) {
    static_assert(VecF::lanes == kTileColumns, "a pixel is two vectors");
#if defined(TRACEA_ISA_AVX512)
    const bool held = (without_terms(x) | without_terms(y)) == 0;
    if (Terms < 3 || TRACEA_LIKELY(held)) split_interleaved<Terms>(x, y, target, term);
#else
    float all[2][kTileColumns];
    store(all[0], x);
    store(all[1], y);
    bool held = true;
    for (int i = 0; i < kTileWords; ++i) held = held && has_terms(all[i % 2][i / 2]);
    if (Terms < 3 || held) {
        for (int i = 0; i < kTileWords; ++i) split_element<Terms>(all[i % 2][i / 2], target + i, term);
    }
#endif
    if (TRACEA_LIKELY(held)) return;
    mark->bits = kUnsafeMark;
    if constexpr (Terms == 3) {
        memset(static_cast<void*>(target), 0, kTileWords * sizeof(bf16));
        store(reinterpret_cast<float*>(target + term), x);
        store(reinterpret_cast<float*>(target + 2 * term), y);
    } else if constexpr (Terms == 2) {
        settle_pixel(x, y, target, term);
    }
}

// The values of 32 pixels of one block: pixel i, channel k at 32 * i + k.
template <int Terms>
TRACEA_NOINLINE inline void pixel_values(const bf16* pixels, int64_t term, const bf16* marks, float* values) {
    for (int i = 0; i < kGranule; ++i, pixels += kTileWords) {
        float* row = values + i * kGranule;
        if (Terms == 3 && marks[i].bits != 0) {
            memcpy(row, pixels + term, 64);
            memcpy(row + kTileColumns, pixels + 2 * term, 64);
            continue;
        }
        for (int k = 0; k < kGranule; ++k) {
            const bf16* word = pixels + 2 * (k % kTileColumns) + k / kTileColumns;
            float x = 0.0F;
            for (int t = Terms - 1; t >= 0; --t) x += to_float(word[t * term]);
            row[k] = x;
        }
    }
}

// Pixels 0 .. columns of x, `step` elements apart, to pixels 0 .. columns of a plane; Whole: of 32 channels.
template <int Terms, bool Whole, class Storage>
TRACEA_INLINE void split_run(const Storage* x, int64_t step, int64_t columns, int64_t channels, bf16* target,
                             bf16* marks, int64_t term) {
    const int64_t low = channels < kTileColumns ? channels : kTileColumns;
    for (int64_t j = 0; j < columns; ++j, x += step, target += kGranule) {
        if constexpr (Whole) {
            split_pixel<Terms>(load<VecF>(x), load<VecF>(x + kTileColumns), target, term, marks + j);
        } else {
            const VecF high = channels > low ? load_partial<VecF>(x + kTileColumns, channels - low) : zero<VecF>();
            split_pixel<Terms>(load_partial<VecF>(x, low), high, target, term, marks + j);
        }
    }
}

// Channels first .. first + 32 of one row of an image: pixels 0 .. columns of x to pixels column .. column + columns of the halo's row.
template <int Terms, class Storage>
TRACEA_INLINE void split_row(const Storage* x, const ImageStrides& strides, int64_t columns, int64_t channels,
                             bf16* target, bf16* marks, const HaloShape& shape, int64_t column, uint64_t read) {
    const int64_t term = shape.term() * kGranule;
    const int64_t plane = shape.plane();
    const int64_t right = shape.right;
    const int64_t low = channels < kTileColumns ? channels : kTileColumns;
    const int64_t high = channels - low;
    if (strides.channel == 1 && right == 1) {
        target += column * kGranule;
        marks += column;
        if (channels == kGranule) {
            split_run<Terms, true>(x, strides.column, columns, channels, target, marks, term);
        } else {
            split_run<Terms, false>(x, strides.column, columns, channels, target, marks, term);
        }
        return;
    }
    int64_t phase = column % right, position = column / right;
    // Takes the next pixel from `vectors`, unless no tap reads its phase.
    const auto put = [&](const auto& vectors) TRACEA_LAMBDA {
        if ((read >> (phase & 63) & 1) != 0) {
            const int64_t place = phase * plane + position;
            VecF a, b;
            vectors(a, b);
            split_pixel<Terms>(a, b, target + place * kGranule, term, marks + place);
        }
        if (++phase == right) {
            phase = 0;
            ++position;
        }
    };
    if (strides.column == 1 && strides.channel != 1) {
        for (int64_t j = 0; j < columns; j += kTileColumns) {
            const int64_t n = columns - j < kTileColumns ? columns - j : kTileColumns;
            VecF first[kTileColumns], second[kTileColumns];
            const Storage* line = x + j;
            for (int i = 0; i < kTileColumns; ++i) {
                first[i] = i < low ? load_partial<VecF>(line + i * strides.channel, n) : zero<VecF>();
                second[i] =
                    i < high ? load_partial<VecF>(line + (i + kTileColumns) * strides.channel, n) : zero<VecF>();
            }
            transpose(first);
            transpose(second);
            for (int i = 0; i < n; ++i) {
                put([&](VecF& a, VecF& b) TRACEA_LAMBDA {
                    a = first[i];
                    b = second[i];
                });
            }
        }
    } else if (strides.channel == 1) {
        for (int64_t j = 0; j < columns; ++j, x += strides.column) {
            put([&](VecF& a, VecF& b) TRACEA_LAMBDA {
                a = load_partial<VecF>(x, low);
                b = high > 0 ? load_partial<VecF>(x + kTileColumns, high) : zero<VecF>();
            });
        }
    } else {
        for (int64_t j = 0; j < columns; ++j, x += strides.column) {
            const int64_t step = strides.channel;
            put([&](VecF& a, VecF& b) TRACEA_LAMBDA {
                a = load_strided<VecF>(x, step, low);
                b = high > 0 ? load_strided<VecF>(x + kTileColumns * step, step, high) : zero<VecF>();
            });
        }
    }
}

}  // namespace detail

// Rows top .. top + rows and columns left .. left + columns of an image of height x width, with zeros where it has none. `x` is its first element. What no
// tap reads, every second row for taps of one pixel that move by two, stays as it is.
template <int Terms, class Storage>
TRACEA_NOINLINE void split_halo(const Storage* x, ImageStrides strides, int64_t height, int64_t width, int64_t top,
                                int64_t left, int64_t rows, int64_t columns, int64_t channels, bf16* halo,
                                const HaloShape& shape, const HaloTaps& taps) {
    const int64_t before = left < 0 ? (-left < columns ? -left : columns) : 0;
    const int64_t end = width - left < columns ? width - left : columns;
    int64_t inside = end > before ? end - before : 0;
    if (inside == columns && shape.columns == columns && strides.row == columns * strides.column && shape.down == 1 &&
        shape.right == 1 && top >= 0 && top + rows <= height) {
        // Rows that follow each other here and there are one.
        x += top * strides.row + left * strides.column;
        inside = columns *= rows;
        height = rows = 1;
        top = left = 0;
    }
    const int64_t term = shape.term() * kGranule;
    const uint64_t read_rows = phases_read(taps.rows, taps.gap_rows, shape.down);
    const uint64_t read_columns = phases_read(taps.columns, taps.gap_columns, shape.right);
    bf16* marks = halo_marks<Terms>(halo, shape);
    memset(static_cast<void*>(marks), 0, shape.blocks * shape.term() * sizeof(bf16));
    for (int64_t block = 0; block < shape.blocks; ++block, halo += Terms * term, marks += shape.term()) {
        const int64_t lanes = channels - block * kGranule < kGranule ? channels - block * kGranule : kGranule;
        const auto clear = [&](int64_t row, int64_t first, int64_t count) TRACEA_LAMBDA {
            if (shape.right == 1) {
                for (int t = 0; t < Terms; ++t)
                    memset(static_cast<void*>(halo + t * term + shape.pixel(row, first) * kGranule), 0,
                           count * kGranule * sizeof(bf16));
                return;
            }
            for (int64_t j = first; j < first + count; ++j) {
                for (int t = 0; t < Terms; ++t)
                    memset(static_cast<void*>(halo + t * term + shape.pixel(row, j) * kGranule), 0,
                           kGranule * sizeof(bf16));
            }
        };
        for (int64_t i = 0; i < rows; ++i) {
            if ((read_rows >> (i % shape.down & 63) & 1) == 0) continue;
            if (top + i < 0 || top + i >= height || inside == 0) {
                clear(i, 0, columns);
                continue;
            }
            clear(i, 0, before);
            const int64_t place = shape.pixel(i, 0);
            detail::split_row<Terms>(
                x + block * kGranule * strides.channel + (top + i) * strides.row + (left + before) * strides.column,
                strides, inside, lanes, halo + place * kGranule, marks + place, shape, before, read_columns);
            clear(i, before + inside, columns - before - inside);
        }
    }
}

TRACEA_END_NAMESPACE

#endif

#endif
