// Mean and variance of columns, and a gradient's sum and sum of products with what is away from the mean, from one pass over the rows. The functors are those
// that rows.h describes.
//
// A part of the rows is summed about a pivot, the mean of its first rows, and kept about its own mean as that is stored, with what storing it left out. A part
// that joins others is moved to their pivot by the binomial: what that adds is between parts, and so is in the sum of squares that it is added to, which is why
// nothing cancels beyond the few bits that a pivot of a few rows may be away from the mean of many.
#ifndef TRACEA_MOMENTS_H
#define TRACEA_MOMENTS_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/rows.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// Of what there are moments alone.
struct NoGradient {};

namespace detail {

// The sums of some rows, of so many columns as a vector has lanes: d is what an element is beyond the pivot.
template <class V, bool Graded>
struct ColumnSums {
    using T = typename V::element;
    V pivot;
    V away;    // of d
    V square;  // of d^2
    V level;   // of the gradient
    V along;   // of the gradient times d

    static TRACEA_INLINE ColumnSums load(const T* at, int64_t pitch, int64_t n) {
        ColumnSums sums{load_partial<V>(at, n), load_partial<V>(at + pitch, n), load_partial<V>(at + 2 * pitch, n),
                        zero<V>(), zero<V>()};
        if constexpr (Graded) {
            sums.level = load_partial<V>(at + 3 * pitch, n);
            sums.along = load_partial<V>(at + 4 * pitch, n);
        }
        return sums;
    }
    TRACEA_INLINE void store(T* at, int64_t pitch, int64_t n) const {
        store_partial(at, pivot, n);
        store_partial(at + pitch, away, n);
        store_partial(at + 2 * pitch, square, n);
        if constexpr (Graded) {
            store_partial(at + 3 * pitch, level, n);
            store_partial(at + 4 * pitch, along, n);
        }
    }
    // Moves the pivot to the mean of the `count` rows; what is left of `away` is what rounding the mean leaves out.
    TRACEA_INLINE void center(T count) {
        const V rows = broadcast<V>(count), mean = add(pivot, div(away, rows)), moved = sub(mean, pivot);
        const V rest = fnma(rows, moved, away);
        square = fnma(moved, add(away, rest), square);
        if constexpr (Graded) along = fnma(moved, level, along);
        away = rest;
        pivot = mean;
    }
    // Adds `count` rows that were summed about a pivot of their own.
    TRACEA_INLINE void join(const ColumnSums& other, T count) {
        const V beyond = sub(other.pivot, pivot), shift = mul(broadcast<V>(count), beyond);
        square = add(square, fma(beyond, add(add(other.away, other.away), shift), other.square));
        away = add(away, add(other.away, shift));
        if constexpr (Graded) {
            along = add(along, fma(beyond, other.level, other.along));
            level = add(level, other.level);
        }
    }
};

constexpr int64_t pivot_rows = 8;

// Rows `row` to row + Rows - 1 of one vector of columns, added to the sums at `at`.
template <class V, bool Graded, int Rows, class Source, class Grad>
TRACEA_INLINE void add_rows(int64_t row, int64_t col, int64_t n, const Source& source, const Grad& grads,
                            typename V::element* at, int64_t pitch) {
    ColumnSums<V, Graded> sums = ColumnSums<V, Graded>::load(at, pitch, n);
    unroll<Rows>([&](auto r) TRACEA_LAMBDA {
        const V d = sub(source.template at<V>(row + r, col, n), sums.pivot);
        sums.away = add(sums.away, d);
        sums.square = fma(d, d, sums.square);
        if constexpr (Graded) {
            const V g = grads.template at<V>(row + r, col, n);
            sums.level = add(sums.level, g);
            sums.along = fma(g, d, sums.along);
        }
    });
    sums.store(at, pitch, n);
}

template <bool Graded, class Source, class Grad>
TRACEA_INLINE void ask_for(int64_t row, int64_t col, const Source& source, const Grad& grads) {
    source.prefetch(row, col);
    if constexpr (Graded) grads.prefetch(row, col);
}

}  // namespace detail

