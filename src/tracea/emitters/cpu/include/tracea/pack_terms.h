// Packing of GEMM operands into panels of granules of bf16 terms (split_terms.h), for the matrix tiles of amx.h.
//
// A panel is 32 rows of A, or 32 columns of B, one granule of 32 steps after the other: that of p granules begins at panels + panel * p *
// granule_elements<Terms>. Missing rows, columns and steps are zero.
#ifndef TRACEA_PACK_TERMS_H
#define TRACEA_PACK_TERMS_H

#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "tracea/amx.h"
#include "tracea/config.h"
#include "tracea/pack.h"
#include "tracea/split_terms.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

TRACEA_NOINLINE inline void keep_values(const float* values, int64_t row_stride, bf16* granule) {
    memset(static_cast<void*>(granule), 0, 2 * kTileElements * sizeof(bf16));
    granule->bits = kUnsafeMark;
    float* kept = reinterpret_cast<float*>(granule + 2 * kTileElements);
    for (int i = 0; i < kGranule; ++i) memcpy(kept + i * kGranule, values + i * row_stride, kGranule * sizeof(float));
}

// The word of element `lane` of row `row` in a granule of 32 rows of 32 lanes.
template <bool DepthIsRows>
constexpr int word_of(int row, int lane) {
    return DepthIsRows ? lane / 16 * kTileElements + row % 16 * kTileWords + 2 * (lane % 16) + row / 16
                       : row / 16 * kTileElements + row % 16 * kTileWords + 2 * (lane % 16) + lane / 16;
}

// The same of narrow numbers, which their terms hold, but for what is left of an f16 that is not finite: that is a NaN, and a NaN of all digits was rounded to
// zero. A bf16 is its word.
template <int Terms, bool DepthIsRows>
TRACEA_NOINLINE void mark_unsafe(const float* values, int64_t row_stride, bf16* granule) {
    granule[Terms * 2 * kTileElements].bits = kUnsafeMark;
    if constexpr (Terms == 2) {
        for (int row = 0; row < kGranule; ++row) {
            for (int lane = 0; lane < kGranule; ++lane) {
                const float x = values[row * row_stride + lane];
                if (__builtin_isfinite(x)) continue;
                granule[word_of<DepthIsRows>(row, lane)] = from_float<bf16>(x);
                granule[2 * kTileElements + word_of<DepthIsRows>(row, lane)].bits = 0;
            }
        }
    }
}

// What a granule says of itself once its terms are there.
template <int Terms, bool DepthIsRows>
TRACEA_INLINE void settle_granule(bool is_safe, const float* values, int64_t row_stride, bf16* granule) {
    if constexpr (Terms < 3) granule[Terms * 2 * kTileElements].bits = 0;
    if (TRACEA_LIKELY(is_safe)) return;
    if constexpr (Terms < 3) {
        mark_unsafe<Terms, DepthIsRows>(values, row_stride, granule);
    } else {
        keep_values(values, row_stride, granule);
    }
}

// Copies what there is of 32 rows of 32 lanes, of any strides and storage, into floats; the rest is zero.
template <class Storage>
TRACEA_NOINLINE void stage(const Storage* source, int64_t row_stride, int64_t lane_stride, int64_t rows, int64_t lanes,
                           float* values) {
    if (lane_stride == 1) {
        pack_straight<float, kGranule>(source, row_stride, lanes, rows, values);
    } else if (row_stride == 1) {
        pack_transposed<float, kGranule>(source, lane_stride, lanes, rows, values);
    } else {
        pack_generic<float, kGranule>(source, lane_stride, row_stride, lanes, rows, values);
    }
    memset(values + rows * kGranule, 0, (kGranule - rows) * kGranule * sizeof(float));
}

