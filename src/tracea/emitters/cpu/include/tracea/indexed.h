// Rows of a table by index, and the places of the largest elements of a row.
#ifndef TRACEA_INDEXED_H
#define TRACEA_INDEXED_H

#include <stdint.h>
#include <string.h>

#include "tracea/config.h"
#include "tracea/math.h"
#include "tracea/transpose.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// y[i] = table[indices[i]], copied; a row that there is not becomes bits of ones, which is NaN of every float type, and nothing outside of the table is read.
template <class Storage, class Index>
TRACEA_INLINE void gather_rows(int64_t rows, int64_t columns, const Storage* table, int64_t table_rows,
                               int64_t table_row, int64_t table_col, const Index* indices, int64_t index_step,
                               Storage* y, int64_t y_row, int64_t y_col) {
    const bool is_plain = table_col == 1 && y_col == 1;
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t place = static_cast<int64_t>(indices[row * index_step]);
        Storage* const to = y + row * y_row;
        if (TRACEA_UNLIKELY(place < 0 || place >= table_rows)) {
            for (int64_t col = 0; col < columns; ++col)
                memset(static_cast<void*>(to + col * y_col), 0xff, sizeof(Storage));
            continue;
        }
        const Storage* const from = table + place * table_row;
        if (columns == 1) {
            memcpy(static_cast<void*>(to), static_cast<const void*>(from), sizeof(Storage));
        } else if (is_plain) {
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

namespace detail {

// The K first of as many rows as a vector has lanes, each with its place as a number of the vector's own type, which is exact up to 2^24 in float.
template <class V, int K, bool Smallest>
struct Leaders {
    using T = typename V::element;
    V best[K];
    V places[K];

    static TRACEA_INLINE Mask<V> comes_before(V x, V other) {
        return mask_and(mask_not(less_equal(x, other)), Smallest ? equal(x, x) : equal(other, other));
    }
    // Puts x before all that it comes before, of `held` that there are; the last of K is dropped.
    TRACEA_INLINE void insert(V x, int64_t col, int held) {
        V moved = x;
        V place = broadcast<V>(static_cast<T>(col));
        Mask<V> before = lane_mask<V>(0);
        const auto step = [&](int j) TRACEA_LAMBDA {
            // Once x has its place, what was there and behind it moves on, also past its equals.
            before = mask_or(before, comes_before(x, best[j]));
            const V leader = best[j];
            const V its = places[j];
            best[j] = select(before, moved, leader);
            places[j] = select(before, place, its);
            moved = select(before, leader, moved);
            place = select(before, its, place);
        };
        if (K <= in_registers && held == K) {
            unroll<K>([&](auto j) TRACEA_LAMBDA { step(j); });
            return;
        }
        for (int j = 0; j < held; ++j) step(j);
        if (held < K) {
            best[held] = moved;
            places[held] = place;
        }
    }
    TRACEA_INLINE void offer(V x, int64_t col) {
        if constexpr (Smallest) x = neg(x);
        if (col < K) {
            insert(x, col, static_cast<int>(col));
        } else if (any(comes_before(x, best[K - 1]))) {
            insert(x, col, K);
        }
    }

private:
    static constexpr int in_registers = 8;
};

}  // namespace detail

// The same, as many rows at a time as a vector has lanes: of short rows, or of few that are many enough to keep lanes busy, nothing is looked at lane by
// lane, and no branch depends on one row's elements. At most 2^24 columns. Turned, the load functor's rows are the columns.
template <class T, int K, bool Smallest, bool Turned, class Load>
TRACEA_INLINE void largest_across_rows(int64_t rows, int64_t columns, const Load& load, int64_t* y, int64_t y_row,
                                       int64_t y_col) {
    using V = Vec<T>;
    constexpr int side = V::lanes;
    for (int64_t first = 0; first < rows; first += side) {
        const int64_t tall = rows - first < side ? rows - first : side;
        detail::Leaders<V, K, Smallest> leaders;
        if constexpr (Turned) {
            for (int64_t col = 0; col < columns; ++col) leaders.offer(load.template at<V>(col, first, tall), col);
        } else {
            for (int64_t col = 0; col < columns; col += side) {
                const int64_t wide = columns - col < side ? columns - col : side;
                V block[side];
                for (int i = 0; i < side; ++i)
                    block[i] = i < tall ? load.template at<V>(first + i, col, wide) : zero<V>();
                transpose(block);
                for (int i = 0; i < wide; ++i) leaders.offer(block[i], col + i);
            }
        }
        for (int k = 0; k < K; ++k) {
            T lanes[side];
            store(lanes, leaders.places[k]);
            for (int i = 0; i < tall; ++i) y[(first + i) * y_row + k * y_col] = static_cast<int64_t>(lanes[i]);
        }
    }
}

TRACEA_END_NAMESPACE

#endif
