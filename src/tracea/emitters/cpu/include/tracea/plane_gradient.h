// Gradients of group norm and batch norm over the planes of a group: their gradient for x, and the sums of grad * normal and of grad, which those for weight
// and bias are, or are sums of. The functors are those that rows.h describes: a row is a plane, weight's one value is in column 0.
//
// The planes take two passes. The first finds all that the gradient needs, with d = x - pivot (see normalize.h): the sums of d and d^2 over all planes, and
// those of grad and grad * d over each, which its weight multiplies. The second one writes the gradient.
#ifndef TRACEA_PLANE_GRADIENT_H
#define TRACEA_PLANE_GRADIENT_H

#include <stdint.h>

#include <type_traits>

#include "tracea/config.h"
#include "tracea/normalize.h"
#include "tracea/rows.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// A sum in two chains: four sums of four each are more than 16 registers.
template <class V>
struct ChainPair {
    V part[2];
    V total;
    TRACEA_INLINE ChainPair() : total(zero<V>()) { part[0] = part[1] = zero<V>(); }
    TRACEA_INLINE void fold() {
        total = add(total, add(part[0], part[1]));
        part[0] = part[1] = zero<V>();
    }
    // The sum, which begins anew.
    TRACEA_INLINE typename V::element take() {
        const typename V::element sum = reduce_add(total);
        total = zero<V>();
        return sum;
    }
};

template <class T>
struct PlaneSlope {
    T mean;
    T scale;
    T along;       // the mean of g * normal, g the gradient times the weight
    T level;       // the mean of g
    T factor = 1;  // x is times this in all of them: other than 1 where squares leave the range
};

// `sums` has a row for grad * normal and one for grad, `pitch` elements apart: PerPlane a number for each plane, or one for all.
template <class V, bool PerPlane, class Grad, class Source, class Weight>
struct PlaneSlopes {
    using T = typename V::element;
    using Total = std::conditional_t<PerPlane, double, T>;  // of as many sums as there are planes, or of one
    static constexpr T most_cancelled = 8;
    Grad grad;
    Source source;
    Weight weight;
    int64_t planes;
    int64_t length;
    double epsilon;
    T* sums;
    int64_t pitch;

