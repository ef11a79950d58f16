// Loads and stores of global and shared memory: one call is one access of sizeof(T) bytes, at an address that is a multiple of it.
#ifndef TRACEA_PRIMITIVES_MEMORY_H
#define TRACEA_PRIMITIVES_MEMORY_H

#include "tracea/primitives/config.h"
#include "tracea/primitives/types.h"

namespace tracea {

extern __shared__ __align__(1024) unsigned char shared_arena[];

// PTX ISA 9.0, 9.7.9 cvta; sm_75. The first byte of the block's dynamic shared memory, a multiple of 1024.
TRACEA_DEVICE uint32_t shared_base() { return static_cast<uint32_t>(__cvta_generic_to_shared(shared_arena)); }

// PTX ISA 9.0, 9.7.9 ld; sm_75. T of 1, 2, 4, 8 or 16 bytes.
template <class T>
TRACEA_DEVICE T ld_shared(uint32_t address) {
    if constexpr (sizeof(T) == 1) {
        uint16_t r;  // PTX has no 8-bit registers
        asm volatile("ld.shared.u8 %0, [%1];" : "=h"(r) : "r"(address) : "memory");
        return bits_as<T>(static_cast<uint8_t>(r));
    } else if constexpr (sizeof(T) == 2) {
        uint16_t r;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(r) : "r"(address) : "memory");
        return bits_as<T>(r);
    } else if constexpr (sizeof(T) == 4) {
        uint32_t r;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(r) : "r"(address) : "memory");
        return bits_as<T>(r);
    } else if constexpr (sizeof(T) == 8) {
        Words<2> r;
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(r.word[0]), "=r"(r.word[1]) : "r"(address) : "memory");
        return bits_as<T>(r);
    } else {
        static_assert(sizeof(T) == 16, "one access moves 1, 2, 4, 8 or 16 bytes");
        Words<4> r;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r.word[0]), "=r"(r.word[1]), "=r"(r.word[2]), "=r"(r.word[3])
                     : "r"(address)
                     : "memory");
        return bits_as<T>(r);
    }
}

// PTX ISA 9.0, 9.7.9 st; sm_75. T of 1, 2, 4, 8 or 16 bytes.
template <class T>
TRACEA_DEVICE void st_shared(uint32_t address, T value) {
    if constexpr (sizeof(T) == 1) {
        const uint16_t r = bits_as<uint8_t>(value);
        asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "h"(r) : "memory");
    } else if constexpr (sizeof(T) == 2) {
        const uint16_t r = bits_as<uint16_t>(value);
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(r) : "memory");
    } else if constexpr (sizeof(T) == 4) {
        const uint32_t r = bits_as<uint32_t>(value);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(r) : "memory");
    } else if constexpr (sizeof(T) == 8) {
        const Words<2> r = bits_as<Words<2>>(value);
        asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(r.word[0]), "r"(r.word[1]) : "memory");
    } else {
        static_assert(sizeof(T) == 16, "one access moves 1, 2, 4, 8 or 16 bytes");
        const Words<4> r = bits_as<Words<4>>(value);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r.word[0]), "r"(r.word[1]),
                     "r"(r.word[2]), "r"(r.word[3])
                     : "memory");
    }
}

// PTX ISA 9.0, 9.7.9 ld; sm_75. T of 1, 2, 4, 8 or 16 bytes; what this kernel wrote before is seen.
template <class T>
TRACEA_DEVICE T ld_global(const void* address) {
    if constexpr (sizeof(T) == 1) {
        uint16_t r;
        asm volatile("ld.global.u8 %0, [%1];" : "=h"(r) : "l"(address) : "memory");
        return bits_as<T>(static_cast<uint8_t>(r));
    } else if constexpr (sizeof(T) == 2) {
        uint16_t r;
        asm volatile("ld.global.u16 %0, [%1];" : "=h"(r) : "l"(address) : "memory");
        return bits_as<T>(r);
    } else if constexpr (sizeof(T) == 4) {
        uint32_t r;
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(r) : "l"(address) : "memory");
        return bits_as<T>(r);
    } else if constexpr (sizeof(T) == 8) {
        Words<2> r;
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(r.word[0]), "=r"(r.word[1]) : "l"(address) : "memory");
        return bits_as<T>(r);
    } else {
        static_assert(sizeof(T) == 16, "one access moves 1, 2, 4, 8 or 16 bytes");
        Words<4> r;
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r.word[0]), "=r"(r.word[1]), "=r"(r.word[2]), "=r"(r.word[3])
                     : "l"(address)
                     : "memory");
        return bits_as<T>(r);
    }
}

// PTX ISA 9.0, 9.7.9 st; sm_75. T of 1, 2, 4, 8 or 16 bytes.
template <class T>
TRACEA_DEVICE void st_global(void* address, T value) {
    if constexpr (sizeof(T) == 1) {
        const uint16_t r = bits_as<uint8_t>(value);
        asm volatile("st.global.u8 [%0], %1;" ::"l"(address), "h"(r) : "memory");
    } else if constexpr (sizeof(T) == 2) {
        const uint16_t r = bits_as<uint16_t>(value);
        asm volatile("st.global.u16 [%0], %1;" ::"l"(address), "h"(r) : "memory");
    } else if constexpr (sizeof(T) == 4) {
        const uint32_t r = bits_as<uint32_t>(value);
        asm volatile("st.global.u32 [%0], %1;" ::"l"(address), "r"(r) : "memory");
    } else if constexpr (sizeof(T) == 8) {
        const Words<2> r = bits_as<Words<2>>(value);
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(r.word[0]), "r"(r.word[1]) : "memory");
    } else {
        static_assert(sizeof(T) == 16, "one access moves 1, 2, 4, 8 or 16 bytes");
        const Words<4> r = bits_as<Words<4>>(value);
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(r.word[0]), "r"(r.word[1]),
                     "r"(r.word[2]), "r"(r.word[3])
                     : "memory");
    }
}

// PTX ISA 9.0, 9.7.13 red; sm_75. Relaxed: orders nothing.
TRACEA_DEVICE void atomic_add(float* address, float value) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(address), "f"(value) : "memory");
}

// PTX ISA 9.0, 9.7.9 ld.acquire, scope gpu; sm_75.
TRACEA_DEVICE int ld_acquire(const int* address) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

// PTX ISA 9.0, 9.7.9 st.release, scope gpu; sm_75.
TRACEA_DEVICE void st_release(int* address, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// PTX ISA 9.0, 9.7.13 red.release, scope gpu; sm_75.
TRACEA_DEVICE void red_release_add(int* address, int value) {
    asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// PTX ISA 9.0, 9.7.13 fence.acq_rel, scope gpu; sm_75.
TRACEA_DEVICE void thread_fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

}  // namespace tracea

#endif
