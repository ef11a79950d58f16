// The halo of a convolution of few channels whose pixels overlap: windows next to each other share most of a row of taps, and it lies here once.
//
// Pixel (i, j) is what the window of one row by `run` floats holds that begins at row i and float j * step of `x`. It begins `step` elements behind pixel
// (i, j - 1), in planes of phases and terms as in halo_terms.h, and is the 64 bytes from there on: its run in order, and behind it what the next pixels hold,
// which meets filters of zeros. So word w of a pixel is element w, and filters are packed in order too (pack_windows.h). A tile of A is 16 rows of 64 bytes,
// `step` elements apart. Each element is split once; a halo of windows that do not share (halo_windows.h) splits one of 7 taps that move by two 3.5 times.
//
// A mark is of `step` elements. Where it is not zero, they are not terms: the first term has the upper halves of the floats, the second the lower ones.
#ifndef TRACEA_HALO_OVERLAP_H
#define TRACEA_HALO_OVERLAP_H

#include <stdint.h>
#include <string.h>

#include "tracea/config.h"
#include "tracea/halo_terms.h"
#include "tracea/vec.h"

// A granule is two vectors of sixteen: with shorter ones the header is empty, and no variant asks for it.
#if !defined(TRACEA_ISA_AVX2) && !defined(TRACEA_ISA_NEON)

TRACEA_BEGIN_NAMESPACE

namespace detail {

// Splits elements 0 .. count of x in order, and whole granules of zeros behind them; false where one of them has no terms.
template <int Terms>
TRACEA_INLINE bool split_in_order(const float* x, int64_t count, bf16* target, int64_t term) {
#if defined(TRACEA_ISA_AVX512)
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    uint32_t unsafe = 0;
    for (int64_t i = 0; i < count; i += kGranule) {
        const __m512 first = load_partial<VecF>(x + i, count - i < VecF::lanes ? count - i : VecF::lanes).reg;
        const int64_t left = count - i - VecF::lanes;
        const __m512 second = left > 0
                                  ? load_partial<VecF>(x + i + VecF::lanes, left < VecF::lanes ? left : VecF::lanes).reg
                                  : _mm512_setzero_ps();
        const VecF x_even{_mm512_permutex2var_ps(first, even, second)};
        const VecF x_odd{_mm512_permutex2var_ps(first, odd, second)};
        unsafe |= static_cast<uint32_t>(without_terms(x_even) | without_terms(x_odd));
        split_interleaved<Terms>(x_even, x_odd, target + i, term);
    }
    return unsafe == 0;
#else
    for (int64_t i = 0; i < count; ++i) {
        if (!has_terms(x[i])) return false;
    }
    for (int64_t i = 0; i < (count + kGranule - 1) / kGranule * kGranule; ++i)
        split_element<Terms>(i < count ? x[i] : 0.0F, target + i, term);
    return true;
#endif
}

// The same for a row in which some elements have no terms: groups of `step` elements with one of those are marked, and keep halves of floats.
template <int Terms>
TRACEA_NOINLINE void split_marked(const float* x, int64_t count, int64_t step, int64_t groups, bf16* target,
                                  int64_t term, bf16* marks) {
    static_assert(Terms >= 2, "halves need two places");
    for (int64_t group = 0; group < groups; ++group) {
        const auto at = [&](int64_t i) TRACEA_LAMBDA { return group * step + i < count ? x[group * step + i] : 0.0F; };
        bool safe = true;
        for (int64_t i = 0; i < step; ++i) safe = safe && has_terms(at(i));
        marks[group].bits = safe ? 0 : kUnsafeMark;
        for (int64_t i = 0; i < step; ++i, ++target) {
            const float value = at(i);
            if (safe) {
                split_element<Terms>(value, target, term);
                continue;
            }
            for (int t = 2; t < Terms; ++t) target[t * term].bits = 0;
            target[0].bits = static_cast<uint16_t>(bits_of(value) >> 16);
            target[term].bits = static_cast<uint16_t>(bits_of(value));
        }
    }
}

}  // namespace detail

// The values of 32 pixels: pixel i, step k of a granule's B at 32 * i + k, so that elements 2p and 2p + 1 are p and p + 16 (pack_terms.h).
template <int Terms>
TRACEA_NOINLINE void overlapping_values(const bf16* pixels, int64_t term, int64_t step, int64_t lanes,
                                        const bf16* marks, float* values) {
    memset(values, 0, kGranule * kGranule * sizeof(float));
    for (int i = 0; i < kGranule; ++i, pixels += step, ++marks) {
        for (int64_t k = 0; k < lanes; ++k) {
            float x = 0.0F;
            if (marks[k / step].bits != 0) {
                x = float_of(static_cast<uint32_t>(pixels[k].bits) << 16 | pixels[term + k].bits);
            } else {
                for (int t = Terms - 1; t >= 0; --t) x += to_float(pixels[t * term + k]);
            }
            values[i * kGranule + step_in_order(k)] = x;
        }
    }
}

// rows x columns pixels of the halo, and zeros behind the last row of each phase, which its last pixels end with. What no tap reads stays as it is.
template <int Terms>
TRACEA_NOINLINE void split_overlapping(const float* x, int64_t row_pitch, int64_t run, int64_t rows, int64_t columns,
                                       bf16* halo, const HaloShape& shape, const HaloTaps& taps) {
    const int64_t term = shape.term() * shape.step, pitch = shape.pitch(), step = shape.step;
    const int64_t count = (columns - 1) * step + run;
    const uint64_t read_rows = phases_read(taps.rows, taps.gap_rows, shape.down);
    bf16* marks = halo_marks<Terms>(halo, shape);
    memset(static_cast<void*>(marks), 0, (shape.term() + 2 * kGranule) * sizeof(bf16));
    // What lies behind the last granule of a row: the row's end, and in the last one the zeros.
    const auto clear = [&](int64_t place, int64_t first, int64_t end) TRACEA_LAMBDA {
        for (int t = 0; t < Terms && first < end; ++t)
            memset(static_cast<void*>(halo + t * term + place * step + first), 0, (end - first) * sizeof(bf16));
    };
    for (int64_t i = 0; i < rows; ++i) {
        if ((read_rows >> (i % shape.down & 63) & 1) == 0) continue;
        const float* row = x + i * row_pitch;
        const int64_t place = shape.pixel(i, 0);
        const bool last = i + shape.down >= rows;
        clear(place, count, pitch * step + (last ? kGranule : 0));
        if (TRACEA_UNLIKELY((!detail::split_in_order<Terms>(row, count, halo + place * step, term)))) {
            detail::split_marked<Terms>(row, count, step, pitch, halo + place * step, term, marks + place);
        }
    }
}

TRACEA_END_NAMESPACE

#endif

#endif
