// What routines over the rows of a matrix are made of, one row at a time: maps, reductions, and the loop over a row's vectors.
//
// A row is produced by a load functor and consumed by a store functor, printed per kernel, so that pointwise work before and after costs no pass:
//
//   struct Load  { static constexpr bool again;                                                                // whether at() only reads what lies in order
//                  template <class V> TRACEA_INLINE V at(int64_t row, int64_t col, int64_t n) const;          // lanes >= n must be zero
//                  TRACEA_INLINE void prefetch(int64_t row, int64_t col) const;                               // of one vector's worth; may do nothing
//                  template <class V> struct Numbers;                                                         // of a row; where it has some:
//                  template <class V> TRACEA_INLINE Numbers<V> numbers(int64_t row) const;                    // loads them
//                  template <class V> TRACEA_INLINE V at(row, col, n, const Numbers<V>&) const; };            // the same with them at hand
//   struct Store { template <class V> TRACEA_INLINE void at(int64_t row, int64_t col, V value, int64_t n) const; };
//
// n is V::lanes but for the last vector of the row.
//
// Sums keep four vectors of partial sums, fold them into a second level every 64 steps and that into a third every 64 folds, so the error grows with
// columns / (64 * 64 * 4 * lanes), not columns.
#ifndef TRACEA_ROWS_H
#define TRACEA_ROWS_H

#include <stdint.h>

#include <type_traits>

#include "tracea/config.h"
#include "tracea/math.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// A load and a store functor for the plain case: a matrix with unit column stride.
template <class Storage>
struct LoadRows {
    static constexpr bool again = true;
    const Storage* base;
    int64_t row_stride;
    template <class V>
    TRACEA_INLINE V at(int64_t row, int64_t col, int64_t n) const {
        return load_partial<V>(base + row * row_stride + col, n);
    }
    TRACEA_INLINE void prefetch(int64_t row, int64_t col) const { prefetch_l2(base + row * row_stride + col); }
};
template <class Storage, bool Streaming = false>
struct StoreRows {
    Storage* base;
    int64_t row_stride;
    template <class V>
    TRACEA_INLINE void at(int64_t row, int64_t col, V value, int64_t n) const {
        Storage* p = base + row * row_stride + col;
        if constexpr (Streaming) {
            // Aligned for all vectors of the row or for none: the branch is predicted.
            if (n == V::lanes && (reinterpret_cast<uintptr_t>(p) & (V::lanes * sizeof(Storage) - 1)) == 0) {
                store_streaming(p, value);
                return;
            }
        }
        store_partial(p, value, n);
    }
    // Asks for a line that will be written; what is streamed needs none.
    TRACEA_INLINE void prefetch(int64_t row, int64_t col) const {
        if constexpr (!Streaming) prefetch_l2(base + row * row_stride + col);
    }
};

namespace detail {

constexpr int row_unroll = 4;

// Vectors in a line of 64 bytes, at most those of a group.
template <class V>
TRACEA_INLINE constexpr int vectors_a_line() {
    return sizeof(V) >= 64 ? 1 : sizeof(V) * row_unroll <= 64 ? row_unroll : 64 / static_cast<int>(sizeof(V));
}
// Whether the u-th vector of a group is the first in its line, where lines begin as the group does: what is asked for once.
template <class V>
TRACEA_INLINE constexpr bool begins_line(int u) {
    return u % vectors_a_line<V>() == 0;
}

// Asks for what one row of a pair reads `Prefetch` vectors ahead; behind its end follows the next but one.
template <class V, int Prefetch, class Load>
TRACEA_INLINE void prefetch_of_pair(int64_t row, int64_t columns, int64_t col, const Load& source) {
    if constexpr (Prefetch > 0) {
        const int64_t ahead = col + Prefetch * V::lanes;
        const bool next = ahead >= columns;
        source.prefetch(next ? row + 2 : row, next ? ahead - columns : ahead);
    }
}

// Calls body(col, n, u) for every vector of a row: four independent chains u = 0 .. 3, the tail on chain 0. fold() after each 64 groups of four.
template <class V, class Body, class Fold>
TRACEA_INLINE void for_each_vector(int64_t columns, Body&& body, Fold&& fold) {
    constexpr int64_t group = row_unroll * V::lanes;
    int64_t col = 0;
    while (col + group <= columns) {
        const int64_t left = (columns - col) / group;
        const int64_t stop = col + (left < 64 ? left : 64) * group;
        for (; col < stop; col += group) {
            unroll<row_unroll>([&](auto u) TRACEA_LAMBDA { body(col + u * V::lanes, V::lanes, u); });
        }
        fold();
    }
    for (; col + V::lanes <= columns; col += V::lanes) body(col, V::lanes, constant<0>{});
    if (col < columns) body(col, columns - col, constant<0>{});
    fold();
}
template <class V, class Body>
TRACEA_INLINE void for_each_vector(int64_t columns, Body&& body) {
    for_each_vector<V>(columns, body, []() TRACEA_LAMBDA {});
}

// The same with two bodies, in turns: `before` for turn_groups groups of four, then `body` for them.
constexpr int turn_groups = 6;
template <class V, class Before, class Body, class Fold>
TRACEA_INLINE void for_each_turn(int64_t columns, Before&& before, Body&& body, Fold&& fold) {
    constexpr int64_t group = row_unroll * V::lanes;
    constexpr int64_t turn = turn_groups * group;
    const auto over = [](int64_t from, int64_t to, auto&& each) TRACEA_LAMBDA {
        for (int64_t col = from; col < to; col += group)
            unroll<row_unroll>([&](auto u) TRACEA_LAMBDA { each(col + u * V::lanes, V::lanes, u); });
    };
    int64_t col = 0;
    while (col + group <= columns) {
        const int64_t left = (columns - col) / group;
        const int64_t stop = col + (left < 64 ? left : 64) * group;
        while (col < stop) {
            const int64_t end = col + turn < stop ? col + turn : stop;
            over(col, end, before);
            over(col, end, body);
            col = end;
        }
        fold();
    }
    for (; col < columns; col += V::lanes) {
        const int64_t n = columns - col < V::lanes ? columns - col : V::lanes;
        before(col, n, constant<0>{});
        body(col, n, constant<0>{});
    }
    fold();
}

// Lanes at or beyond n replaced by a neutral value.
template <class V>
TRACEA_INLINE V with_neutral(V v, int64_t n, V neutral) {
    if (__builtin_constant_p(n) && n >= V::lanes) return v;
    return select(lane_mask<V>(n), v, neutral);
}

template <class V>
struct SumChains {
    V part[row_unroll];
    V total, whole;
    int folds = 0;
    TRACEA_INLINE SumChains() : total(zero<V>()), whole(zero<V>()) { clear(); }
    TRACEA_INLINE void clear() {
        unroll<row_unroll>([&](auto u) TRACEA_LAMBDA { part[u] = zero<V>(); });
    }
    TRACEA_INLINE void fold() {
        total = add(total, add(add(part[0], part[1]), add(part[2], part[3])));
        clear();
        if (++folds < 64) return;
        whole = add(whole, total);
        total = zero<V>();
        folds = 0;
    }
    TRACEA_INLINE typename V::element sum() const { return reduce_add(add(whole, total)); }
};

}  // namespace detail

