// Values of a vector as another element type: the casts of an expression, and integer storage.
//
//   round_to<Storage>(v)   v rounded once to Storage and back: floats to nearest even, overflow to infinity; integers toward zero, NaN to 0,
//                          out of range to the nearest end; bool is v != 0
//   load, load_partial, load_broadcast, load_strided, store_partial, store_strided   of int64_t, int32_t, int8_t, uint8_t and bool storage;
//                          a store takes a value that round_to gave
//   load_partial_as, load_broadcast_as, load_strided_as, store_strided_as   of float storage into the vectors of the other arithmetic (float in a
//                          chain of doubles), converted lane by lane with one rounding
#ifndef TRACEA_CONVERT_H
#define TRACEA_CONVERT_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/storage.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

template <class Storage>
struct IsFloat {
    static constexpr bool value = false;
};
template <>
struct IsFloat<float> {
    static constexpr bool value = true;
};
template <>
struct IsFloat<double> {
    static constexpr bool value = true;
};
template <>
struct IsFloat<f16> {
    static constexpr bool value = true;
};
template <>
struct IsFloat<bf16> {
    static constexpr bool value = true;
};

// The ends of an integer type as doubles; those of int64_t are the numbers next to them that a double holds.
template <class Storage>
struct IntegerRange;
template <>
struct IntegerRange<int64_t> {
    static constexpr double low = -9223372036854775808.0;
    static constexpr double high = 9223372036854774784.0;
};
template <>
struct IntegerRange<int32_t> {
    static constexpr double low = -2147483648.0;
    static constexpr double high = 2147483647.0;
};
template <>
struct IntegerRange<int8_t> {
    static constexpr double low = -128.0;
    static constexpr double high = 127.0;
};
template <>
struct IntegerRange<uint8_t> {
    static constexpr double low = 0.0;
    static constexpr double high = 255.0;
};

// A double as a float rounded to odd: rounding that to 16 bits gives what one rounding of the double would.
TRACEA_INLINE float round_to_odd(double x) {
    const float near = static_cast<float>(x);
    const double back = static_cast<double>(near);
    if (back == x || x != x) return near;
    uint32_t bits = bits_of(near);
    if (__builtin_fabs(back) > __builtin_fabs(x)) --bits;  // toward zero; from infinity to the largest number
    return float_of(bits | 1U);
}

template <class Storage>
TRACEA_INLINE VecF round_float(VecF v, Storage) {
    Storage lanes[VecF::lanes];
    store(lanes, v);
    return load<VecF>(lanes);
}
TRACEA_INLINE VecF round_float(VecF v, float) { return v; }
TRACEA_INLINE VecF round_float(VecF v, double) { return v; }
TRACEA_INLINE VecD round_float(VecD v, double) { return v; }
TRACEA_INLINE VecD round_float(VecD v, float) {
    double lanes[VecD::lanes];
    float rounded[VecD::lanes];
    store(lanes, v);
    for (int i = 0; i < VecD::lanes; ++i) rounded[i] = static_cast<float>(lanes[i]);
    // Of a value that goes there and back in one piece, g++ 12 -O3 makes a vector and leaves both conversions out.
    __asm__ volatile("" : "+m"(rounded));
    for (int i = 0; i < VecD::lanes; ++i) lanes[i] = static_cast<double>(rounded[i]);
    return load<VecD>(lanes);
}
template <class Half>
TRACEA_INLINE VecD round_float(VecD v, Half) {
    double lanes[VecD::lanes];
    store(lanes, v);
    for (int i = 0; i < VecD::lanes; ++i)
        lanes[i] = static_cast<double>(to_float(from_float<Half>(round_to_odd(lanes[i]))));
    return load<VecD>(lanes);
}

