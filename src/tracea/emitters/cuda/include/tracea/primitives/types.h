// The storage types: raw bits, nothing else; arithmetic is done in float (convert.h) or by the tensor cores (matrix.h, wgmma.h).
#ifndef TRACEA_PRIMITIVES_TYPES_H
#define TRACEA_PRIMITIVES_TYPES_H

#include "tracea/primitives/config.h"

namespace tracea {

struct f16 {
    uint16_t bits;
};
struct bf16 {
    uint16_t bits;
};
struct e4m3 {  // 1 sign, 4 exponent, 3 fraction bits; no infinity, largest 448
    uint8_t bits;
};
struct e5m2 {  // 1 sign, 5 exponent, 2 fraction bits; infinities, largest finite 57344
    uint8_t bits;
};

// 32-bit words that move in one access.
template <int count>
struct alignas(4 * count) Words {
    static_assert(count == 1 || count == 2 || count == 4, "one access moves 4, 8 or 16 bytes");
    uint32_t word[count];
};

// A value as raw words and back, without a conversion.
template <class To, class From>
TRACEA_DEVICE constexpr To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From), "the same bits need the same size");
    return __builtin_bit_cast(To, value);
}

}  // namespace tracea

#endif
