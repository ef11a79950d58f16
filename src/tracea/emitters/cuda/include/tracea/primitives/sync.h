// Barriers of the block and of the warp, named barriers, shuffles.
#ifndef TRACEA_PRIMITIVES_SYNC_H
#define TRACEA_PRIMITIVES_SYNC_H

#include "tracea/primitives/config.h"
#include "tracea/primitives/types.h"

namespace tracea {

// PTX ISA 9.0, 9.7.13 bar.sync; sm_75. All threads of the block.
TRACEA_DEVICE void sync_block() { __syncthreads(); }

// PTX ISA 9.0, 9.7.13 bar.warp.sync; sm_75. All 32 lanes.
TRACEA_DEVICE void sync_warp() { __syncwarp(); }

// PTX ISA 9.0, 9.7.13 bar.sync; sm_75. Waits until `threads` threads, a multiple of 32, have come to barrier `id`, 1 to 15; 0 is sync_block's.
TRACEA_DEVICE void named_barrier_sync(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// PTX ISA 9.0, 9.7.13 bar.arrive; sm_75. Counts as having come to barrier `id`, without waiting.
TRACEA_DEVICE void named_barrier_arrive(uint32_t id, uint32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// PTX ISA 9.0, 9.7.9 shfl.sync.bfly; sm_75. T of 4 bytes; all 32 lanes.
template <class T>
TRACEA_DEVICE T shuffle_xor(T value, int mask) {
    return bits_as<T>(__shfl_xor_sync(0xffffffffU, bits_as<uint32_t>(value), mask));
}

// PTX ISA 9.0, 9.7.9 shfl.sync.idx; sm_75. T of 4 bytes; all 32 lanes; the value of lane `lane`.
template <class T>
TRACEA_DEVICE T shuffle(T value, int lane) {
    return bits_as<T>(__shfl_sync(0xffffffffU, bits_as<uint32_t>(value), lane));
}

#if TRACEA_SM >= 90
// PTX ISA 9.0, 9.7.13 elect.sync; sm_90. True in one lane of the warp, always the same; all 32 lanes.
TRACEA_DEVICE bool elect_one() {
    uint32_t elected;
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "elect.sync _|p, 0xffffffff;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(elected)::"memory");
    return elected != 0;
}
#endif

#if TRACEA_SM >= 90 && defined(TRACEA_ARCH_SPECIFIC)
// PTX ISA 9.0, 9.7.19 setmaxnreg; sm_90a. The warps of a warpgroup take or give back registers of their block's pool: 24 to 256, a multiple of 8.
// Ignored, with a warning that the compile gate refuses, where the kernel's launch bounds do not fix its registers.
template <int registers>
TRACEA_DEVICE void setmaxnreg_inc() {
    static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0, "24 to 256 registers, a multiple of 8");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
TRACEA_DEVICE void setmaxnreg_dec() {
    static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0, "24 to 256 registers, a multiple of 8");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
#endif

}  // namespace tracea

#endif
