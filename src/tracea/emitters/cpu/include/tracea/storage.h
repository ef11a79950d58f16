// The 16-bit storage types and their scalar conversions; arithmetic is always done in float.
//
// Conversions to 16 bits round to nearest, ties to even; NaN stays NaN (quiet), infinities and signed zeros are kept, overflow gives infinity,
// subnormals are kept. The vector conversions of vec_*.h agree with these bit for bit.
#ifndef TRACEA_STORAGE_H
#define TRACEA_STORAGE_H

#include <stdint.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "tracea/config.h"

TRACEA_BEGIN_NAMESPACE

struct f16 {
    uint16_t bits;
};
struct bf16 {
    uint16_t bits;
};

TRACEA_INLINE uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
TRACEA_INLINE float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

TRACEA_INLINE float to_float(float x) { return x; }
TRACEA_INLINE double to_float(double x) { return x; }
TRACEA_INLINE float to_float(bf16 x) { return float_of(static_cast<uint32_t>(x.bits) << 16); }
#if defined(__F16C__)
TRACEA_INLINE float to_float(f16 x) { return _cvtsh_ss(x.bits); }
#else
TRACEA_INLINE float to_float(f16 x) {
    const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000U) << 16;
    const uint32_t magnitude = x.bits & 0x7fffU;
    if (magnitude >= 0x7c00U) {  // infinity, or NaN made quiet
        const uint32_t payload = (magnitude & 0x3ffU) << 13;
        return float_of(sign | 0x7f800000U | payload | (payload != 0 ? 0x400000U : 0U));
    }
    if (magnitude < 0x400U) return float_of(sign | bits_of(static_cast<float>(magnitude) * 0x1p-24F));
    return float_of(sign | ((magnitude << 13) + 0x38000000U));
}
#endif

// The arithmetic type of a storage type.
template <class Storage>
struct ArithmeticOf {
    using type = float;
};
template <>
struct ArithmeticOf<double> {
    using type = double;
};
template <class Storage>
using arithmetic_t = typename ArithmeticOf<Storage>::type;

template <class Storage>
Storage from_float(arithmetic_t<Storage> x);
template <>
TRACEA_INLINE float from_float<float>(float x) {
    return x;
}
template <>
TRACEA_INLINE double from_float<double>(double x) {
    return x;
}
template <>
TRACEA_INLINE bf16 from_float<bf16>(float x) {
    const uint32_t u = bits_of(x);
    if ((u & 0x7fffffffU) > 0x7f800000U) return bf16{static_cast<uint16_t>((u >> 16) | 0x40U)};
    return bf16{static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16)};
}
#if defined(__F16C__)
template <>
TRACEA_INLINE f16 from_float<f16>(float x) {
    return f16{_cvtss_sh(x, 0)};  // to nearest, whatever the mode
}
#else
template <>
TRACEA_INLINE f16 from_float<f16>(float x) {
    const uint32_t u = bits_of(x);
    const uint32_t sign = (u >> 16) & 0x8000U;
    const uint32_t magnitude = u & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return f16{static_cast<uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU))};
    if (magnitude >= 0x477ff000U)
        return f16{static_cast<uint16_t>(sign | 0x7c00U)};  // 65520 and above round to infinity
    if (magnitude <
        0x38800000U) {  // below 2^-14: adding 1/2 leaves the rounded multiple of 2^-24 in the low mantissa bits
        return f16{static_cast<uint16_t>(sign | (bits_of(float_of(magnitude) + 0.5F) - 0x3f000000U))};
    }
    const uint32_t rounded = magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U);
    return f16{static_cast<uint16_t>(sign | (rounded >> 13))};
}
#endif

TRACEA_END_NAMESPACE

#endif
