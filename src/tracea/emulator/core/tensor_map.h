// The emulator's tensor map: what the 128 opaque bytes of a kernel's TensorMap hold here.
#pragma once
#include <stdint.h>

namespace tracea::emulator {

struct TileMap {
    static constexpr uint32_t MAGIC = 0x70614d54;
    uint32_t magic;
    uint8_t rank, element_bytes, swizzle_bytes, unused;
    uint64_t base;
    uint64_t pitch[4];   // bytes from one index to the next, of every axis but the contiguous one
    uint32_t extent[5];  // elements, the contiguous axis first
    uint16_t box[5];
};
static_assert(sizeof(TileMap) <= 128);

// Where TMA and the tensor cores put the byte of an address that is a multiple of the swizzle's period plus an offset.
inline uint32_t swizzled(uint32_t address, uint32_t swizzle_bytes) {
    const uint32_t mask = swizzle_bytes == 128 ? 7 : swizzle_bytes == 64 ? 3 : swizzle_bytes == 32 ? 1 : 0;
    return address ^ ((address >> 7 & mask) << 4);
}

// Encode a map into 128 bytes; null, or what is wrong with it.
const char* encode_map(void* map, uint64_t base, uint32_t rank, const uint64_t* extents, const uint64_t* pitches,
                       const uint32_t* box, uint32_t element_bytes, uint32_t swizzle_bytes);

}  // namespace tracea::emulator
