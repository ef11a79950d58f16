// What an emitted kernel includes: the primitives of the architecture, and the tile routines made of them.
#ifndef TRACEA_GPU_H
#define TRACEA_GPU_H

#include "tracea/primitives.h"
#include "tracea/tiles.h"
#include "tracea/turns.h"

#endif
