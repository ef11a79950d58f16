// What one core multiplies at best on matrix tiles of bf16: products from registers, none of which waits for another. Compiled where tiles are granted.
#include <cstdint>

#include "tracea/amx.h"
#include "tracea/amx_grant.h"

#define TRACEA_EXPORT extern "C" __attribute__((visibility("default")))

// Six sums cover the 52 cycles that a product takes at one product every 16 cycles (Intel Optimization Reference Manual, on TDPBF16PS), and leave two registers
// for the factors.
constexpr int64_t kSums = 6;

TRACEA_EXPORT int64_t tracea_peak_flops_bf16() {
    return kSums * 2 * tracea::kTileRows * tracea::kTileColumns * tracea::kTileWords;
}

// Returns the first element of a sum: ones times pairs of one and minus one, which is zero after any number of steps; negative where tiles are not granted.
TRACEA_EXPORT double tracea_peak_bf16(int64_t iterations) {
    if (!tracea_amx_granted()) return -1.0;
    alignas(64) tracea::bf16 ones[tracea::kTileElements], signs[tracea::kTileElements];
    alignas(64) float sums[tracea::kTileRows * tracea::kTileColumns];
    constexpr uint16_t one = 0x3f80, minus_one = 0xbf80;
    for (int i = 0; i < tracea::kTileElements; ++i) {
        ones[i].bits = one;
        signs[i].bits = i % 2 == 0 ? one : minus_one;
    }
    tracea::TileRegisters tiles;
    tiles.zero<0>(), tiles.zero<1>(), tiles.zero<2>(), tiles.zero<3>(), tiles.zero<4>(), tiles.zero<5>();
    tiles.load<6>(ones);
    tiles.load<7>(signs);
    for (int64_t n = 0; n < iterations; ++n) {
        tiles.dot<0, 6, 7>(), tiles.dot<1, 6, 7>(), tiles.dot<2, 6, 7>();
        tiles.dot<3, 6, 7>(), tiles.dot<4, 6, 7>(), tiles.dot<5, 6, 7>();
    }
    tiles.store<0>(sums, tracea::kTileColumns);
    return sums[0];
}
