// Reductions of slabs, rows and columns at once, to one number, and products; kinds and functors as in row_tiles.h. A slab's load also tells
// whether its rows of so many columns are one row.
#ifndef TRACEA_SLABS_H
#define TRACEA_SLABS_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// One number from the lanes of a vector, as a kind combines them.
template <class V>
TRACEA_INLINE typename V::element across_lanes(SumOf, V v) {
    return reduce_add(v);
}
template <class V>
TRACEA_INLINE typename V::element across_lanes(MaxOf, V v) {
    return reduce_max(v);
}
template <class V>
TRACEA_INLINE typename V::element across_lanes(MinOf, V v) {
    return reduce_min(v);
}

// A load whose columns are counted from one of them.
template <class Load>
struct From {
    const Load& load;
    int64_t first;
    template <class V>
    TRACEA_INLINE V at(int64_t row, int64_t col, int64_t n) const {
        return load.template at<V>(row, first + col, n);
    }
};

// Four chains a row, folded every 64 steps, as sum_row.
template <class T, class Kind, class Load>
TRACEA_INLINE Vec<T> combined_row(int64_t row, int64_t columns, const Load& load) {
    using V = Vec<T>;
    V total = Kind::template start<V>();
    V part[row_unroll];
    unroll<row_unroll>([&](auto u) TRACEA_LAMBDA { part[u] = Kind::template start<V>(); });
    for_each_vector<V>(
        columns,
        [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
            const V x = with_neutral(load.template at<V>(row, col, n), n, Kind::template start<V>());
            part[u] = Kind::combine(part[u], x);
        },
        [&]() TRACEA_LAMBDA {
            const V folded = Kind::combine(Kind::combine(part[0], part[1]), Kind::combine(part[2], part[3]));
            total = Kind::combine(total, folded);
            unroll<row_unroll>([&](auto u) TRACEA_LAMBDA { part[u] = Kind::template start<V>(); });
        });
    return total;
}

}  // namespace detail

struct ProductOf {
    template <class T, class Load>
    static TRACEA_INLINE T row(int64_t row, int64_t columns, const Load& load);
    template <class V>
    static TRACEA_INLINE V start() {
        return broadcast<V>(typename V::element(1));
    }
    template <class V>
    static TRACEA_INLINE V combine(V a, V b) {
        return mul(a, b);
    }
    template <class V>
    static TRACEA_INLINE V finish(V product, int64_t) {
        return product;
    }
};

namespace detail {
template <class V>
TRACEA_INLINE typename V::element across_lanes(ProductOf, V v) {
    typename V::element lanes[V::lanes];
    store(lanes, v);
    for (int width = V::lanes / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) lanes[i] *= lanes[i + width];
    return lanes[0];
}
}  // namespace detail

template <class T, class Load>
TRACEA_INLINE T ProductOf::row(int64_t row, int64_t columns, const Load& load) {
    return detail::across_lanes(ProductOf{}, detail::combined_row<T, ProductOf>(row, columns, load));
}

// One number for all rows and columns, stored at (0, 0). Rows are combined in blocks of 128, so that the error of a sum does not grow with their number; rows
// that follow each other without a gap are one row, in pieces of 64 folds.
template <class T, class Kind, class Load, class Store>
TRACEA_INLINE void reduce_slab(int64_t rows, int64_t columns, const Load& load, const Store& store) {
    using V = Vec<T>;
    constexpr int64_t block = 128;
    constexpr int64_t piece = 64 * 64 * detail::row_unroll * V::lanes;
    V total = Kind::template start<V>();
    if (load.is_one_row(columns)) {
        const int64_t all = rows * columns;
        for (int64_t first = 0; first < all; first += piece)
            total = Kind::combine(total, detail::combined_row<T, Kind>(0, all - first < piece ? all - first : piece,
                                                                       detail::From<Load>{load, first}));
    } else {
        for (int64_t first = 0; first < rows; first += block) {
            const int64_t last = first + block < rows ? first + block : rows;
            V part = Kind::template start<V>();
            for (int64_t row = first; row < last; ++row)
                part = Kind::combine(part, detail::combined_row<T, Kind>(row, columns, load));
            total = Kind::combine(total, part);
        }
    }
    const V value = broadcast<V>(detail::across_lanes(Kind{}, total));
    store.template at<V>(0, 0, Kind::finish(value, rows * columns), 1);
}

TRACEA_END_NAMESPACE

#endif
