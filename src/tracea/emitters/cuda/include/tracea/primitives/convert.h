// Conversions between float and the storage types: to nearest, ties to even.
//
// A NaN becomes the one NaN of the type (f16 and bf16 0x7fff, e4m3 and e5m2 0x7f), whatever its sign and payload. fp8 saturates: a finite value or an
// infinity beyond the largest finite one becomes that. An architecture without the instruction computes the same bits.
#ifndef TRACEA_PRIMITIVES_CONVERT_H
#define TRACEA_PRIMITIVES_CONVERT_H

#include "tracea/primitives/config.h"
#include "tracea/primitives/types.h"

namespace tracea {

// PTX ISA 9.0, 9.7.9 cvt; sm_75. Exact.
TRACEA_DEVICE float to_float(float x) { return x; }
TRACEA_DEVICE float to_float(int32_t x) { return static_cast<float>(x); }
TRACEA_DEVICE float to_float(int8_t x) { return static_cast<float>(x); }
TRACEA_DEVICE float to_float(f16 x) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
    return result;
}
TRACEA_DEVICE float to_float(bf16 x) { return bits_as<float>(static_cast<uint32_t>(x.bits) << 16); }
TRACEA_DEVICE float to_float(e5m2 x) {
    const f16 wide = {static_cast<uint16_t>(x.bits << 8)};  // the upper half of an f16
    return to_float(wide);
}
TRACEA_DEVICE float to_float(e4m3 x) {
    const uint32_t sign = static_cast<uint32_t>(x.bits & 0x80U) << 24;
    const uint32_t magnitude = x.bits & 0x7fU;
    if (magnitude == 0x7fU) return bits_as<float>(sign | 0x7fc00000U);
    // Exponent and fraction in place, then 2^(127 - 7): a multiplication by a power of two is exact, and does the subnormals too.
    return bits_as<float>(sign | (magnitude << 20)) * 0x1p120F;
}

namespace detail {

// Rounds to a float format of `fraction` stored bits whose exponents have bias `bias` and at least one subnormal; no overflow, no NaN.
template <int fraction, int bias>
TRACEA_DEVICE uint32_t round_magnitude(float x) {
    const float magnitude = bits_as<float>(bits_as<uint32_t>(x) & 0x7fffffffU);
    constexpr float least_normal = bits_as<float>(static_cast<uint32_t>(128 - bias) << 23);
    if (magnitude < least_normal) {
        // Adding a number whose last bit is the least subnormal rounds to it.
        const float shifter = bits_as<float>(static_cast<uint32_t>(128 - bias + 23 - fraction) << 23);
        return bits_as<uint32_t>(__fadd_rn(magnitude, shifter)) - bits_as<uint32_t>(shifter);
    }
    const uint32_t bits = bits_as<uint32_t>(magnitude) - (static_cast<uint32_t>(127 - bias) << 23);
    constexpr int dropped = 23 - fraction;
    return (bits + ((1U << (dropped - 1)) - 1) + (bits >> dropped & 1U)) >> dropped;
}

}  // namespace detail

template <class Storage>
TRACEA_DEVICE Storage from_float(float x);

// PTX ISA 9.0, 9.7.9 cvt.rn; sm_75.
template <>
TRACEA_DEVICE float from_float<float>(float x) {
    return x;
}
template <>
TRACEA_DEVICE f16 from_float<f16>(float x) {
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
    return result;
}

// PTX ISA 9.0, 9.7.9 cvt.rn.bf16.f32; an instruction from sm_80 on.
template <>
TRACEA_DEVICE bf16 from_float<bf16>(float x) {
#if TRACEA_SM >= 80
    bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
    return result;
#else
    const uint32_t bits = bits_as<uint32_t>(x);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return bf16{0x7fff};
    return bf16{static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16)};
#endif
}

// PTX ISA 9.0, 9.7.9 cvt.rn.satfinite.e4m3x2.f32; an instruction from sm_89 on.
template <>
TRACEA_DEVICE e4m3 from_float<e4m3>(float x) {
#if TRACEA_SM >= 89
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(x));
    return e4m3{static_cast<uint8_t>(pair)};
#else
    const uint32_t bits = bits_as<uint32_t>(x);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return e4m3{0x7f};
    const uint32_t sign = bits >> 24 & 0x80U;
    const uint32_t magnitude = (bits & 0x7fffffffU) >= 0x43e00000U ? 0x7eU : detail::round_magnitude<3, 7>(x);  // 448
    return e4m3{static_cast<uint8_t>(sign | magnitude)};
#endif
}

// PTX ISA 9.0, 9.7.9 cvt.rn.satfinite.e5m2x2.f32; an instruction from sm_89 on.
template <>
TRACEA_DEVICE e5m2 from_float<e5m2>(float x) {
#if TRACEA_SM >= 89
    uint16_t pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(x));
    return e5m2{static_cast<uint8_t>(pair)};
#else
    const uint32_t bits = bits_as<uint32_t>(x);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return e5m2{0x7f};
    const uint32_t sign = bits >> 24 & 0x80U;
    const uint32_t magnitude =
        (bits & 0x7fffffffU) >= 0x47600000U ? 0x7bU : detail::round_magnitude<2, 15>(x);  // 57344
    return e5m2{static_cast<uint8_t>(sign | magnitude)};
#endif
}

#if TRACEA_SM >= 80
// PTX ISA 9.0, 9.7.9 cvt.rna.tf32.f32; sm_80. To 10 fraction bits, ties away from zero, in the place of a float's.
TRACEA_DEVICE uint32_t round_tf32(float x) {
    uint32_t result;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(x));
    return result;
}
#endif

}  // namespace tracea

#endif
