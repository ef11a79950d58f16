// A block of dot products with any number of rows and columns, in tiles whose rows and columns lie far apart.
//
// A tile takes every high-th row and every wide-th column. So the tiles of a block read each part of an operand from its first element to its last: a few
// long streams that go on behind the end of a row, and not as many short ones that end there, after which the processor's prefetching begins anew
// (benchmarks/NOTES.md: 0.86 of the time from memory).
#ifndef TRACEA_DOT_H
#define TRACEA_DOT_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/gemv.h"

TRACEA_BEGIN_NAMESPACE

// sums[i * sums_row + j] (+)= sum_k a[i * a_row + k] b[j * b_row + k] for i < rows, j < columns.
template <class T, int Rows, int Columns, class StorageA, class StorageB>
TRACEA_INLINE void dot_block(int64_t rows, int64_t columns, int64_t k, const StorageA* a, int64_t a_row,
                             const StorageB* b, int64_t b_row, T* sums, int64_t sums_row, bool accumulate,
                             int64_t prefetch) {
    const int64_t high = rows / Rows;
    const int64_t wide = columns / Columns;
    for (int64_t j = 0; j < wide; ++j) {
        for (int64_t i = 0; i < high; ++i) {
            dot_tile<T, Rows, Columns>(k, a + i * a_row, high * a_row, b + j * b_row, wide * b_row,
                                       sums + i * sums_row + j, high * sums_row, accumulate, prefetch, wide);
        }
        for (int64_t i = high * Rows; i < rows; ++i) {
            dot_tile<T, 1, Columns>(k, a + i * a_row, a_row, b + j * b_row, wide * b_row, sums + i * sums_row + j,
                                    sums_row, accumulate, prefetch, wide);
        }
    }
    for (int64_t j = wide * Columns; j < columns; ++j) {
        for (int64_t i = 0; i < rows; ++i) {
            dot_tile<T, 1, 1>(k, a + i * a_row, a_row, b + j * b_row, b_row, sums + i * sums_row + j, sums_row,
                              accumulate, prefetch);
        }
    }
}

TRACEA_END_NAMESPACE

#endif
