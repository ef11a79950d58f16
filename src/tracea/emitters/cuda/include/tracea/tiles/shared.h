// Tiles in shared memory: how they lie, and how they get there from global memory.
#ifndef TRACEA_TILES_SHARED_H
#define TRACEA_TILES_SHARED_H

#include "tracea/math.h"
#include "tracea/primitives.h"

#define TRACEA_UNROLL_4 _Pragma("unroll 4")

namespace tracea {

TRACEA_DEVICE constexpr int32_t min_index(int32_t a, int32_t b) { return a < b ? a : b; }
TRACEA_DEVICE constexpr int32_t max_index(int32_t a, int32_t b) { return a > b ? a : b; }

// ---- shared tiles ---------------------------------------------------------------------------------------------------------------------------------

struct Plain {
    static constexpr uint32_t mode_bytes = 0;
    static constexpr uint32_t changed = 0;
    static constexpr uint32_t sources = 0;
    TRACEA_DEVICE static constexpr uint32_t apply(uint32_t offset) { return offset; }
};

// XORs `bits` bits of a byte offset, from bit base + shift, into those from bit base, and what Also does (semantic/swizzle.py).
template <int bits, int base, int shift, class Also = Plain>
struct Swizzle {
    static constexpr uint32_t changed = (((1U << bits) - 1) << base) | Also::changed;
    static constexpr uint32_t sources = (((1U << bits) - 1) << (base + shift)) | Also::sources;
    static_assert(bits >= 1 && base >= 0 && shift >= bits && !(changed & sources), "a swizzle is its own inverse");
    // The copy engine's mode that swizzles so: rows of 32, 64 or 128 bytes; 0 where it has none.
    static constexpr uint32_t mode_bytes = base == 4 && shift == 3 && !Also::changed ? 16U << bits : 0U;
    TRACEA_DEVICE static constexpr uint32_t apply(uint32_t offset) {
        return Also::apply(offset ^ ((offset >> shift) & (((1U << bits) - 1) << base)));
    }
};

// Rows of `row_elements` T next to each other; a swizzled tile begins at a multiple of the swizzle's period.
template <class T, int row_elements, class Layout = Plain>
struct SharedTile {
    using element = T;
    static constexpr int columns = row_elements;
    static constexpr uint32_t swizzle_bytes = Layout::mode_bytes;
    TRACEA_DEVICE static constexpr uint32_t address(uint32_t tile, int32_t row, int32_t column) {
        return tile +
               Layout::apply(static_cast<uint32_t>((row * row_elements + column) * static_cast<int32_t>(sizeof(T))));
    }
};

// ---- global to shared -----------------------------------------------------------------------------------------------------------------------------

// A warp's share of a copy of rows × columns elements to rows first_row and following of a tile, in pieces along a row. What lies beyond valid_rows
// and valid_columns is zero. Pieces of 4 bytes and more go by cp.async: wait for its group before reading. Narrower ones are elements that are loaded
// one by one, wherever the steps put them, and stored as words.
template <class Tile, int rows, int columns, int piece_bytes>
TRACEA_DEVICE void copy_async(uint32_t tile, int32_t first_row, const typename Tile::element* source, int64_t row_step,
                              int64_t column_step, int32_t valid_rows, int32_t valid_columns) {
    using T = typename Tile::element;
    constexpr bool direct = piece_bytes >= 4 && TRACEA_SM >= 80;
    constexpr int width = (piece_bytes < 4 ? 4 : piece_bytes) / static_cast<int>(sizeof(T));
    constexpr int row_pieces = columns / width;
    constexpr int pieces = rows * row_pieces;
    static_assert(width >= 1 && columns % width == 0, "whole pieces in a row");
    static_assert(columns <= Tile::columns, "rows within the tile's");
    TRACEA_REQUIRE(!direct || width == 1 || column_step == 1);
    const int32_t lane = static_cast<int32_t>(lane_index());
#if TRACEA_SM >= 80
    if constexpr (direct) {
        TRACEA_UNROLL
        for (int i = 0; i < pieces; i += 32) {
            const int32_t piece = i + lane;
            if (pieces % 32 != 0 && piece >= pieces) break;
            const int32_t row = piece / row_pieces;
            const int32_t column = piece % row_pieces * width;
            const int32_t left = row < valid_rows ? max_index(min_index(valid_columns - column, width), 0) : 0;
            const T* place = left > 0 ? source + row * row_step + column * column_step : source;
            cp_async_zfill<piece_bytes>(Tile::address(tile, first_row + row, column), place,
                                        static_cast<uint32_t>(left) * static_cast<uint32_t>(sizeof(T)));
        }
        return;
    }
#endif
    if constexpr (!direct) {
        TRACEA_UNROLL_4  // every element has an address of its own: more at once would not fit the registers
            for (int i = 0; i < pieces; i += 32) {
            const int32_t piece = i + lane;
            if (pieces % 32 != 0 && piece >= pieces) break;
            const int32_t row = piece / row_pieces;
            const int32_t column = piece % row_pieces * width;
            const int32_t left = row < valid_rows ? max_index(min_index(valid_columns - column, width), 0) : 0;
            const T* place = left > 0 ? source + row * row_step + column * column_step : source;
            Elements<T, width> word;
            TRACEA_UNROLL
            for (int e = 0; e < width; ++e) word.value[e] = e < left ? ld_global<T>(place + e * column_step) : T{};
            st_shared(Tile::address(tile, first_row + row, column), word);
        }
    }
}

namespace detail {

// Pieces of 16 bytes of a row, and how many of them each lane of a warp holds of rows × columns elements.
template <class T, int rows, int columns>
struct Held {
    static constexpr int width = 16 / static_cast<int>(sizeof(T));
    static constexpr int row_pieces = columns / width;
    static constexpr int pieces = rows * row_pieces;
    static constexpr int count = (pieces + 31) / 32;
    static_assert(columns % width == 0, "whole pieces in a row");
};

}  // namespace detail

// A warp's share of a copy of rows × columns elements to registers, zeros beyond valid_rows and valid_columns: in accesses of piece_bytes.
template <int rows, int columns, int piece_bytes, class T, int count>
TRACEA_DEVICE void hold_tile(Words<4> (&held)[count], const T* source, int64_t row_step, int64_t column_step,
                             int32_t valid_rows, int32_t valid_columns) {
    using Shape = detail::Held<T, rows, columns>;
    static_assert(count == Shape::count, "registers for the share");
    static_assert(piece_bytes % static_cast<int>(sizeof(T)) == 0 && 16 % piece_bytes == 0,
                  "pieces that make up 16 bytes");
    constexpr int part = piece_bytes / static_cast<int>(sizeof(T));
    TRACEA_REQUIRE(part == 1 || column_step == 1);
    const int32_t lane = static_cast<int32_t>(lane_index());
    TRACEA_UNROLL
    for (int i = 0; i < count; ++i) {
        const int32_t piece = 32 * i + lane;
        const int32_t row = piece / Shape::row_pieces;
        const int32_t column = piece % Shape::row_pieces * Shape::width;
        const bool mine = Shape::pieces % 32 == 0 || piece < Shape::pieces;
        const int32_t left = mine && row < valid_rows ? min_index(valid_columns - column, Shape::width) : 0;
        Elements<T, Shape::width> words = {};
        if (left == Shape::width && part > 1) {
            const T* place = source + row * row_step + column;
            TRACEA_UNROLL
            for (int e = 0; e < Shape::width; e += part) {
                const auto some = ld_global<Elements<T, part>>(place + e);
                TRACEA_UNROLL
                for (int j = 0; j < part; ++j) words.value[e + j] = some.value[j];
            }
        } else {
            TRACEA_UNROLL
            for (int e = 0; e < Shape::width; ++e) {
                if (e < left) words.value[e] = ld_global<T>(source + row * row_step + (column + e) * column_step);
            }
        }
        held[i] = bits_as<Words<4>>(words);
    }
}

// What hold_tile brought, to rows first_row and following of a tile.
template <class Tile, int rows, int columns, int count>
TRACEA_DEVICE void place_tile(uint32_t tile, int32_t first_row, const Words<4> (&held)[count]) {
    using Shape = detail::Held<typename Tile::element, rows, columns>;
    static_assert(count == Shape::count, "registers for the share");
    static_assert(columns <= Tile::columns, "rows within the tile's");
    const int32_t lane = static_cast<int32_t>(lane_index());
    TRACEA_UNROLL
    for (int i = 0; i < count; ++i) {
        const int32_t piece = 32 * i + lane;
        if (Shape::pieces % 32 == 0 || piece < Shape::pieces) {
            st_shared(
                Tile::address(tile, first_row + piece / Shape::row_pieces, piece % Shape::row_pieces * Shape::width),
                held[i]);
        }
    }
}

}  // namespace tracea

#endif
