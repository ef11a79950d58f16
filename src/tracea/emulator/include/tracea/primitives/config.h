// The emulator's counterpart of the device header of this name: the host's integers, and kernels as plain functions.
#ifndef TRACEA_PRIMITIVES_CONFIG_H
#define TRACEA_PRIMITIVES_CONFIG_H

#include <stdint.h>

#ifndef TRACEA_SM
#error "define TRACEA_SM: 75, 80, 86, 89, 90, 100 or 120"
#endif

// Of the device's math library, what tracea/math.h calls; <math.h> would bring names that meet those of the text.
extern "C" {
float sqrtf(float) noexcept;
float expf(float) noexcept;
float logf(float) noexcept;
float log2f(float) noexcept;
float log10f(float) noexcept;
float sinf(float) noexcept;
float cosf(float) noexcept;
float tanhf(float) noexcept;
float erff(float) noexcept;
float erfcf(float) noexcept;
float powf(float, float) noexcept;
float fmodf(float, float) noexcept;
float floorf(float) noexcept;
float truncf(float) noexcept;
float fmaf(float, float, float) noexcept;
double fma(double, double, double) noexcept;
}

#define TRACEA_DEVICE inline
#define TRACEA_UNROLL
#define TRACEA_NO_UNROLL
// What a routine asks of its callers: a finding at their line where it does not hold.
#define TRACEA_REQUIRE(condition)                                                                     \
    do {                                                                                              \
        if (!(condition)) ::tracea::emulator::core->broken_requirement(#condition, __builtin_LINE()); \
    } while (false)

#define TRACEA_KERNEL(threads, min_blocks)              \
    constexpr uint32_t tracea_launch_threads = threads; \
    extern "C"
#define TRACEA_GRID_CONSTANT

#endif
