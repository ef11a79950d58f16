// A copy that turns up to four columns, as channels that become a pixel's: an element at a time, for whose rows no vector is worth it.
#ifndef TRACEA_TRANSPOSE_FEW_H
#define TRACEA_TRANSPOSE_FEW_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/unroll.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// Few columns, as channels that become a pixel's: an element at a time.
template <int Columns, class Storage>
TRACEA_INLINE void turn_few_columns(int64_t rows, const Storage* x, int64_t x_col, Storage* y, int64_t y_row) {
    for (int64_t row = 0; row < rows; ++row)
        unroll<Columns>([&](auto col) TRACEA_LAMBDA { y[row * y_row + col] = x[row + col * x_col]; });
}

// Calls of(Count) with the number that `count` is, 1 to 4.
template <class F>
TRACEA_INLINE void for_count(int64_t count, const F& of) {
    if (count == 4) return of(constant<4>());
    if (count == 3) return of(constant<3>());
    if (count == 2) return of(constant<2>());
    of(constant<1>());
}

}  // namespace detail

// y[row * y_row + col] = x[row + col * x_col], 1 to 4 columns.
template <class Storage>
TRACEA_INLINE void transpose_few_columns(int64_t rows, int64_t columns, const Storage* x, int64_t x_col, Storage* y,
                                         int64_t y_row) {
    detail::for_count(columns, [&](auto count) TRACEA_LAMBDA {
        detail::turn_few_columns<decltype(count)::value>(rows, x, x_col, y, y_row);
    });
}

TRACEA_END_NAMESPACE

#endif
