// What the processor, the hypervisor and the operating system together let a program use (CPUID and XGETBV, by the compiler's runtime).
#include <cstdint>

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
