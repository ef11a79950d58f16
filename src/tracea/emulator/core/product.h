// Products of small matrices in float or int32, from the bytes of either operand's rows along the depth.
#pragma once
#include <string.h>

#include "tracea/emulator_abi.h"
#include "tracea/emulator_number.h"

namespace tracea::emulator {

constexpr uint32_t DEPTH = 32;  // elements that a row of widened operands has room for

constexpr uint32_t bytes_of(Element element) {
    return element == Element::TF32 ? 4 : element == Element::F16 || element == Element::BF16 ? 2 : 1;
}

inline void widen(float* to, const uint8_t* from, uint32_t count, Element element) {
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t bits = 0;
        memcpy(&bits, from + i * bytes_of(element), bytes_of(element));
        switch (element) {
            case Element::F16: to[i] = widen_f16(static_cast<uint16_t>(bits)); break;
            case Element::BF16: to[i] = widen_bf16(static_cast<uint16_t>(bits)); break;
            case Element::TF32: to[i] = float_of(bits & 0xffffe000); break;  // the hardware ignores the low 13 bits
            case Element::E4M3: to[i] = widen_e4m3(static_cast<uint8_t>(bits)); break;
            case Element::E5M2: to[i] = widen_e5m2(static_cast<uint8_t>(bits)); break;
            case Element::S8: to[i] = static_cast<float>(static_cast<int8_t>(bits)); break;
        }
    }
}

// sums[i][j] += Σ a[i][k]·b[j][k]. The hardware promises no order and no rounding of its partial sums; here they are
// exact enough (double) and rounded once.
inline void multiply(float* sums, uint32_t pitch, const float* a, const float* b, uint32_t rows, uint32_t columns,
                     uint32_t depth) {
    for (uint32_t i = 0; i < rows; ++i) {
        for (uint32_t j = 0; j < columns; ++j) {
            double sum = sums[i * pitch + j];
            for (uint32_t k = 0; k < depth; ++k) sum += static_cast<double>(a[i * DEPTH + k]) * b[j * DEPTH + k];
            sums[i * pitch + j] = static_cast<float>(sum);
        }
    }
}

inline void multiply_s8(int32_t* sums, uint32_t pitch, const uint8_t* a, const uint8_t* b, uint32_t rows,
                        uint32_t columns, uint32_t depth) {
    for (uint32_t i = 0; i < rows; ++i) {
        for (uint32_t j = 0; j < columns; ++j) {
            uint32_t sum = static_cast<uint32_t>(sums[i * pitch + j]);  // sums wrap
            for (uint32_t k = 0; k < depth; ++k) {
                const int product = static_cast<int8_t>(a[i * DEPTH + k]) * static_cast<int8_t>(b[j * DEPTH + k]);
                sum += static_cast<uint32_t>(product);
            }
            sums[i * pitch + j] = static_cast<int32_t>(sum);
        }
    }
}

}  // namespace tracea::emulator
