// Packing of GEMM operands into panels, from any strides and storage, into the arithmetic type.
//
//   pack_a<T, MR>   rows x k   -> ceil(rows / MR) panels, element (i, k) of panel p at panel[p * MR * k_panel + k * MR + i]
//   pack_b<T, NR>   k x columns -> ceil(columns / NR) panels, element (k, j) of panel p at panel[p * NR * k_panel + k * NR + j]
// Missing rows or columns of the last panel are zero. k_panel, the allocated length of a panel, is at least k.
#ifndef TRACEA_PACK_H
#define TRACEA_PACK_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/transpose.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// Whether lanes past a panel's width are written too, in order, where the next step overwrites them: a masked store of AVX2 takes some twelve cycles on
// Zen processors (benchmarks/NOTES.md).
#if defined(TRACEA_ISA_AVX2)
constexpr bool overlapping_stores = true;
#else
constexpr bool overlapping_stores = false;
#endif

// One panel of `height` valid lines, each `width` long, where element (line, x) lies at source[line * line_stride + x]: lines become lanes.
template <class T, int Panel, class Storage>
TRACEA_INLINE void pack_transposed(const Storage* source, int64_t line_stride, int64_t height, int64_t width,
                                   T* panel) {
    using V = Vec<T>;
    constexpr int L = V::lanes;
    for (int64_t x = 0; x < width; x += L) {
        const int64_t n = width - x < L ? width - x : L;
        for (int first = 0; first < Panel; first += L) {
            V block[L];
            const int64_t lines = height - first < L ? height - first : L;
            const Storage* line = source + first * line_stride + x;
            if (n == L && lines == L) {
                for (int i = 0; i < L; ++i) block[i] = load<V>(line + i * line_stride);
            } else {
                for (int i = 0; i < L; ++i)
                    block[i] = i < lines ? load_partial<V>(line + i * line_stride, n) : zero<V>();
            }
            transpose(block);
            T* target = panel + x * Panel + first;
            if constexpr (Panel % L == 0) {
                for (int i = 0; i < L && i < n; ++i) store(target + i * Panel, block[i]);
            } else if (overlapping_stores && Panel < L && (width - x - L) * Panel >= L) {
                for (int i = 0; i < L; ++i) store(target + i * Panel, block[i]);
            } else {
                const int64_t keep = Panel - first < L ? Panel - first : L;
                for (int i = 0; i < L && i < n; ++i) store_partial(target + i * Panel, block[i], keep);
            }
        }
    }
}

// One panel whose lanes are contiguous in the source: element (k, i) at source[k * k_stride + i].
template <class T, int Panel, class Storage>
TRACEA_INLINE void pack_straight(const Storage* source, int64_t k_stride, int64_t lanes_valid, int64_t k, T* panel) {
    using V = Vec<T>;
    constexpr int L = V::lanes;
    constexpr int vectors = (Panel + L - 1) / L;
    Mask<V> read[vectors];
    Mask<V> write[vectors];
    for (int v = 0; v < vectors; ++v) {
        read[v] = lane_mask<V>(lanes_valid - v * L);
        write[v] = lane_mask<V>(Panel - v * L);
    }
    int64_t step = 0;
    if constexpr (overlapping_stores) {
        for (; (k - step) * Panel >= vectors * L; ++step, source += k_stride, panel += Panel) {
            for (int v = 0; v < vectors; ++v) store(panel + v * L, load_masked<V>(source + v * L, read[v]));
        }
    }
    for (; step < k; ++step, source += k_stride, panel += Panel) {
        for (int v = 0; v < vectors; ++v)
            store_masked(panel + v * L, load_masked<V>(source + v * L, read[v]), write[v]);
    }
}

// A panel of one lane: a line as it is.
template <class T, class Storage>
TRACEA_INLINE void pack_line(const Storage* source, int64_t k_stride, int64_t k, T* panel) {
    using V = Vec<T>;
    for (int64_t step = 0; step < k; step += V::lanes) {
        const int64_t n = k - step < V::lanes ? k - step : V::lanes;
        const Storage* first = source + step * k_stride;
        store_partial(panel + step, k_stride == 1 ? load_partial<V>(first, n) : load_strided<V>(first, k_stride, n), n);
    }
}

template <class T, int Panel, class Storage>
TRACEA_INLINE void pack_generic(const Storage* source, int64_t lane_stride, int64_t k_stride, int64_t lanes_valid,
                                int64_t k, T* panel) {
    for (int64_t step = 0; step < k; ++step) {
        for (int i = 0; i < Panel; ++i)
            panel[step * Panel + i] =
                i < lanes_valid ? static_cast<T>(to_float(source[i * lane_stride + step * k_stride])) : T(0);
    }
}

}  // namespace detail

template <class T, int MR, class Storage>
TRACEA_NOINLINE void pack_a(const Storage* a, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t k,
                            int64_t k_panel, T* panels) {
    for (int64_t i = 0; i < rows; i += MR, panels += MR * k_panel, a += MR * row_stride) {
        const int64_t valid = rows - i < MR ? rows - i : MR;
        if (k_stride == 1) {
            detail::pack_transposed<T, MR>(a, row_stride, valid, k, panels);
        } else if (row_stride == 1) {
            detail::pack_straight<T, MR>(a, k_stride, valid, k, panels);
        } else {
            detail::pack_generic<T, MR>(a, row_stride, k_stride, valid, k, panels);
        }
    }
}

// PrefetchRows: how many rows of B ahead of the row being read; Group: how many panels one sweep over the rows fills, so that reads run along rows.
template <class T, int NR, int PrefetchRows = 6, int Group = 8, class Storage>
TRACEA_NOINLINE void pack_b(const Storage* b, int64_t k_stride, int64_t column_stride, int64_t k, int64_t columns,
                            int64_t k_panel, T* panels) {
    using V = Vec<T>;
    constexpr int L = V::lanes;
    constexpr int line = 64 / static_cast<int>(sizeof(Storage));
    if (column_stride != 1 || NR % L != 0) {
        for (int64_t j = 0; j < columns; j += NR, panels += NR * k_panel, b += NR * column_stride) {
            const int64_t valid = columns - j < NR ? columns - j : NR;
            if constexpr (NR == 1) {
                detail::pack_line(b, k_stride, k, panels);
            } else if (column_stride == 1) {
                detail::pack_straight<T, NR>(b, k_stride, valid, k, panels);
            } else if (k_stride == 1) {
                detail::pack_transposed<T, NR>(b, column_stride, valid, k, panels);
            } else {
                detail::pack_generic<T, NR>(b, column_stride, k_stride, valid, k, panels);
            }
        }
        return;
    }
    for (int64_t j = 0; j < columns; j += Group * NR) {
        const int64_t width = columns - j < Group * NR ? columns - j : Group * NR;
        const int64_t whole = width / NR;
        const int64_t rest = width - whole * NR;
        for (int64_t step = 0; step < k; ++step) {
            const Storage* row = b + step * k_stride + j;
            T* target = panels + j * k_panel + step * NR;
            if constexpr (PrefetchRows > 0) {
                for (int64_t x = 0; x < width; x += line) prefetch_l1(row + PrefetchRows * k_stride + x);
            }
            for (int64_t p = 0; p < whole; ++p, row += NR, target += NR * k_panel) {
                for (int v = 0; v < NR / L; ++v) store(target + v * L, load<V>(row + v * L));
            }
            if (rest > 0) {
                for (int v = 0; v < NR / L; ++v) store(target + v * L, load_partial<V>(row + v * L, rest - v * L));
            }
        }
    }
}

TRACEA_END_NAMESPACE

#endif
