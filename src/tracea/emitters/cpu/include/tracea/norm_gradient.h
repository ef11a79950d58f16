// Gradients of layer norm and RMS norm over a block of rows: rows of the gradient for x, and over them the sums of grad * normal and of grad, of which those
// for weight and bias are sums. The functors are those that rows.h describes, weight's for row 0 alone.
//
// A row takes two passes. The first finds all that its gradient needs, with d = x - pivot (see normalize.h): the sums of d, d^2, g and g * d, where g is
// grad * weight. The second one writes the gradient, for several rows at a time, so that the sums over rows are loaded and stored once for all of them. With
// Prefetch the first pass asks for x of the rows that come next, the second one for their grad.
//
// Of short rows the passes take less time than adding up lanes, a division and a root: as many rows as a vector has lanes are taken together, whose sums are
// added up by a transpose, and what follows from them is a lane each. Their first pass is two, about a mean that is known by then.
#ifndef TRACEA_NORM_GRADIENT_H
#define TRACEA_NORM_GRADIENT_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/normalize.h"
#include "tracea/rows.h"
#include "tracea/transpose.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// What the gradient of a row needs, each in all lanes: normal = (x - mean) * scale, gradient = scale * (g - normal * along - level).
template <class V>
struct RowSlope {
    V mean;
    V scale;
    V along;  // the mean of g * normal
    V level;  // the mean of g
};

// What rows of x are multiplied by in their slopes: other than one where the squares of a row leave the range.
template <class T>
struct RowFactors {
    static constexpr int rows = 16;  // that may be at hand at once
    T factor[rows];
    bool any;
    TRACEA_INLINE RowFactors() { clear(); }
    TRACEA_INLINE void clear() {
        for (int i = 0; i < rows; ++i) factor[i] = T(1);
        any = false;
    }
    TRACEA_INLINE T& of(int64_t row) { return factor[row % rows]; }
};

template <class V, bool Centered, class Grad, class Source, class Weight>
struct NormSlopes {
    using T = typename V::element;
    static constexpr T most_cancelled = 8;
    Grad grad;
    Source source;
    Weight weight;
    int64_t columns;
    double epsilon;
    RowFactors<T>* factors;

