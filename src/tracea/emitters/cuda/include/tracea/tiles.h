// Tile routines: what a warp or a warpgroup does with a tile, made of primitives only, so that the emulator runs the same text.
//
// A SharedTile says how a tile lies in shared memory; its functions take the address of the tile's first byte. Routines that a whole warp calls share
// their work by lane: piece number i belongs to lane i mod 32, as semantic.phase.copy_lanes says.
#ifndef TRACEA_TILES_H
#define TRACEA_TILES_H

#include "tracea/tiles/fragments.h"
#include "tracea/tiles/ring.h"
#include "tracea/tiles/shared.h"
#include "tracea/tiles/store.h"

#endif
