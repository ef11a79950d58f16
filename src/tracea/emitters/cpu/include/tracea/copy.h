// Rows that are moved as they are.
#ifndef TRACEA_COPY_H
#define TRACEA_COPY_H

#include <stdint.h>

#include "tracea/config.h"

TRACEA_BEGIN_NAMESPACE

// Rows that follow each other without a gap are one. The addresses need no alignment beyond that of an element.
template <class Storage>
TRACEA_INLINE void copy_rows(int64_t rows, int64_t columns, const Storage* x, int64_t x_row, Storage* y,
                             int64_t y_row) {
    if (rows <= 0 || columns <= 0) return;
    const bool dense = x_row == columns && y_row == columns;
    const uint64_t bytes = static_cast<uint64_t>(dense ? rows * columns : columns) * sizeof(Storage);
    for (int64_t row = 0; row < (dense ? 1 : rows); ++row) __builtin_memcpy(y + row * y_row, x + row * x_row, bytes);
}

TRACEA_END_NAMESPACE

#endif
