// IndexRange: what the whole numbers of an input may be, so that no kernel reads or writes by one that names nothing.
#ifndef TRACEA_LAUNCHER_INDEX_RANGE_H
#define TRACEA_LAUNCHER_INDEX_RANGE_H

#include "operand.h"

namespace tracea_extension {

struct IndexRange {
    int32_t input;  // of the program
    int64_t least;
    int64_t count;  // least to least + count - 1 may be
    bool ignores;
    int64_t ignored;  // may stand there too, where `ignores`

    // Whether every number of an operand, int64 or int32, is in the range. Reads the operand alone: no lock is needed.
    bool holds(const Operand& operand) const;
};

}  // namespace tracea_extension

#endif
