// What several blocks or several warps share: segments of the sum with their flags, and rings that the copy engine fills.
#ifndef TRACEA_TILES_RING_H
#define TRACEA_TILES_RING_H

#include "tracea/math.h"
#include "tracea/primitives.h"
#include "tracea/tiles/shared.h"
#include "tracea/tiles/store.h"

namespace tracea {

// ---- work that several blocks share ---------------------------------------------------------------------------------------------------------------

// One worker's share of the flat (tile, step) space, one segment of one tile at a time (semantic.nodes_async.SegmentLoop).
struct Segments {
    int64_t steps, position, end, total, workers;
    int32_t tile = 0, first = 0, count = 0, last = 0;

    TRACEA_DEVICE Segments(int64_t worker, int64_t worker_count, int64_t tiles, int64_t tile_steps)
        : steps(tile_steps),
          position(worker * tiles * tile_steps / worker_count),
          end((worker + 1) * tiles * tile_steps / worker_count),
          total(tiles * tile_steps),
          workers(worker_count) {}

    TRACEA_DEVICE bool next() {
        position += count;
        if (position >= end) return false;
        tile = static_cast<int32_t>(position / steps);
        first = static_cast<int32_t>(position % steps);
        const int64_t left = steps - first;
        count = static_cast<int32_t>(left < end - position ? left : end - position);
        last = static_cast<int32_t>(((tile + int64_t{1}) * steps * workers - 1) / total);
        return true;
    }
};

// A fragment of sums to the workspace and back: each lane has its elements next to each other.
template <class Sum, int count>
TRACEA_DEVICE void leave_sums(Sum* fragment, const Sum (&sums)[count]) {
    Elements<Sum, count> all;
    TRACEA_UNROLL
    for (int i = 0; i < count; ++i) all.value[i] = sums[i];
    const int32_t own = count * static_cast<int32_t>(lane_index());
    st_global(fragment + own, all);
}
template <class Sum, int count>
TRACEA_DEVICE void take_sums(Sum (&sums)[count], const Sum* fragment) {
    const int32_t own = count * static_cast<int32_t>(lane_index());
    const auto all = ld_global<Elements<Sum, count>>(fragment + own);
    TRACEA_UNROLL
    for (int i = 0; i < count; ++i) sums[i] += all.value[i];
}

// What the warp wrote before is seen by who awaits the flag.
TRACEA_DEVICE void signal_flag(int32_t* flag) {
    thread_fence();
    sync_warp();
    if (lane_index() == 0) st_release(flag, 1);
}
TRACEA_DEVICE void await_flag(const int32_t* flag) {
    while (ld_acquire(flag) == 0) {
    }
}

// ---- rings that the copy engine fills -------------------------------------------------------------------------------------------------------------

#if TRACEA_SM >= 80
// A warp is done with a slot: all its lanes are, and one arrives for them.
TRACEA_DEVICE void release_slot(uint32_t mbarrier) {
    sync_warp();
    if (lane_index() == 0) mbarrier_arrive(mbarrier);
}
#endif

#if TRACEA_SM == 90 && defined(TRACEA_ARCH_SPECIFIC)
// What wgmma is told of a tile whose rows, along k, are as long as its swizzle; row is a multiple of 8, k of 32 bytes.
template <class Tile>
TRACEA_DEVICE uint64_t tile_descriptor(uint32_t tile, int32_t row, int32_t k) {
    constexpr uint32_t row_bytes = Tile::columns * sizeof(typename Tile::element);
    TRACEA_REQUIRE(row % 8 == 0 && k * static_cast<int32_t>(sizeof(typename Tile::element)) % 32 == 0);
    const uint32_t offset =
        static_cast<uint32_t>(row) * row_bytes + static_cast<uint32_t>(k) * sizeof(typename Tile::element);
    return wgmma_descriptor(tile + offset, 16, 8 * row_bytes, Tile::swizzle_bytes);
}

// After the last wait: the compiler sees sums change here, and reads them no earlier.
template <class Sum, int count>
TRACEA_DEVICE void settle(Sum (&sums)[count]) {
    wgmma_accumulators(sums);
}
template <class Sum, int fragments, int count>
TRACEA_DEVICE void settle(Sum (&sums)[fragments][count]) {
    TRACEA_UNROLL
    for (int i = 0; i < fragments; ++i) wgmma_accumulators(sums[i]);
}
#endif

}  // namespace tracea

#endif
