// Products of a granule on matrix tiles: 32 rows of A by 32 columns of B over 32 steps, packed as sums of bf16 terms (pack_terms.h).
//
// The sums are four tile registers. With three terms a granule is six products of terms, 24 instructions: the products l*h, m*h, m*m,
// h*m, h*l, h*h, each step changing one operand, and the largest last, so that the sums of a first granule are rounded once at their own size. m*l,
// l*m and l*l are left out: |m| <= 2^-8 |x| and |l| <= 2^-17 |x|, so that they are at most 2^-24 (1 + 2^-10) |a| |b| together, half an eps of float. With two
// terms, which hold a float16, it is all four products.
//
// A granule that holds unsafe values is multiplied by float fused multiply-adds into sums of its own: infinities, NaN and denormals give what float arithmetic
// gives.
#ifndef TRACEA_AMX_GRANULE_H
#define TRACEA_AMX_GRANULE_H

#include <stdint.h>
#include <string.h>

#include "tracea/amx.h"
#include "tracea/config.h"
#include "tracea/pack_terms.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

constexpr int kAmxTile = 32;  // rows and columns of C in four registers

// Storing a tile after a pause of four granules, 600 ns, costs 250 ns, as if its path slept; one store within every two keeps it awake and costs nothing
// itself (benchmarks/NOTES.md).
constexpr int64_t kAwakeGranules = 2;

// The same of granules of fewer products.
template <int Terms>
constexpr int64_t awake_granules = Terms == 3 ? kAwakeGranules : (Terms == 2 ? 3 : 12);

// Products of tiles in a granule, behind each of which is a slot.
template <int Terms>
constexpr int granule_products = Terms == 3 ? 24 : 4 * Terms * Terms;

