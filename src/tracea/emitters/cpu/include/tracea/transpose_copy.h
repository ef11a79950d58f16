// A copy that turns a matrix: the source's rows lie next to each other, the target's columns do. Square blocks of vectors are turned in registers, so that both
// sides touch whole cache lines; a tile of 64 x 64 keeps the pages of both within the first table of addresses.
#ifndef TRACEA_TRANSPOSE_COPY_H
#define TRACEA_TRANSPOSE_COPY_H

#include <stdint.h>

#include <type_traits>

#include "tracea/config.h"
#include "tracea/rows.h"
#include "tracea/transpose.h"
#include "tracea/transpose_few.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// y[row * y_row + col] = x[row + col * x_col]
template <class T, bool Streaming, class From, class To>
TRACEA_INLINE void transpose_copy(int64_t rows, int64_t columns, const From* x, int64_t x_col, To* y, int64_t y_row) {
    using V = Vec<T>;
    constexpr int64_t side = V::lanes;
    constexpr int64_t tile = 64;
    constexpr int64_t ahead = 4 * side;
    // A processor of eight lanes has no fast masked store.
    if constexpr (std::is_same_v<From, To> && side <= 8)
        if (columns <= 4) return transpose_few_columns(rows, columns, x, x_col, y, y_row);
    const StoreRows<To, Streaming> target{y, y_row};
    for (int64_t top = 0; top < rows; top += tile) {
        const int64_t bottom = top + tile < rows ? top + tile : rows;
        for (int64_t left = 0; left < columns; left += tile) {
            const int64_t right = left + tile < columns ? left + tile : columns;
            for (int64_t row = top; row < bottom; row += side) {
                const int64_t tall = bottom - row < side ? bottom - row : side;
                for (int64_t col = left; col < right; col += side) {
                    const int64_t wide = right - col < side ? right - col : side;
                    const From* from = x + row + col * x_col;
                    // No processor guesses columns far apart: the lines of a later block are asked for while this one is turned.
                    const From* later = from + ahead * x_col;
                    if (col + ahead + side <= columns)
                        for (int64_t j = 0; j < side; ++j) prefetch_l1(later + j * x_col);
                    V block[side];
                    if (tall == side && wide == side) {
                        for (int64_t j = 0; j < side; ++j) block[j] = load<V>(from + j * x_col);
                        transpose(block);
                        for (int64_t i = 0; i < side; ++i) target.template at<V>(row + i, col, block[i], side);
                    } else {
                        for (int64_t j = 0; j < side; ++j)
                            block[j] = j < wide ? load_partial<V>(from + j * x_col, tall) : zero<V>();
                        transpose(block);
                        for (int64_t i = 0; i < tall; ++i) target.template at<V>(row + i, col, block[i], wide);
                    }
                }
            }
        }
    }
}

TRACEA_END_NAMESPACE

#endif
