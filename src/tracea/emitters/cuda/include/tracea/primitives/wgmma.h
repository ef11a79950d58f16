// wgmma: a warpgroup (four warps, 128 threads) multiplies tiles that lie in shared memory, asynchronously, into its registers.
//
// Accumulators belong to the tensor core from the first wgmma until the wgmma_wait that covers it: no thread may touch them meanwhile, and
// wgmma_accumulators(d) after the wait keeps the compiler from reading them before it.
#ifndef TRACEA_PRIMITIVES_WGMMA_H
#define TRACEA_PRIMITIVES_WGMMA_H

#include "tracea/primitives/config.h"
#include "tracea/primitives/types.h"

#if TRACEA_SM == 90 && defined(TRACEA_ARCH_SPECIFIC)
#include "tracea/primitives/wgmma_shapes.h"

namespace tracea {

// PTX ISA 9.0, 9.7.15 Matrix Descriptor; sm_90a. Of a tile at `address` with a swizzle of 0, 32, 64 or 128 bytes: the bytes from one
// core matrix (8 rows of 16 bytes) to the next, along the contiguous axis (leading) and across it (stride).
TRACEA_DEVICE uint64_t wgmma_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes,
                                        uint32_t swizzle_bytes) {
    const uint64_t mode = swizzle_bytes == 128 ? 1 : swizzle_bytes == 64 ? 2 : swizzle_bytes == 32 ? 3 : 0;
    return static_cast<uint64_t>((address & 0x3ffffU) >> 4) |
           (static_cast<uint64_t>((leading_bytes & 0x3ffffU) >> 4) << 16) |
           (static_cast<uint64_t>((stride_bytes & 0x3ffffU) >> 4) << 32) | (mode << 62);
}

// PTX ISA 9.0, 9.7.15 wgmma.fence; sm_90a. Before the first wgmma, and whenever other instructions touched its registers.
TRACEA_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// PTX ISA 9.0, 9.7.15 wgmma.commit_group; sm_90a. Closes the warpgroup's group of operations.
TRACEA_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// PTX ISA 9.0, 9.7.15 wgmma.wait_group; sm_90a. Waits until at most `pending` groups have not completed.
template <int pending>
TRACEA_DEVICE void wgmma_wait() {
    static_assert(pending >= 0 && pending <= 7, "0 to 7 groups");
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// No instruction: for the compiler, these registers change here.
template <int count>
TRACEA_DEVICE void wgmma_accumulators(float (&d)[count]) {
    TRACEA_UNROLL
    for (int i = 0; i < count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int count>
TRACEA_DEVICE void wgmma_accumulators(int32_t (&d)[count]) {
    TRACEA_UNROLL
    for (int i = 0; i < count; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

// PTX ISA 9.0, 9.7.15 wgmma.mma_async; sm_90a. d = a·b (+ d where accumulate), 64 × n from descriptors; n is a multiple of 8, 8 to 256. A is K-major
// unless transpose_a, B is K-major (N rows of K) unless transpose_b.
template <int n, class T, bool transpose_a, bool transpose_b>
TRACEA_DEVICE void wgmma_m64k16(float (&d)[n / 2], uint64_t a, uint64_t b, bool accumulate) {
    if constexpr (detail::same_type<T, f16>) {
        detail::Wgmma<n>::template f16<transpose_a, transpose_b>(d, a, b, accumulate);
    } else {
        static_assert(detail::same_type<T, bf16>, "wgmma_m64k16 multiplies f16 or bf16");
        detail::Wgmma<n>::template bf16<transpose_a, transpose_b>(d, a, b, accumulate);
    }
}

// The same for f32 elements rounded as round_tf32 does; both operands K-major.
template <int n>
TRACEA_DEVICE void wgmma_m64k8_tf32(float (&d)[n / 2], uint64_t a, uint64_t b, bool accumulate) {
    detail::Wgmma<n>::tf32(d, a, b, accumulate);
}

// The same for fp8; both operands K-major.
template <int n, class T>
TRACEA_DEVICE void wgmma_m64k32(float (&d)[n / 2], uint64_t a, uint64_t b, bool accumulate) {
    if constexpr (detail::same_type<T, e4m3>) {
        detail::Wgmma<n>::e4m3(d, a, b, accumulate);
    } else {
        static_assert(detail::same_type<T, e5m2>, "wgmma_m64k32 multiplies e4m3 or e5m2");
        detail::Wgmma<n>::e5m2(d, a, b, accumulate);
    }
}

// The same for int8, sums wrap; both operands K-major; n is 8, 24 or a multiple of 16.
template <int n>
TRACEA_DEVICE void wgmma_m64k32_s8(int32_t (&d)[n / 2], uint64_t a, uint64_t b, bool accumulate) {
    detail::WgmmaS8<n>::s8(d, a, b, accumulate);
}

}  // namespace tracea
#endif

#endif
