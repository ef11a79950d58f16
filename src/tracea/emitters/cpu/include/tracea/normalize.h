// Blocks of rows through softmax, log-softmax, layer norm and RMS norm, with the load and store functors that rows.h describes; the store functor has a
// prefetch(row, col) as well. Rows count from the block's first one.
//
// A row takes two or three passes, which row_passes.h makes, overlapped or not, with its prefetches; `buffer` has room for what they keep.
//
// Where the squares of a finite row leave the range of the type, the row is multiplied by a power of two first (rescaled_row): rare, and one comparison a
// row where it does not happen.
#ifndef TRACEA_NORMALIZE_H
#define TRACEA_NORMALIZE_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/math.h"
#include "tracea/row_passes.h"
#include "tracea/rows.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// The largest of a row, exp(x - largest), and the sum of those. A NaN may be lost among the largest, and what came before it; then its own exponential is
// NaN, and so are the sum and the row.
template <class V, class Load, class Store>
struct ExponentPasses : Passes<V, Load, Store> {
    using T = typename V::element;
    static constexpr int passes = 3;
    V peak[row_unroll];
    V shift;
    SumChains<V> sums;

    TRACEA_INLINE ExponentPasses(const Load& source, const Store& target)
        : Passes<V, Load, Store>{source, target}, shift(zero<V>()) {
        begin_first(0, 0);
    }
    static TRACEA_INLINE V lowest() { return broadcast<V>(T(-__builtin_inf())); }
    TRACEA_INLINE void begin_first(int64_t, int64_t) {
        unroll<row_unroll>([&](auto u) TRACEA_LAMBDA { peak[u] = lowest(); });
    }
    template <class U>
    TRACEA_INLINE void first(int64_t row, int64_t col, int64_t n, U u, T* at) {
        peak[u] = max_second(peak[u], with_neutral(this->read(row, col, n, at), n, lowest()));
    }
    TRACEA_INLINE void fold_first() {}
    TRACEA_INLINE void end_first(int64_t, int64_t, T*) {
        const V largest = max_second(max_second(peak[0], peak[1]), max_second(peak[2], peak[3]));
        shift = broadcast<V>(reduce_max_ordered(largest));
    }
    TRACEA_INLINE void begin_second() { sums = SumChains<V>(); }
    TRACEA_INLINE void fold_second() { sums.fold(); }
};
template <class V, class Load, class Store>
struct SoftmaxPasses : ExponentPasses<V, Load, Store> {
    using T = typename V::element;
    V scale;

    TRACEA_INLINE SoftmaxPasses(const Load& source, const Store& target)
        : ExponentPasses<V, Load, Store>(source, target), scale(zero<V>()) {}
    template <class U>
    TRACEA_INLINE void second(int64_t row, int64_t col, int64_t n, U u, const T* from, T* to) {
        const V e = exp_or_zero(sub(this->again(row, col, n, from), this->shift));
        store(to, e);
        this->sums.part[u] = add(this->sums.part[u], with_neutral(e, n, zero<V>()));
    }
    TRACEA_INLINE void end_second() { scale = broadcast<V>(T(1) / this->sums.sum()); }
    TRACEA_INLINE V last(int64_t, int64_t, int64_t, const T* at) const { return mul(load<V>(at), scale); }
};
template <class V, class Load, class Store>
struct LogSoftmaxPasses : ExponentPasses<V, Load, Store> {
    using T = typename V::element;
    V logarithm;

    TRACEA_INLINE LogSoftmaxPasses(const Load& source, const Store& target)
        : ExponentPasses<V, Load, Store>(source, target), logarithm(zero<V>()) {}
    template <class U>
    TRACEA_INLINE void second(int64_t row, int64_t col, int64_t n, U u, const T* from, T* to) {
        const V d = sub(this->again(row, col, n, from), this->shift);
        store(to, d);
        this->sums.part[u] = add(this->sums.part[u], with_neutral(exp_or_zero(d), n, zero<V>()));
    }
    TRACEA_INLINE void end_second() { logarithm = log_of<V>(this->sums.sum()); }
    TRACEA_INLINE V last(int64_t, int64_t, int64_t, const T* at) const { return sub(load<V>(at), logarithm); }
};

