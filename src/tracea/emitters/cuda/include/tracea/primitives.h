// The device's primitives: one name, one instruction (or the few that it takes), as inline PTX, without any other header.
//
// The command line defines TRACEA_SM (75, 80, 86, 89, 90, 100 or 120), and TRACEA_ARCH_SPECIFIC for the architecture-specific forms (sm_90a). A
// primitive that the architecture lacks is not declared, so that a kernel that calls it does not compile; emitters/cuda/primitives.py lists all
// primitives with the least architecture of each. The emulator has a header of this name that declares the same primitives.
//
// A shared-memory address is a uint32_t of bytes in the shared window. Register fragments are arrays: mma and wgmma accumulate in place.
#ifndef TRACEA_PRIMITIVES_H
#define TRACEA_PRIMITIVES_H

#include "tracea/primitives/async.h"
#include "tracea/primitives/config.h"
#include "tracea/primitives/convert.h"
#include "tracea/primitives/index.h"
#include "tracea/primitives/matrix.h"
#include "tracea/primitives/mbarrier.h"
#include "tracea/primitives/memory.h"
#include "tracea/primitives/sync.h"
#include "tracea/primitives/tma.h"
#include "tracea/primitives/types.h"
#include "tracea/primitives/wgmma.h"

#endif
