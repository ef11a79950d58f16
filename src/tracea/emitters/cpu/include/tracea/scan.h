// Cumulative sums along the rows or the columns of a block, with the load and store functors that rows.h describes.
//
// A carry is a sum and what it lost of its terms, so that the error does not grow with the length: a result errs by the additions of four vectors, which
// are a tree, and one rounding. Backward, sums begin at the end.
#ifndef TRACEA_SCAN_H
#define TRACEA_SCAN_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/shift.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

template <class V>
struct Carry {
    V sum;
    V lost;
    TRACEA_INLINE Carry() : sum(zero<V>()), lost(zero<V>()) {}
    TRACEA_INLINE void add_term(V term) {
        const V next = add(sum, term);
        const V back = sub(next, sum);
        const V error = add(sub(sum, sub(next, back)), sub(term, back));
        // Of infinities the difference is NaN, and nothing was lost.
        lost = add(lost, select(unordered(error, error), zero<V>(), error));
        sum = next;
    }
};

// Sums within a vector, of the lanes up to each or, backward, from each: lanes that are 1, 2, 4, ... away in turn. What is shifted in is zero, so that
// what is not finite reaches no lane before it.
template <bool Backward, int Distance = 1, class V>
TRACEA_INLINE V sums_in_vector(V x) {
    if constexpr (Distance >= V::lanes) {
        return x;
    } else if constexpr (Backward) {
        return sums_in_vector<Backward, 2 * Distance>(add(x, shift_down<Distance>(x)));
    } else {
        return sums_in_vector<Backward, 2 * Distance>(add(x, shift_up<Distance>(x)));
    }
}
// The sum of all lanes, in all lanes, of the sums in a vector.
template <bool Backward, class V>
TRACEA_INLINE V whole_sum(V sums) {
    if constexpr (Backward) {
        return repeat_first(sums);
    } else {
        return repeat_last(sums);
    }
}

}  // namespace detail

// Row by row, four vectors at once: sums within each, then of one and of two vectors before it, then the carry of all before, whose additions alone wait
// for each other.
template <class T, bool Backward = false, class Load, class Store>
TRACEA_INLINE void scan_rows(int64_t rows, int64_t columns, const Load& load, const Store& store) {
    using V = Vec<T>;
    constexpr int side = 4;
    constexpr int64_t wide = side * V::lanes;
    const int64_t whole = columns / wide * wide;
    for (int64_t row = 0; row < rows; ++row) {
        detail::Carry<V> carry;
        const auto group = [&](int64_t col) TRACEA_LAMBDA {
            V sums[side];
            unroll<side>([&](auto i) TRACEA_LAMBDA {
                constexpr int place = Backward ? side - 1 - i : i;
                const V x = load.template at<V>(row, col + place * V::lanes, V::lanes);
                sums[i] = detail::sums_in_vector<Backward>(x);
            });
            sums[1] = add(sums[1], detail::whole_sum<Backward>(sums[0]));
            sums[3] = add(sums[3], detail::whole_sum<Backward>(sums[2]));
            const V half = detail::whole_sum<Backward>(sums[1]);
            sums[2] = add(sums[2], half);
            sums[3] = add(sums[3], half);
            unroll<side>([&](auto i) TRACEA_LAMBDA {
                constexpr int place = Backward ? side - 1 - i : i;
                const V y = add(carry.sum, add(carry.lost, sums[i]));
                store.template at<V>(row, col + place * V::lanes, y, V::lanes);
            });
            carry.add_term(detail::whole_sum<Backward>(sums[3]));
        };
        // What nothing follows is added to nothing.
        const auto one = [&](int64_t col, bool last) TRACEA_LAMBDA {
            const int64_t n = columns - col < V::lanes ? columns - col : V::lanes;
            const V sums = detail::sums_in_vector<Backward>(load.template at<V>(row, col, n));
            store.template at<V>(row, col, add(carry.sum, add(carry.lost, sums)), n);
            if (!last) carry.add_term(detail::whole_sum<Backward>(sums));
        };
        if constexpr (Backward) {
            const int64_t tail = (columns - whole + V::lanes - 1) / V::lanes;
            for (int64_t i = tail; i-- > 0;) one(whole + i * V::lanes, i == 0 && whole == 0);
            for (int64_t col = whole - wide; col >= 0; col -= wide) group(col);
        } else {
            for (int64_t col = 0; col < whole; col += wide) group(col);
            for (int64_t col = whole; col < columns; col += V::lanes) one(col, col + V::lanes >= columns);
        }
    }
}

// Columns side by side: four vectors of sums go down the rows.
template <class T, bool Backward = false, class Load, class Store>
TRACEA_INLINE void scan_columns(int64_t rows, int64_t columns, const Load& load, const Store& store) {
    using V = Vec<T>;
    constexpr int side = 4;
    for (int64_t col = 0; col < columns; col += side * V::lanes) {
        detail::Carry<V> carry[side];
        for (int64_t done = 0; done < rows; ++done) {
            const int64_t row = Backward ? rows - 1 - done : done;
            unroll<side>([&](auto s) TRACEA_LAMBDA {
                const int64_t n = columns - col - s * V::lanes;
                if (n > 0) {
                    const int64_t lanes = n < V::lanes ? n : V::lanes;
                    carry[s].add_term(load.template at<V>(row, col + s * V::lanes, lanes));
                    store.template at<V>(row, col + s * V::lanes, add(carry[s].sum, carry[s].lost), lanes);
                }
            });
        }
    }
}

TRACEA_END_NAMESPACE

#endif
