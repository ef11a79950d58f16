// Tile routines: what a warp or a warpgroup does with a tile, made of primitives only, so that the emulator runs the same text.
//
// A SharedTile says how a tile lies in shared memory; its functions take the address of the tile's first byte. Routines that a whole warp calls share
// their work by lane: piece number i belongs to lane i mod 32, as semantic.phase.copy_lanes says.
#ifndef TRACEA_TILES_H
#define TRACEA_TILES_H

#include "tracea/math.h"
#include "tracea/primitives.h"

#define TRACEA_UNROLL_4 _Pragma("unroll 4")

namespace tracea {

TRACEA_DEVICE constexpr int32_t min_index(int32_t a, int32_t b) { return a < b ? a : b; }
TRACEA_DEVICE constexpr int32_t max_index(int32_t a, int32_t b) { return a > b ? a : b; }

// ---- shared tiles ---------------------------------------------------------------------------------------------------------------------------------

// XORs `bits` bits of a byte offset, from bit base + shift, into those from bit base (semantic/swizzle.py).
template <int bits, int base, int shift>
struct Swizzle {
    static_assert(bits >= 1 && base >= 0 && shift >= bits, "a swizzle is its own inverse");
    // The copy engine's mode that swizzles so: rows of 32, 64 or 128 bytes; 0 where it has none.
    static constexpr uint32_t mode_bytes = base == 4 && shift == 3 ? 16U << bits : 0U;
    TRACEA_DEVICE static constexpr uint32_t apply(uint32_t offset) {
        return offset ^ ((offset >> shift) & (((1U << bits) - 1) << base));
    }
};
struct Plain {
    static constexpr uint32_t mode_bytes = 0;
    TRACEA_DEVICE static constexpr uint32_t apply(uint32_t offset) { return offset; }
};

// Rows of `row_elements` T next to each other; a swizzled tile begins at a multiple of the swizzle's period.
template <class T, int row_elements, class Layout = Plain>
struct SharedTile {
    using element = T;
    static constexpr int columns = row_elements;
    static constexpr uint32_t swizzle_bytes = Layout::mode_bytes;
    TRACEA_DEVICE static constexpr uint32_t address(uint32_t tile, int32_t row, int32_t column) {
        return tile + Layout::apply(static_cast<uint32_t>((row * row_elements + column) * static_cast<int32_t>(sizeof(T))));
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
    constexpr int part = piece_bytes / static_cast<int>(sizeof(T));
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
    const int32_t lane = static_cast<int32_t>(lane_index());
    TRACEA_UNROLL
    for (int i = 0; i < count; ++i) {
        const int32_t piece = 32 * i + lane;
        if (Shape::pieces % 32 == 0 || piece < Shape::pieces) {
            st_shared(Tile::address(tile, first_row + piece / Shape::row_pieces, piece % Shape::row_pieces * Shape::width),
                      held[i]);
        }
    }
}

// ---- fragments ------------------------------------------------------------------------------------------------------------------------------------

template <class T>
TRACEA_DEVICE void clear(T& value) {
    value = T{};
}
template <class T, int count>
TRACEA_DEVICE void clear(T (&values)[count]) {
    TRACEA_UNROLL
    for (int i = 0; i < count; ++i) clear(values[i]);
}

namespace detail {

// Lanes 0 to 15 give rows of the first 16 bytes, lanes 16 to 31 the same rows of the next 16.
template <class Tile>
TRACEA_DEVICE uint32_t down(uint32_t tile, int32_t row, int32_t column) {
    const int32_t lane = static_cast<int32_t>(lane_index());
    constexpr int32_t width = 16 / static_cast<int32_t>(sizeof(typename Tile::element));
    return Tile::address(tile, row + lane % 16, column + lane / 16 * width);
}
// Eight rows of the first 16 bytes, eight of the next 16, then the following eight rows of both.
template <class Tile>
TRACEA_DEVICE uint32_t across(uint32_t tile, int32_t row, int32_t column) {
    const int32_t lane = static_cast<int32_t>(lane_index());
    constexpr int32_t width = 16 / static_cast<int32_t>(sizeof(typename Tile::element));
    return Tile::address(tile, row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * width);
}

TRACEA_DEVICE void part(const uint32_t (&r)[4], uint32_t (&b0)[2], uint32_t (&b1)[2]) {
    b0[0] = r[0];
    b0[1] = r[1];
    b1[0] = r[2];
    b1[1] = r[3];
}

}  // namespace detail

// 16 rows and 32 bytes of k of A, from a tile whose rows are rows of A.
template <class Tile>
TRACEA_DEVICE void load_a(uint32_t (&a)[4], uint32_t tile, int32_t row, int32_t k) {
    ldmatrix_x4(a, detail::down<Tile>(tile, row, k));
}
// The same from a tile whose rows are steps of k; elements of two bytes.
template <class Tile>
TRACEA_DEVICE void load_a_transposed(uint32_t (&a)[4], uint32_t tile, int32_t k, int32_t row) {
    static_assert(sizeof(typename Tile::element) == 2, "ldmatrix transposes elements of two bytes");
    ldmatrix_x4_trans(a, detail::across<Tile>(tile, k, row));
}
// 32 bytes of k and two groups of 8 columns of B, from a tile whose rows are columns of B.
template <class Tile>
TRACEA_DEVICE void load_b(uint32_t (&b0)[2], uint32_t (&b1)[2], uint32_t tile, int32_t column, int32_t k) {
    uint32_t r[4];
    ldmatrix_x4(r, detail::across<Tile>(tile, column, k));
    detail::part(r, b0, b1);
}
// The same from a tile whose rows are steps of k; elements of two bytes.
template <class Tile>
TRACEA_DEVICE void load_b_transposed(uint32_t (&b0)[2], uint32_t (&b1)[2], uint32_t tile, int32_t k, int32_t column) {
    static_assert(sizeof(typename Tile::element) == 2, "ldmatrix transposes elements of two bytes");
    uint32_t r[4];
    ldmatrix_x4_trans(r, detail::down<Tile>(tile, k, column));
    detail::part(r, b0, b1);
}

#if TRACEA_SM >= 80
// The same for f32, rounded to TF32.
template <int count>
TRACEA_DEVICE void round_fragment(uint32_t (&r)[count]) {
    TRACEA_UNROLL
    for (int i = 0; i < count; ++i) r[i] = round_tf32(bits_as<float>(r[i]));
}
template <class Tile>
TRACEA_DEVICE void load_a_tf32(uint32_t (&a)[4], uint32_t tile, int32_t row, int32_t k) {
    load_a<Tile>(a, tile, row, k);
    round_fragment(a);
}
template <class Tile>
TRACEA_DEVICE void load_a_tf32_transposed(uint32_t (&a)[4], uint32_t tile, int32_t k, int32_t row) {
    const int32_t group = static_cast<int32_t>(lane_index()) / 4;
    const int32_t thread = static_cast<int32_t>(lane_index()) % 4;
    TRACEA_UNROLL
    for (int i = 0; i < 4; ++i) {
        a[i] = ld_shared<uint32_t>(Tile::address(tile, k + thread + i / 2 * 4, row + group + i % 2 * 8));
    }
    round_fragment(a);
}
template <class Tile>
TRACEA_DEVICE void load_b_tf32(uint32_t (&b0)[2], uint32_t (&b1)[2], uint32_t tile, int32_t column, int32_t k) {
    load_b<Tile>(b0, b1, tile, column, k);
    round_fragment(b0);
    round_fragment(b1);
}
template <class Tile>
TRACEA_DEVICE void load_b_tf32_transposed(uint32_t (&b0)[2], uint32_t (&b1)[2], uint32_t tile, int32_t k,
                                          int32_t column) {
    const int32_t group = static_cast<int32_t>(lane_index()) / 4;
    const int32_t thread = static_cast<int32_t>(lane_index()) % 4;
    TRACEA_UNROLL
    for (int i = 0; i < 2; ++i) {
        b0[i] = ld_shared<uint32_t>(Tile::address(tile, k + thread + i * 4, column + group));
        b1[i] = ld_shared<uint32_t>(Tile::address(tile, k + thread + i * 4, column + group + 8));
    }
    round_fragment(b0);
    round_fragment(b1);
}
#endif

// A product of 16×8×16 by two instructions of half its k (sm_75).
TRACEA_DEVICE void multiply_halves(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    const uint32_t a_first[2] = {a[0], a[1]};
    const uint32_t b_first[1] = {b[0]};
    mma_m16n8k8<f16>(d, a_first, b_first);
    const uint32_t a_second[2] = {a[2], a[3]};
    const uint32_t b_second[1] = {b[1]};
    mma_m16n8k8<f16>(d, a_second, b_second);
}
// A product of 16×8×32 by four instructions of half its rows and half its k (sm_75).
TRACEA_DEVICE void multiply_quarters(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    TRACEA_UNROLL
    for (int half = 0; half < 2; ++half) {
        int32_t sums[2] = {d[2 * half], d[2 * half + 1]};
        TRACEA_UNROLL
        for (int step = 0; step < 2; ++step) {
            const uint32_t a_part[1] = {a[2 * step + half]};
            const uint32_t b_part[1] = {b[step]};
            mma_m8n8k16_s8(sums, a_part, b_part);
        }
        d[2 * half] = sums[0];
        d[2 * half + 1] = sums[1];
    }
}

// ---- without tensor cores: every lane has rows and columns of its own, and multiplies all pairs ------------------------------------------------------

namespace detail {

// The position of element `number` of `count` of a lane: pieces of four at most, those of all lanes next to each other.
template <int count, int lanes>
TRACEA_DEVICE constexpr int32_t own(int32_t lane, int32_t number) {
    constexpr int piece = count < 4 ? count : 4;
    return number / piece * (piece * lanes) + lane * piece + number % piece;
}

template <class Sum, class T>
TRACEA_DEVICE Sum widened(T x) {
    if constexpr (same_storage<Sum, T>) {
        return x;
    } else if constexpr (same_storage<Sum, float>) {
        return to_float(x);
    } else {
        return static_cast<Sum>(x);
    }
}

TRACEA_DEVICE float multiply_add(float a, float b, float c) { return ::fmaf(a, b, c); }
TRACEA_DEVICE double multiply_add(double a, double b, double c) { return ::fma(a, b, c); }
TRACEA_DEVICE int32_t multiply_add(int32_t a, int32_t b, int32_t c) { return a * b + c; }

template <class Tile, int count, int lanes, class Sum>
TRACEA_DEVICE void load_own(Sum (&x)[count], uint32_t tile, int32_t row, int32_t column, int32_t lane) {
    using T = typename Tile::element;
    constexpr int piece = count < 4 ? count : 4;
    constexpr int most = 16 / static_cast<int>(sizeof(T));
    constexpr int access = piece < most ? piece : most;
    TRACEA_UNROLL
    for (int i = 0; i < count; i += access) {
        const auto some = ld_shared<Elements<T, access>>(Tile::address(tile, row, column + own<count, lanes>(lane, i)));
        TRACEA_UNROLL
        for (int e = 0; e < access; ++e) x[i + e] = widened<Sum>(some.value[e]);
    }
}

}  // namespace detail

// One step of k from tiles whose rows are steps of k: a lane's rows of A, and its columns of B.
template <class Tile, int count, class Sum>
TRACEA_DEVICE void load_a_lanes(Sum (&a)[count], uint32_t tile, int32_t k, int32_t row) {
    detail::load_own<Tile, count, 4>(a, tile, k, row, static_cast<int32_t>(lane_index()) / 8);
}
template <class Tile, int count, class Sum>
TRACEA_DEVICE void load_b_lanes(Sum (&b)[count], uint32_t tile, int32_t k, int32_t column) {
    detail::load_own<Tile, count, 8>(b, tile, k, column, static_cast<int32_t>(lane_index()) % 8);
}
template <class Sum, int rows, int columns>
TRACEA_DEVICE void multiply_lanes(Sum (&sums)[rows * columns], const Sum (&a)[rows], const Sum (&b)[columns]) {
    TRACEA_UNROLL
    for (int i = 0; i < rows; ++i) {
        TRACEA_UNROLL
        for (int j = 0; j < columns; ++j) {
            sums[i * columns + j] = detail::multiply_add(a[i], b[j], sums[i * columns + j]);
        }
    }
}

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

// A warp stores rows × columns staged sums, from first_row on, through an epilogue: 16 bytes a lane where rows allow, cut at valid_rows and valid_columns.
template <class Tile, int rows, int columns, class T, class Epilogue>
TRACEA_DEVICE void store_rows(uint32_t tile, T* target, int64_t row_step, int64_t column_step, int32_t valid_rows,
                              int32_t valid_columns, Epilogue epilogue, int32_t first_row = 0) {
    using Sum = typename Tile::element;
    constexpr int width = 16 / static_cast<int>(sizeof(T));
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

// A warpgroup does so with its rows: each warp a quarter of them, those that it staged itself.
template <class Tile, int rows, int columns, class T, class Epilogue>
TRACEA_DEVICE void store_group_rows(uint32_t tile, T* target, int64_t row_step, int64_t column_step, int32_t valid_rows,
                                    int32_t valid_columns, Epilogue epilogue) {
    const int32_t first_row = static_cast<int32_t>(warp_index()) % 4 * (rows / 4);
    store_rows<Tile, rows / 4, columns>(tile, target, row_step, column_step, valid_rows, valid_columns, epilogue,
                                        first_row);
}

// A warp stores what its lanes hold of (4 · rows) × (8 · columns) sums, through an epilogue, cut at valid_rows and valid_columns.
template <int rows, int columns, class Sum, class T, class Epilogue>
TRACEA_DEVICE void store_lanes(const Sum (&sums)[rows * columns], T* target, int64_t row_step, int64_t column_step,
                               int32_t valid_rows, int32_t valid_columns, Epilogue epilogue) {
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

// ---- work that several blocks share ---------------------------------------------------------------------------------------------------------------

// One worker's share of the flat (tile, step) space, one segment of one tile at a time (semantic.nodes_async.SegmentLoop).
struct Segments {
    int64_t steps, position, end, total, workers;
    int32_t tile = 0, first = 0, count = 0, last = 0;

    TRACEA_DEVICE Segments(int64_t worker, int64_t worker_count, int64_t tiles, int64_t tile_steps)
        : steps(tile_steps),
          position(worker * tiles * tile_steps / worker_count),
          end((worker + 1) * tiles * tile_steps / worker_count),
          total(tiles * tile_steps),
          workers(worker_count) {}

    TRACEA_DEVICE bool next() {
        position += count;
        if (position >= end) return false;
        tile = static_cast<int32_t>(position / steps);
        first = static_cast<int32_t>(position % steps);
        const int64_t left = steps - first;
        count = static_cast<int32_t>(left < end - position ? left : end - position);
        last = static_cast<int32_t>(((tile + int64_t{1}) * steps * workers - 1) / total);
        return true;
    }
};

// A fragment of sums to the workspace and back: each lane has its elements next to each other.
template <class Sum, int count>
TRACEA_DEVICE void leave_sums(Sum* fragment, const Sum (&sums)[count]) {
    Elements<Sum, count> all;
    TRACEA_UNROLL
    for (int i = 0; i < count; ++i) all.value[i] = sums[i];
    st_global(fragment + count * static_cast<int32_t>(lane_index()), all);
}
template <class Sum, int count>
TRACEA_DEVICE void take_sums(Sum (&sums)[count], const Sum* fragment) {
    const auto all = ld_global<Elements<Sum, count>>(fragment + count * static_cast<int32_t>(lane_index()));
    TRACEA_UNROLL
    for (int i = 0; i < count; ++i) sums[i] += all.value[i];
}

// What the warp wrote before is seen by who awaits the flag.
TRACEA_DEVICE void signal_flag(int32_t* flag) {
    thread_fence();
    sync_warp();
    if (lane_index() == 0) st_release(flag, 1);
}
TRACEA_DEVICE void await_flag(const int32_t* flag) {
    while (ld_acquire(flag) == 0) {
    }
}

// ---- rings that the copy engine fills -------------------------------------------------------------------------------------------------------------

#if TRACEA_SM >= 80
// A warp is done with a slot: all its lanes are, and one arrives for them.
TRACEA_DEVICE void release_slot(uint32_t mbarrier) {
    sync_warp();
    if (lane_index() == 0) mbarrier_arrive(mbarrier);
}
#endif

#if TRACEA_SM == 90 && defined(TRACEA_ARCH_SPECIFIC)
// What wgmma is told of a tile whose rows, along k, are as long as its swizzle; row is a multiple of 8, k of 32 bytes.
template <class Tile>
TRACEA_DEVICE uint64_t tile_descriptor(uint32_t tile, int32_t row, int32_t k) {
    constexpr uint32_t row_bytes = Tile::columns * sizeof(typename Tile::element);
    const uint32_t offset = static_cast<uint32_t>(row) * row_bytes + static_cast<uint32_t>(k) * sizeof(typename Tile::element);
    return wgmma_descriptor(tile + offset, 16, 8 * row_bytes, Tile::swizzle_bytes);
}

// After the last wait: the compiler sees sums change here, and reads them no earlier.
template <class Sum, int count>
TRACEA_DEVICE void settle(Sum (&sums)[count]) {
    wgmma_accumulators(sums);
}
template <class Sum, int fragments, int count>
TRACEA_DEVICE void settle(Sum (&sums)[fragments][count]) {
    TRACEA_UNROLL
    for (int i = 0; i < fragments; ++i) wgmma_accumulators(sums[i]);
}
#endif

}  // namespace tracea

#endif
