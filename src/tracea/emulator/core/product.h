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

template <class Bits, class F>
void widen_each(float* to, const uint8_t* from, uint32_t count, F convert) {
    for (uint32_t i = 0; i < count; ++i) {
        Bits bits;
        memcpy(&bits, from + i * sizeof bits, sizeof bits);
        to[i] = convert(bits);
    }
}

inline void widen(float* to, const uint8_t* from, uint32_t count, Element element) {
    switch (element) {
        case Element::F16:
            widen_each<uint16_t>(to, from, count, widen_f16);
            break;
        case Element::BF16:
            widen_each<uint16_t>(to, from, count, widen_bf16);
            break;
        case Element::E4M3:
            widen_each<uint8_t>(to, from, count, widen_e4m3);
            break;
        case Element::E5M2:
            widen_each<uint8_t>(to, from, count, widen_e5m2);
            break;
        case Element::TF32:  // the hardware ignores the low 13 bits
            widen_each<uint32_t>(to, from, count, [](uint32_t bits) { return float_of(bits & 0xffffe000); });
            break;
        case Element::S8:
            __builtin_unreachable();  // integers are multiplied as they are
    }
}

// sums[i][j] += Σ a[i][k]·b[j][k]; columns is a multiple of 8. The hardware promises neither an order nor a rounding of
// its partial sums; here they are sums of doubles, rounded once.
inline void multiply(float* sums, uint32_t pitch, const float* a, const float* b, uint32_t rows, uint32_t columns,
                     uint32_t depth) {
    constexpr uint32_t TOGETHER = 8;
    for (uint32_t first = 0; first < columns; first += TOGETHER) {
        double across[DEPTH][TOGETHER];
        for (uint32_t k = 0; k < depth; ++k) {
            for (uint32_t j = 0; j < TOGETHER; ++j) across[k][j] = b[(first + j) * DEPTH + k];
        }
        for (uint32_t i = 0; i < rows; ++i) {
            float* row = sums + i * pitch + first;
            double sum[TOGETHER];
            for (uint32_t j = 0; j < TOGETHER; ++j) sum[j] = row[j];
            for (uint32_t k = 0; k < depth; ++k) {
                const double factor = a[i * DEPTH + k];
                for (uint32_t j = 0; j < TOGETHER; ++j) sum[j] += factor * across[k][j];
            }
            for (uint32_t j = 0; j < TOGETHER; ++j) row[j] = static_cast<float>(sum[j]);
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