    TRACEA_INLINE T weight_of(int64_t plane) const {
        T lanes[V::lanes];
        store(lanes, weight.template at<V>(plane, 0, V::lanes));
        return lanes[0];
    }
    // A number near the mean; of few elements the first, which is nearly always near enough, and costs nothing.
    TRACEA_INLINE T pivot() const {
        constexpr int64_t sample = row_unroll * V::lanes;
        if (planes * length <= 4 * sample) {
            T lanes[V::lanes];
            store(lanes, source.template at<V>(0, 0, length < V::lanes ? length : V::lanes));
            return lanes[0];
        }
        V sum = zero<V>();
        for (int64_t col = 0; col < sample && col < length; col += V::lanes) {
            const int64_t n = length - col < V::lanes ? length - col : V::lanes;
            sum = add(sum, with_neutral(source.template at<V>(0, col, n), n, zero<V>()));
        }
        return reduce_add(sum) / static_cast<T>(length < sample ? length : sample);
    }
    // Calls body(grad, x - center, u) for each vector of a plane; the lanes beyond it are zero.
    template <class Body, class Fold>
    TRACEA_INLINE void each(int64_t plane, T center, Body&& body, Fold&& fold) const {
        const V about = broadcast<V>(center);
        for_each_vector<V>(
            length,
            [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
                const V d = with_neutral(sub(source.template at<V>(plane, col, n), about), n, zero<V>());
                body(grad.template at<V>(plane, col, n), d, u);
            },
            fold);
    }
    // Adds the sums of g and of g * d * scale over planes begin .. end, which share a weight: that weight times the sums of grad, but for one that is not
    // finite, whose products may be infinities of both signs.
    TRACEA_INLINE void weigh(int64_t begin, int64_t end, T center, T scale, T sum, T product, Total& level,
                             Total& along) const {
        const T w = weight_of(begin);
        if (TRACEA_UNLIKELY(!(w - w == T(0)))) {
            weigh_each(*this, begin, end, center, scale, sum, product);
            level += static_cast<Total>(sum);
            along += static_cast<Total>(product);
            return;
        }
        level += static_cast<Total>(w) * static_cast<Total>(sum);
        along += static_cast<Total>(w) * static_cast<Total>(product);
    }
    static TRACEA_NOINLINE void weigh_each(const PlaneSlopes slopes, int64_t begin, int64_t end, T center, T scale,
                                           T& sum, T& product) {
        ChainPair<V> levels, products;
        const V w = broadcast<V>(slopes.weight_of(begin)), about = broadcast<V>(center), factor = broadcast<V>(scale);
        for (int64_t plane = begin; plane < end; ++plane)
            for_each_vector<V>(
                slopes.length,
                [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
                    // The lanes beyond a plane are zeros only now.
                    const V g = with_neutral(mul(slopes.grad.template at<V>(plane, col, n), w), n, zero<V>());
                    const V d = with_neutral(sub(slopes.source.template at<V>(plane, col, n), about), n, zero<V>());
                    levels.part[u % 2] = add(levels.part[u % 2], g);
                    products.part[u % 2] = fma(g, mul(d, factor), products.part[u % 2]);
                },
                [&]() TRACEA_LAMBDA {
                    levels.fold();
                    products.fold();
                });
        sum = levels.take();
        product = products.take();
    }
    // The same from further passes, about the mean and with what is normalised. `spread` is the sum of squares.
    TRACEA_INLINE PlaneSlope<T> about_mean(T center, T level, T& spread) const {
        const T count = static_cast<T>(planes) * static_cast<T>(length);
        ChainPair<V> beyond, squares, products;
        for (int64_t plane = 0; plane < planes; ++plane)  // the pivot may have been far away
            each(
                plane, center, [&](V, V d, auto u) TRACEA_LAMBDA { beyond.part[u % 2] = add(beyond.part[u % 2], d); },
                [&]() TRACEA_LAMBDA { beyond.fold(); });
        center += beyond.take() / count;
        for (int64_t plane = 0; plane < planes; ++plane)
            each(
                plane, center,
                [&](V, V d, auto u) TRACEA_LAMBDA { squares.part[u % 2] = fma(d, d, squares.part[u % 2]); },
                [&]() TRACEA_LAMBDA { squares.fold(); });
        spread = squares.take();
        const T scale = finite_inverse_root<T>(spread, count, epsilon);
        Total along = 0, unused = 0;
        for (int64_t plane = 0; plane < planes; ++plane) {
            each(
                plane, center,
                [&](V g, V d, auto u)
                    TRACEA_LAMBDA { products.part[u % 2] = fma(g, mul(d, broadcast<V>(scale)), products.part[u % 2]); },
                [&]() TRACEA_LAMBDA { products.fold(); });
            if (PerPlane || plane + 1 == planes) {
                const T product = products.take();
                sums[PerPlane ? plane : 0] = product;
                weigh(PerPlane ? plane : 0, plane + 1, center, scale, T(0), product, unused, along);
            }
        }
        return {center, scale, static_cast<T>(along / static_cast<Total>(count)), level};
    }
    // The planes times a power of two: their normal is the same, but for the epsilon, which is multiplied likewise.
    TRACEA_INLINE PlaneSlopes<V, PerPlane, Grad, ScaledLoad<T, Source>, Weight> scaled(T factor) const {
        const double own = scaled_epsilon(epsilon, static_cast<double>(factor));
        return {grad, {source, factor}, weight, planes, length, own, sums, pitch};
    }
    // Where sums about the pivot cancel, or leave the range of the type. By value: what no address is taken of stays in
    // registers where it is called.
    static TRACEA_NOINLINE PlaneSlope<T> in_steps(const PlaneSlopes slopes, T center, T level) {
        const T count = static_cast<T>(slopes.planes) * static_cast<T>(slopes.length);
        T spread = 0;
        const PlaneSlope<T> found = slopes.about_mean(center, level, spread);
        if (squares_hold(spread, count, static_cast<T>(slopes.epsilon))) return found;
        const T factor = factor_of_rows<V>(0, slopes.planes, slopes.length, slopes.source);
        if (factor == T(1)) return found;
        const auto near = slopes.scaled(factor);
        PlaneSlope<T> slope = near.about_mean(near.pivot(), level, spread);
        slope.factor = factor;
        return slope;
    }
    TRACEA_INLINE PlaneSlope<T> find() const {
        const T count = static_cast<T>(planes) * static_cast<T>(length), share = T(1) / count, about = pivot();
        const T eps = static_cast<T>(epsilon);
        ChainPair<V> away, squares, levels, products;
        Total level = 0, along = 0;
        for (int64_t plane = 0; plane < planes; ++plane) {
            each(
                plane, about,
                [&](V g, V d, auto u) TRACEA_LAMBDA {
                    constexpr int chain = u % 2;
                    away.part[chain] = add(away.part[chain], d);
                    squares.part[chain] = fma(d, d, squares.part[chain]);
                    levels.part[chain] = add(levels.part[chain], g);
                    products.part[chain] = fma(g, d, products.part[chain]);
                },
                [&]() TRACEA_LAMBDA {
                    away.fold();
                    squares.fold();
                    levels.fold();
                    products.fold();
                });
            if (PerPlane || plane + 1 == planes) {
                const T sum = levels.take(), product = products.take();
                sums[PerPlane ? plane : 0] = product;
                sums[pitch + (PerPlane ? plane : 0)] = sum;
                weigh(PerPlane ? plane : 0, plane + 1, about, T(1), sum, product, level, along);
            }
        }
        const T about_pivot = squares.take(), beyond = away.take() * share;
        const T spread = about_pivot - beyond * (beyond * count);
        along -= static_cast<Total>(beyond) * level;
        const T mean_level = static_cast<T>(level * static_cast<Total>(share));
        const Total most = static_cast<Total>(SquareRange<T>::most);
        const bool held = about_pivot <= most_cancelled * spread && squares_hold(spread, count, eps) && along <= most &&
                          along >= -most;
        if (!held) return in_steps(*this, about + beyond, mean_level);
        const T scale = inverse_root(spread, count, eps);
        for (int64_t i = 0; i < (PerPlane ? planes : 1); ++i) sums[i] = (sums[i] - beyond * sums[pitch + i]) * scale;
        return {about + beyond, scale, static_cast<T>(along * static_cast<Total>(scale) * static_cast<Total>(share)),
                mean_level};
    }
};

