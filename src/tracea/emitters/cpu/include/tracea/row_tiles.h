// Blocks of rows through a map, and reductions of a block along its rows or its columns.
//
// load and store are the functors that rows.h describes; rows count from the block's first one.
#ifndef TRACEA_ROW_TILES_H
#define TRACEA_ROW_TILES_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/math.h"
#include "tracea/rows.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// With Together 2 it goes along two rows at once, so that a vector which all rows have in common comes once for both.
template <class T, int Prefetch, int Together = 1, class Load, class Store>
TRACEA_INLINE void map_rows(int64_t rows, int64_t columns, const Load& load, const Store& store) {
    using V = Vec<T>;
    int64_t row = 0;
    for (; Together == 2 && row + 1 < rows; row += 2) {
        detail::for_each_vector<V>(columns, [&](int64_t col, int64_t n, auto) TRACEA_LAMBDA {
            if constexpr (Prefetch > 0) {
                // Behind a row's end follows the next but one.
                const int64_t ahead = col + Prefetch * V::lanes;
                const bool next = ahead >= columns;
                load.prefetch(next ? row + 2 : row, next ? ahead - columns : ahead);
                load.prefetch(next ? row + 3 : row + 1, next ? ahead - columns : ahead);
            }
            const V upper = load.template at<V>(row, col, n);
            const V lower = load.template at<V>(row + 1, col, n);
            store.at(row, col, upper, n);
            store.at(row + 1, col, lower, n);
        });
    }
    for (; row < rows; ++row) map_row<T, Prefetch>(row, columns, load, store);
}

// ---- reductions ----------------------------------------------------------------------------------------------------------------------------------
// A kind says how a row becomes a number, and how columns are combined vector by vector.
struct SumOf {
    template <class T, class Load>
    static TRACEA_INLINE T row(int64_t row, int64_t columns, const Load& load) {
        return sum_row<T>(row, columns, load);
    }
    template <class V>
    static TRACEA_INLINE V start() {
        return zero<V>();
    }
    template <class V>
    static TRACEA_INLINE V combine(V a, V b) {
        return add(a, b);
    }
    template <class V>
    static TRACEA_INLINE V finish(V sum, int64_t) {
        return sum;
    }
};
struct MeanOf : SumOf {
    template <class T, class Load>
    static TRACEA_INLINE T row(int64_t row, int64_t columns, const Load& load) {
        return mean_row<T>(row, columns, load);
    }
    template <class V>
    static TRACEA_INLINE V finish(V sum, int64_t count) {
        return div(sum, broadcast<V>(static_cast<typename V::element>(count)));
    }
};
struct MaxOf {
    template <class T, class Load>
    static TRACEA_INLINE T row(int64_t row, int64_t columns, const Load& load) {
        return max_row<T>(row, columns, load);
    }
    template <class V>
    static TRACEA_INLINE V start() {
        return broadcast<V>(typename V::element(-__builtin_inf()));
    }
    template <class V>
    static TRACEA_INLINE V combine(V a, V b) {
        return maximum(a, b);
    }
    template <class V>
    static TRACEA_INLINE V finish(V extreme, int64_t) {
        return extreme;
    }
};
struct MinOf {
    template <class T, class Load>
    static TRACEA_INLINE T row(int64_t row, int64_t columns, const Load& load) {
        return min_row<T>(row, columns, load);
    }
    template <class V>
    static TRACEA_INLINE V start() {
        return broadcast<V>(typename V::element(__builtin_inf()));
    }
    template <class V>
    static TRACEA_INLINE V combine(V a, V b) {
        return minimum(a, b);
    }
    template <class V>
    static TRACEA_INLINE V finish(V extreme, int64_t) {
        return extreme;
    }
};

// One number a row, stored at (row, 0).
template <class T, class Kind, class Load, class Store>
TRACEA_INLINE void reduce_rows(int64_t rows, int64_t columns, const Load& load, const Store& store) {
    using V = Vec<T>;
    for (int64_t row = 0; row < rows; ++row)
        store.template at<V>(row, 0, broadcast<V>(Kind::template row<T>(row, columns, load)), 1);
}

namespace detail {

// Side vectors of columns side by side, the last one of so many lanes; the others are whole, so that nothing masks them in the loop over rows.
template <class T, class Kind, int Side, class Load, class Store>
TRACEA_INLINE void reduce_vectors(int64_t rows, int64_t col, int64_t lanes, const Load& load, const Store& store) {
    using V = Vec<T>;
    constexpr int64_t block = 128;
    V total[Side];
    unroll<Side>([&](auto s) TRACEA_LAMBDA { total[s] = Kind::template start<V>(); });
    for (int64_t first = 0; first < rows; first += block) {
        const int64_t last = first + block < rows ? first + block : rows;
        V part[Side];
        unroll<Side>([&](auto s) TRACEA_LAMBDA { part[s] = Kind::template start<V>(); });
        for (int64_t row = first; row < last; ++row) {
            unroll<Side>([&](auto s) TRACEA_LAMBDA {
                const int64_t n = s + 1 < Side ? V::lanes : lanes;
                part[s] = Kind::combine(part[s], load.template at<V>(row, col + s * V::lanes, n));
            });
        }
        unroll<Side>([&](auto s) TRACEA_LAMBDA { total[s] = Kind::combine(total[s], part[s]); });
    }
    unroll<Side>([&](auto s) TRACEA_LAMBDA {
        const int64_t n = s + 1 < Side ? V::lanes : lanes;
        store.template at<V>(0, col + s * V::lanes, Kind::finish(total[s], rows), n);
    });
}

}  // namespace detail

// One number a column, stored at (0, column): four vectors of columns side by side, and sums in blocks of 128 rows, so that the error grows with
// rows / 128 + 128 and not with rows. Five where one would be left, which alone would wait for its own sum in every row.
template <class T, class Kind, class Load, class Store>
TRACEA_INLINE void reduce_columns(int64_t rows, int64_t columns, const Load& load, const Store& store) {
    constexpr int64_t lanes = Vec<T>::lanes;
    int64_t col = 0;
    for (; columns - col > 5 * lanes; col += 4 * lanes)
        detail::reduce_vectors<T, Kind, 4>(rows, col, lanes, load, store);
    const int64_t rest = columns - col;
    if (rest > 4 * lanes) {
        detail::reduce_vectors<T, Kind, 5>(rows, col, rest - 4 * lanes, load, store);
    } else if (rest > 3 * lanes) {
        detail::reduce_vectors<T, Kind, 4>(rows, col, rest - 3 * lanes, load, store);
    } else if (rest > 2 * lanes) {
        detail::reduce_vectors<T, Kind, 3>(rows, col, rest - 2 * lanes, load, store);
    } else if (rest > lanes) {
        detail::reduce_vectors<T, Kind, 2>(rows, col, rest - lanes, load, store);
    } else if (rest > 0) {
        detail::reduce_vectors<T, Kind, 1>(rows, col, rest, load, store);
    }
}

TRACEA_END_NAMESPACE

#endif
