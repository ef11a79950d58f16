// Conversions of the storage formats in integer arithmetic, for the emulated primitives and for the core's products.
#pragma once
#include <stdint.h>
#include <string.h>

namespace tracea::emulator {

inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

inline float widen_f16(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, rest = bits & 0x7fff;
    // A multiplication by a power of two is exact, and does the subnormals too.
    const uint32_t finite = bits_of(float_of(rest << 13) * 0x1p112f);
    return float_of(sign | (rest >= 0x7c00 ? 0x7f800000 | (rest & 0x3ff) << 13 : finite));
}

inline float widen_bf16(uint16_t bits) { return float_of(static_cast<uint32_t>(bits) << 16); }

inline float widen_e5m2(uint8_t bits) { return widen_f16(static_cast<uint16_t>(bits << 8)); }

inline float widen_e4m3(uint8_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x80) << 24, rest = bits & 0x7f;
    if (rest == 0x7f) return float_of(sign | 0x7fc00000);
    return float_of(sign | bits_of(float_of(rest << 20) * 0x1p120f));
}

// Round a magnitude to a format of `fraction` stored bits and exponent bias `bias`, ties to even; it may round up to
// the format's next power of two beyond its largest number, which the callers treat.
inline uint32_t round_magnitude(uint32_t magnitude, int fraction, int bias) {
    const int exponent = static_cast<int>(magnitude >> 23) - 127 + bias;
    const uint64_t significand = (magnitude & 0x7fffff) | (magnitude >= 0x800000 ? 0x800000 : 0);
    int drop = 23 - fraction + (exponent < 1 ? 1 - exponent : 0);
    if (drop > 40) drop = 40;
    const uint64_t half = 1ull << (drop - 1), kept = significand >> drop, lost = significand & ((half << 1) - 1);
    const uint64_t rounded = kept + (lost > half || (lost == half && (kept & 1) != 0) ? 1 : 0);
    return exponent < 1 ? static_cast<uint32_t>(rounded)
                        : static_cast<uint32_t>(rounded + (static_cast<uint64_t>(exponent - 1) << fraction));
}

inline uint16_t narrow_f16(float value) {
    const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return 0x7fff;
    const uint32_t sign = bits >> 16 & 0x8000;
    if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and above
    return static_cast<uint16_t>(sign | round_magnitude(magnitude, 10, 15));
}

inline uint16_t narrow_bf16(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline uint8_t narrow_e4m3(float value) {
    const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    if (magnitude > 0x7f800000) return 0x7f;
    if (magnitude >= 0x43e00000) return static_cast<uint8_t>(sign | 0x7e);  // 448 and above
    return static_cast<uint8_t>(sign | round_magnitude(magnitude, 3, 7));
}

inline uint8_t narrow_e5m2(float value) {
    const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    if (magnitude > 0x7f800000) return 0x7f;
    if (magnitude >= 0x47600000) return static_cast<uint8_t>(sign | 0x7b);  // 57344 and above
    return static_cast<uint8_t>(sign | round_magnitude(magnitude, 2, 15));
}

// To 10 fraction bits, ties away from zero, in the place of a float's; a NaN becomes the one NaN.
inline uint32_t round_to_tf32(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fffffff;
    if ((bits & 0x7fffffff) == 0x7f800000) return bits;
    return (bits + 0x1000) & 0xffffe000;
}

}  // namespace tracea::emulator
