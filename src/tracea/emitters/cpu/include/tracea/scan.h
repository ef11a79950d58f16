// Cumulative sums along the rows or the columns of a block, with the load and store functors that rows.h describes.
//
// A carry is a sum and what it lost of its terms, so that the error does not grow with the length. Down columns nothing
// is lost. Along rows its terms are sums of four vectors, which are trees and lose some; at the end of each scan_run
// elements that others follow it is found again from the elements themselves. So a result errs by the trees of one run
// and one rounding. Backward, sums begin at the end.
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
    // The same, but that infinities leave NaN in `lost`. Multiplications by one let it go where the shuffles of sums do
    // not: with additions, which share a port with those, rows of 8192 in the caches took 1.2 times as long
    // on AVX2 and not 1.04 (on AVX-512, so, 1.2).
    TRACEA_INLINE void add_number(V term) {
        const V one = broadcast<V>(1);
        const V next = fma(sum, one, term);
        const V back = fnma(sum, one, next);
        const V rest = fnma(fnma(back, one, next), one, sum);
        lost = add(lost, fma(rest, one, fnma(back, one, term)));
        sum = next;
    }
    TRACEA_INLINE void join(const Carry& other) {
        add_number(other.sum);
        lost = add(lost, other.lost);
    }
};

// The sum of all lanes, in all lanes.
template <int Distance = 1, class V>
TRACEA_INLINE Carry<V> carry_of_lanes(Carry<V> lanes) {
    if constexpr (Distance >= V::lanes) {
        lanes.sum = repeat_first(lanes.sum);
        lanes.lost = repeat_first(lanes.lost);
        return lanes;
    } else {
        Carry<V> moved;
        moved.sum = shift_down<Distance>(lanes.sum);
        moved.lost = shift_down<Distance>(lanes.lost);
        lanes.join(moved);
        return carry_of_lanes<2 * Distance>(lanes);
    }
}

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

// Elements, a multiple of any four vectors: most rows have no more, and then cost no more than their sums.
constexpr int64_t scan_run = 4096;

}  // namespace detail

// Row by row, four vectors at once: sums within each, then of one and of two vectors before it, then the carry of all before, whose additions alone wait
// for each other.
template <class T, bool Backward = false, class Load, class Store>
TRACEA_INLINE void scan_rows(int64_t rows, int64_t columns, const Load& load, const Store& store) {
    using V = Vec<T>;
    constexpr int side = 4;
    constexpr int64_t wide = side * V::lanes;
    constexpr int64_t run = detail::scan_run / wide;
    const int64_t whole = columns / wide * wide;
    for (int64_t row = 0; row < rows; ++row) {
        detail::Carry<V> carry;
        detail::Carry<V> lanes;  // of the elements of a run, a sum in each lane
        const auto group = [&](int64_t col, auto is_followed) TRACEA_LAMBDA {
            V sums[side];
            unroll<side>([&](auto i) TRACEA_LAMBDA {
                constexpr int place = Backward ? side - 1 - i : i;
                const V x = load.template at<V>(row, col + place * V::lanes, V::lanes);
                if constexpr (is_followed) lanes.add_number(x);
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
        const auto all_groups = [&]() TRACEA_LAMBDA {
            constexpr int64_t step = Backward ? -wide : wide;
            int64_t col = Backward ? whole - wide : 0;
            int64_t left = whole / wide;
            for (; left > run; left -= run) {
                detail::Carry<V> exact = carry;
                lanes = detail::Carry<V>();
                for (const int64_t end = col + run * step; col != end; col += step) group(col, constant<1>{});
                exact.join(detail::carry_of_lanes(lanes));
                // A lane may leave the range of the type where no sum of the row does.
                const auto odd = unordered(exact.lost, exact.lost);
                carry.sum = select(odd, carry.sum, exact.sum);
                carry.lost = select(odd, carry.lost, exact.lost);
            }
            for (const int64_t end = col + left * step; col != end; col += step) group(col, constant<0>{});
        };
        if constexpr (Backward) {
            const int64_t tail = (columns - whole + V::lanes - 1) / V::lanes;
            for (int64_t i = tail; i-- > 0;) one(whole + i * V::lanes, i == 0 && whole == 0);
            all_groups();
        } else {
            all_groups();
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
