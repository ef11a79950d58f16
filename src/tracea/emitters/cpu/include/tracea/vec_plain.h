// Vector primitives in ordinary C++ (16 floats or 8 doubles): the meaning that the other implementations are compared with, and the build that
// runs under sanitizers and on any machine. Meanings are stated in vec.h.
#ifndef TRACEA_VEC_PLAIN_H
#define TRACEA_VEC_PLAIN_H

#include <math.h>
#include <stdint.h>

#include "tracea/config.h"
#include "tracea/storage.h"

TRACEA_BEGIN_NAMESPACE

template <class T>
struct Vec {
    using element = T;
    static constexpr int lanes = 64 / static_cast<int>(sizeof(T));
    T reg[lanes];
};
template <class V>
struct Mask {
    bool reg[V::lanes];
};
using VecF = Vec<float>;
using VecD = Vec<double>;

namespace detail {
template <class T, class F>
TRACEA_INLINE Vec<T> lanewise(F&& f) {
    Vec<T> r;
    for (int i = 0; i < Vec<T>::lanes; ++i) r.reg[i] = f(i);
    return r;
}
template <class V, class F>
TRACEA_INLINE Mask<V> maskwise(F&& f) {
    Mask<V> r;
    for (int i = 0; i < V::lanes; ++i) r.reg[i] = f(i);
    return r;
}
}  // namespace detail

template <class V>
TRACEA_INLINE V broadcast(typename V::element x) {
    return detail::lanewise<typename V::element>([&](int) { return x; });
}
template <class V>
TRACEA_INLINE V zero() {
    return broadcast<V>(0);
}
template <class V>
TRACEA_INLINE Mask<V> lane_mask(int64_t n) {
    return detail::maskwise<V>([&](int i) { return i < n; });
}

// ---- loads and stores --------------------------------------------------------------------------------------------------------------------------
#define TRACEA_PLAIN_MEMORY(T)                                                           \
    template <class V>                                                                   \
    TRACEA_INLINE V load(const T* p) {                                                   \
        return detail::lanewise<T>([&](int i) { return p[i]; });                         \
    }                                                                                    \
    template <class V>                                                                   \
    TRACEA_INLINE V load_masked(const T* p, Mask<V> m) {                                 \
        return detail::lanewise<T>([&](int i) { return m.reg[i] ? p[i] : T(0); });       \
    }                                                                                    \
    template <class V>                                                                   \
    TRACEA_INLINE V load_broadcast(const T* p) {                                         \
        return broadcast<V>(*p);                                                         \
    }                                                                                    \
    template <class V, int N>                                                            \
    TRACEA_INLINE V load_repeated(const T* p) {                                          \
        static_assert(N > 0 && V::lanes % N == 0, "N divides the lanes");                \
        return detail::lanewise<T>([&](int i) { return p[i % N]; });                     \
    }                                                                                    \
    template <class V>                                                                   \
    TRACEA_INLINE V load_strided(const T* p, int64_t stride, int64_t n) {                \
        return detail::lanewise<T>([&](int i) { return i < n ? p[i * stride] : T(0); }); \
    }                                                                                    \
    TRACEA_INLINE void store(T* p, Vec<T> v) {                                           \
        for (int i = 0; i < Vec<T>::lanes; ++i) p[i] = v.reg[i];                         \
    }                                                                                    \
    TRACEA_INLINE void store_masked(T* p, Vec<T> v, Mask<Vec<T>> m) {                    \
        for (int i = 0; i < Vec<T>::lanes; ++i)                                          \
            if (m.reg[i]) p[i] = v.reg[i];                                               \
    }                                                                                    \
    TRACEA_INLINE void store_streaming(T* p, Vec<T> v) { store(p, v); }                  \
    TRACEA_INLINE void store_strided(T* p, int64_t stride, Vec<T> v, int64_t n) {        \
        for (int i = 0; i < Vec<T>::lanes && i < n; ++i) p[i * stride] = v.reg[i];       \
    }
TRACEA_PLAIN_MEMORY(float)
TRACEA_PLAIN_MEMORY(double)
#undef TRACEA_PLAIN_MEMORY

