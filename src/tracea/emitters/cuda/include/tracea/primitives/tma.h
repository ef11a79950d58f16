// TMA: one thread moves a box of a tensor between global and shared memory; the tensor is described by a map that the driver encoded.
#ifndef TRACEA_PRIMITIVES_TMA_H
#define TRACEA_PRIMITIVES_TMA_H

#include "tracea/primitives/config.h"

namespace tracea {

// CUtensorMap. A kernel takes it by value, inside its TRACEA_GRID_CONSTANT argument.
struct alignas(64) TensorMap {
    uint64_t opaque[16];
};

#if TRACEA_SM >= 90
// PTX ISA 9.0, 9.7.9 prefetch.tensormap; sm_90.
TRACEA_DEVICE void prefetch_tensor_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// PTX ISA 9.0, 9.7.9 cp.async.bulk.tensor, global to shared; sm_90. Loads the box at the coordinates, c0 along the contiguous axis; what lies outside
// the tensor is zero. The box's bytes, whole, count on the mbarrier. target is a multiple of 128, of 1024 with the 128-byte swizzle.
template <int rank, class... Coordinates>
TRACEA_DEVICE void tma_load(uint32_t target, const TensorMap& map, uint32_t mbarrier, Coordinates... coordinates) {
    static_assert(rank >= 1 && rank <= 5, "tensors of TMA have 1 to 5 axes");
    static_assert(sizeof...(coordinates) == rank, "one coordinate for each axis");
    const int32_t c[rank] = {static_cast<int32_t>(coordinates)...};
    if constexpr (rank == 1) {
        asm volatile(
            "cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3}], "
            "[%2];" ::"r"(target),
            "l"(&map), "r"(mbarrier), "r"(c[0])
            : "memory");
    } else if constexpr (rank == 2) {
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
            "[%2];" ::"r"(target),
            "l"(&map), "r"(mbarrier), "r"(c[0]), "r"(c[1])
            : "memory");
    } else if constexpr (rank == 3) {
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
            "%5}], [%2];" ::"r"(target),
            "l"(&map), "r"(mbarrier), "r"(c[0]), "r"(c[1]), "r"(c[2])
            : "memory");
    } else if constexpr (rank == 4) {
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
            "%6}], [%2];" ::"r"(target),
            "l"(&map), "r"(mbarrier), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3])
            : "memory");
    } else {
        asm volatile(
            "cp.async.bulk.tensor.5d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
            "%6, %7}], [%2];" ::"r"(target),
            "l"(&map), "r"(mbarrier), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4])
            : "memory");
    }
}

// PTX ISA 9.0, 9.7.9 cp.async.bulk.tensor, shared to global; sm_90. Stores the box; what lies outside the tensor is not written. Ordinary stores to
// the source need fence_proxy_async() by the threads that made them, then a barrier, before it.
TRACEA_DEVICE void tma_store_2d(const TensorMap& map, uint32_t source, int32_t c0, int32_t c1) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
                 "r"(source), "r"(c0), "r"(c1)
                 : "memory");
}

// PTX ISA 9.0, 9.7.9 cp.async.bulk.commit_group; sm_90. Closes this thread's group of stores.
TRACEA_DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// PTX ISA 9.0, 9.7.9 cp.async.bulk.wait_group; sm_90. Waits until at most `pending` groups of this thread are not yet written.
template <int pending>
TRACEA_DEVICE void tma_store_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

// PTX ISA 9.0, 9.7.9 cp.async.bulk.wait_group.read; sm_90. Waits until at most `pending` groups still read their shared memory.
template <int pending>
TRACEA_DEVICE void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// PTX ISA 9.0, 9.7.13 fence.proxy.async; sm_90. Orders this thread's ordinary accesses of shared memory before those of TMA and wgmma that follow.
TRACEA_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif

}  // namespace tracea

#endif
