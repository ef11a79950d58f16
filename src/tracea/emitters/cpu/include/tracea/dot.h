// A block of dot products with any number of valid rows and columns: the full tile of gemv.h, and what is left in single rows and columns.
#ifndef TRACEA_DOT_H
#define TRACEA_DOT_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/gemv.h"

TRACEA_BEGIN_NAMESPACE

// sums[i * sums_stride + j] (+)= sum_k a[i * a_row + k] b[j * b_row + k] for i < rows <= Rows, j < columns <= Columns.
template <class T, int Rows, int Columns, class StorageA, class StorageB>
TRACEA_INLINE void dot_block(int64_t rows, int64_t columns, int64_t k, const StorageA* a, int64_t a_row,
                             const StorageB* b, int64_t b_row, T* sums, int64_t sums_stride, bool accumulate,
                             int64_t prefetch) {
    if (TRACEA_LIKELY(rows == Rows && columns == Columns)) {
        dot_tile<T, Rows, Columns>(k, a, a_row, b, b_row, sums, sums_stride, accumulate, prefetch);
        return;
    }
    for (int64_t i = 0; i < rows; ++i) {
        if (columns == Columns) {
            dot_tile<T, 1, Columns>(k, a + i * a_row, a_row, b, b_row, sums + i * sums_stride, sums_stride, accumulate,
                                    prefetch);
            continue;
        }
        for (int64_t j = 0; j < columns; ++j) {
            dot_tile<T, 1, 1>(k, a + i * a_row, a_row, b + j * b_row, b_row, sums + i * sums_stride + j, sums_stride,
                              accumulate, prefetch);
        }
    }
}

TRACEA_END_NAMESPACE

#endif
