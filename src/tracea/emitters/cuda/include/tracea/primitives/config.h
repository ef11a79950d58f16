// The fixed-width integers, the spelling of device functions and kernels, and the architecture of the compilation.
#ifndef TRACEA_PRIMITIVES_CONFIG_H
#define TRACEA_PRIMITIVES_CONFIG_H

#ifndef TRACEA_SM
#error "define TRACEA_SM: 75, 80, 86, 89, 90, 100 or 120"
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != TRACEA_SM * 10
#error "TRACEA_SM is not the architecture of this compilation"
#endif
#if defined(TRACEA_ARCH_SPECIFIC) && TRACEA_SM < 90
#error "TRACEA_ARCH_SPECIFIC: architecture-specific forms begin with sm_90a"
#endif

#if defined(__CUDACC_RTC__)  // NVRTC compiles without standard headers, and with 64-bit integers that are long long
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

#define TRACEA_DEVICE __device__ __forceinline__
#define TRACEA_UNROLL _Pragma("unroll")
#define TRACEA_NO_UNROLL _Pragma("unroll 1")
// What a routine asks of its callers: the emulator looks, the device does not.
#define TRACEA_REQUIRE(condition)

// A kernel: TRACEA_KERNEL(threads of a block, least blocks of a multiprocessor) void name(const TRACEA_GRID_CONSTANT name_args args)
#define TRACEA_KERNEL(threads, min_blocks) extern "C" __global__ __launch_bounds__(threads, min_blocks)
#define TRACEA_GRID_CONSTANT __grid_constant__

#endif
