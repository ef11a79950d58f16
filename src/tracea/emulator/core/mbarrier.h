// What the copy engine needs of mbarriers.
#pragma once
#include "machine.h"
#include "memory.h"

namespace tracea::emulator {

// The barrier at an address, or null after a finding.
Mbarrier* find_mbarrier(Lane& lane, uint32_t address, Site site);

// What brings the open phase to its end comes after those waits for the one before of which this lane knows.
void note_progress(Mbarrier& barrier, const Lane& lane);

// End the phase if nothing is missing.
void settle(Mbarrier& barrier);

}  // namespace tracea::emulator