template <class T>
TRACEA_INLINE T inverse_root(T sum, T columns, T epsilon) {
    return T(1) / static_cast<T>(__builtin_sqrt(sum / columns + epsilon));
}

// Where squares of a type are exact enough: none overflowed, and those lost below the smallest normal number are nothing beside the sum.
template <class T>
struct SquareRange;
template <>
struct SquareRange<float> {
    static constexpr float least = 0x1p-90F;
    static constexpr float most = __FLT_MAX__;
    static constexpr int shift = 100;  // of an exponent, at most: the largest becomes 2^27, the smallest 2^-49
};
template <>
struct SquareRange<double> {
    static constexpr double least = 0x1p-900;
    static constexpr double most = __DBL_MAX__;
    static constexpr int shift = 900;
};
// False for NaN too.
template <class T>
TRACEA_INLINE bool squares_hold(T sum, T columns, T epsilon) {
    const T spread = sum / columns + epsilon;
    return spread >= SquareRange<T>::least && spread <= SquareRange<T>::most;
}

// The power of two that brings the largest element of a row near one.
template <class T>
TRACEA_INLINE double factor_near_one(T largest) {
    int exponent = 0;
    (void)::frexp(static_cast<double>(largest), &exponent);
    const int limit = SquareRange<T>::shift;
    return ::ldexp(1.0, exponent > limit ? -limit : exponent < -limit ? limit : -exponent);
}

// Rows that are multiplied as they are loaded or stored.
template <class T, class Load>
struct ScaledLoad {
    const Load& source;
    T factor;
    template <class V>
    TRACEA_INLINE V at(int64_t row, int64_t col, int64_t n) const {
        return mul(source.template at<V>(row, col, n), broadcast<V>(factor));
    }
};
template <class T, class Store>
struct ScaledStore {
    const Store& target;
    T factor;
    template <class V>
    TRACEA_INLINE void at(int64_t row, int64_t col, V value, int64_t n) const {
        target.template at<V>(row, col, mul(value, broadcast<V>(factor)), n);
    }
};

// What brings rows first .. end - 1 near one: 1 where they have what is not finite, or nothing but zeros.
template <class V, class Load>
TRACEA_INLINE typename V::element factor_of_rows(int64_t first, int64_t end, int64_t columns, const Load& source) {
    using T = typename V::element;
    V largest = zero<V>(), finite = zero<V>();  // times zero, what is not finite is NaN
    for (int64_t row = first; row < end; ++row)
        for_each_vector<V>(columns, [&](int64_t col, int64_t n, auto) TRACEA_LAMBDA {
            const V x = with_neutral(source.template at<V>(row, col, n), n, zero<V>());
            largest = max_second(abs(x), largest);
            finite = fma(x, zero<V>(), finite);
        });
    const T peak = reduce_max_ordered(largest);
    return reduce_add(finite) == T(0) && peak > T(0) ? static_cast<T>(factor_near_one(peak)) : T(1);
}

// The epsilon of a row that is multiplied: one that there is stays one.
TRACEA_INLINE double scaled_epsilon(double epsilon, double factor) {
    const double scaled = epsilon * factor * factor;
    return epsilon > 0 && scaled == 0 ? __DBL_DENORM_MIN__ : scaled;
}

// The inverse root for rows whose squares leave the range of the type: in float64, with an epsilon that the type may
// not have. With one, however small, it is finite: what has no spread is normalised to zeros.
template <class T>
TRACEA_INLINE T finite_inverse_root(double sum, double columns, double epsilon) {
    const double scale = 1 / __builtin_sqrt(sum / columns + epsilon);
    const bool too_large = epsilon > 0 && scale > static_cast<double>(SquareRange<T>::most);
    return too_large ? SquareRange<T>::most : static_cast<T>(scale);
}

