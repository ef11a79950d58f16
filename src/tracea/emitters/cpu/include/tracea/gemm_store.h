// The last step of a GEMM tile: sums out of a buffer, through the epilogue, into C of any layout and storage type.
//
// The epilogue is a functor, printed per kernel:
//
//   struct Epilogue {
//       const float* bias;
//       template <class V>
//       TRACEA_INLINE V operator()(V acc, int64_t row, int64_t col, int64_t lanes_valid) const {
//           return gelu(add(acc, load_partial<V>(bias + col, lanes_valid)));
//       }
//   };
//
// row and col are the global indices of lane 0; lanes beyond lanes_valid hold zeros, must not be read from memory, and are discarded.
#ifndef TRACEA_GEMM_STORE_H
#define TRACEA_GEMM_STORE_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/transpose.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

struct IdentityEpilogue {
    template <class V>
    TRACEA_INLINE V operator()(V acc, int64_t, int64_t, int64_t) const {
        return acc;
    }
    TRACEA_INLINE void prefetch(int64_t, int64_t) const {}
};

// Asks for a tile of what the epilogue will read, a residual, while the products of the tile are still to be computed: its rows lie pages apart, where no
// hardware prefetcher follows.
template <class Storage>
TRACEA_INLINE void prefetch_tile(const Storage* first, int64_t row_stride, int64_t rows, int64_t columns) {
    constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(Storage));
    for (int64_t i = 0; i < rows; ++i, first += row_stride) {
        for (int64_t j = 0; j < columns; j += line) prefetch_l2(first + j);
    }
}

namespace detail {
// One vector of each of `Rows` rows, all read before the first is written: rows of a matrix are often whole pages apart, and what is read from the same
// place of a page as a store that has not reached the cache waits for it (512x3072x768: 4 % of the product).
template <int Rows, class T, class Storage, class Epilogue>
TRACEA_INLINE void store_rows(const T* sums, int64_t sums_stride, int64_t columns, int64_t row, int64_t col,
                              Storage* out, int64_t row_stride, const Epilogue& epilogue) {
    using V = Vec<T>;
    V result[Rows];
    int64_t j = 0;
    for (; j + V::lanes <= columns; j += V::lanes) {
        for (int i = 0; i < Rows; ++i)
            result[i] = epilogue(load<V>(sums + i * sums_stride + j), row + i, col + j, V::lanes);
        for (int i = 0; i < Rows; ++i) store(out + i * row_stride + j, result[i]);
    }
    if (j == columns) return;
    for (int i = 0; i < Rows; ++i)
        result[i] = epilogue(load_partial<V>(sums + i * sums_stride + j, columns - j), row + i, col + j, columns - j);
    for (int i = 0; i < Rows; ++i) store_partial(out + i * row_stride + j, result[i], columns - j);
}
}  // namespace detail

// C[row + i][col + j] = epilogue(sums[i * sums_stride + j]) for i < rows, j < columns. `out` points at element (row, col); sums may be C itself.
template <class T, class Storage, class Epilogue>
TRACEA_INLINE void store_tile(const T* sums, int64_t sums_stride, int64_t rows, int64_t columns, int64_t row,
                              int64_t col, Storage* out, int64_t row_stride, int64_t column_stride,
                              const Epilogue& epilogue) {
    using V = Vec<T>;
    constexpr int together = 4;
    int64_t i = 0;
    if (column_stride == 1) {
        for (; i + together <= rows; i += together)
            detail::store_rows<together>(sums + i * sums_stride, sums_stride, columns, row + i, col,
                                         out + i * row_stride, row_stride, epilogue);
        for (; i < rows; ++i)
            detail::store_rows<1>(sums + i * sums_stride, sums_stride, columns, row + i, col, out + i * row_stride,
                                  row_stride, epilogue);
        return;
    }
    for (; i < rows; ++i) {
        for (int64_t j = 0; j < columns; j += V::lanes) {
            const int64_t n = columns - j < V::lanes ? columns - j : V::lanes;
            store_strided(out + i * row_stride + j * column_stride, column_stride,
                          epilogue(load_partial<V>(sums + i * sums_stride + j, n), row + i, col + j, n), n);
        }
    }
}

// As store_tile, for a result where the rows of `sums` lie next to each other, as pixels of an image in rows: the tile is transposed on its way, and the
// epilogue is called with vectors of rows, a column being its row.
template <class T, class Storage, class Epilogue>
TRACEA_INLINE void store_tile_transposed(const T* sums, int64_t sums_stride, int64_t rows, int64_t columns,
                                         Storage* out, int64_t column_stride, const Epilogue& epilogue) {
    using V = Vec<T>;
    constexpr int L = V::lanes;
    for (int64_t i = 0; i < rows; i += L) {
        const int64_t m = rows - i < L ? rows - i : L;
        for (int64_t j = 0; j < columns; j += L) {
            const int64_t n = columns - j < L ? columns - j : L;
            V block[L];
            for (int r = 0; r < L; ++r)
                block[r] = r < m ? load_partial<V>(sums + (i + r) * sums_stride + j, n) : zero<V>();
            transpose(block);
            for (int c = 0; c < L && c < n; ++c)
                store_partial(out + (j + c) * column_stride + i, epilogue(block[c], j + c, i, m), m);
        }
    }
}

TRACEA_END_NAMESPACE

#endif
