// What the processor, the hypervisor and the operating system together let a program use (CPUID and XGETBV, by the compiler's runtime).
#include <cstdint>
#include <cstring>

#include "tracea/amx_grant.h"

extern "C" __attribute__((visibility("default"))) int32_t tracea_isa_usable(int32_t isa) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return isa == 0 ? avx512 : isa == 1 ? avx2 : isa == 3;
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
    alignas(64) uint8_t configuration[64] = {1};  // palette 1; from byte 16 on the bytes of a row, from byte 48 on the rows
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