template <class T>
struct RowScale {
    T mean;
    T scale;
};
// Multiplies a buffered row by the power of two that brings its largest element near one, and returns what the last pass then needs: y = (x - mean) * scale
// is the same for both, but for the epsilon, which is multiplied likewise. A row with infinities or NaN is left and keeps `as_found`, as does one of zeros
// without an epsilon. With one, however small, the scale is finite: a row without spread is zeros.
template <class T, bool Centered>
TRACEA_NOINLINE RowScale<T> rescaled_row(T* row, int64_t columns, double epsilon, RowScale<T> as_found) {
    T largest = 0;
    bool finite = true;
    for (int64_t i = 0; i < columns; ++i) {
        const T magnitude = row[i] < 0 ? -row[i] : row[i];
        finite = finite && magnitude <= SquareRange<T>::most;
        if (magnitude > largest) largest = magnitude;
    }
    if (!finite || (largest == 0 && epsilon == 0)) return as_found;
    if (largest == 0) return {as_found.mean, T(0)};
    const double factor = factor_near_one(largest);
    double sum = 0;
    for (int64_t i = 0; i < columns; ++i) {
        row[i] = static_cast<T>(row[i] * factor);
        sum += row[i];
    }
    const T mean = Centered ? static_cast<T>(sum / static_cast<double>(columns)) : T(0);
    double squares = 0;
    for (int64_t i = 0; i < columns; ++i) {
        const double d = static_cast<double>(row[i] - mean);
        squares += d * d;
    }
    return {mean, finite_inverse_root<T>(squares, static_cast<double>(columns), scaled_epsilon(epsilon, factor))};
}

// The squares of a buffered row about its mean.
template <class V>
TRACEA_NOINLINE typename V::element squares_about(const typename V::element* row, int64_t columns,
                                                  typename V::element mean) {
    SumChains<V> squares;
    for_each_vector<V>(
        columns,
        [&](int64_t col, int64_t n, auto u) TRACEA_LAMBDA {
            const V d = with_neutral(sub(load<V>(row + col), broadcast<V>(mean)), n, zero<V>());
            squares.part[u] = fma(d, d, squares.part[u]);
        },
        [&]() TRACEA_LAMBDA { squares.fold(); });
    return squares.sum();
}

// Mean and squares in one pass, about a pivot: the mean of the row's first vectors. With d = x - pivot, the squares about the mean are
// sum d^2 - (sum d)^2 / columns. Where the pivot is so far from the mean that the difference would lose more than three bits, the squares are summed again.
template <class V, class Load, class Store>
struct LayerNormPasses : Passes<V, Load, Store> {
    using T = typename V::element;
    static constexpr int passes = 2;
    static constexpr T most_cancelled = 8;
    T columns;
    double epsilon;
    SumChains<V> sums;
    SumChains<V> squares;
    T origin;
    V pivot;
    V mean;
    V scale;

    TRACEA_INLINE LayerNormPasses(const Load& source, const Store& target, T count, double eps)
        : Passes<V, Load, Store>{source, target},
          columns(count),
          epsilon(eps),
          origin(0),
          pivot(zero<V>()),
          mean(pivot),
          scale(pivot) {}
    TRACEA_INLINE void begin_first(int64_t row, int64_t length) {
        sums = SumChains<V>();
        squares = SumChains<V>();
        constexpr int64_t sample = row_unroll * V::lanes;
        V sum = zero<V>();
        for (int64_t col = 0; col < sample && col < length; col += V::lanes) {
            const int64_t n = length - col < V::lanes ? length - col : V::lanes;
            sum = add(sum, with_neutral(this->source.template at<V>(row, col, n), n, zero<V>()));
        }
        origin = reduce_add(sum) / static_cast<T>(length < sample ? length : sample);
        pivot = broadcast<V>(origin);
    }
    template <class U>
    TRACEA_INLINE void first(int64_t row, int64_t col, int64_t n, U u, T* at) {
        const V d = with_neutral(sub(this->read(row, col, n, at), pivot), n, zero<V>());
        sums.part[u] = add(sums.part[u], d);
        squares.part[u] = fma(d, d, squares.part[u]);
    }
    TRACEA_INLINE void fold_first() {
        sums.fold();
        squares.fold();
    }
    TRACEA_INLINE void end_first(int64_t row, int64_t length, T* at) {
        this->kept = !Load::again;
        const T beyond = sums.sum();
        const T about_pivot = squares.sum();
        const T center = origin + beyond / columns;
        T sum = about_pivot - beyond * (beyond / columns);
        if (!(about_pivot <= most_cancelled * sum)) {
            this->keep(row, length, at);
            sum = squares_about<V>(at, length, center);
        }
        RowScale<T> found{center, inverse_root(sum, columns, static_cast<T>(epsilon))};
        if (!squares_hold(sum, columns, static_cast<T>(epsilon))) {
            this->keep(row, length, at);
            found = rescaled_row<T, true>(at, length, epsilon, found);
        }
        mean = broadcast<V>(found.mean);
        scale = broadcast<V>(found.scale);
    }
    TRACEA_INLINE V last(int64_t row, int64_t col, int64_t n, const T* at) const {
        return mul(sub(this->again(row, col, n, at), mean), scale);
    }
};
template <class V, class Load, class Store>
struct RmsNormPasses : Passes<V, Load, Store> {
    using T = typename V::element;
    static constexpr int passes = 2;
    T columns;
    double epsilon;
    SumChains<V> squares;
    V scale;