    TRACEA_INLINE V weighted(int64_t row, int64_t col, int64_t n) const {
        return mul(grad.template at<V>(row, col, n), weight.template at<V>(0, col, n));
    }
    TRACEA_INLINE T pivot_of(int64_t row) const {
        if (!Centered) return T(0);
        constexpr int64_t sample = row_unroll * V::lanes;
        V sum = zero<V>();
        for (int64_t col = 0; col < sample && col < columns; col += V::lanes) {
            const int64_t n = columns - col < V::lanes ? columns - col : V::lanes;
            sum = add(sum, with_neutral(source.template at<V>(row, col, n), n, zero<V>()));
        }
        return reduce_add(sum) / static_cast<T>(columns < sample ? columns : sample);
    }
    // Calls body(g, x - center, u) for each vector of a row; the lanes beyond the row are zero.
    template <int Ahead, class Body, class Fold>
    TRACEA_INLINE void each(int64_t row, int64_t next, T center, Body&& body, Fold&& fold) const {
        const V about = broadcast<V>(center);
        for_each_vector<V>(
            columns,
            [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
                if constexpr (Ahead > 0) {
                    if (next >= 0) source.prefetch(next, col);
                }
                const V x = source.template at<V>(row, col, n);
                body(weighted(row, col, n), with_neutral(Centered ? sub(x, about) : x, n, zero<V>()), u);
            },
            fold);
    }
    // The same from further passes, about the mean and with what is normalised. `spread` is the sum of squares.
    TRACEA_INLINE RowSlope<V> about_mean(int64_t row, T center, T level, T& spread) const {
        const T count = static_cast<T>(columns);
        if constexpr (Centered) {  // the pivot may have been far away, whose digits the mean has lost
            SumChains<V> beyond;
            each<0>(
                row, -1, center, [&](V, V d, auto u) TRACEA_LAMBDA { beyond.part[u] = add(beyond.part[u], d); },
                [&]() TRACEA_LAMBDA { beyond.fold(); });
            center += beyond.sum() / count;
        }
        SumChains<V> squares;
        each<0>(
            row, -1, center, [&](V, V d, auto u) TRACEA_LAMBDA { squares.part[u] = fma(d, d, squares.part[u]); },
            [&]() TRACEA_LAMBDA { squares.fold(); });
        spread = squares.sum();
        const T scale = finite_inverse_root<T>(spread, count, epsilon);
        SumChains<V> products;
        each<0>(
            row, -1, center,
            [&](V g, V d, auto u)
                TRACEA_LAMBDA { products.part[u] = fma(g, mul(d, broadcast<V>(scale)), products.part[u]); },
            [&]() TRACEA_LAMBDA { products.fold(); });
        return {broadcast<V>(center), broadcast<V>(scale), broadcast<V>(products.sum() / count), broadcast<V>(level)};
    }
    // The row times a power of two: its normal is the same, but for the epsilon, which is multiplied likewise.
    TRACEA_INLINE NormSlopes<V, Centered, Grad, ScaledLoad<T, Source>, Weight> scaled(T factor) const {
        const double own = scaled_epsilon(epsilon, static_cast<double>(factor));
        return {grad, {source, factor}, weight, columns, own, factors};
    }
    // Where sums about the pivot cancel, or leave the range of the type. By value: what no address is taken of stays in
    // registers where it is called.
    static TRACEA_NOINLINE RowSlope<V> in_steps(const NormSlopes slopes, int64_t row, T center, T level) {
        T spread = 0;
        const RowSlope<V> found = slopes.about_mean(row, center, level, spread);
        if (squares_hold(spread, static_cast<T>(slopes.columns), static_cast<T>(slopes.epsilon))) return found;
        const T factor = factor_of_rows<V>(row, row + 1, slopes.columns, slopes.source);
        if (factor == T(1)) return found;
        const auto near = slopes.scaled(factor);
        slopes.factors->of(row) = factor;
        slopes.factors->any = true;
        return near.about_mean(row, near.pivot_of(row), level, spread);
    }
    // `next` is a row to ask for, or negative.
    template <int Prefetch>
    TRACEA_INLINE RowSlope<V> find(int64_t row, int64_t next) const {
        const T count = static_cast<T>(columns), pivot = pivot_of(row);
        SumChains<V> sums, squares, levels, products;
        each<Prefetch>(
            row, next, pivot,
            [&](V g, V d, auto u) TRACEA_LAMBDA {
                squares.part[u] = fma(d, d, squares.part[u]);
                products.part[u] = fma(g, d, products.part[u]);
                if constexpr (Centered) {
                    sums.part[u] = add(sums.part[u], d);
                    levels.part[u] = add(levels.part[u], g);
                }
            },
            [&]() TRACEA_LAMBDA {
                squares.fold();
                products.fold();
                if constexpr (Centered) {
                    sums.fold();
                    levels.fold();
                }
            });
        const T about_pivot = squares.sum();
        const T beyond = Centered ? sums.sum() / count : T(0), level = Centered ? levels.sum() : T(0);
        const T sum = Centered ? about_pivot - beyond * (beyond * count) : about_pivot;
        const T along = Centered ? products.sum() - beyond * level : products.sum();
        const T most = SquareRange<T>::most, eps = static_cast<T>(epsilon);
        const bool held =
            about_pivot <= most_cancelled * sum && squares_hold(sum, count, eps) && along <= most && along >= -most;
        if (!held) return in_steps(*this, row, pivot + beyond, level / count);
        const T scale = inverse_root(sum, count, eps);
        return {broadcast<V>(pivot + beyond), broadcast<V>(scale), broadcast<V>(along * scale / count),
                broadcast<V>(level / count)};
    }
};

// Lane i: the sum of the lanes of rows[i].
template <class V>
TRACEA_INLINE V added_up(V (&rows)[V::lanes]) {
    transpose(rows);
    for (int step = V::lanes / 2; step > 0; step /= 2)
        for (int i = 0; i < step; ++i) rows[i] = add(rows[i], rows[i + step]);
    return rows[0];
}

// Vectors of a row, up to which rows are taken together.
constexpr int64_t kShortVectors = 20;

