// Blocks of rows of places that have two results each: the parts of complex numbers, the two that a rotary embedding turns.
//
// first and second are the load functors that rows.h describes; columns are the places of a row, half of the result's elements. Of what is interleaved they
// also have whole vectors as interleave_mixed takes them:
//   template <class V> TRACEA_INLINE V mixed_at(int64_t row, int64_t col) const;                                  // with numbers of a row as at has them
#ifndef TRACEA_PAIRS_H
#define TRACEA_PAIRS_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/rows.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// Side by side, in turns.
template <class T, bool Streaming, class First, class Second, class Storage>
TRACEA_INLINE void interleave_rows(int64_t rows, int64_t columns, const First& first, const Second& second, Storage* y,
                                   int64_t y_row) {
    using V = Vec<T>;
    const StoreRows<Storage, Streaming> store{y, y_row};
    for (int64_t row = 0; row < rows; ++row) {
        const detail::RowOf<V, First> firsts(first, row);
        const detail::RowOf<V, Second> seconds(second, row);
        detail::for_each_vector<V>(columns, [&](int64_t col, int64_t n, auto) TRACEA_LAMBDA {
            V low, high;
            if (n == V::lanes) {
                interleave_mixed(firsts.mixed_at(col), seconds.mixed_at(col), low, high);
                store.at(row, 2 * col, low, V::lanes);
                store.at(row, 2 * col + V::lanes, high, V::lanes);
                return;
            }
            interleave(firsts.at(col, n), seconds.at(col, n), low, high);
            const int64_t left = 2 * n - V::lanes;
            store.at(row, 2 * col, low, left < 0 ? 2 * n : V::lanes);
            if (left > 0) store.at(row, 2 * col + V::lanes, high, left);
        });
    }
}

// The second result of a place `apart` elements behind the first.
template <class T, bool Streaming, class First, class Second, class Storage>
TRACEA_INLINE void halve_rows(int64_t rows, int64_t columns, const First& first, const Second& second, Storage* y,
                              int64_t y_row, int64_t apart) {
    using V = Vec<T>;
    const StoreRows<Storage, Streaming> store{y, y_row};
    for (int64_t row = 0; row < rows; ++row) {
        const detail::RowOf<V, First> firsts(first, row);
        const detail::RowOf<V, Second> seconds(second, row);
        detail::for_each_vector<V>(columns, [&](int64_t col, int64_t n, auto) TRACEA_LAMBDA {
            const V one = firsts.at(col, n);
            const V other = seconds.at(col, n);
            store.at(row, col, one, n);
            store.at(row, col + apart, other, n);
        });
    }
}

TRACEA_END_NAMESPACE

#endif