namespace detail {
template <class Half>
TRACEA_INLINE VecF load_half(const Half* p) {
    return lanewise<float>([&](int i) { return to_float(p[i]); });
}
template <class Half>
TRACEA_INLINE VecF load_half_masked(const Half* p, Mask<VecF> m) {
    return lanewise<float>([&](int i) { return m.reg[i] ? to_float(p[i]) : 0.0F; });
}
template <class Half>
TRACEA_INLINE void store_half(Half* p, VecF v) {
    for (int i = 0; i < VecF::lanes; ++i) p[i] = from_float<Half>(v.reg[i]);
}
template <class Half>
TRACEA_INLINE void store_half_masked(Half* p, VecF v, Mask<VecF> m) {
    for (int i = 0; i < VecF::lanes; ++i)
        if (m.reg[i]) p[i] = from_float<Half>(v.reg[i]);
}
template <class Half>
TRACEA_INLINE void store_half_streaming(Half* p, VecF v) {
    store_half(p, v);
}
}  // namespace detail

// ---- arithmetic --------------------------------------------------------------------------------------------------------------------------------
#define TRACEA_UNARY(name, expression)               \
    template <class T>                               \
    TRACEA_INLINE Vec<T> name(Vec<T> a) {            \
        return detail::lanewise<T>([&](int i) -> T { \
            const T x = a.reg[i];                    \
            return expression;                       \
        });                                          \
    }
#define TRACEA_BINARY(name, expression)              \
    template <class T>                               \
    TRACEA_INLINE Vec<T> name(Vec<T> a, Vec<T> b) {  \
        return detail::lanewise<T>([&](int i) -> T { \
            const T x = a.reg[i];                    \
            const T y = b.reg[i];                    \
            return expression;                       \
        });                                          \
    }
TRACEA_BINARY(add, x + y)
TRACEA_BINARY(sub, x - y)
TRACEA_BINARY(mul, x* y)
TRACEA_BINARY(div, x / y)
TRACEA_BINARY(copysign, __builtin_copysign(x, y))
TRACEA_BINARY(max_second, x > y ? x : y)
TRACEA_BINARY(min_second, x < y ? x : y)
TRACEA_UNARY(sqrt, static_cast<T>(__builtin_sqrt(x)))
TRACEA_UNARY(neg, -x)
TRACEA_UNARY(abs, __builtin_fabs(x))
TRACEA_UNARY(round_even, static_cast<T>(::nearbyint(x)))
TRACEA_UNARY(floor, static_cast<T>(::floor(x)))
TRACEA_UNARY(reciprocal_estimate, T(1) / x)
TRACEA_UNARY(rsqrt_estimate, T(1) / static_cast<T>(__builtin_sqrt(x)))
#undef TRACEA_UNARY
#undef TRACEA_BINARY
TRACEA_INLINE float fused(float a, float b, float c) { return ::fmaf(a, b, c); }
TRACEA_INLINE double fused(double a, double b, double c) { return ::fma(a, b, c); }
template <class T>
TRACEA_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
    return detail::lanewise<T>([&](int i) { return fused(a.reg[i], b.reg[i], c.reg[i]); });
}
template <class T>
TRACEA_INLINE Vec<T> fnma(Vec<T> a, Vec<T> b, Vec<T> c) {
    return detail::lanewise<T>([&](int i) { return fused(-a.reg[i], b.reg[i], c.reg[i]); });
}
template <class T>
TRACEA_INLINE void fma_into(Vec<T>& acc, Vec<T> a, Vec<T> b) {
    acc = fma(a, b, acc);
}

// ---- comparison and selection ------------------------------------------------------------------------------------------------------------------
#define TRACEA_COMPARE(name, expression)                  \
    template <class T>                                    \
    TRACEA_INLINE Mask<Vec<T>> name(Vec<T> a, Vec<T> b) { \
        return detail::maskwise<Vec<T>>([&](int i) {      \
            const T x = a.reg[i];                         \
            const T y = b.reg[i];                         \
            return expression;                            \
        });                                               \
    }
