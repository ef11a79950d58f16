// Pooling: a window of pixels becomes one, channel by channel.
//
//   pool_window<float, MaxOf, float>(x, {row, column, channel}, rows, columns, channels, count, store);
//
// Kind is one of row_tiles.h, count what a mean divides by, store the functor that rows.h describes; row 0 is the pixel.
#ifndef TRACEA_POOL_H
#define TRACEA_POOL_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/row_tiles.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

struct WindowStrides {
    int64_t row, column, channel;
};

namespace detail {

template <class V, class Storage>
TRACEA_INLINE V load_channels(const Storage* p, int64_t step, int64_t n) {
    constexpr bool natural = (sizeof(Storage) == 8) == (sizeof(typename V::element) == 8);
    if constexpr (natural) return step == 1 ? load_partial<V>(p, n) : load_strided<V>(p, step, n);
    return step == 1 ? load_partial_as<V>(p, n) : load_strided_as<V>(p, step, n);
}

// Side vectors of channels at once, the last of which may have fewer. Each row of the window has a part of its own, so that the error of a sum grows with
// rows + columns and not with their product.
template <class V, class Kind, int Side, class Storage, class Store>
TRACEA_INLINE void pool_vectors(const Storage* x, WindowStrides strides, int64_t rows, int64_t columns, int64_t first,
                                int64_t channels, int64_t count, const Store& store) {
    const auto lanes_of = [&](int64_t s) TRACEA_LAMBDA {
        const int64_t n = channels - first - s * V::lanes;
        return n < V::lanes ? n : int64_t{V::lanes};
    };
    V total[Side];
    unroll<Side>([&](auto s) TRACEA_LAMBDA { total[s] = Kind::template start<V>(); });
    for (int64_t i = 0; i < rows; ++i) {
        V part[Side];
        unroll<Side>([&](auto s) TRACEA_LAMBDA { part[s] = Kind::template start<V>(); });
        for (int64_t j = 0; j < columns; ++j) {
            const Storage* pixel = x + i * strides.row + j * strides.column;
            unroll<Side>([&](auto s) TRACEA_LAMBDA {
                const Storage* p = pixel + (first + s * V::lanes) * strides.channel;
                part[s] = Kind::combine(part[s], load_channels<V>(p, strides.channel, lanes_of(s)));
            });
        }
        unroll<Side>([&](auto s) TRACEA_LAMBDA { total[s] = Kind::combine(total[s], part[s]); });
    }
    unroll<Side>([&](auto s) TRACEA_LAMBDA {
        store.template at<V>(0, first + s * V::lanes, Kind::finish(total[s], count), lanes_of(s));
    });
}

// Side channels at once, on vectors of pixels of a row: where those are neighbours, and not channels, and enough of them to pay for a step across the lanes.
template <class V, class Kind, int Side, class Storage, class Store>
TRACEA_INLINE void pool_planes(const Storage* x, WindowStrides strides, int64_t rows, int64_t columns, int64_t first,
                               int64_t count, const Store& store) {
    V total[Side];
    unroll<Side>([&](auto s) TRACEA_LAMBDA { total[s] = Kind::template start<V>(); });
    for (int64_t i = 0; i < rows; ++i) {
        V part[Side];
        unroll<Side>([&](auto s) TRACEA_LAMBDA { part[s] = Kind::template start<V>(); });
        for (int64_t j = 0; j < columns; j += V::lanes) {
            const int64_t n = columns - j < V::lanes ? columns - j : int64_t{V::lanes};
            unroll<Side>([&](auto s) TRACEA_LAMBDA {
                const Storage* p = x + (first + s) * strides.channel + i * strides.row + j;
                const V pixels = with_neutral(load_channels<V>(p, 1, n), n, Kind::template start<V>());
                part[s] = Kind::combine(part[s], pixels);
            });
        }
        unroll<Side>([&](auto s) TRACEA_LAMBDA { total[s] = Kind::combine(total[s], part[s]); });
    }
    unroll<Side>([&](auto s) TRACEA_LAMBDA {
        store.template at<V>(0, first + s, Kind::finish(broadcast<V>(Kind::across(total[s])), count), 1);
    });
}

}  // namespace detail

template <class T, class Kind, class Storage, class Store>
TRACEA_INLINE void pool_window(const Storage* x, WindowStrides strides, int64_t rows, int64_t columns, int64_t channels,
                               int64_t count, const Store& store) {
    using V = Vec<T>;
    constexpr int side = 4;
    // What a window has at least for vectors of pixels: few of 16-bit elements, which are gathered one by one.
    constexpr int64_t wide = sizeof(Storage) == 2 ? 2 : 4, many = sizeof(Storage) == 2 ? 16 : 64;
    int64_t first = 0;
    if (strides.channel != 1 && strides.column == 1 && columns >= wide && rows * columns >= many) {
        for (; first + side <= channels; first += side)
            detail::pool_planes<V, Kind, side>(x, strides, rows, columns, first, count, store);
        for (; first < channels; ++first)
            detail::pool_planes<V, Kind, 1>(x, strides, rows, columns, first, count, store);
        return;
    }
    for (; first + (side - 1) * V::lanes < channels; first += side * V::lanes)
        detail::pool_vectors<V, Kind, side>(x, strides, rows, columns, first, channels, count, store);
    for (; first < channels; first += V::lanes)
        detail::pool_vectors<V, Kind, 1>(x, strides, rows, columns, first, channels, count, store);
}

TRACEA_END_NAMESPACE

#endif
