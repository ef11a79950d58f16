// Fragments: tiles of shared memory in the registers of a warp, and their products with tensor cores and without.
#ifndef TRACEA_TILES_FRAGMENTS_H
#define TRACEA_TILES_FRAGMENTS_H

#include "tracea/math.h"
#include "tracea/primitives.h"
#include "tracea/tiles/shared.h"

namespace tracea {

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

}  // namespace tracea

#endif