// A row of a load functor; what it has as one number for the row is loaded once, which stores to the result would otherwise make the compiler load again.
namespace detail {
template <class V, class Load, class = void>
struct RowOf {
    const Load& source;
    int64_t row;
    TRACEA_INLINE RowOf(const Load& source_, int64_t row_) : source(source_), row(row_) {}
    TRACEA_INLINE V at(int64_t col, int64_t n) const { return source.template at<V>(row, col, n); }
    TRACEA_INLINE V mixed_at(int64_t col) const { return source.template mixed_at<V>(row, col); }
};
template <class V, class Load>
struct RowOf<V, Load, std::void_t<typename Load::template Numbers<V>>> {
    const Load& source;
    int64_t row;
    typename Load::template Numbers<V> numbers;
    TRACEA_INLINE RowOf(const Load& source_, int64_t row_)
        : source(source_), row(row_), numbers(source_.template numbers<V>(row_)) {}
    TRACEA_INLINE V at(int64_t col, int64_t n) const { return source.template at<V>(row, col, n, numbers); }
    TRACEA_INLINE V mixed_at(int64_t col) const { return source.template mixed_at<V>(row, col, numbers); }
};
}  // namespace detail

// One pass over the load functor, the result kept as given: chains of pointwise work. With Prefetch it asks for what is that many vectors ahead.
template <class T, int Prefetch, class Load, class Store>
TRACEA_INLINE void map_row(int64_t row, int64_t columns, const Load& source, const Store& target) {
    using V = Vec<T>;
    const detail::RowOf<V, Load> of(source, row);
    detail::for_each_vector<V>(columns, [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
        if constexpr (Prefetch > 0 && detail::begins_line<V>(u)) source.prefetch(row, col + Prefetch * V::lanes);
        target.at(row, col, of.at(col, n), n);
    });
}

// ---- reductions to one number per row; of no columns: 0, minus infinity, infinity ----------------------------------------------------------------
template <class T, class Load>
TRACEA_INLINE T sum_row(int64_t row, int64_t columns, const Load& source) {
    using V = Vec<T>;
    detail::SumChains<V> sums;
    detail::for_each_vector<V>(
        columns,
        [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
            sums.part[u] = add(sums.part[u], detail::with_neutral(source.template at<V>(row, col, n), n, zero<V>()));
        },
        [&]() TRACEA_LAMBDA { sums.fold(); });
    return sums.sum();
}
template <class T, class Load>
TRACEA_INLINE T mean_row(int64_t row, int64_t columns, const Load& source) {
    return sum_row<T>(row, columns, source) / static_cast<T>(columns);
}

namespace detail {
template <class T, class Load, class Better>
TRACEA_INLINE Vec<T> extreme_row(int64_t row, int64_t columns, const Load& source, T neutral, Better&& better) {
    using V = Vec<T>;
    V best[row_unroll];
    unroll<row_unroll>([&](auto u) TRACEA_LAMBDA { best[u] = broadcast<V>(neutral); });
    for_each_vector<V>(columns, [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
        best[u] = better(best[u], with_neutral(source.template at<V>(row, col, n), n, broadcast<V>(neutral)));
    });
    return better(better(best[0], best[1]), better(best[2], best[3]));
}
}  // namespace detail
// NaN if the row has one.
template <class T, class Load>
TRACEA_INLINE T max_row(int64_t row, int64_t columns, const Load& source) {
    return reduce_max(detail::extreme_row<T>(row, columns, source, T(-__builtin_inf()),
                                             [](Vec<T> a, Vec<T> b) TRACEA_LAMBDA { return maximum(a, b); }));
}
template <class T, class Load>
TRACEA_INLINE T min_row(int64_t row, int64_t columns, const Load& source) {
    return reduce_min(detail::extreme_row<T>(row, columns, source, T(__builtin_inf()),
                                             [](Vec<T> a, Vec<T> b) TRACEA_LAMBDA { return minimum(a, b); }));
}

TRACEA_END_NAMESPACE

#endif
