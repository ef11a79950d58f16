// Tables of short polynomials, and the lookup of each lane's own: 32 rows of floats.
//
//   inline constexpr Table32<6> table = table_of_rows({{c0, c1, ...}, ...});
//   VecF c[6];
//   look_up(table, add(n, broadcast<VecF>(table_shift)), c);             // c[j] holds column j of each lane's row n; n integral, 0 .. 31
//
// What is asked for is 1.5 * 2^23 + n, whose low five bits are n: any other value, NaN included, finds some row.
//
// TRACEA_LOOK_UP says whether functions use tables: on AVX-512, where two registers are permuted by one instruction, and in the plain build. Transposing the
// rows of eight lanes on AVX2 took 1.3 times as long as the function without a table (benchmarks/NOTES.md), so AVX2 and NEON do without.
#ifndef TRACEA_TABLE_H
#define TRACEA_TABLE_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

#if !defined(TRACEA_LOOK_UP)
#if defined(TRACEA_ISA_AVX512) || defined(TRACEA_ISA_PLAIN)
#define TRACEA_LOOK_UP 1
#else
#define TRACEA_LOOK_UP 0
#endif
#endif

constexpr float table_shift = 0x1.8p+23F;

// By column, which is two registers.
template <int Columns>
struct Table32 {
    static constexpr int rows = 32;
    alignas(64) float column[Columns][rows];
};

template <int Columns>
constexpr Table32<Columns> table_of_rows(const float (&given)[32][Columns]) {
    Table32<Columns> table{};
    for (int n = 0; n < 32; ++n) {
        for (int j = 0; j < Columns; ++j) table.column[j][n] = given[n][j];
    }
    return table;
}

#if defined(TRACEA_ISA_AVX512)
template <int Columns>
TRACEA_INLINE void look_up(const Table32<Columns>& table, VecF shifted, VecF (&found)[Columns]) {
    const __m512i n = _mm512_castps_si512(shifted.reg);
    unroll<Columns>([&](auto j) TRACEA_LAMBDA {
        const float* column = table.column[j];
        found[j] = VecF{_mm512_permutex2var_ps(_mm512_load_ps(column), n, _mm512_load_ps(column + 16))};
    });
}
#else
template <int Columns>
TRACEA_INLINE void look_up(const Table32<Columns>& table, VecF shifted, VecF (&found)[Columns]) {
    float asked[VecF::lanes];
    float lanes[Columns][VecF::lanes];
    store(asked, shifted);
    for (int i = 0; i < VecF::lanes; ++i) {
        uint32_t bits;
        __builtin_memcpy(&bits, &asked[i], sizeof bits);
        for (int j = 0; j < Columns; ++j) lanes[j][i] = table.column[j][bits % Table32<Columns>::rows];
    }
    for (int j = 0; j < Columns; ++j) found[j] = load<VecF>(lanes[j]);
}
#endif

TRACEA_END_NAMESPACE

#endif
