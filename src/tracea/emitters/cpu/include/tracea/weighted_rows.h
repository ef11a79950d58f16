// Weighted sums of rows of a table: out[i] is the sum of weights[i][j] · table[indices[i][j]] over j, in the order of j.
#ifndef TRACEA_WEIGHTED_ROWS_H
#define TRACEA_WEIGHTED_ROWS_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/row_sums.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// Of a sum, from which on its rows are taken to lie far from each other: those of the next sum are asked for meanwhile.
constexpr int several_rows = 3;

template <int Count, class Index>
TRACEA_INLINE bool are_rows(const Index* places, int64_t step, int64_t rows) {
    bool known = true;
    for (int j = 0; j < Count; ++j) {
        const int64_t place = static_cast<int64_t>(places[j * step]);
        known = known && place >= 0 && place < rows;
    }
    return known;
}

}  // namespace detail

// Count rows a sum, with the load and store functors that rows.h describes: load's rows are those of the table. A sum with a row that there is not is NaN, and
// nothing outside of the table is read.
template <class T, int Count, class Load, class Store, class Index, class Weight>
TRACEA_INLINE void weighted_rows(int64_t rows, int64_t columns, const Load& load, int64_t table_rows,
                                 const Index* indices, int64_t index_row, int64_t index_step, const Weight* weights,
                                 int64_t weight_row, int64_t weight_step, const Store& store) {
    using V = Vec<T>;
    constexpr int64_t line = 64 / sizeof(T);
    bool next_known = rows > 0 && detail::are_rows<Count>(indices, index_step, table_rows);
    for (int64_t row = 0; row < rows; ++row) {
        const Index* const places = indices + row * index_row;
        const Weight* const factors = weights + row * weight_row;
        const bool known = next_known;
        next_known = row + 1 < rows && detail::are_rows<Count>(places + index_row, index_step, table_rows);
        const bool ahead = Count >= detail::several_rows && next_known;
        detail::for_each_four<V>(columns, [&](int64_t col, int64_t n, auto vectors) TRACEA_LAMBDA {
            V sums[vectors];
            unroll<vectors>([&](auto u) TRACEA_LAMBDA { sums[u] = broadcast<V>(static_cast<T>(__builtin_nan(""))); });
            for (int j = 0; known && j < Count; ++j) {
                const int64_t place = static_cast<int64_t>(places[j * index_step]);
                const V factor = broadcast<V>(static_cast<T>(factors[j * weight_step]));
                for (int64_t i = 0; ahead && i < vectors * V::lanes; i += line)
                    load.prefetch(static_cast<int64_t>(places[index_row + j * index_step]), col + i);
                unroll<vectors>([&](auto u) TRACEA_LAMBDA {
                    const V x = load.template at<V>(place, col + u * V::lanes, n);
                    sums[u] = j == 0 ? mul(factor, x) : fma(factor, x, sums[u]);
                });
            }
            unroll<vectors>([&](auto u) TRACEA_LAMBDA { store.template at<V>(row, col + u * V::lanes, sums[u], n); });
        });
    }
}

TRACEA_END_NAMESPACE

#endif
