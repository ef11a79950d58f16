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

// With Together 2 it goes along two rows at once, so that a vector which all rows have in common comes once for both. Vectors that are a line take turns;
// smaller ones would leave half lines unfinished past the caches, so that rows take turns of some vectors.
template <class T, int Prefetch, int Together = 1, class Load, class Store>
TRACEA_INLINE void map_rows(int64_t rows, int64_t columns, const Load& load, const Store& store) {
    using V = Vec<T>;
    int64_t row = 0;
    for (; Together == 2 && row + 1 < rows; row += 2) {
        if constexpr (detail::vectors_a_line<V>() == 1) {
            detail::for_each_vector<V>(columns, [&](int64_t col, int64_t n, auto) TRACEA_LAMBDA {
                detail::prefetch_of_pair<V, Prefetch>(row, columns, col, load);
                detail::prefetch_of_pair<V, Prefetch>(row + 1, columns, col, load);
                const V upper = load.template at<V>(row, col, n);
                const V lower = load.template at<V>(row + 1, col, n);
                store.at(row, col, upper, n);
                store.at(row + 1, col, lower, n);
            });
        } else {
            const auto map = [&](int64_t line, int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
                if constexpr (detail::begins_line<V>(u))
                    detail::prefetch_of_pair<V, Prefetch>(line, columns, col, load);
                store.at(line, col, load.template at<V>(line, col, n), n);
            };
            detail::for_each_turn<V>(
                columns, [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA { map(row, col, n, u); },
                [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA { map(row + 1, col, n, u); }, []() TRACEA_LAMBDA {});
        }
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
    static TRACEA_INLINE typename V::element across(V lanes) {
        return reduce_add(lanes);
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
    static TRACEA_INLINE typename V::element across(V lanes) {
        return reduce_max(lanes);
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

// Side vectors of columns side by side, the last one of so many lanes; the others are whole, so that nothing masks them in the loop over rows. Of several
// blocks at once a vector that all of them load from one place is loaded once.
template <class T, class Kind, int Side, int Together, class Load, class Store>
TRACEA_INLINE void reduce_vectors(int64_t rows, int64_t col, int64_t lanes, const Load (&load)[Together],
                                  const Store (&store)[Together]) {
    using V = Vec<T>;
    constexpr int64_t block = 128;
    V total[Together][Side];
    const auto for_each = [](auto&& body) TRACEA_LAMBDA {
        unroll<Side>([&](auto s) TRACEA_LAMBDA { unroll<Together>([&](auto t) TRACEA_LAMBDA { body(t, s); }); });
    };
    for_each([&](auto t, auto s) TRACEA_LAMBDA { total[t][s] = Kind::template start<V>(); });
    for (int64_t first = 0; first < rows; first += block) {
        const int64_t last = first + block < rows ? first + block : rows;
        V part[Together][Side];
        for_each([&](auto t, auto s) TRACEA_LAMBDA { part[t][s] = Kind::template start<V>(); });
        for (int64_t row = first; row < last; ++row) {
            for_each([&](auto t, auto s) TRACEA_LAMBDA {
                const int64_t n = s + 1 < Side ? V::lanes : lanes;
                part[t][s] = Kind::combine(part[t][s], load[t].template at<V>(row, col + s * V::lanes, n));
            });
        }
        for_each([&](auto t, auto s) TRACEA_LAMBDA { total[t][s] = Kind::combine(total[t][s], part[t][s]); });
    }
    for_each([&](auto t, auto s) TRACEA_LAMBDA {
        const int64_t n = s + 1 < Side ? V::lanes : lanes;
        store[t].template at<V>(0, col + s * V::lanes, Kind::finish(total[t][s], rows), n);
    });
}

// The columns that are left, at most Side vectors of them.
template <class T, class Kind, int Side, int Together, class Load, class Store>
TRACEA_INLINE void reduce_rest(int64_t rows, int64_t col, int64_t left, const Load (&load)[Together],
                               const Store (&store)[Together]) {
    constexpr int64_t lanes = Vec<T>::lanes;
    if (Together > 1 && left == Side * lanes) {  // a mask would cost as much as what is loaded once less
        reduce_vectors<T, Kind, Side>(rows, col, lanes, load, store);
    } else if (left > (Side - 1) * lanes) {
        reduce_vectors<T, Kind, Side>(rows, col, left - (Side - 1) * lanes, load, store);
    } else if constexpr (Side > 1) {
        reduce_rest<T, Kind, Side - 1>(rows, col, left, load, store);
    }
}

}  // namespace detail

// One number a column, stored at (0, column): four vectors of columns side by side, and sums in blocks of 128 rows, so that the error grows with
// rows / 128 + 128 and not with rows. Five where one would be left, which alone would wait for its own sum in every row.
template <class T, class Kind, class Load, class Store>
TRACEA_INLINE void reduce_columns(int64_t rows, int64_t columns, const Load& load, const Store& store) {
    constexpr int64_t lanes = Vec<T>::lanes;
    const Load loads[1] = {load};
    const Store stores[1] = {store};
    int64_t col = 0;
    for (; columns - col > 5 * lanes; col += 4 * lanes)
        detail::reduce_vectors<T, Kind, 4>(rows, col, lanes, loads, stores);
    detail::reduce_rest<T, Kind, 5>(rows, col, columns - col, loads, stores);
}

// Several blocks of as many rows and columns at once, each with its own load and store: twelve sums go down the rows together.
template <class T, class Kind, int Together, class Load, class Store>
TRACEA_INLINE void reduce_columns_together(int64_t rows, int64_t columns, const Load (&load)[Together],
                                           const Store (&store)[Together]) {
    static_assert(Together > 1 && Together <= 6, "two vectors side by side at least");
    constexpr int64_t lanes = Vec<T>::lanes;
    constexpr int side = 12 / Together;
    int64_t col = 0;
    for (; columns - col > side * lanes; col += side * lanes)
        detail::reduce_vectors<T, Kind, side>(rows, col, lanes, load, store);
    detail::reduce_rest<T, Kind, side>(rows, col, columns - col, load, store);
}

TRACEA_END_NAMESPACE

#endif
