// Integer index arithmetic of kernels: sizes, strides and offsets are int64_t and never negative where they are divided.
#ifndef TRACEA_INDEX_H
#define TRACEA_INDEX_H

#include <stdint.h>

#include "tracea/config.h"

TRACEA_BEGIN_NAMESPACE

// Not templates: a literal and a variable meet as int64_t.
TRACEA_INLINE constexpr int64_t min_index(int64_t a, int64_t b) { return a < b ? a : b; }
TRACEA_INLINE constexpr int64_t max_index(int64_t a, int64_t b) { return a > b ? a : b; }

TRACEA_END_NAMESPACE

#endif