template <int Terms, bool DepthIsRows, class Storage>
TRACEA_INLINE void pack_granule(const Storage* source, int64_t row_stride, int64_t lane_stride, int64_t rows,
                                int64_t lanes, bf16* granule, const Storage* ahead) {
    if constexpr (std::is_same_v<Storage, float>) {
        if (TRACEA_LIKELY(lane_stride == 1 && rows == kGranule && lanes == kGranule)) {
            const bool is_safe = split_granule<Terms, DepthIsRows>(source, row_stride, granule, ahead);
            settle_granule<Terms, DepthIsRows>(is_safe, source, row_stride, granule);
            return;
        }
    }
    alignas(64) float staged[kGranule * kGranule];
#if defined(TRACEA_ISA_AVX512)
    if constexpr (std::is_same_v<Storage, bf16>) {
        static_assert(Terms != 2, "one term holds a bf16, and settling two reads what is staged");
        if (TRACEA_LIKELY((lane_stride == 1 || row_stride == 1) && rows == kGranule && lanes == kGranule)) {
            const bool is_safe = lane_stride == 1
                                     ? split_granule<Terms, DepthIsRows>(source, row_stride, granule, ahead)
                                     : turn_granule<Terms, DepthIsRows>(source, lane_stride, granule, ahead);
            if (Terms == 3 && TRACEA_UNLIKELY(!is_safe)) stage(source, row_stride, lane_stride, rows, lanes, staged);
            settle_granule<Terms, DepthIsRows>(is_safe, staged, kGranule, granule);
            return;
        }
    }
#endif
    if (row_stride == 1) {  // what comes next, from the second-level cache at best: a line or two of each lane
        constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(Storage));
        for (int64_t lane = 0; lane < lanes; ++lane)
            for (int64_t i = 0; i < rows; i += line) prefetch_l1(ahead + lane * lane_stride + i);
    }
    stage(source, row_stride, lane_stride, rows, lanes, staged);
    const bool is_safe = split_granule<Terms, DepthIsRows>(staged, kGranule, granule, staged);
    settle_granule<Terms, DepthIsRows>(is_safe, staged, kGranule, granule);
}

}  // namespace detail

// rows x k of A into ceil(rows / 32) panels of `depth` steps, a multiple of 32.
template <int Terms, class Storage>
TRACEA_NOINLINE void pack_a_terms(const Storage* a, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t k,
                                  int64_t depth, bf16* panels) {
    for (int64_t i = 0; i < rows; i += kGranule) {
        const int64_t height = rows - i < kGranule ? rows - i : kGranule;
        bf16* granule = panels + i / kGranule * (depth / kGranule) * granule_elements<Terms>;
        const Storage* source = a + i * row_stride;
        for (int64_t step = 0; step < k; step += kGranule) {
            const int64_t steps = k - step < kGranule ? k - step : kGranule;
            const int64_t next = step + kGranule < k ? step + kGranule : 0;
            detail::pack_granule<Terms, false>(source + step * k_stride, row_stride, k_stride, height, steps, granule,
                                               source + next * k_stride);
            granule += granule_elements<Terms>;
        }
    }
}

// k x columns of B into ceil(columns / 32) panels of `depth` steps, a multiple of 32: granules in the order in which reads run along rows, or along columns.
template <int Terms, class Storage>
TRACEA_NOINLINE void pack_b_terms(const Storage* b, int64_t k_stride, int64_t column_stride, int64_t k, int64_t columns,
                                  int64_t depth, bf16* panels) {
    const bool along_columns = k_stride == 1;
    const int64_t outer_end = along_columns ? columns : k;
    const int64_t inner_end = along_columns ? k : columns;
    for (int64_t outer = 0; outer < outer_end; outer += kGranule) {
        for (int64_t inner = 0; inner < inner_end; inner += kGranule) {
            const int64_t step = along_columns ? inner : outer;
            const int64_t j = along_columns ? outer : inner;
            const int64_t steps = k - step < kGranule ? k - step : kGranule;
            const int64_t width = columns - j < kGranule ? columns - j : kGranule;
            const Storage* source = b + step * k_stride + j * column_stride;
            // The next granule, or the first of the next line of them: past the last one a prefetch does not fault.
            const Storage* ahead = inner + kGranule < inner_end
                                       ? source + kGranule * (along_columns ? k_stride : column_stride)
                                       : b + (outer + kGranule) * (along_columns ? column_stride : k_stride);
            bf16* granule = panels + (j / kGranule * (depth / kGranule) + step / kGranule) * granule_elements<Terms>;
            detail::pack_granule<Terms, true>(source, k_stride, column_stride, steps, width, granule, ahead);
        }
    }
}

TRACEA_END_NAMESPACE

#endif