namespace detail {

// One product of terms, or rather its four tiles, behind the loads of what is not in its registers yet: products hide loads in either order, but where another
// program uses the core's other hardware thread, which hides nothing, loads between products cost a tenth more (benchmarks/NOTES.md). `errand(slot)` is called
// after each product: slots count from First on. `hidden`: sums 1 or 2 that nobody will read, which take no product.
enum class Loads { kBoth, kA, kB };

constexpr int kNoTile = -1;

template <Loads What, int First, bool Once, class Errand>
TRACEA_INLINE void multiply_terms(TileRegisters& tiles, const bf16* a, const bf16* b, const Errand& errand,
                                  int hidden) {
    if constexpr (What == Loads::kB) {
        tiles.load<6>(b);
        tiles.load<7>(b + kTileElements);
        tiles.dot<0, 4, 6>();
        errand(constant<First>{});
        if (TRACEA_LIKELY(hidden != 2)) tiles.dot<2, 5, 6>();
        errand(constant<First + 1>{});
        if (TRACEA_LIKELY(hidden != 1)) tiles.dot<1, 4, 7>();
        errand(constant<First + 2>{});
        tiles.dot<3, 5, 7>();
        errand(constant<First + 3>{});
    } else {
        if constexpr (Once) {
            tiles.load_once<4>(a);
            tiles.load_once<5>(a + kTileElements);
        } else {
            tiles.load<4>(a);
            tiles.load<5>(a + kTileElements);
        }
        if constexpr (What == Loads::kBoth) {
            tiles.load<6>(b);
            tiles.load<7>(b + kTileElements);
        }
        tiles.dot<0, 4, 6>();
        errand(constant<First>{});
        if (TRACEA_LIKELY(hidden != 1)) tiles.dot<1, 4, 7>();
        errand(constant<First + 1>{});
        if (TRACEA_LIKELY(hidden != 2)) tiles.dot<2, 5, 6>();
        errand(constant<First + 2>{});
        tiles.dot<3, 5, 7>();
        errand(constant<First + 3>{});
    }
}

// The terms of A lie a_term elements apart. Once: nothing else will read them before the first-level cache has seen all of B.
template <int Terms, bool Once = false, class Errand>
TRACEA_INLINE void multiply_granule(TileRegisters& tiles, const bf16* a, const bf16* b, const Errand& errand,
                                    int64_t a_term = 2 * kTileElements, int hidden = kNoTile) {
    static_assert(Terms >= 1 && Terms <= 3, "as many terms as a float has");
    constexpr int64_t next = 2 * kTileElements;  // from a term to the one after it
    if constexpr (Terms == 2) {
        multiply_terms<Loads::kBoth, 0, Once>(tiles, a, b + next, errand, hidden);
        multiply_terms<Loads::kA, 4, Once>(tiles, a + a_term, b + next, errand, hidden);
        multiply_terms<Loads::kB, 8, Once>(tiles, a + a_term, b, errand, hidden);
        multiply_terms<Loads::kA, 12, Once>(tiles, a, b, errand, hidden);
    } else if constexpr (Terms == 3) {
        multiply_terms<Loads::kBoth, 0, Once>(tiles, a + 2 * a_term, b, errand, hidden);
        multiply_terms<Loads::kA, 4, Once>(tiles, a + a_term, b, errand, hidden);
        multiply_terms<Loads::kB, 8, Once>(tiles, a, b + next, errand, hidden);
        multiply_terms<Loads::kA, 12, Once>(tiles, a, b, errand, hidden);
        multiply_terms<Loads::kB, 16, Once>(tiles, a, b + 2 * next, errand, hidden);
        multiply_terms<Loads::kB, 20, Once>(tiles, a, b, errand, hidden);
    } else {
        multiply_terms<Loads::kBoth, 0, Once>(tiles, a, b, errand, hidden);
    }
}

// The same for the first 16 rows of A, or 16 columns of B, alone (Rows, Columns: 1), for edges of C that have no more: half of the products, or a quarter.
template <int Terms, int Rows, int Columns>
TRACEA_INLINE void multiply_edge(TileRegisters& tiles, const bf16* a, const bf16* b,
                                 int64_t a_term = 2 * kTileElements) {
    static_assert(Terms >= 1 && Terms <= 3, "as many terms as a float has");
    constexpr int64_t next = 2 * kTileElements;
    const auto load_a = [&](int64_t term) TRACEA_LAMBDA {
        tiles.load<4>(a + term * a_term);
        if constexpr (Rows == 2) tiles.load<5>(a + term * a_term + kTileElements);
    };
    const auto load_b = [&](int64_t term) TRACEA_LAMBDA {
        tiles.load<6>(b + term * next);
        if constexpr (Columns == 2) tiles.load<7>(b + term * next + kTileElements);
    };
    const auto multiply = [&]() TRACEA_LAMBDA {
        tiles.dot<0, 4, 6>();
        if constexpr (Columns == 2) tiles.dot<1, 4, 7>();
        if constexpr (Rows == 2) tiles.dot<2, 5, 6>();
        if constexpr (Rows == 2 && Columns == 2) tiles.dot<3, 5, 7>();
    };
    load_b(Terms == 2 ? 1 : 0);
    if constexpr (Terms == 2) {
        load_a(0);
        multiply();
        load_a(1);
        multiply();
        load_b(0);
        multiply();
        load_a(0);
    } else if constexpr (Terms == 3) {
        load_a(2);
        multiply();
        load_a(1);
        multiply();
        load_b(1);
        multiply();
        load_a(0);
        multiply();
        load_b(2);
        multiply();
        load_b(0);
    } else {
        load_a(0);
    }
    multiply();
}

TRACEA_INLINE void clear_sums(TileRegisters& tiles) {
    tiles.zero<0>();
    tiles.zero<1>();
    tiles.zero<2>();
    tiles.zero<3>();
}

TRACEA_INLINE void store_sums(TileRegisters& tiles, float* sums, int64_t stride) {
    tiles.store<0>(sums, stride);
    tiles.store<1>(sums + kTileColumns, stride);
    tiles.store<2>(sums + kTileRows * stride, stride);
    tiles.store<3>(sums + kTileRows * stride + kTileColumns, stride);
}

// The sums of a tile of C, and to them what was summed apart, if anything was.
TRACEA_INLINE void take_sums(TileRegisters& tiles, bool some_apart, const float* apart, float* sums) {
    store_sums(tiles, sums, kAmxTile);
    if (!some_apart) return;
    for (int64_t v = 0; v < kAmxTile * kAmxTile; v += VecF::lanes)
        store(sums + v, add(load<VecF>(sums + v), load<VecF>(apart + v)));
}

// The values of a granule as they were before they were split: row i and step k of A at 32 * i + k, step k and column j of B at 32 * k + j. Read: how many of its
// terms are there.
template <int Terms, bool DepthIsRows, int Read = Terms>
inline const float* granule_values(const bf16* granule, float* values) {
    if constexpr (Terms == 3) {
        if (is_unsafe(granule)) return unsafe_values(granule);
    }
    for (int row = 0; row < kGranule; ++row) {
        for (int lane = 0; lane < kGranule; ++lane) {
            const bf16* term = granule + word_of<DepthIsRows>(row, lane);
            float x = 0.0F;
            for (int t = Read - 1; t >= 0; --t) x += to_float(term[t * 2 * kTileElements]);
            values[row * kGranule + lane] = x;
        }
    }
    return values;
}

// sums += x * y of a granule's values, step after step.
TRACEA_INLINE void multiply_rows(const float* x, const float* y, float* sums) {
    for (int i = 0; i < kAmxTile; ++i) {
        for (int j = 0; j < kAmxTile; j += VecF::lanes) {
            VecF sum = load<VecF>(sums + i * kAmxTile + j);
            for (int k = 0; k < kGranule; ++k)
                sum = fma(broadcast<VecF>(x[i * kGranule + k]), load<VecF>(y + k * kGranule + j), sum);
            store(sums + i * kAmxTile + j, sum);
        }
    }
}

// sums += a * b of one granule in float arithmetic, step after step.
template <int Terms>
TRACEA_NOINLINE void multiply_values(const bf16* a, const bf16* b, float* sums) {
    alignas(64) float a_values[kGranule * kGranule];
    alignas(64) float b_values[kGranule * kGranule];
    multiply_rows(granule_values<Terms, false>(a, a_values), granule_values<Terms, true>(b, b_values), sums);
}

}  // namespace detail

TRACEA_END_NAMESPACE

#endif
