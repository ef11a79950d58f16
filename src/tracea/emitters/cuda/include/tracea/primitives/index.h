// Where a thread is: grids and blocks have one axis.
#ifndef TRACEA_PRIMITIVES_INDEX_H
#define TRACEA_PRIMITIVES_INDEX_H

#include "tracea/primitives/config.h"

namespace tracea {

// PTX ISA 9.0, 10 Special Registers: %tid, %ctaid, %nctaid, %laneid; sm_75.
TRACEA_DEVICE uint32_t thread_index() { return threadIdx.x; }
TRACEA_DEVICE uint32_t block_index() { return blockIdx.x; }
TRACEA_DEVICE uint32_t block_count() { return gridDim.x; }
TRACEA_DEVICE uint32_t lane_index() { return threadIdx.x % 32; }

// PTX ISA 9.0, 9.7.9 shfl.sync; sm_75. All 32 lanes of the warp call it together: read from one lane, the index is uniform for the compiler too, and
// branches on it stay warp-wide.
TRACEA_DEVICE uint32_t warp_index() { return __shfl_sync(0xffffffffU, threadIdx.x / 32, 0); }

}  // namespace tracea

#endif
