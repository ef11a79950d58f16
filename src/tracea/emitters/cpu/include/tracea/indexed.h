// Rows of a table by index, and the places of the largest elements of a row.
#ifndef TRACEA_INDEXED_H
#define TRACEA_INDEXED_H

#include <stdint.h>
#include <string.h>

#include "tracea/config.h"
#include "tracea/math.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// y[i] = table[indices[i]], copied; a row that there is not becomes bits of ones, which is NaN of every float type, and nothing outside of the table is read.
template <class Storage, class Index>
TRACEA_INLINE void gather_rows(int64_t rows, int64_t columns, const Storage* table, int64_t table_rows,
                               int64_t table_row, int64_t table_col, const Index* indices, int64_t index_step,
                               Storage* y, int64_t y_row, int64_t y_col) {
    const bool is_plain = (table_col == 1 && y_col == 1) || columns == 1;
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t place = static_cast<int64_t>(indices[row * index_step]);
        Storage* const to = y + row * y_row;
        if (TRACEA_UNLIKELY(place < 0 || place >= table_rows)) {
            for (int64_t col = 0; col < columns; ++col)
                memset(static_cast<void*>(to + col * y_col), 0xff, sizeof(Storage));
            continue;
        }
        const Storage* const from = table + place * table_row;
        if (is_plain) {
            memcpy(static_cast<void*>(to), static_cast<const void*>(from),
                   static_cast<size_t>(columns) * sizeof(Storage));
        } else {
            for (int64_t col = 0; col < columns; ++col)
                memcpy(static_cast<void*>(to + col * y_col), static_cast<const void*>(from + col * table_col),
                       sizeof(Storage));
        }
    }
}

// The places of the k largest of each row, largest first, of equals the first; NaN is larger than all. With Smallest, of the smallest likewise, and NaN
// larger than all still. A vector is looked at lane by lane only where one of its elements may be among them.
template <class T, int K, bool Smallest, class Load>
TRACEA_INLINE void largest_of_rows(int64_t rows, int64_t columns, const Load& load, int64_t* y, int64_t y_row,
                                   int64_t y_col) {
    using V = Vec<T>;
    const auto comes_before = [](T a, T b)
                                  TRACEA_LAMBDA { return a > b || (Smallest ? b != b && a == a : a != a && b == b); };
    for (int64_t row = 0; row < rows; ++row) {
        T best[K];
        int64_t places[K];
        int held = 0;
        for (int64_t col = 0; col < columns; col += V::lanes) {
            const int64_t n = columns - col < V::lanes ? columns - col : V::lanes;
            V x = load.template at<V>(row, col, n);
            if constexpr (Smallest) x = neg(x);
            if (held == K) {
                const V least = broadcast<V>(best[K - 1]);
                const V other = Smallest ? least : x;
                if (!any(mask_or(less(least, x), unordered(other, other)))) continue;
            }
            T lanes[V::lanes];
            store(lanes, x);
            for (int i = 0; i < n; ++i) {
                if (held == K && !comes_before(lanes[i], best[K - 1])) continue;
                int at = held < K ? held++ : K - 1;
                for (; at > 0 && comes_before(lanes[i], best[at - 1]); --at) {
                    best[at] = best[at - 1];
                    places[at] = places[at - 1];
                }
                best[at] = lanes[i];
                places[at] = col + i;
            }
        }
        for (int i = 0; i < K; ++i) y[row * y_row + i * y_col] = places[i];
    }
}

TRACEA_END_NAMESPACE

#endif
