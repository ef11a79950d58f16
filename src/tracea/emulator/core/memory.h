// What the files of memory accesses share: checks of an address, and the log from which accesses are priced.
#pragma once
#include "machine.h"

namespace tracea::emulator {

// Whether these bytes of shared memory exist and are aligned; a finding where not.
bool in_shared(Lane& lane, uint32_t address, uint32_t bytes, uint32_t alignment, Site site);

// The host's address of a buffer's bytes, with the buffer; null after a finding.
uint8_t* in_global(Lane& lane, uint64_t address, uint32_t bytes, Site site, bool write, Buffer** buffer);

inline void note(Lane& lane, uint64_t address, uint32_t bytes, Site site, bool global) {
    lane.warp->requests.push_back(
        {address, site, static_cast<uint8_t>(lane.index), static_cast<uint8_t>(bytes), global});
    if (lane.warp->requests.size() > 1u << 20) machine.statistics.flush(*lane.warp);
}

}  // namespace tracea::emulator
