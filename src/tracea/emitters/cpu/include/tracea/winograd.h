// Winograd's F(M, R), which are F(2, 3), F(4, 3) and F(2, 5): the transforms of an image, of filters and back. The products between them are ConvTile's (conv.h).
//
// A tile is M x M results, of N x N pixels, N = M + R - 1, at N * N places; places lie `plane` elements apart, tiles of a place `pitch`.
//
//   winograd_image<2, 3, float>(x, strides, height, width, top, left, rows, columns, channels, places, plane, pitch);
//   winograd_filters<2, 3, float, 2>(w, {r, s, c, k}, channels, filters, panel);
//   winograd_back<2, 3, float>(sums, plane, pitch, columns, p, q, filters, y, row_step, column_step, filter_step, epilogue_of_row);
#ifndef TRACEA_WINOGRAD_H
#define TRACEA_WINOGRAD_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/transpose.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// One axis of the transforms; the matrices are those of semantic/winograd.py (Lavin and Gray, 2016). The image's depends on its points alone.
template <int N>
struct WinogradPoints;

template <>
struct WinogradPoints<4> {
    static constexpr int n = 4;
    template <class V>
    static TRACEA_INLINE void image(const V (&d)[4], V (&t)[4]) {
        t[0] = sub(d[0], d[2]);
        t[1] = add(d[1], d[2]);
        t[2] = sub(d[2], d[1]);
        t[3] = sub(d[1], d[3]);
    }
};

template <>
struct WinogradPoints<6> {
    static constexpr int n = 6;
    template <class V>
    static TRACEA_INLINE void image(const V (&d)[6], V (&t)[6]) {
        using E = typename V::element;
        const V two = broadcast<V>(E(2)), four = broadcast<V>(E(4)), five = broadcast<V>(E(5));
        const V even = fnma(four, d[2], d[4]), odd = fnma(four, d[1], d[3]);  // d4 - 4 d2, d3 - 4 d1
        const V near = sub(d[4], d[2]), half = mul(two, sub(d[3], d[1]));
        t[0] = fma(four, d[0], fnma(five, d[2], d[4]));
        t[1] = add(even, odd);
        t[2] = sub(even, odd);
        t[3] = add(near, half);
        t[4] = sub(near, half);
        t[5] = fma(four, d[1], fnma(five, d[3], d[5]));
    }

    // Values of a filter at the six points, from the sums of its even and of its odd taps at 1 and at 2, and its ends.
    template <class V>
    static TRACEA_INLINE void scaled(const V& first, const V& last, const V& even, const V& odd, const V& even_at_two,
                                     const V& odd_at_two, V (&t)[6]) {
        using E = typename V::element;
        const V sixth = broadcast<V>(E(1) / E(6)), quarter = broadcast<V>(E(0.25)), part = broadcast<V>(E(1) / E(24));
        t[0] = mul(quarter, first);
        t[1] = neg(mul(sixth, add(even, odd)));
        t[2] = neg(mul(sixth, sub(even, odd)));
        t[3] = mul(part, add(even_at_two, odd_at_two));
        t[4] = mul(part, sub(even_at_two, odd_at_two));
        t[5] = last;
    }
};

template <int M, int R>
struct Winograd;

template <>
struct Winograd<2, 3> : WinogradPoints<4> {
    template <class V>
    static TRACEA_INLINE void filters(const V (&g)[3], V (&t)[4]) {
        const V half = broadcast<V>(typename V::element(0.5));
        const V outer = add(g[0], g[2]);
        t[0] = g[0];
        t[1] = mul(half, add(outer, g[1]));
        t[2] = mul(half, sub(outer, g[1]));
        t[3] = g[2];
    }
    template <class V>
    static TRACEA_INLINE void back(const V (&p)[4], V (&y)[2]) {
        y[0] = add(add(p[0], p[1]), p[2]);
        y[1] = sub(sub(p[1], p[2]), p[3]);
    }
};

template <>
struct Winograd<4, 3> : WinogradPoints<6> {
    template <class V>
    static TRACEA_INLINE void filters(const V (&g)[3], V (&t)[6]) {
        using E = typename V::element;
        const V two = broadcast<V>(E(2)), four = broadcast<V>(E(4));
        scaled(g[0], g[2], add(g[0], g[2]), g[1], fma(four, g[2], g[0]), mul(two, g[1]), t);
    }
    template <class V>
    static TRACEA_INLINE void back(const V (&p)[6], V (&y)[4]) {
        using E = typename V::element;
        const V two = broadcast<V>(E(2)), four = broadcast<V>(E(4)), eight = broadcast<V>(E(8));
        const V inner = add(p[1], p[2]), slope = sub(p[1], p[2]), outer = add(p[3], p[4]), steep = sub(p[3], p[4]);
        y[0] = add(add(p[0], inner), outer);
        y[1] = fma(two, steep, slope);
        y[2] = fma(four, outer, inner);
        y[3] = add(fma(eight, steep, slope), p[5]);
    }
};

