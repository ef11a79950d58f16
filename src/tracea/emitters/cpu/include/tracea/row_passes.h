// The passes of a normalization over blocks of rows, one after the other or overlapped; normalize.h has the kinds, what each pass does to a vector. Rows
// count from the block's first one.
//
// A row takes two or three passes. One after the other they wait in turn for what is read, for arithmetic, and for what is written. With Overlap, one loop
// makes the first pass over a row, the second over the row before it and the last over the row before that, so that the three waits are one; `buffer` then
// has room for as many rows as there are passes, normalize_pitch elements apart, else for one. Either way the arithmetic of a row is the same, in the same order.
//
// With Prefetch the first pass asks for what is that many vectors ahead; an overlapped last pass always asks for the lines that it will write.
#ifndef TRACEA_ROW_PASSES_H
#define TRACEA_ROW_PASSES_H

#include <stdint.h>

#include <type_traits>

#include "tracea/config.h"
#include "tracea/rows.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// Elements from one buffered row to the next: whole vectors, and four more, since rows a multiple of 4 KiB apart look like one address to the store buffer.
template <class V>
TRACEA_INLINE constexpr int64_t normalize_pitch(int64_t columns) {
    return ((columns + V::lanes - 1) / V::lanes + 4) * V::lanes;
}

namespace detail {

constexpr int write_ahead = 8;  // vectors from the store to the line that is asked for

// What all have in common: one vector of each pass, and what lies between the passes. A kind of normalisation overrides what it needs.
//
// A row that its load functor can give again at no cost (Load::again) is read from where it lies, which its first pass left in a near cache; any other is kept
// in the buffer. `kept` says that the buffer has the row at hand.
template <class V, class Load, class Store>
struct Passes {
    using T = typename V::element;
    const Load& source;
    const Store& target;
    bool kept = !Load::again;

    TRACEA_INLINE V read(int64_t row, int64_t col, int64_t n, T* at) const {
        const V x = source.template at<V>(row, col, n);
        if constexpr (!Load::again) store(at, x);
        return x;
    }
    TRACEA_INLINE V again(int64_t row, int64_t col, int64_t n, const T* at) const {
        if constexpr (Load::again) {
            if (!kept) return source.template at<V>(row, col, n);
        }
        return load<V>(at);
    }
    // Fills the buffer, for what is rare and changes the row.
    TRACEA_INLINE void keep(int64_t row, int64_t columns, T* at) {
        if constexpr (Load::again) {
            for_each_vector<V>(columns, [&](int64_t col, int64_t n, auto)
                                            TRACEA_LAMBDA { store(at + col, source.template at<V>(row, col, n)); });
            kept = true;
        }
    }
    TRACEA_INLINE void begin_second() {}
    template <class U>
    TRACEA_INLINE void second(int64_t, int64_t, int64_t, U, T*) {}
    TRACEA_INLINE void fold_second() {}
    TRACEA_INLINE void end_second() {}
};

template <class V, int Prefetch, class Kind>
TRACEA_INLINE void first_pass(int64_t row, int64_t columns, typename V::element* at, Kind& kind) {
    kind.begin_first(row, columns);
    for_each_vector<V>(
        columns,
        [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
            if constexpr (Prefetch > 0) kind.source.prefetch(row, col + Prefetch * V::lanes);
            kind.first(row, col, n, u, at + col);
        },
        [&]() TRACEA_LAMBDA { kind.fold_first(); });
    kind.end_first(row, columns, at);
}
template <class V, class Kind>
TRACEA_INLINE void second_pass(int64_t row, int64_t columns, typename V::element* at, Kind& kind) {
    kind.begin_second();
    for_each_vector<V>(
        columns, [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA { kind.second(row, col, n, u, at + col); },
        [&]() TRACEA_LAMBDA { kind.fold_second(); });
    kind.end_second();
}
template <class V, class Kind>
TRACEA_INLINE void last_pass(int64_t row, int64_t columns, const typename V::element* at, const Kind& kind) {
    for_each_vector<V>(columns, [&](int64_t col, int64_t n, auto)
                                    TRACEA_LAMBDA { kind.target.at(row, col, kind.last(row, col, n, at + col), n); });
}
// The first pass over `row`, the second over the row before it, the last over the row `oldest`: one loop.
template <class V, int Prefetch, class Kind>
TRACEA_INLINE void all_passes(int64_t row, int64_t oldest, int64_t columns, typename V::element* first,
                              typename V::element* second, const typename V::element* last, Kind& kind) {
    kind.begin_first(row, columns);
    kind.begin_second();
    for_each_vector<V>(
        columns,
        [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
            kind.target.prefetch(oldest, col + write_ahead * V::lanes);
            if constexpr (Prefetch > 0) kind.source.prefetch(row, col + Prefetch * V::lanes);
            kind.target.at(oldest, col, kind.last(oldest, col, n, last + col), n);
            if constexpr (Kind::passes == 3) kind.second(row - 1, col, n, u, second + col);
            kind.first(row, col, n, u, first + col);
        },
        [&]() TRACEA_LAMBDA {
            kind.fold_first();
            kind.fold_second();
        });
    // The second pass ends first: it began with what the first one of its row left.
    kind.end_second();
    kind.end_first(row, columns, first);
}

template <class V, bool Overlap, int Prefetch, class Kind>
TRACEA_INLINE void normalize_rows(int64_t rows, int64_t columns, typename V::element* buffer, Kind&& kind) {
    using T = typename V::element;
    using Plain = std::remove_reference_t<Kind>;
    constexpr int64_t behind = Plain::passes - 1;
    if constexpr (!Overlap) {
        for (int64_t row = 0; row < rows; ++row) {
            first_pass<V, Prefetch>(row, columns, buffer, kind);
            if constexpr (Plain::passes == 3) second_pass<V>(row, columns, buffer, kind);
            last_pass<V>(row, columns, buffer, kind);
        }
    } else {
        const int64_t pitch = normalize_pitch<V>(columns);
        T* first = buffer;
        T* second = buffer + pitch;
        T* last = buffer + behind * pitch;
        for (int64_t row = 0; row < rows + behind; ++row) {
            const int64_t oldest = row - behind;
            if (oldest >= 0 && row < rows) {
                all_passes<V, Prefetch>(row, oldest, columns, first, second, last, kind);
            } else {
                if (oldest >= 0) last_pass<V>(oldest, columns, last, kind);
                if constexpr (Plain::passes == 3) {
                    if (row >= 1 && row <= rows) second_pass<V>(row - 1, columns, second, kind);
                }
                if (row < rows) first_pass<V, Prefetch>(row, columns, first, kind);
            }
            T* const free = last;
            last = Plain::passes == 3 ? second : first;
            second = first;
            first = free;
        }
    }
}

}  // namespace detail

TRACEA_END_NAMESPACE

#endif
