// The passes of a normalization over blocks of rows, one after the other or overlapped; normalize.h has the kinds, what each pass does to a vector. Rows
// count from the block's first one.
//
// A row takes two or three passes. One after the other they wait in turn for what is read, for arithmetic, and for what is written. With Overlap 1, one loop
// makes the first pass over row r, the second over the row before it and the last over the row before that, so that the three waits are one. With Overlap 2,
// which is for two passes, it makes the first pass over two rows and the last one over the two before them, at once or in turns: what the store functor reads
// of a column, as weight and bias, comes from the second-level cache once for both. Of three passes Overlap 2 makes the same at once as Overlap 1, but in
// turns of some vectors each, and over what one row leaves: less is in the nearest cache, and what is stored past the caches follows itself. Every way the
// arithmetic of a row is the same, in the same order.
//
// The last pass of three reads what the second one keeps for it, and the second writes there after it, so that little passes through the nearest cache.
// `buffer` has room for one row without overlap, else for normalize_rows_kept rows, normalize_pitch elements apart.
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

// Rows of the buffer.
constexpr int normalize_rows_kept(int passes, int overlap) {
    return overlap == 0 ? 1 : overlap == 1 ? passes : passes == 3 ? 2 : 4;
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
    TRACEA_INLINE void second(int64_t, int64_t, int64_t, U, const T*, T*) {}
    TRACEA_INLINE void fold_second() {}
    TRACEA_INLINE void end_second() {}
};

