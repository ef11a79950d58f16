// Sums to the result: through shared memory, so that lanes store neighbours, and through the epilogue.
#ifndef TRACEA_TILES_STORE_H
#define TRACEA_TILES_STORE_H

#include "tracea/math.h"
#include "tracea/primitives.h"
#include "tracea/tiles/shared.h"

namespace tracea {

// ---- sums to the result ---------------------------------------------------------------------------------------------------------------------------

// A 16×8 fragment of sums to a tile: each lane two neighbours of rows g and g + 8.
template <class Tile>
TRACEA_DEVICE void stage_sums(uint32_t tile, int32_t row, int32_t column, const typename Tile::element (&sums)[4]) {
    const int32_t group = static_cast<int32_t>(lane_index()) / 4;
    const int32_t pair = static_cast<int32_t>(lane_index()) % 4 * 2;
    TRACEA_UNROLL
    for (int half = 0; half < 2; ++half) {
        const Words<2> two = {{bits_as<uint32_t>(sums[2 * half]), bits_as<uint32_t>(sums[2 * half + 1])}};
        st_shared(Tile::address(tile, row + group + 8 * half, column + pair), two);
    }
}

namespace detail {

template <class T>
TRACEA_DEVICE bool is_aligned(const T* place, int bytes) {
    return (reinterpret_cast<uint64_t>(place) & static_cast<uint64_t>(bytes - 1)) == 0;
}

template <class T>
TRACEA_DEVICE T narrowed(float x) {
    return from_float<T>(x);
}
template <class T>
TRACEA_DEVICE T narrowed(int32_t x) {
    if constexpr (same_storage<T, int32_t>) {
        return x;
    } else {
        return from_float<T>(static_cast<float>(x));
    }
}
template <class T>
TRACEA_DEVICE T narrowed(double x) {
    static_assert(same_storage<T, double>, "double sums are stored as double");
    return x;
}

}  // namespace detail

// Elements next to each other (step 1) in the fewest accesses, or one by one; those beyond count are neither read nor written.
template <class T, int width>
TRACEA_DEVICE void load_piece(float (&x)[width], const T* place, int64_t step, int32_t count) {
    constexpr int bytes = width * static_cast<int>(sizeof(T));
    constexpr int access = bytes < 16 ? bytes : 16;
    constexpr int part = access / static_cast<int>(sizeof(T));
    if (step == 1 && count == width && detail::is_aligned(place, access)) {
        TRACEA_UNROLL
        for (int i = 0; i < width; i += part) {
            const auto raw = ld_global<Elements<T, part>>(place + i);
            TRACEA_UNROLL
            for (int e = 0; e < part; ++e) x[i + e] = to_float(raw.value[e]);
        }
    } else {
        TRACEA_UNROLL
        for (int e = 0; e < width; ++e) x[e] = e < count ? to_float(ld_global<T>(place + e * step)) : 0.0F;
    }
}
template <class T, class X, int width>
TRACEA_DEVICE void store_piece(T* place, int64_t step, const X (&x)[width], int32_t count) {
    constexpr int bytes = width * static_cast<int>(sizeof(T));
    constexpr int access = bytes < 16 ? bytes : 16;
    constexpr int part = access / static_cast<int>(sizeof(T));
    if (step == 1 && count == width && detail::is_aligned(place, access)) {
        TRACEA_UNROLL
        for (int i = 0; i < width; i += part) {
            Elements<T, part> raw;
            TRACEA_UNROLL
            for (int e = 0; e < part; ++e) raw.value[e] = detail::narrowed<T>(x[i + e]);
            st_global(place + i, raw);
        }
    } else {
        TRACEA_UNROLL
        for (int e = 0; e < width; ++e) {
            if (e < count) st_global(place + e * step, detail::narrowed<T>(x[e]));
        }
    }
}

// The same of four neighbouring elements, from `first` on, of a warpgroup's fragment: each warp has 16 of the 64 rows.
template <class Tile, int count>
TRACEA_DEVICE void stage_group_sums(uint32_t tile, int32_t row, int32_t column,
                                    const typename Tile::element (&sums)[count], int32_t first) {
    const typename Tile::element part[4] = {sums[first], sums[first + 1], sums[first + 2], sums[first + 3]};
    stage_sums<Tile>(tile, row + static_cast<int32_t>(warp_index()) % 4 * 16, column, part);
}

// The epilogue that stores sums as they are.
struct Identity {};

namespace detail {

// Rows first_row and following of the staged ones; valid_rows and valid_columns count from the tile's first.
template <class Tile, int rows, int columns, class T, class Epilogue>
TRACEA_DEVICE void store_staged(uint32_t tile, T* target, int64_t row_step, int64_t column_step, int32_t valid_rows,
                                int32_t valid_columns, Epilogue epilogue, int32_t first_row) {
    using Sum = typename Tile::element;
    constexpr int width = 16 / static_cast<int>(sizeof(T));
    static_assert(rows % 8 == 0 && columns % width == 0 && columns <= Tile::columns, "rows of fragments, whole pieces");
    constexpr int row_pieces = columns / width;
    constexpr int pieces = rows * row_pieces;
    const int32_t lane = static_cast<int32_t>(lane_index());
    TRACEA_NO_UNROLL  // the epilogue is long: its code once for each strip
        for (int i = 0; i < pieces; i += 32) {
        const int32_t piece = i + lane;
        const int32_t row = first_row + piece / row_pieces;
        const int32_t column = piece % row_pieces * width;
        if ((pieces % 32 == 0 || piece < pieces) && row < valid_rows && column < valid_columns) {
            Sum x[width];
            TRACEA_UNROLL
            for (int e = 0; e < width; e += 4) {
                const Words<4> four = ld_shared<Words<4>>(Tile::address(tile, row, column + e));
                TRACEA_UNROLL
                for (int j = 0; j < 4; ++j) x[e + j] = bits_as<Sum>(four.word[j]);
            }
            const int32_t count = min_index(width, valid_columns - column);
            T* place = target + row * row_step + column * column_step;
            if constexpr (detail::same_storage<Epilogue, Identity>) {
                store_piece(place, column_step, x, count);
            } else {
                float y[width];
                TRACEA_UNROLL
                for (int e = 0; e < width; ++e) y[e] = to_float(x[e]);
                epilogue(y, row, column, count);
                store_piece(place, column_step, y, count);
            }
        }
    }
}

}  // namespace detail

// A warp stores rows × columns staged sums through an epilogue: 16 bytes a lane where rows allow, cut at valid_rows and valid_columns.
template <class Tile, int rows, int columns, class T, class Epilogue>
TRACEA_DEVICE void store_rows(uint32_t tile, T* target, int64_t row_step, int64_t column_step, int32_t valid_rows,
                              int32_t valid_columns, Epilogue epilogue) {
    TRACEA_REQUIRE(0 < valid_rows && valid_rows <= rows && 0 < valid_columns && valid_columns <= columns);
    detail::store_staged<Tile, rows, columns>(tile, target, row_step, column_step, valid_rows, valid_columns, epilogue,
                                              0);
}

// A warpgroup does so with its rows: each warp a quarter of them, those that it staged itself.
template <class Tile, int rows, int columns, class T, class Epilogue>
TRACEA_DEVICE void store_group_rows(uint32_t tile, T* target, int64_t row_step, int64_t column_step, int32_t valid_rows,
                                    int32_t valid_columns, Epilogue epilogue) {
    static_assert(rows % 32 == 0, "rows of fragments for four warps");
    TRACEA_REQUIRE(0 < valid_rows && valid_rows <= rows && 0 < valid_columns && valid_columns <= columns);
    const int32_t first_row = static_cast<int32_t>(warp_index()) % 4 * (rows / 4);
    detail::store_staged<Tile, rows / 4, columns>(tile, target, row_step, column_step, valid_rows, valid_columns,
                                                  epilogue, first_row);
}

// A warp stores what its lanes hold of (4 · rows) × (8 · columns) sums, through an epilogue, cut at valid_rows and valid_columns.
template <int rows, int columns, class Sum, class T, class Epilogue>
TRACEA_DEVICE void store_lanes(const Sum (&sums)[rows * columns], T* target, int64_t row_step, int64_t column_step,
                               int32_t valid_rows, int32_t valid_columns, Epilogue epilogue) {
    TRACEA_REQUIRE(0 < valid_rows && valid_rows <= 4 * rows && 0 < valid_columns && valid_columns <= 8 * columns);
    constexpr int piece = columns < 4 ? columns : 4;
    const int32_t lane = static_cast<int32_t>(lane_index());
    TRACEA_UNROLL
    for (int i = 0; i < rows; ++i) {
        const int32_t row = detail::own<rows, 4>(lane / 8, i);
        TRACEA_UNROLL
        for (int j = 0; j < columns; j += piece) {
            const int32_t column = detail::own<columns, 8>(lane % 8, j);
            if (row < valid_rows && column < valid_columns) {
                const int32_t count = min_index(piece, valid_columns - column);
                T* place = target + row * row_step + column * column_step;
                if constexpr (detail::same_storage<Epilogue, Identity>) {
                    Sum x[piece];
                    TRACEA_UNROLL
                    for (int e = 0; e < piece; ++e) x[e] = sums[i * columns + j + e];
                    store_piece(place, column_step, x, count);
                } else {
                    float y[piece];
                    TRACEA_UNROLL
                    for (int e = 0; e < piece; ++e) y[e] = to_float(sums[i * columns + j + e]);
                    epilogue(y, row, column, count);
                    store_piece(place, column_step, y, count);
                }
            }
        }
    }
}

}  // namespace tracea

#endif