// The second pass.
template <class V, class Slopes, class Store>
TRACEA_INLINE void slope_planes(const Slopes& slopes, const PlaneSlope<typename V::element>& slope,
                                const Store& target) {
    const V mean = broadcast<V>(slope.mean), scale = broadcast<V>(slope.scale);
    const V along = broadcast<V>(slope.along), level = broadcast<V>(slope.level);
    for (int64_t plane = 0; plane < slopes.planes; ++plane) {
        const V own = broadcast<V>(slopes.weight_of(plane));
        for_each_vector<V>(slopes.length, [&](int64_t col, int64_t n, auto) TRACEA_LAMBDA {
            const V normal = mul(sub(slopes.source.template at<V>(plane, col, n), mean), scale);
            const V g = fnma(normal, along, mul(slopes.grad.template at<V>(plane, col, n), own));
            target.template at<V>(plane, col, mul(sub(g, level), scale), n);
        });
    }
}
template <class V, class Slopes, class Store>
TRACEA_NOINLINE void slope_scaled_planes(const Slopes slopes, const PlaneSlope<typename V::element> slope,
                                         const Store target) {
    slope_planes<V>(slopes.scaled(slope.factor), slope, ScaledStore<typename V::element, Store>{target, slope.factor});
}

}  // namespace detail

template <class T, bool PerPlane, class Grad, class Source, class Weight, class Store>
TRACEA_INLINE void plane_gradient(int64_t planes, int64_t length, double epsilon, T* sums, int64_t pitch,
                                  const Grad& grad, const Source& source, const Weight& weight, const Store& target) {
    using V = Vec<T>;
    const detail::PlaneSlopes<V, PerPlane, Grad, Source, Weight> slopes{grad,   source,  weight, planes,
                                                                        length, epsilon, sums,   pitch};
    const detail::PlaneSlope<T> slope = slopes.find();
    if (TRACEA_UNLIKELY(slope.factor != T(1)))
        detail::slope_scaled_planes<V>(slopes, slope, target);
    else
        detail::slope_planes<V>(slopes, slope, target);
}

TRACEA_END_NAMESPACE

#endif
