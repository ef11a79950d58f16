// What the processor, the hypervisor and the operating system together let a program use, by CPUID and XGETBV themselves: the compilers' runtime, which knows it
// too, cannot be linked into a shared library by each of them (zig).
#include <cstdint>
#include <cstring>

#include "tracea/amx_grant.h"

#if defined(__x86_64__)
#include <cpuid.h>

// Bits: Intel SDM volume 2A, CPUID; volume 1, 13.3 (XCR0).
static int32_t vectors() {
    constexpr unsigned fma = 1U << 12, osxsave = 1U << 27, avx = 1U << 28, f16c = 1U << 29;        // leaf 1, ECX
    constexpr unsigned avx2 = 1U << 5, f = 1U << 16, dq = 1U << 17, bw = 1U << 30, vl = 1U << 31;  // leaf 7, EBX
    constexpr unsigned ymm_state = 0x6, zmm_state = 0xe6;
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned needed = fma | osxsave | avx | f16c;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & needed) != needed) return 0;
    unsigned low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & ymm_state) != ymm_state || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return 0;
    if ((ebx & avx2) == 0) return 0;
    constexpr unsigned wide = f | dq | bw | vl;
    return (ebx & wide) == wide && (low & zmm_state) == zmm_state ? 512 : 256;
}
#endif

extern "C" __attribute__((visibility("default"))) int32_t tracea_isa_usable(int32_t isa) {
#if defined(__x86_64__)
    return isa == 0 ? vectors() >= 512 : isa == 1 ? vectors() >= 256 : isa == 3;
#elif defined(__aarch64__)
    return isa == 2 || isa == 3;
#else
    return isa == 3;
#endif
}

// Whether the tiles are granted and one product of them is right: ones times twos over 32 steps.
extern "C" __attribute__((visibility("default"))) int32_t tracea_amx_usable() {
    if (!tracea_amx_granted()) return 0;
#if defined(__x86_64__)
    alignas(64)
        uint8_t configuration[64] = {1};  // palette 1; from byte 16 on the bytes of a row, from byte 48 on the rows
    alignas(64) uint16_t ones[512], twos[512];
    alignas(64) float sums[256];
    for (int tile = 0; tile < 3; ++tile) {
        configuration[16 + 2 * tile] = 64;
        configuration[48 + tile] = 16;
    }
    for (int i = 0; i < 512; ++i) {
        ones[i] = 0x3f80;
        twos[i] = 0x4000;
    }
    __asm__ volatile(
        "ldtilecfg %0\n\t"
        "tilezero %%tmm0\n\t"
        "tileloadd (%1,%4,1), %%tmm1\n\t"
        "tileloadd (%2,%4,1), %%tmm2\n\t"
        "tdpbf16ps %%tmm2, %%tmm1, %%tmm0\n\t"
        "tilestored %%tmm0, (%3,%4,1)\n\t"
        "tilerelease"
        :
        : "m"(configuration), "r"(ones), "r"(twos), "r"(sums), "r"(int64_t{64})
        : "memory");
    for (float sum : sums) {
        if (sum != 64.0F) return 0;
    }
    return 1;
#else
    return 0;
#endif
}
