// Whether this process may use AMX tiles with bf16 products. Asks the operating system for them, which is needed once in a process before the first tile
// instruction, and changes nothing else: threads of now and later, and children by fork, have them too.
#ifndef TRACEA_AMX_GRANT_H
#define TRACEA_AMX_GRANT_H

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline bool tracea_amx_granted() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    constexpr unsigned bf16 = 1U << 22, tile = 1U << 24;  // CPUID.7.0:EDX, Intel SDM volume 2A
    if ((edx & bf16) == 0 || (edx & tile) == 0) return false;
    unsigned low = 0, high = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & (1U << 27)) == 0) return false;  // XGETBV is there
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    constexpr unsigned tile_state = 3U << 17;  // XCR0: the tiles' configuration and data
    if ((low & tile_state) != tile_state) return false;
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

#else

static inline bool tracea_amx_granted() { return false; }

#endif

#endif