template <>
struct Winograd<2, 5> : WinogradPoints<6> {
    template <class V>
    static TRACEA_INLINE void filters(const V (&g)[5], V (&t)[6]) {
        using E = typename V::element;
        const V two = broadcast<V>(E(2)), four = broadcast<V>(E(4)), eight = broadcast<V>(E(8)),
                sixteen = broadcast<V>(E(16));
        const V even = add(add(g[0], g[4]), g[2]), odd = add(g[1], g[3]);
        scaled(g[0], g[4], even, odd, fma(sixteen, g[4], fma(four, g[2], g[0])), fma(eight, g[3], mul(two, g[1])), t);
    }
    template <class V>
    static TRACEA_INLINE void back(const V (&p)[6], V (&y)[2]) {
        const V two = broadcast<V>(typename V::element(2));
        y[0] = add(add(p[0], add(p[1], p[2])), add(p[3], p[4]));
        y[1] = add(fma(two, sub(p[3], p[4]), sub(p[1], p[2])), p[5]);
    }
};

namespace detail {

// `lanes` channels of the pixels of one tile, all of them in the image if Inside; `first` and `last` bound the rows and columns that are.
template <int M, int R, class V, bool Inside, class Storage>
TRACEA_INLINE void winograd_tile(const Storage* x, const ImageStrides& strides, const int64_t (&rows)[2],
                                 const int64_t (&columns)[2], int64_t lanes, typename V::element* places,
                                 int64_t plane) {
    using W = Winograd<M, R>;
    constexpr int N = W::n;
    V half[N][N];
    unroll<N>([&](auto j) TRACEA_LAMBDA {
        V d[N], t[N];
        unroll<N>([&](auto i) TRACEA_LAMBDA {
            const Storage* pixel = x + i * strides.row + j * strides.column;
            if (Inside || (i >= rows[0] && i < rows[1] && j >= columns[0] && j < columns[1])) {
                d[i] = lanes >= V::lanes ? load<V>(pixel) : load_partial<V>(pixel, lanes);
            } else {
                d[i] = zero<V>();
            }
        });
        W::image(d, t);
        unroll<N>([&](auto i) TRACEA_LAMBDA { half[i][j] = t[i]; });
    });
    unroll<N>([&](auto i) TRACEA_LAMBDA {
        V t[N];
        W::image(half[i], t);
        unroll<N>([&](auto j) TRACEA_LAMBDA {
            typename V::element* place = places + (N * i + j) * plane;
            if (lanes >= V::lanes) {
                store(place, t[j]);
            } else {
                store_partial(place, t[j], lanes);
            }
        });
    });
}

}  // namespace detail

// rows x columns tiles, the first one's pixels beginning at (top, left), with zeros where the image of height x width has none. `x` is its first element.
template <int M, int R, class T, class Storage>
TRACEA_NOINLINE void winograd_image(const Storage* x, ImageStrides strides, int64_t height, int64_t width, int64_t top,
                                    int64_t left, int64_t rows, int64_t columns, int64_t channels, T* places,
                                    int64_t plane, int64_t pitch) {
    using V = Vec<T>;
    constexpr int N = Winograd<M, R>::n;
    for (int64_t i = 0; i < rows; ++i) {
        const int64_t y = top + M * i;
        const int64_t inner_rows[2] = {y < 0 ? -y : 0, height - y};
        for (int64_t j = 0; j < columns; ++j, places += pitch) {
            const int64_t z = left + M * j;
            const int64_t inner_columns[2] = {z < 0 ? -z : 0, width - z};
            const bool inside = y >= 0 && z >= 0 && inner_rows[1] >= N && inner_columns[1] >= N;
            for (int64_t c = 0; c < channels; c += V::lanes) {
                const int64_t lanes = channels - c;
                const Storage* first = x + y * strides.row + z * strides.column + c;
                if (TRACEA_LIKELY(inside)) {
                    detail::winograd_tile<M, R, V, true>(first, strides, inner_rows, inner_columns, lanes, places + c,
                                                         plane);
                } else {
                    detail::winograd_tile<M, R, V, false>(first, strides, inner_rows, inner_columns, lanes, places + c,
                                                          plane);
                }
            }
        }
    }
}

// Distances in elements from a tap's row, a tap's column, a channel and a filter to the next.
struct FilterStrides {
    int64_t row;
    int64_t column;
    int64_t channel;
    int64_t filter;
};

