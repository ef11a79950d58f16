// cp.async: copies of each thread from global to shared memory that land some time before the wait that names them.
#ifndef TRACEA_PRIMITIVES_ASYNC_H
#define TRACEA_PRIMITIVES_ASYNC_H

#include "tracea/primitives/config.h"

#if TRACEA_SM >= 80
namespace tracea {

// PTX ISA 9.0, 9.7.9 cp.async; sm_80. Copies 4, 8 or 16 bytes; both addresses are multiples of it. 16 bytes go past the first cache.
template <int bytes>
TRACEA_DEVICE void cp_async(uint32_t target, const void* source) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
    if constexpr (bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(source) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(target), "l"(source), "n"(bytes) : "memory");
    }
}

// PTX ISA 9.0, 9.7.9 cp.async with src-size; sm_80. Reads source_bytes (0 to bytes) and fills the rest with zeros.
template <int bytes>
TRACEA_DEVICE void cp_async_zfill(uint32_t target, const void* source, uint32_t source_bytes) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
    if constexpr (bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(source_bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(source), "n"(bytes),
                     "r"(source_bytes)
                     : "memory");
    }
}

// PTX ISA 9.0, 9.7.9 cp.async.commit_group; sm_80. Closes this thread's group, which may be empty.
TRACEA_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// PTX ISA 9.0, 9.7.9 cp.async.wait_group; sm_80. Waits until at most `pending` of this thread's groups have not landed.
template <int pending>
TRACEA_DEVICE void cp_async_wait() {
    static_assert(pending >= 0, "a number of groups");
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace tracea
#endif

#endif
