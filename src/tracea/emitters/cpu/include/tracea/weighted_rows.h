// Weighted sums of rows of a table: out[i] is the sum of weights[i][j] · table[indices[i][j]] over j, in the order of j.
#ifndef TRACEA_WEIGHTED_ROWS_H
#define TRACEA_WEIGHTED_ROWS_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/row_sums.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// Count rows a sum, with the load and store functors that rows.h describes: load's rows are those of the table. A sum with a row that there is not is NaN, and
// nothing outside of the table is read.
template <class T, int Count, class Load, class Store, class Index, class Weight>
TRACEA_INLINE void weighted_rows(int64_t rows, int64_t columns, const Load& load, int64_t table_rows,
                                 const Index* indices, int64_t index_row, int64_t index_step, const Weight* weights,
                                 int64_t weight_row, int64_t weight_step, const Store& store) {
    using V = Vec<T>;
    for (int64_t row = 0; row < rows; ++row) {
        const Index* const places = indices + row * index_row;
        const Weight* const factors = weights + row * weight_row;
        bool known = true;
        for (int j = 0; j < Count; ++j) {
            const int64_t place = static_cast<int64_t>(places[j * index_step]);
            known = known && place >= 0 && place < table_rows;
        }
        detail::for_each_four<V>(columns, [&](int64_t col, int64_t n, auto vectors) TRACEA_LAMBDA {
            V sums[vectors];
            unroll<vectors>([&](auto u) TRACEA_LAMBDA { sums[u] = broadcast<V>(static_cast<T>(__builtin_nan(""))); });
            for (int j = 0; known && j < Count; ++j) {
                const int64_t place = static_cast<int64_t>(places[j * index_step]);
                const V factor = broadcast<V>(static_cast<T>(factors[j * weight_step]));
                unroll<vectors>([&](auto u) TRACEA_LAMBDA {
                    const V x = load.template at<V>(place, col + u * V::lanes, n);
                    sums[u] = j == 0 ? mul(factor, x) : fma(factor, x, sums[u]);
                });
            }
            unroll<vectors>([&](auto u)
                                TRACEA_LAMBDA { store.template at<V>(row, col + u * V::lanes, sums[u], n); });
        });
    }
}

TRACEA_END_NAMESPACE

#endif
