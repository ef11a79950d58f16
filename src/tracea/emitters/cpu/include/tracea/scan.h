// Cumulative sums along the rows or the columns of a block, with the load and store functors that rows.h describes.
//
// A carry is a sum and what it lost of its terms, so that the error does not grow with the length: a result errs by the additions of one square block of
// vectors and one rounding. Backward, sums begin at the end.
#ifndef TRACEA_SCAN_H
#define TRACEA_SCAN_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/transpose.h"
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

}  // namespace detail

// As many rows as a vector has lanes side by side: a square block is transposed, added downwards, and transposed back.
template <class T, bool Backward = false, class Load, class Store>
TRACEA_INLINE void scan_rows(int64_t rows, int64_t columns, const Load& load, const Store& store) {
    using V = Vec<T>;
    constexpr int side = V::lanes;
    for (int64_t first = 0; first < rows; first += side) {
        const int64_t tall = rows - first < side ? rows - first : side;
        detail::Carry<V> carry;
        for (int64_t done = 0; done < columns; done += side) {
            const int64_t col = Backward ? (columns - 1) / side * side - done : done;
            const int64_t wide = columns - col < side ? columns - col : side;
            V block[side];
            for (int i = 0; i < side; ++i) block[i] = i < tall ? load.template at<V>(first + i, col, wide) : zero<V>();
            transpose(block);
            constexpr int last = Backward ? 0 : side - 1;
            constexpr int step = Backward ? -1 : 1;
            unroll<side - 1>([&](auto i) TRACEA_LAMBDA {
                constexpr int at = Backward ? side - 2 - i : i + 1;
                block[at] = add(block[at], block[at - step]);
            });
            const V term = block[last];
            unroll<side>([&](auto i) TRACEA_LAMBDA { block[i] = add(carry.sum, add(carry.lost, block[i])); });
            carry.add_term(term);
            transpose(block);
            for (int i = 0; i < tall; ++i) store.template at<V>(first + i, col, block[i], wide);
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