// The sums of `rows` rows, a row of `columns` numbers for each, `pitch` apart. Columns go by panels whose sums stay in the first cache. With Ahead it asks for
// the rows that are as many bytes ahead: four rows of two tensors at once are more than the processor follows from memory.
template <class T, bool Graded, int Ahead, class Source, class Grad>
TRACEA_INLINE void column_moments(int64_t rows, int64_t columns, const Source& source, const Grad& grads, T* sums,
                                  int64_t pitch) {
    using V = Vec<T>;
    using Sums = detail::ColumnSums<V, Graded>;
    constexpr int64_t panel = 2048 / sizeof(T), line = 64 / sizeof(T);
    const int64_t far = Ahead / (columns * static_cast<int64_t>(sizeof(T))), ahead = far < 4 ? 4 : far;
    const int64_t few = rows < detail::pivot_rows ? rows : detail::pivot_rows;
    for (int64_t first = 0; first < columns; first += panel) {
        const int64_t end = columns - first < panel ? columns : first + panel;
        const auto each = [&](auto&& body) TRACEA_LAMBDA {
            int64_t col = first;
            for (; col + V::lanes <= end; col += V::lanes) body(col, int64_t(V::lanes));
            if (col < end) body(col, end - col);
        };
        each([&](int64_t col, int64_t n) TRACEA_LAMBDA {
            const V about = source.template at<V>(0, col, n);
            V away = zero<V>();
            for (int64_t row = 1; row < few; ++row) away = add(away, sub(source.template at<V>(row, col, n), about));
            const V pivot = fma(away, broadcast<V>(T(1) / static_cast<T>(few)), about);
            Sums{pivot, zero<V>(), zero<V>(), zero<V>(), zero<V>()}.store(sums + col, pitch, n);
        });
        int64_t row = 0;
        for (; row + 4 <= rows; row += 4)
            each([&](int64_t col, int64_t n) TRACEA_LAMBDA {
                if constexpr (Ahead > 0)
                    if (col % line == 0)
                        unroll<4>([&](auto r)
                                      TRACEA_LAMBDA { detail::ask_for<Graded>(row + r + ahead, col, source, grads); });
                detail::add_rows<V, Graded, 4>(row, col, n, source, grads, sums + col, pitch);
            });
        for (; row < rows; ++row)
            each([&](int64_t col, int64_t n)
                     TRACEA_LAMBDA { detail::add_rows<V, Graded, 1>(row, col, n, source, grads, sums + col, pitch); });
        each([&](int64_t col, int64_t n) TRACEA_LAMBDA {
            Sums part = Sums::load(sums + col, pitch, n);
            part.center(static_cast<T>(rows));
            part.store(sums + col, pitch, n);
        });
    }
}

namespace detail {

// The moments of a column from further passes over its rows: where a sum is not finite, and a difference of two of them would have no meaning.
template <class V, bool Graded, class Source, class About, class Grad>
TRACEA_NOINLINE void moments_in_steps(int64_t rows, int64_t col, int64_t n, const Source source, const About about,
                                      const Grad grads, V (&moments)[4]) {
    using T = typename V::element;
    const V from = about.template at<V>(0, col, n), share = broadcast<V>(T(1) / static_cast<T>(rows));
    // In blocks, so that the error grows with their length and their number, not with rows.
    const auto sum = [&](auto&& term) TRACEA_LAMBDA {
        V total = zero<V>();
        for (int64_t first = 0; first < rows; first += 128) {
            const int64_t last = first + 128 < rows ? first + 128 : rows;
            V part = zero<V>();
            for (int64_t row = first; row < last; ++row)
                part = add(part, term(row, sub(source.template at<V>(row, col, n), from)));
            total = add(total, part);
        }
        return total;
    };
    const V mean = mul(sum([](int64_t, V d) TRACEA_LAMBDA { return d; }), share);
    moments[0] = mean;
    moments[1] = mul(sum([&](int64_t, V d) TRACEA_LAMBDA { return mul(sub(d, mean), sub(d, mean)); }), share);
    if constexpr (Graded) {
        moments[2] = sum([&](int64_t row, V) TRACEA_LAMBDA { return grads.template at<V>(row, col, n); });
        moments[3] =
            sum([&](int64_t row, V d) TRACEA_LAMBDA { return mul(grads.template at<V>(row, col, n), sub(d, mean)); });
    }
}

}  // namespace detail

// The moments of `rows` rows from those of parts of `step` rows, whose sums are `part_pitch` elements apart.
template <class T, bool Graded, class Source, class About, class Grad, class Store>
TRACEA_INLINE void fold_moments(int64_t step, int64_t rows, int64_t columns, const T* sums, int64_t part_pitch,
                                int64_t pitch, const Source& source, const About& about, const Grad& grads,
                                const Store& target) {
    using V = Vec<T>;
    using Sums = detail::ColumnSums<V, Graded>;
    constexpr int results = Graded ? 4 : 2;
    for (int64_t col = 0; col < columns; col += V::lanes) {
        const int64_t n = columns - col < V::lanes ? columns - col : V::lanes;
        Sums whole = Sums::load(sums + col, pitch, n);
        const T* at = sums + col;
        for (int64_t first = step; first < rows; first += step) {
            at += part_pitch;
            const int64_t last = first + step < rows ? first + step : rows;
            whole.join(Sums::load(at, pitch, n), static_cast<T>(last - first));
            whole.center(static_cast<T>(last));
        }
        const V share = broadcast<V>(T(1) / static_cast<T>(rows)), rest = mul(whole.away, share);
        V moments[4] = {add(sub(whole.pivot, about.template at<V>(0, col, n)), rest),
                        maximum(mul(fnma(rest, whole.away, whole.square), share), zero<V>()), whole.level,
                        fnma(rest, whole.level, whole.along)};
        V finite = zero<V>();  // times zero, what is not finite is NaN
        unroll<results>([&](auto i) TRACEA_LAMBDA { finite = fma(moments[i], zero<V>(), finite); });
        const auto odd = unordered(detail::with_neutral(finite, n, zero<V>()), zero<V>());
        if (TRACEA_UNLIKELY(any(odd))) {  // other columns keep their bits
            V found[4];
            detail::moments_in_steps<V, Graded>(rows, col, n, source, about, grads, found);
            unroll<results>([&](auto i) TRACEA_LAMBDA { moments[i] = select(odd, found[i], moments[i]); });
        }
        unroll<results>([&](auto i) TRACEA_LAMBDA { target.template at<V>(i, col, moments[i], n); });
    }
}

TRACEA_END_NAMESPACE

#endif