#if defined(TRACEA_ISA_AVX2)
TRACEA_INLINE VecD truncate(VecD v) { return {_mm256_round_pd(v.reg, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)}; }
TRACEA_INLINE VecF truncate(VecF v) { return {_mm256_round_ps(v.reg, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)}; }
#else
template <class V>
TRACEA_INLINE V truncate(V v) {
    return select(less(v, zero<V>()), neg(floor(neg(v))), floor(v));
}
#endif
template <class V, class Storage>
TRACEA_INLINE V round_integer(V v, Storage) {
    using T = typename V::element;
    const V low = broadcast<V>(static_cast<T>(IntegerRange<Storage>::low));
    const V high = broadcast<V>(static_cast<T>(IntegerRange<Storage>::high));
    return select(unordered(v, v), zero<V>(), minimum(high, maximum(low, truncate(v))));
}
template <class V>
TRACEA_INLINE V round_integer(V v, bool) {
    return select(not_equal(v, zero<V>()), broadcast<V>(typename V::element(1)), zero<V>());
}

template <class Storage>
TRACEA_INLINE Storage stored(const Storage* p) {
    return *p;
}
// Bytes that somebody calls booleans, as a mask of 0 and 255, may hold what no bool of C++ does.
TRACEA_INLINE bool stored(const bool* p) { return *reinterpret_cast<const unsigned char*>(p) != 0; }

// A float that rounded up to the end of a 32- or 64-bit integer type is that end.
template <class Storage, class T>
TRACEA_INLINE Storage to_integer(T x) {
    if constexpr (sizeof(Storage) >= sizeof(T)) {
        constexpr Storage largest = static_cast<Storage>((static_cast<uint64_t>(1) << (8 * sizeof(Storage) - 1)) - 1);
        if (static_cast<double>(x) >= static_cast<double>(largest)) return largest;
    }
    return static_cast<Storage>(x);
}

}  // namespace detail

template <class Storage, class V>
TRACEA_INLINE V round_to(V v) {
    if constexpr (detail::IsFloat<Storage>::value) {
        return detail::round_float(v, Storage{});
    } else {
        return detail::round_integer(v, Storage{});
    }
}

// ---- integer storage: lane by lane, which compilers turn into conversions ---------------------------------------------------------------------------
#define TRACEA_INTEGER_STORAGE(Storage)                                                                        \
    template <class V>                                                                                         \
    TRACEA_INLINE V load_strided(const Storage* p, int64_t stride, int64_t n) {                                \
        typename V::element lanes[V::lanes] = {};                                                              \
        for (int i = 0; i < V::lanes && i < n; ++i) {                                                          \
            lanes[i] = static_cast<typename V::element>(detail::stored(p + i * stride));                       \
        }                                                                                                      \
        return load<V>(lanes);                                                                                 \
    }                                                                                                          \
    template <class V>                                                                                         \
    TRACEA_INLINE V load_partial(const Storage* p, int64_t n) {                                                \
        return load_strided<V>(p, 1, n);                                                                       \
    }                                                                                                          \
    template <class V>                                                                                         \
    TRACEA_INLINE V load(const Storage* p) {                                                                   \
        typename V::element lanes[V::lanes];                                                                   \
        for (int i = 0; i < V::lanes; ++i) lanes[i] = static_cast<typename V::element>(detail::stored(p + i)); \
        return load<V>(lanes);                                                                                 \
    }                                                                                                          \
    template <class V>                                                                                         \
    TRACEA_INLINE V load_broadcast(const Storage* p) {                                                         \
        return broadcast<V>(static_cast<typename V::element>(detail::stored(p)));                              \
    }                                                                                                          \
    template <class V>                                                                                         \
    TRACEA_INLINE void store_strided(Storage* p, int64_t stride, V v, int64_t n) {                             \
        typename V::element lanes[V::lanes];                                                                   \
        store(lanes, v);                                                                                       \
        for (int i = 0; i < V::lanes && i < n; ++i) p[i * stride] = detail::to_integer<Storage>(lanes[i]);     \
    }                                                                                                          \
    template <class V>                                                                                         \
    TRACEA_INLINE void store_partial(Storage* p, V v, int64_t n) {                                             \
        store_strided(p, 1, v, n);                                                                             \
    }                                                                                                          \
    template <class V>                                                                                         \
    TRACEA_INLINE void store(Storage* p, V v) {                                                                \
        store_strided(p, 1, v, V::lanes);                                                                      \
    }