namespace detail {

// One channel of a vector of filters: R x R taps to N x N places.
template <int M, int R, class V>
TRACEA_INLINE void winograd_taps(const V (&g)[R][R], typename V::element* place, int64_t plane) {
    using W = Winograd<M, R>;
    constexpr int N = W::n;
    V half[N][R];
    unroll<R>([&](auto s) TRACEA_LAMBDA {
        V column[R], t[N];
        unroll<R>([&](auto r) TRACEA_LAMBDA { column[r] = g[r][s]; });
        W::filters(column, t);
        unroll<N>([&](auto i) TRACEA_LAMBDA { half[i][s] = t[i]; });
    });
    unroll<N>([&](auto i) TRACEA_LAMBDA {
        V t[N];
        W::filters(half[i], t);
        unroll<N>([&](auto j) TRACEA_LAMBDA { store(place + (N * i + j) * plane, t[j]); });
    });
}

}  // namespace detail

// A panel of NV vectors of filters, of which `filters` are there: (places, channels, NV * lanes).
template <int M, int R, class T, int NV, class Storage>
TRACEA_NOINLINE void winograd_filters(const Storage* w, FilterStrides strides, int64_t channels, int64_t filters,
                                      T* panel) {
    using V = Vec<T>;
    constexpr int L = V::lanes, taps = R * R;
    const int64_t plane = channels * NV * L;
    const bool in_order = strides.column == 1 && strides.row == R && strides.channel == taps;
    for (int v = 0; v < NV; ++v) {
        const int64_t left = filters - v * L;
        const int64_t valid = left < 0 ? 0 : left < L ? left : L;
        const Storage* first = w + v * L * strides.filter;
        T* target = panel + v * L;
        for (int64_t c = 0; c < channels; c += L) {
            const int64_t some = channels - c < L ? channels - c : L;
            V values[taps * L];  // of L channels, a vector of filters each
            if (in_order) {
                for (int64_t e = 0; e < taps * some; e += L) {
                    V block[L];
                    for (int k = 0; k < L; ++k)
                        block[k] = k < valid
                                       ? load_partial<V>(first + k * strides.filter + taps * c + e, taps * some - e)
                                       : zero<V>();
                    transpose(block);
                    for (int k = 0; k < L; ++k) values[e + k] = block[k];
                }
            } else {
                for (int64_t i = 0; i < some; ++i)
                    for (int tap = 0; tap < taps; ++tap)
                        values[taps * i + tap] = load_strided<V>(
                            first + (c + i) * strides.channel + tap / R * strides.row + tap % R * strides.column,
                            strides.filter, valid);
            }
            for (int64_t i = 0; i < some; ++i) {
                V g[R][R];
                for (int tap = 0; tap < taps; ++tap) g[tap / R][tap % R] = values[taps * i + tap];
                detail::winograd_taps<M, R>(g, target + (c + i) * NV * L, plane);
            }
        }
    }
}

// p x q results of rows of `columns` tiles each, stored through an epilogue: `epilogue_of(row)` is that of a row of results.
template <int M, int R, class T, class Storage, class EpilogueOf>
TRACEA_INLINE void winograd_back(const T* sums, int64_t plane, int64_t pitch, int64_t columns, int64_t p, int64_t q,
                                 int64_t filters, Storage* y, int64_t row_step, int64_t column_step,
                                 int64_t filter_step, const EpilogueOf& epilogue_of) {
    using V = Vec<T>;
    using W = Winograd<M, R>;
    constexpr int N = W::n;
    for (int64_t i = 0; i < p; i += M) {
        for (int64_t j = 0; j < columns; ++j, sums += pitch) {
            for (int64_t k = 0; k < filters; k += V::lanes) {
                const int64_t lanes = filters - k < V::lanes ? filters - k : int64_t{V::lanes};
                V half[M][N];
                unroll<N>([&](auto column) TRACEA_LAMBDA {
                    V place[N], t[M];
                    unroll<N>([&](auto row) TRACEA_LAMBDA {
                        const T* from = sums + (N * row + column) * plane + k;
                        place[row] = lanes >= V::lanes ? load<V>(from) : load_partial<V>(from, lanes);
                    });
                    W::back(place, t);
                    unroll<M>([&](auto row) TRACEA_LAMBDA { half[row][column] = t[row]; });
                });
                unroll<M>([&](auto row) TRACEA_LAMBDA {
                    if (i + row >= p) return;
                    V result[M];
                    W::back(half[row], result);
                    const auto epilogue = epilogue_of(i + row);
                    unroll<M>([&](auto column) TRACEA_LAMBDA {
                        const int64_t at = M * j + column;
                        if (at >= q) return;
                        Storage* target = y + (i + row) * row_step + at * column_step + k * filter_step;
                        const V value = epilogue(result[column], at, k, lanes);
                        if (filter_step != 1) {
                            store_strided(target, filter_step, value, lanes);
                        } else if (lanes >= V::lanes) {
                            store(target, value);
                        } else {
                            store_partial(target, value, lanes);
                        }
                    });
                });
            }
        }
    }
}

TRACEA_END_NAMESPACE

#endif