template <class V, int Prefetch, class Kind>
TRACEA_INLINE void first_pass(int64_t row, int64_t columns, typename V::element* at, Kind& kind) {
    kind.begin_first(row, columns);
    for_each_vector<V>(
        columns,
        [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
            if constexpr (Prefetch > 0 && begins_line<V>(u)) kind.source.prefetch(row, col + Prefetch * V::lanes);
            kind.first(row, col, n, u, at + col);
        },
        [&]() TRACEA_LAMBDA { kind.fold_first(); });
    kind.end_first(row, columns, at);
}
// `from` is where the first pass left the row, `to` what the last one will read.
template <class V, class Kind>
TRACEA_INLINE void second_pass(int64_t row, int64_t columns, const typename V::element* from, typename V::element* to,
                               Kind& kind) {
    kind.begin_second();
    for_each_vector<V>(
        columns,
        [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA { kind.second(row, col, n, u, from + col, to + col); },
        [&]() TRACEA_LAMBDA { kind.fold_second(); });
    kind.end_second();
}
template <class V, class Kind>
TRACEA_INLINE void last_pass(int64_t row, int64_t columns, const typename V::element* at, const Kind& kind) {
    for_each_vector<V>(columns, [&](int64_t col, int64_t n, auto)
                                    TRACEA_LAMBDA { kind.target.at(row, col, kind.last(row, col, n, at + col), n); });
}
// The second pass over `row`, the first over the next one and the last over the one before, in turns of some vectors: what one row leaves is in the way of no
// other, and stores past the caches follow each other while exponentials are computed. The row after those is asked for. `read` has the row where it is not
// read again, then the next one; `kept` has what the second pass over the row before left, then what that over `row` leaves.
template <class V, bool Finishes, bool Begins, class Kind>
TRACEA_INLINE void turning_passes(int64_t row, int64_t columns, typename V::element* read, typename V::element* kept,
                                  Kind& kind) {
    if constexpr (Begins) kind.begin_first(row + 1, columns);
    kind.begin_second();
    for_each_turn<V>(
        columns,
        [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
            if constexpr (Finishes) {
                if constexpr (begins_line<V>(u)) kind.target.prefetch(row - 1, col + write_ahead * V::lanes);
                kind.target.at(row - 1, col, kind.last(row - 1, col, n, kept + col), n);
            }
        },
        [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
            if constexpr (Begins && begins_line<V>(u)) kind.source.prefetch(row + 2, col);
            kind.second(row, col, n, u, read + col, kept + col);
            if constexpr (Begins) kind.first(row + 1, col, n, u, read + col);
        },
        [&]() TRACEA_LAMBDA {
            kind.fold_first();
            kind.fold_second();
        });
    kind.end_second();
    if constexpr (Begins) kind.end_first(row + 1, columns, read);
}
// The first pass over `row`, the second over the row before it, the last over the row `oldest`: one loop. Of two passes the last one reads `before`.
template <class V, int Prefetch, class Kind>
TRACEA_INLINE void all_passes(int64_t row, int64_t oldest, int64_t columns, typename V::element* first,
                              const typename V::element* before, typename V::element* done, Kind& kind) {
    kind.begin_first(row, columns);
    kind.begin_second();
    for_each_vector<V>(
        columns,
        [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
            if constexpr (begins_line<V>(u)) kind.target.prefetch(oldest, col + write_ahead * V::lanes);
            if constexpr (Prefetch > 0 && begins_line<V>(u)) kind.source.prefetch(row, col + Prefetch * V::lanes);
            if constexpr (Kind::passes == 3) {
                kind.target.at(oldest, col, kind.last(oldest, col, n, done + col), n);
                kind.second(row - 1, col, n, u, before + col, done + col);
            } else {
                kind.target.at(oldest, col, kind.last(oldest, col, n, before + col), n);
            }
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
// What a pair's pass over `row` asks for: the lines that it will write, and those that it will read.
template <class V, int Prefetch, class Kind, class U>
TRACEA_INLINE void ask_for_pair(int64_t row, int64_t columns, int64_t col, U u, const Kind& kind) {
    if constexpr (begins_line<V>(u)) {
        kind.target.prefetch(row - 2, col + write_ahead * V::lanes);
        prefetch_of_pair<V, Prefetch>(row, columns, col, kind.source);
    }
}
// The first pass over `row` and the next one, the last over the two before them: one loop, one kind for the rows of either parity. Vectors that are a line
// take turns. Smaller ones would leave half lines unfinished past the caches, and have too few registers for the sums of two rows: turns of some vectors.
template <class V, int Prefetch, class Kind>
TRACEA_INLINE void paired_passes(int64_t row, int64_t columns, typename V::element* first,
                                 const typename V::element* before, int64_t pitch, Kind& even, Kind& odd) {
    even.begin_first(row, columns);
    odd.begin_first(row + 1, columns);
    const auto fold = [&]() TRACEA_LAMBDA {
        even.fold_first();
        odd.fold_first();
    };
    if constexpr (vectors_a_line<V>() == 1) {
        for_each_vector<V>(
            columns,
            [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
                ask_for_pair<V, Prefetch>(row, columns, col, u, even);
                ask_for_pair<V, Prefetch>(row + 1, columns, col, u, odd);
                const V upper = even.last(row - 2, col, n, before + col);
                const V lower = odd.last(row - 1, col, n, before + pitch + col);
                even.first(row, col, n, u, first + col);
                odd.first(row + 1, col, n, u, first + pitch + col);
                even.target.at(row - 2, col, upper, n);
                odd.target.at(row - 1, col, lower, n);
            },
            fold);
    } else {
        for_each_turn<V>(
            columns,
            [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
                ask_for_pair<V, Prefetch>(row, columns, col, u, even);
                even.target.at(row - 2, col, even.last(row - 2, col, n, before + col), n);
                even.first(row, col, n, u, first + col);
            },
            [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
                ask_for_pair<V, Prefetch>(row + 1, columns, col, u, odd);
                odd.target.at(row - 1, col, odd.last(row - 1, col, n, before + pitch + col), n);
                odd.first(row + 1, col, n, u, first + pitch + col);
            },
            fold);
    }
    even.end_first(row, columns, first);
    odd.end_first(row + 1, columns, first + pitch);
}

template <class V, int Prefetch, class Kind>
TRACEA_INLINE void overlapped_rows(int64_t rows, int64_t columns, typename V::element* buffer, Kind& kind) {
    using T = typename V::element;
    constexpr int64_t behind = Kind::passes - 1;
    const int64_t pitch = normalize_pitch<V>(columns);
    T* first = buffer;
    T* before = buffer + pitch;
    T* const done = Kind::passes == 3 ? buffer + 2 * pitch : nullptr;
    for (int64_t row = 0; row < rows + behind; ++row) {
        const int64_t oldest = row - behind;
        if (oldest >= 0 && row < rows) {
            all_passes<V, Prefetch>(row, oldest, columns, first, before, done, kind);
        } else {
            if (oldest >= 0) last_pass<V>(oldest, columns, Kind::passes == 3 ? done : before, kind);
            if constexpr (Kind::passes == 3) {
                if (row >= 1 && row <= rows) second_pass<V>(row - 1, columns, before, done, kind);
            }
            if (row < rows) first_pass<V, Prefetch>(row, columns, first, kind);
        }
        T* const free = before;
        before = first;
        first = free;
    }
}
template <class V, int Prefetch, class Kind>
TRACEA_INLINE void paired_rows(int64_t rows, int64_t columns, typename V::element* buffer, Kind& even) {
    using T = typename V::element;
    const int64_t pitch = normalize_pitch<V>(columns);
    T* first = buffer;
    T* before = buffer + 2 * pitch;
    Kind odd = even;
    first_pass<V, Prefetch>(0, columns, before, even);
    first_pass<V, Prefetch>(1, columns, before + pitch, odd);
    int64_t row = 2;
    for (; row + 1 < rows; row += 2) {
        paired_passes<V, Prefetch>(row, columns, first, before, pitch, even, odd);
        T* const free = before;
        before = first;
        first = free;
    }
    last_pass<V>(row - 2, columns, before, even);
    last_pass<V>(row - 1, columns, before + pitch, odd);
    if (row < rows) {
        first_pass<V, Prefetch>(row, columns, first, even);
        last_pass<V>(row, columns, first, even);
    }
}

template <class V, int Prefetch, class Kind>
TRACEA_INLINE void turning_rows(int64_t rows, int64_t columns, typename V::element* read, Kind& kind) {
    typename V::element* const kept = read + normalize_pitch<V>(columns);
    first_pass<V, Prefetch>(0, columns, read, kind);
    if (rows > 1) turning_passes<V, false, true>(0, columns, read, kept, kind);
    for (int64_t row = 1; row < rows - 1; ++row) turning_passes<V, true, true>(row, columns, read, kept, kind);
    if (rows > 1)
        turning_passes<V, true, false>(rows - 1, columns, read, kept, kind);
    else
        second_pass<V>(0, columns, read, kept, kind);
    last_pass<V>(rows - 1, columns, kept, kind);
}

template <class V, int Overlap, int Prefetch, class Kind>
TRACEA_INLINE void normalize_rows(int64_t rows, int64_t columns, typename V::element* buffer, Kind&& kind) {
    using Plain = std::remove_reference_t<Kind>;
    if constexpr (Overlap == 1) {
        overlapped_rows<V, Prefetch>(rows, columns, buffer, kind);
    } else if constexpr (Overlap == 2 && Plain::passes == 3) {
        turning_rows<V, Prefetch>(rows, columns, buffer, kind);
    } else {
        if constexpr (Overlap == 2) {
            if (rows > 1) {
                paired_rows<V, Prefetch>(rows, columns, buffer, kind);
                return;
            }
        }
        for (int64_t row = 0; row < rows; ++row) {
            first_pass<V, Prefetch>(row, columns, buffer, kind);
            if constexpr (Plain::passes == 3) second_pass<V>(row, columns, buffer, buffer, kind);
            last_pass<V>(row, columns, buffer, kind);
        }
    }
}

}  // namespace detail

TRACEA_END_NAMESPACE

#endif