TRACEA_COMPARE(less, x < y)
TRACEA_COMPARE(less_equal, x <= y)
TRACEA_COMPARE(equal, x == y)
TRACEA_COMPARE(not_equal, x != y)
TRACEA_COMPARE(unordered, x != x || y != y)
TRACEA_COMPARE(not_less, !(x < y))
TRACEA_COMPARE(not_greater, !(x > y))
#undef TRACEA_COMPARE
template <class V>
TRACEA_INLINE Mask<V> mask_and(Mask<V> a, Mask<V> b) {
    return detail::maskwise<V>([&](int i) { return a.reg[i] && b.reg[i]; });
}
template <class V>
TRACEA_INLINE Mask<V> mask_or(Mask<V> a, Mask<V> b) {
    return detail::maskwise<V>([&](int i) { return a.reg[i] || b.reg[i]; });
}
template <class V>
TRACEA_INLINE Mask<V> mask_not(Mask<V> a) {
    return detail::maskwise<V>([&](int i) { return !a.reg[i]; });
}
template <class V>
TRACEA_INLINE bool any(Mask<V> m) {
    bool r = false;
    for (int i = 0; i < V::lanes; ++i) r = r || m.reg[i];
    return r;
}
template <class T>
TRACEA_INLINE Vec<T> select(Mask<Vec<T>> m, Vec<T> a, Vec<T> b) {
    return detail::lanewise<T>([&](int i) { return m.reg[i] ? a.reg[i] : b.reg[i]; });
}

// ---- exponents ---------------------------------------------------------------------------------------------------------------------------------
namespace detail {
template <class T>
TRACEA_INLINE T scale_pow2_lane(T x, T n) {
    if (n != n) return n;
    const T limited = n > T(4000) ? T(4000) : n < T(-4000) ? T(-4000) : n;
    return static_cast<T>(::ldexp(static_cast<double>(x), static_cast<int>(limited)));
}
template <>
TRACEA_INLINE float scale_pow2_lane<float>(float x, float n) {
    if (n != n) return n;
    const float limited = n > 4000.0F ? 4000.0F : n < -4000.0F ? -4000.0F : n;
    return ::ldexpf(x, static_cast<int>(limited));
}
}  // namespace detail
template <class T>
TRACEA_INLINE Vec<T> scale_pow2(Vec<T> a, Vec<T> n) {
    return detail::lanewise<T>([&](int i) { return detail::scale_pow2_lane(a.reg[i], n.reg[i]); });
}
TRACEA_INLINE VecF scale_pow2_where(Mask<VecF> m, VecF a, VecF n) {
    return detail::lanewise<float>(
        [&](int i) { return m.reg[i] ? detail::scale_pow2_lane(a.reg[i], n.reg[i]) : 0.0F; });
}
TRACEA_INLINE VecF exponent_field(VecF s) {
    return detail::lanewise<float>([&](int i) { return float_of(bits_of(s.reg[i]) << 23); });
}
TRACEA_INLINE void split_exponent(VecF a, VecF& mantissa, VecF& exponent) {
    for (int i = 0; i < VecF::lanes; ++i) {
        const bool tiny = a.reg[i] < 0x1p-126F;
        const uint32_t u = bits_of(tiny ? a.reg[i] * 0x1p23F : a.reg[i]);
        const int32_t e = static_cast<int32_t>(u - 0x3f2aaaabU) >> 23;
        mantissa.reg[i] = float_of(u - (static_cast<uint32_t>(e) << 23));
        exponent.reg[i] = static_cast<float>(e) - (tiny ? 23.0F : 0.0F);
    }
}

// ---- reductions --------------------------------------------------------------------------------------------------------------------------------
namespace detail {
// Halving, as the instruction sets do it.
template <class T, class F>
TRACEA_INLINE T reduce(Vec<T> a, F&& f) {
    for (int width = Vec<T>::lanes / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) a.reg[i] = f(a.reg[i], a.reg[i + width]);
    return a.reg[0];
}
template <class T>
TRACEA_INLINE T reduce_max_ordered(Vec<T> a) {
    return reduce(a, [](T x, T y) { return x > y ? x : y; });
}
template <class T>
TRACEA_INLINE T reduce_min_ordered(Vec<T> a) {
    return reduce(a, [](T x, T y) { return x < y ? x : y; });
}
}  // namespace detail
template <class T>
TRACEA_INLINE void interleave(Vec<T> a, Vec<T> b, Vec<T>& low, Vec<T>& high) {
    constexpr int lanes = Vec<T>::lanes;
    const auto turn = [&](int i) { return i % 2 == 0 ? a.reg[i / 2] : b.reg[i / 2]; };
    const Vec<T> first = detail::lanewise<T>([&](int i) { return turn(i); });
    high = detail::lanewise<T>([&](int i) { return turn(lanes + i); });
    low = first;
}
template <class T>
TRACEA_INLINE T reduce_add(Vec<T> a) {
    return detail::reduce(a, [](T x, T y) { return x + y; });
}

TRACEA_INLINE void streaming_fence() {}

TRACEA_END_NAMESPACE

#endif
