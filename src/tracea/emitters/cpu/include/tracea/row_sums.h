// Sums of rows by index: out[r] is the sum of the rows x[i] whose index is r, and zero where no index is r.
//
// A task has a block of rows, and of columns. First it finds which i are of each of its rows, as a list in the order of i; then it walks its rows, sums
// those that have a list, and writes each row once. So no two tasks write one element, and what a sum rounds follows from the indices alone.
//
// Rows are added eight at a time, one after the other, and what adding up such sums rounds away is carried. So an error
// is at most seven roundings and one of the sum of magnitudes, however long the list; where eight rows cancel, their
// roundings stay. Carrying those too took 1.15 times as long on AVX-512 and twice on AVX2 (4096 rows of 768 into 8).
#ifndef TRACEA_ROW_SUMS_H
#define TRACEA_ROW_SUMS_H

#include <stdint.h>
#include <string.h>

#include "tracea/config.h"
#include "tracea/scan.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// heads[r] is the first i whose index is first + r, and links[i] the next one with the index of i: -1 where there is none, or the index is of no row here. The
// row `skipped`, none where negative, has no list.
template <class Index>
TRACEA_INLINE void chain_rows(int64_t count, const Index* indices, int64_t step, int64_t first, int64_t rows,
                              int64_t skipped, int32_t* heads, int32_t* links) {
    for (int64_t row = 0; row < rows; ++row) heads[row] = -1;
    // Backward, so that what is put in front of a list comes before the rest of it.
    for (int64_t i = count - 1; i >= 0; --i) {
        const uint64_t row = static_cast<uint64_t>(indices[i * step]) - static_cast<uint64_t>(first);
        int32_t link = -1;
        if (row < static_cast<uint64_t>(rows)) {
            link = heads[row];
            heads[row] = static_cast<int32_t>(i);
        }
        links[i] = link;
    }
    if (skipped >= first && skipped < first + rows) heads[skipped - first] = -1;
}

namespace detail {

constexpr int summed_together = 8;  // rows: added one after the other; what adding their sum rounds away is carried
constexpr int summed_wide = 32;     // vectors whose sums and carries stay in a first cache

// Calls body(col, n, vectors) for each four vectors of a row, then for each one, n elements in a vector.
template <class V, class Body>
TRACEA_INLINE void for_each_four(int64_t columns, Body&& body) {
    int64_t col = 0;
    for (; col + 4 * V::lanes <= columns; col += 4 * V::lanes) body(col, V::lanes, constant<4>{});
    for (; col + V::lanes <= columns; col += V::lanes) body(col, V::lanes, constant<1>{});
    if (col < columns) body(col, columns - col, constant<1>{});
}

// The first row from `row` on that has a list, `rows` where none has.
TRACEA_INLINE int64_t next_list(int64_t row, int64_t rows, const int32_t* heads) {
    constexpr int64_t several = 32;
    const int64_t near = rows - row < 4 ? rows : row + 4;
    for (; row < near; ++row) {
        if (heads[row] >= 0) return row;
    }
    for (; row + several <= rows; row += several) {
        int32_t all = -1;  // its sign is set where those of all heads are
        for (int64_t i = 0; i < several; ++i) all &= heads[row + i];
        if (all >= 0) break;
    }
    while (row < rows && heads[row] < 0) ++row;
    return row;
}

// The rows of a list from `next` on, as many as are summed together, and where the list goes on.
struct RowsTogether {
    int32_t places[summed_together];
    int count = 0;
    TRACEA_INLINE int32_t take(int32_t next, const int32_t* links) {
        for (count = 0; next >= 0 && count < summed_together; next = links[next]) places[count++] = next;
        return next;
    }
    template <class V, int Vectors, class Load>
    TRACEA_INLINE void sum(V* sums, int64_t col, int64_t n, const Load& load) const {
        unroll<Vectors>([&](auto u) TRACEA_LAMBDA { sums[u] = zero<V>(); });
        for (int i = 0; i < count; ++i) {
            unroll<Vectors>([&](auto u) TRACEA_LAMBDA {
                sums[u] = add(sums[u], load.template at<V>(places[i], col + u * V::lanes, n));
            });
        }
    }
};

}  // namespace detail

// What the lists of chain_rows sum up to, with the load and store functors that rows.h describes: load's rows are those of x. `y` is where the first row
// goes; in_stretches: its rows lie without gaps and few have a list, so that zeros are written from each of these to the next in one go.
template <class T, class Load, class Store, class Storage>
TRACEA_INLINE void sum_chained_rows(int64_t rows, int64_t columns, const int32_t* heads, const int32_t* links,
                                    const Load& load, const Store& store, Storage* y, bool in_stretches) {
    using V = Vec<T>;
    for (int64_t row = 0; row < rows; ++row) {
        if (in_stretches) {
            const int64_t listed = detail::next_list(row, rows, heads);
            const int64_t bytes = (listed - row) * columns * static_cast<int64_t>(sizeof(Storage));
            if (bytes > 0) memset(static_cast<void*>(y + row * columns), 0, static_cast<size_t>(bytes));
            row = listed;
            if (row == rows) return;
        }
        detail::RowsTogether list;
        int32_t next = list.take(heads[row], links);
        if (next < 0) {  // few rows, or none
            detail::for_each_four<V>(columns, [&](int64_t col, int64_t n, auto vectors) TRACEA_LAMBDA {
                V sums[vectors];
                list.template sum<V, vectors>(sums, col, n, load);
                unroll<vectors>([&](auto u)
                                    TRACEA_LAMBDA { store.template at<V>(row, col + u * V::lanes, sums[u], n); });
            });
            continue;
        }
        constexpr int64_t wide = detail::summed_wide * V::lanes;
        for (int64_t begin = 0; begin < columns; begin += wide) {
            const int64_t width = columns - begin < wide ? columns - begin : wide;
            detail::Carry<V> carries[detail::summed_wide];
            for (next = heads[row]; next >= 0;) {
                next = list.take(next, links);
                detail::for_each_four<V>(width, [&](int64_t col, int64_t n, auto vectors) TRACEA_LAMBDA {
                    V sums[vectors];
                    list.template sum<V, vectors>(sums, begin + col, n, load);
                    unroll<vectors>([&](auto u) TRACEA_LAMBDA { carries[col / V::lanes + u].add_term(sums[u]); });
                });
            }
            detail::for_each_four<V>(width, [&](int64_t col, int64_t n, auto vectors) TRACEA_LAMBDA {
                unroll<vectors>([&](auto u) TRACEA_LAMBDA {
                    const detail::Carry<V>& carry = carries[col / V::lanes + u];
                    store.template at<V>(row, begin + col + u * V::lanes, add(carry.sum, carry.lost), n);
                });
            });
        }
    }
}

TRACEA_END_NAMESPACE

#endif
