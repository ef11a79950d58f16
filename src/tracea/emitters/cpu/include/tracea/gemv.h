// Products with few rows of A, where B is read once and its bandwidth is the limit.
//
//   gemv_columns   C = A B, B with unit column stride: whole rows of B stream through, sums of all columns stay in the near caches
//   dot_tile       C = A B^T form, B with unit reduction stride (a transposed weight): rows of A against rows of B, vectors along the reduction
// Both leave plain sums; layouts, storage types and epilogues of C are gemm_store.h's. Skinny products of 4 rows and more run GemmTile on panels.
#ifndef TRACEA_GEMV_H
#define TRACEA_GEMV_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// sums[i][j] (+)= sum over Steps rows of B; A's elements are broadcast once per call and held in registers.
template <class T, int Rows, int Steps, class StorageA, class StorageB>
TRACEA_INLINE void gemv_columns_block(int64_t columns, const StorageA* a, int64_t a_row, int64_t a_col,
                                      const StorageB* b, int64_t b_row, T* sums, int64_t sums_stride, bool accumulate,
                                      int64_t prefetch) {
    using V = Vec<T>;
    V weight[Rows][Steps];
    unroll<Rows>([&](auto i) TRACEA_LAMBDA {
        unroll<Steps>([&](auto s) TRACEA_LAMBDA { weight[i][s] = load_broadcast<V>(a + i * a_row + s * a_col); });
    });
    const auto vector = [&](int64_t j, int64_t n) TRACEA_LAMBDA {
        V acc[Rows];
        unroll<Rows>([&](auto i) TRACEA_LAMBDA {
            acc[i] = accumulate ? load_partial<V>(sums + i * sums_stride + j, n) : zero<V>();
        });
        unroll<Steps>([&](auto s) TRACEA_LAMBDA {
            const StorageB* p = b + s * b_row + j;
            if (prefetch != 0) prefetch_l1(p + prefetch);
            const V x = load_partial<V>(p, n);
            unroll<Rows>([&](auto i) TRACEA_LAMBDA { acc[i] = fma(weight[i][s], x, acc[i]); });
        });
        unroll<Rows>([&](auto i) TRACEA_LAMBDA { store_partial(sums + i * sums_stride + j, acc[i], n); });
    };
    int64_t j = 0;
    for (; j + V::lanes <= columns; j += V::lanes) vector(j, V::lanes);
    if (j < columns) vector(j, columns - j);
}

}  // namespace detail

// sums[i][j] = sum_k a[i][k] b[k][j] for `Rows` rows and `columns` columns; `Steps` rows of B are read side by side. Prefetch is a distance in elements
// along those rows (0: the hardware alone). Keep columns * Rows * sizeof(T) within the first-level cache: split the columns, not the reduction.
template <class T, int Rows, int Steps, class StorageA, class StorageB>
TRACEA_NOINLINE void gemv_columns(int64_t columns, int64_t k, const StorageA* a, int64_t a_row, int64_t a_col,
                                  const StorageB* b, int64_t b_row, T* sums, int64_t sums_stride, bool accumulate,
                                  int64_t prefetch) {
    int64_t step = 0;
    for (; step + Steps <= k; step += Steps) {
        detail::gemv_columns_block<T, Rows, Steps>(columns, a + step * a_col, a_row, a_col, b + step * b_row, b_row,
                                                   sums, sums_stride, accumulate || step > 0, prefetch);
    }
    for (; step < k; ++step) {
        detail::gemv_columns_block<T, Rows, 1>(columns, a + step * a_col, a_row, a_col, b + step * b_row, b_row, sums,
                                               sums_stride, accumulate || step > 0, prefetch);
    }
}

// sums[i * sums_row + j * sums_column] = sum_k a[i * a_row + k] b[j * b_row + k] for i < Rows, j < Columns: Rows * Columns accumulators along the reduction.
// Prefetch is a distance in elements along the operand that has more rows in the tile, which is read from memory; the other one stays in a cache.
template <class T, int Rows, int Columns, class StorageA, class StorageB>
TRACEA_NOINLINE void dot_tile(int64_t k, const StorageA* a, int64_t a_row, const StorageB* b, int64_t b_row, T* sums,
                              int64_t sums_row, bool accumulate, int64_t prefetch, int64_t sums_column = 1) {
    using V = Vec<T>;
    constexpr bool along_a = Rows > Columns;
    V acc[Rows][Columns];
    unroll<Rows>([&](auto i) TRACEA_LAMBDA { unroll<Columns>([&](auto j) TRACEA_LAMBDA { acc[i][j] = zero<V>(); }); });
    const auto step = [&](int64_t x, int64_t n) TRACEA_LAMBDA {
        V left[Rows];
        unroll<Rows>([&](auto i) TRACEA_LAMBDA {
            const StorageA* p = a + i * a_row + x;
            if (along_a && prefetch != 0) prefetch_l1(p + prefetch);
            left[i] = load_partial<V>(p, n);
        });
        unroll<Columns>([&](auto j) TRACEA_LAMBDA {
            const StorageB* p = b + j * b_row + x;
            if (!along_a && prefetch != 0) prefetch_l1(p + prefetch);
            const V right = load_partial<V>(p, n);
            unroll<Rows>([&](auto i) TRACEA_LAMBDA { fma_into(acc[i][j], left[i], right); });
        });
    };
    int64_t x = 0;
    for (; x + V::lanes <= k; x += V::lanes) step(x, V::lanes);
    if (x < k) step(x, k - x);
    unroll<Rows>([&](auto i) TRACEA_LAMBDA {
        unroll<Columns>([&](auto j) TRACEA_LAMBDA {
            T* p = sums + i * sums_row + j * sums_column;
            *p = accumulate ? *p + reduce_add(acc[i][j]) : reduce_add(acc[i][j]);
        });
    });
}

TRACEA_END_NAMESPACE

#endif