// The first passes over as many rows as a vector has lanes, from `row` on; `next` is the first row to ask for, or negative.
template <class V, bool Centered, int Prefetch, class Slopes>
TRACEA_NOINLINE void find_together(int64_t row, int64_t next, const Slopes& slopes, RowSlope<V>* found) {
    using T = typename V::element;
    constexpr int L = V::lanes;
    const T count = static_cast<T>(slopes.columns);
    const V share = broadcast<V>(T(1) / count);
    V sums[L], squares[L], products[L], levels[L], aways[L];
    T means[L], scales[L], alongs[L], mean_levels[L];
    // Two chains: what a row has to wait for is longer than what the core looks ahead.
    const auto walk = [&](auto&& body) TRACEA_LAMBDA {
        int64_t col = 0;
        for (; col + 2 * L <= slopes.columns; col += 2 * L) {
            body(col, int64_t{L}, constant<0>{});
            body(col + L, int64_t{L}, constant<1>{});
        }
        for (; col < slopes.columns; col += L)
            body(col, slopes.columns - col < L ? slopes.columns - col : int64_t{L}, constant<0>{});
    };
    V mean = zero<V>();
    if constexpr (Centered) {
        for (int r = 0; r < L; ++r) {
            V sum[2] = {zero<V>(), zero<V>()};
            walk([&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
                sum[u] = add(sum[u], with_neutral(slopes.source.template at<V>(row + r, col, n), n, zero<V>()));
            });
            sums[r] = add(sum[0], sum[1]);
        }
        mean = mul(added_up(sums), share);
    }
    store(means, mean);
    for (int r = 0; r < L; ++r) {
        const V about = broadcast<V>(means[r]);
        V square[2], product[2], level[2], away[2];
        for (int u = 0; u < 2; ++u) square[u] = product[u] = level[u] = away[u] = zero<V>();
        walk([&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
            if constexpr (Prefetch > 0) {
                if (next >= 0) slopes.source.prefetch(next + r, col);
            }
            const V x = slopes.source.template at<V>(row + r, col, n);
            const V d = with_neutral(Centered ? sub(x, about) : x, n, zero<V>());
            const V g = slopes.weighted(row + r, col, n);
            square[u] = fma(d, d, square[u]);
            product[u] = fma(g, d, product[u]);
            if constexpr (Centered) {
                level[u] = add(level[u], g);
                away[u] = add(away[u], d);
            }
        });
        squares[r] = add(square[0], square[1]);
        products[r] = add(product[0], product[1]);
        levels[r] = add(level[0], level[1]);
        aways[r] = add(away[0], away[1]);
    }
    // The mean was rounded: what is beyond it is taken off, as it is off a pivot. Of a row without spread nothing else is left.
    const V about_mean = added_up(squares), level = added_up(levels);
    V sum = about_mean, along = added_up(products);
    if constexpr (Centered) {
        const V beyond = mul(added_up(aways), share);
        sum = fnma(mul(beyond, beyond), broadcast<V>(count), sum);
        along = fnma(beyond, level, along);
        mean = add(mean, beyond);
    }
    const V spread = fma(sum, share, broadcast<V>(static_cast<T>(slopes.epsilon)));
    const V scale = div(broadcast<V>(T(1)), sqrt(spread));
    store(means, mean);
    store(scales, scale);
    store(alongs, mul(mul(along, scale), share));
    store(mean_levels, Centered ? mul(level, share) : zero<V>());
    using Range = SquareRange<T>;
    const V most = broadcast<V>(Range::most);
    const V limit = mul(sum, broadcast<V>(Slopes::most_cancelled));
    const auto held = mask_and(mask_and(less_equal(about_mean, limit), less_equal(broadcast<V>(Range::least), spread)),
                               mask_and(less_equal(spread, most), less_equal(abs(along), most)));
    T is_lost[L];
    store(is_lost, select(held, zero<V>(), broadcast<V>(T(1))));
    for (int r = 0; r < L; ++r) {
        found[r] = is_lost[r] != 0 ? Slopes::in_steps(slopes, row + r, means[r], mean_levels[r])
                                   : RowSlope<V>{broadcast<V>(means[r]), broadcast<V>(scales[r]),
                                                 broadcast<V>(alongs[r]), broadcast<V>(mean_levels[r])};
    }
}

// The second pass over `Rows` rows from `row` on; with `Begins` the sums begin with them.
template <class V, bool Centered, int Rows, bool Begins, int Prefetch, class Slopes, class Store>
TRACEA_INLINE void slope_rows(int64_t row, int64_t next, const Slopes& slopes, const RowSlope<V>* found,
                              typename V::element* sums, int64_t pitch, const Store& store) {
    RowSlope<V> own[Rows];
    unroll<Rows>([&](auto r) TRACEA_LAMBDA { own[r] = found[r]; });
    for_each_vector<V>(slopes.columns, [&](int64_t col, int64_t n, auto) TRACEA_LAMBDA {
        V products = Begins ? zero<V>() : load_partial<V>(sums + col, n);
        V levels = Begins || !Centered ? zero<V>() : load_partial<V>(sums + pitch + col, n);
        const V weight = slopes.weight.template at<V>(0, col, n);
        unroll<Rows>([&](auto r) TRACEA_LAMBDA {
            if constexpr (Prefetch > 0) {
                if (next >= 0) slopes.grad.prefetch(next + r, col);
            }
            const RowSlope<V>& slope = own[r];
            const V grad = slopes.grad.template at<V>(row + r, col, n);
            const V x = slopes.source.template at<V>(row + r, col, n);
            const V normal = mul(Centered ? sub(x, slope.mean) : x, slope.scale);
            V g = fnma(normal, slope.along, mul(grad, weight));
            if constexpr (Centered) {
                g = sub(g, slope.level);
                levels = add(levels, grad);
            }
            products = fma(grad, normal, products);
            store.template at<V>(row + r, col, mul(g, slope.scale), n);
        });
        store_partial(sums + col, products, n);
        if constexpr (Centered) store_partial(sums + pitch + col, levels, n);
    });
}