TRACEA_INTEGER_STORAGE(int64_t)
TRACEA_INTEGER_STORAGE(int32_t)
TRACEA_INTEGER_STORAGE(int8_t)
TRACEA_INTEGER_STORAGE(uint8_t)
TRACEA_INTEGER_STORAGE(bool)
#undef TRACEA_INTEGER_STORAGE

#if defined(TRACEA_ISA_AVX2)
// AVX2 has no conversion of 64-bit integers. Their halves are mantissas of doubles of a fixed exponent each, whose sum is rounded once: the upper half
// counts from 2^84, with 2^63 added for its sign, the lower one from 2^52.
template <>
TRACEA_INLINE VecD load<VecD>(const int64_t* p) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i low = _mm256_blend_epi32(_mm256_set1_epi64x(0x4330000000000000), x, 0x55);
    const __m256i high = _mm256_xor_si256(_mm256_srli_epi64(x, 32), _mm256_set1_epi64x(0x4530000080000000));
    const __m256d offset = _mm256_castsi256_pd(_mm256_set1_epi64x(0x4530000080100000));  // 2^84 + 2^63 + 2^52
    return {_mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(high), offset), _mm256_castsi256_pd(low))};
}

template <>
TRACEA_INLINE VecD load_partial<VecD>(const int64_t* p, int64_t n) {
    return n >= VecD::lanes ? load<VecD>(p) : load_strided<VecD>(p, 1, n);
}

// Whole numbers up to 2^51 are the difference between the bits of 1.5 * 2^52 and of their sum with it.
TRACEA_INLINE void store_strided(int64_t* p, int64_t stride, VecD v, int64_t n) {
    const __m256d magic = _mm256_set1_pd(0x1.8p52);
    const __m256d beyond = _mm256_cmp_pd(abs(v).reg, _mm256_set1_pd(0x1p51), _CMP_NLE_UQ);
    if (TRACEA_LIKELY(stride == 1 && n >= VecD::lanes && _mm256_movemask_pd(beyond) == 0)) {
        const __m256i bits = _mm256_castpd_si256(_mm256_add_pd(v.reg, magic));
        const __m256i whole = _mm256_sub_epi64(bits, _mm256_castpd_si256(magic));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), whole);
        return;
    }
    double lanes[VecD::lanes];
    store(lanes, v);
    for (int i = 0; i < VecD::lanes && i < n; ++i) p[i * stride] = detail::to_integer<int64_t>(lanes[i]);
}
TRACEA_INLINE void store_partial(int64_t* p, VecD v, int64_t n) { store_strided(p, 1, v, n); }
TRACEA_INLINE void store(int64_t* p, VecD v) { store_strided(p, 1, v, VecD::lanes); }
#endif

// ---- float storage in the other arithmetic ------------------------------------------------------------------------------------------------------
namespace detail {
template <class Storage>
TRACEA_INLINE Storage narrow(double x) {
    return from_float<Storage>(round_to_odd(x));
}
template <>
TRACEA_INLINE float narrow<float>(double x) {
    return static_cast<float>(x);
}
template <>
TRACEA_INLINE double narrow<double>(double x) {
    return x;
}
}  // namespace detail

template <class V, class Storage>
TRACEA_INLINE V load_strided_as(const Storage* p, int64_t stride, int64_t n) {
    typename V::element lanes[V::lanes] = {};
    for (int i = 0; i < V::lanes && i < n; ++i) lanes[i] = static_cast<typename V::element>(to_float(p[i * stride]));
    return load<V>(lanes);
}
template <class V, class Storage>
TRACEA_INLINE V load_partial_as(const Storage* p, int64_t n) {
    return load_strided_as<V>(p, 1, n);
}
template <class V, class Storage>
TRACEA_INLINE V load_broadcast_as(const Storage* p) {
    return broadcast<V>(static_cast<typename V::element>(to_float(*p)));
}
template <class V, class Storage>
TRACEA_INLINE void store_strided_as(Storage* p, int64_t stride, V v, int64_t n) {
    typename V::element lanes[V::lanes];
    store(lanes, v);
    for (int i = 0; i < V::lanes && i < n; ++i) p[i * stride] = detail::narrow<Storage>(static_cast<double>(lanes[i]));
}

TRACEA_END_NAMESPACE

#endif