    TRACEA_INLINE RmsNormPasses(const Load& source, const Store& target, T count, double eps)
        : Passes<V, Load, Store>{source, target}, columns(count), epsilon(eps), scale(zero<V>()) {}
    TRACEA_INLINE void begin_first(int64_t, int64_t) { squares = SumChains<V>(); }
    template <class U>
    TRACEA_INLINE void first(int64_t row, int64_t col, int64_t n, U u, T* at) {
        const V x = with_neutral(this->read(row, col, n, at), n, zero<V>());
        squares.part[u] = fma(x, x, squares.part[u]);
    }
    TRACEA_INLINE void fold_first() { squares.fold(); }
    TRACEA_INLINE void end_first(int64_t row, int64_t length, T* at) {
        this->kept = !Load::again;
        const T sum = squares.sum();
        RowScale<T> found{T(0), inverse_root(sum, columns, static_cast<T>(epsilon))};
        if (!squares_hold(sum, columns, static_cast<T>(epsilon))) {
            this->keep(row, length, at);
            found = rescaled_row<T, false>(at, length, epsilon, found);
        }
        scale = broadcast<V>(found.scale);
    }
    TRACEA_INLINE V last(int64_t row, int64_t col, int64_t n, const T* at) const {
        return mul(this->again(row, col, n, at), scale);
    }
};

}  // namespace detail

// y = exp(x - max x) / sum; a row with NaN, or with plus infinity, is NaN; a row of minus infinities is NaN, as torch. What is smaller than 2^-125.5 of the
// largest is zero.
template <class T, int Overlap, int Prefetch, class Load, class Store>
TRACEA_INLINE void softmax_rows(int64_t rows, int64_t columns, T* buffer, const Load& load, const Store& store) {
    detail::normalize_rows<Vec<T>, Overlap, Prefetch>(rows, columns, buffer,
                                                      detail::SoftmaxPasses<Vec<T>, Load, Store>(load, store));
}

// y = x - max x - log(sum of exp(x - max x)); NaN in the row, plus infinity, or minus infinity throughout gives NaN, as torch.
template <class T, int Overlap, int Prefetch, class Load, class Store>
TRACEA_INLINE void log_softmax_rows(int64_t rows, int64_t columns, T* buffer, const Load& load, const Store& store) {
    detail::normalize_rows<Vec<T>, Overlap, Prefetch>(rows, columns, buffer,
                                                      detail::LogSoftmaxPasses<Vec<T>, Load, Store>(load, store));
}

// y = (x - mean) / sqrt(variance + epsilon), before the store functor's weight and bias. The variance is of the shifted row: no cancellation however large
// the mean, whatever the order of the row's elements.
template <class T, int Overlap, int Prefetch, class Load, class Store>
TRACEA_INLINE void layer_norm_rows(int64_t rows, int64_t columns, double epsilon, T* buffer, const Load& load,
                                   const Store& store) {
    detail::normalize_rows<Vec<T>, Overlap, Prefetch>(
        rows, columns, buffer,
        detail::LayerNormPasses<Vec<T>, Load, Store>(load, store, static_cast<T>(columns), epsilon));
}

// y = x / sqrt(mean of squares + epsilon), before the store functor's weight.
template <class T, int Overlap, int Prefetch, class Load, class Store>
TRACEA_INLINE void rms_norm_rows(int64_t rows, int64_t columns, double epsilon, T* buffer, const Load& load,
                                 const Store& store) {
    detail::normalize_rows<Vec<T>, Overlap, Prefetch>(
        rows, columns, buffer,
        detail::RmsNormPasses<Vec<T>, Load, Store>(load, store, static_cast<T>(columns), epsilon));
}

TRACEA_END_NAMESPACE

#endif