// The second pass over rows one at a time, of which some have a factor: rare.
template <class V, bool Centered, class Slopes, class Store>
TRACEA_NOINLINE void slope_each(int64_t row, int count, const Slopes& slopes, const RowSlope<V>* found,
                                typename V::element* sums, int64_t pitch, const Store& store) {
    const auto slope = [&](int64_t at, const auto& own, const RowSlope<V>* of, const auto& target) TRACEA_LAMBDA {
        if (at == 0)
            slope_rows<V, Centered, 1, true, 0>(at, -1, own, of, sums, pitch, target);
        else
            slope_rows<V, Centered, 1, false, 0>(at, -1, own, of, sums, pitch, target);
    };
    for (int r = 0; r < count; ++r) {
        using T = typename V::element;
        const T factor = slopes.factors->of(row + r);
        if (factor == T(1))
            slope(row + r, slopes, found + r, store);
        else
            slope(row + r, slopes.scaled(factor), found + r, ScaledStore<T, Store>{store, factor});
    }
    if (slopes.factors->any) slopes.factors->clear();
}

}  // namespace detail

// `sums` has a row for grad * normal and, Centered, one for grad, `pitch` elements apart. `Together` rows share the second pass.
template <class T, bool Centered, int Together, int Prefetch, class Grad, class Source, class Weight, class Store>
TRACEA_INLINE void norm_gradient_rows(int64_t rows, int64_t columns, double epsilon, T* sums, int64_t pitch,
                                      const Grad& grad, const Source& source, const Weight& weight,
                                      const Store& store) {
    using V = Vec<T>;
    using Slopes = detail::NormSlopes<V, Centered, Grad, Source, Weight>;
    detail::RowFactors<T> factors;
    static_assert(Together <= factors.rows && V::lanes <= factors.rows);
    const Slopes slopes{grad, source, weight, columns, epsilon, &factors};
    detail::RowSlope<V> found[Together];
    int64_t row = 0;
    if (columns <= detail::kShortVectors * V::lanes) {
        constexpr int few = 2;
        detail::RowSlope<V> all[V::lanes];
        for (; row + V::lanes <= rows; row += V::lanes) {
            const int64_t next = row + 2 * V::lanes <= rows ? row + V::lanes : -1;
            detail::find_together<V, Centered, Prefetch>(row, next, slopes, all);
            if (TRACEA_UNLIKELY(factors.any)) {
                detail::slope_each<V, Centered>(row, V::lanes, slopes, all, sums, pitch, store);
                continue;
            }
            for (int r = 0; r < V::lanes; r += few) {
                const int64_t first = row + r, after = next < 0 ? next : next + r;
                if (first == 0)
                    detail::slope_rows<V, Centered, few, true, Prefetch>(first, after, slopes, all, sums, pitch, store);
                else
                    detail::slope_rows<V, Centered, few, false, Prefetch>(first, after, slopes, all + r, sums, pitch,
                                                                          store);
            }
        }
    }
    for (; row + Together <= rows; row += Together) {
        const int64_t next = row + 2 * Together <= rows ? row + Together : -1;
        for (int r = 0; r < Together; ++r)
            found[r] = slopes.template find<Prefetch>(row + r, next < 0 ? next : next + r);
        if (TRACEA_UNLIKELY(factors.any))
            detail::slope_each<V, Centered>(row, Together, slopes, found, sums, pitch, store);
        else if (row == 0)
            detail::slope_rows<V, Centered, Together, true, Prefetch>(row, next, slopes, found, sums, pitch, store);
        else
            detail::slope_rows<V, Centered, Together, false, Prefetch>(row, next, slopes, found, sums, pitch, store);
    }
    for (; row < rows; ++row) {
        found[0] = slopes.template find<0>(row, -1);
        detail::slope_each<V, Centered>(row, 1, slopes, found, sums, pitch, store);
    }
}

TRACEA_END_NAMESPACE

#endif
