// Which blocks of the depth a product sums: blocks of `size` steps, the one at `depth` cut off, named by a run of a table.
//
//   StepBlocks blocks{step + first[run], first[run + 1] - first[run], 32, k, 0};      // the panels of A begin at step 0
//
// The depth of a product is otherwise a number of steps: whole_depth<Depth> tells the two apart.
#ifndef TRACEA_STEP_BLOCKS_H
#define TRACEA_STEP_BLOCKS_H

#include <stdint.h>

#include <type_traits>

#include "tracea/config.h"

TRACEA_BEGIN_NAMESPACE

struct StepBlocks {
    const int32_t* indices;
    int64_t count;
    int64_t size;
    int64_t depth;
    int64_t base;  // the step that the panels of A begin at

    TRACEA_INLINE int64_t first(int64_t block) const { return indices[block] * size - base; }
    TRACEA_INLINE int64_t steps(int64_t block) const {
        const int64_t left = depth - indices[block] * size;
        return left < size ? left : size;
    }
};

// The blocks of several lines of a factor, one run of the table after the other:
//
//   StepLines lines{first + run, step, count, 32, k, 0};     // first[run] .. first[run + count] are read
struct StepLines {
    const int32_t* runs;
    const int32_t* indices;
    int64_t count;
    int64_t size;
    int64_t depth;
    int64_t base;

    // The number of a line's first block.
    TRACEA_INLINE int64_t number(int64_t line) const { return runs[line]; }
    TRACEA_INLINE StepBlocks blocks(int64_t line) const {
        return {indices + runs[line], runs[line + 1] - runs[line], size, depth, base};
    }
};

template <class Depth>
constexpr bool whole_depth = std::is_integral<Depth>::value;

TRACEA_END_NAMESPACE

#endif
