// In-register transpose of a square block of vectors: afterwards lane j of block[i] is what lane i of block[j] was.
#ifndef TRACEA_TRANSPOSE_H
#define TRACEA_TRANSPOSE_H

#include "tracea/config.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

#if defined(TRACEA_ISA_AVX512)

TRACEA_INLINE void transpose(VecF (&block)[16]) {
    __m512 t[16];
    unroll<8>([&](auto p) TRACEA_LAMBDA {  // 2 x 2 within pairs of rows
        t[2 * p] = _mm512_unpacklo_ps(block[2 * p].reg, block[2 * p + 1].reg);
        t[2 * p + 1] = _mm512_unpackhi_ps(block[2 * p].reg, block[2 * p + 1].reg);
    });
    __m512 q[16];
    unroll<4>([&](auto g) TRACEA_LAMBDA {  // 4 x 4 within groups of four rows
        constexpr int r = 4 * decltype(g)::value;
        const auto pair = [](__m512 x) { return _mm512_castps_pd(x); };
        q[r] = _mm512_castpd_ps(_mm512_unpacklo_pd(pair(t[r]), pair(t[r + 2])));
        q[r + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pair(t[r]), pair(t[r + 2])));
        q[r + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pair(t[r + 1]), pair(t[r + 3])));
        q[r + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pair(t[r + 1]), pair(t[r + 3])));
    });
    unroll<4>([&](auto i) TRACEA_LAMBDA {  // 128-bit blocks: rows i, i+4, i+8, i+12
        const __m512 even_low = _mm512_shuffle_f32x4(q[i], q[i + 4], 0x88);
        const __m512 odd_low = _mm512_shuffle_f32x4(q[i], q[i + 4], 0xdd);
        const __m512 even_high = _mm512_shuffle_f32x4(q[i + 8], q[i + 12], 0x88);
        const __m512 odd_high = _mm512_shuffle_f32x4(q[i + 8], q[i + 12], 0xdd);
        block[i].reg = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
        block[i + 4].reg = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
        block[i + 8].reg = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
        block[i + 12].reg = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
    });
}

TRACEA_INLINE void transpose(VecD (&block)[8]) {
    __m512d t[8];
    unroll<4>([&](auto p) TRACEA_LAMBDA {
        t[2 * p] = _mm512_unpacklo_pd(block[2 * p].reg, block[2 * p + 1].reg);
        t[2 * p + 1] = _mm512_unpackhi_pd(block[2 * p].reg, block[2 * p + 1].reg);
    });
    unroll<2>([&](auto i) TRACEA_LAMBDA {
        const __m512d even_low = _mm512_shuffle_f64x2(t[i], t[i + 2], 0x88);
        const __m512d odd_low = _mm512_shuffle_f64x2(t[i], t[i + 2], 0xdd);
        const __m512d even_high = _mm512_shuffle_f64x2(t[i + 4], t[i + 6], 0x88);
        const __m512d odd_high = _mm512_shuffle_f64x2(t[i + 4], t[i + 6], 0xdd);
        block[i].reg = _mm512_shuffle_f64x2(even_low, even_high, 0x88);
        block[i + 2].reg = _mm512_shuffle_f64x2(odd_low, odd_high, 0x88);
        block[i + 4].reg = _mm512_shuffle_f64x2(even_low, even_high, 0xdd);
        block[i + 6].reg = _mm512_shuffle_f64x2(odd_low, odd_high, 0xdd);
    });
}

#elif defined(TRACEA_ISA_AVX2)

TRACEA_INLINE void transpose(VecF (&block)[8]) {
    __m256 t[8];
    unroll<4>([&](auto p) TRACEA_LAMBDA {
        t[2 * p] = _mm256_unpacklo_ps(block[2 * p].reg, block[2 * p + 1].reg);
        t[2 * p + 1] = _mm256_unpackhi_ps(block[2 * p].reg, block[2 * p + 1].reg);
    });
    __m256 q[8];
    unroll<2>([&](auto g) TRACEA_LAMBDA {
        constexpr int r = 4 * decltype(g)::value;
        q[r] = _mm256_shuffle_ps(t[r], t[r + 2], 0x44);
        q[r + 1] = _mm256_shuffle_ps(t[r], t[r + 2], 0xee);
        q[r + 2] = _mm256_shuffle_ps(t[r + 1], t[r + 3], 0x44);
        q[r + 3] = _mm256_shuffle_ps(t[r + 1], t[r + 3], 0xee);
    });
    unroll<4>([&](auto i) TRACEA_LAMBDA {
        block[i].reg = _mm256_permute2f128_ps(q[i], q[i + 4], 0x20);
        block[i + 4].reg = _mm256_permute2f128_ps(q[i], q[i + 4], 0x31);
    });
}

TRACEA_INLINE void transpose(VecD (&block)[4]) {
    const __m256d t0 = _mm256_unpacklo_pd(block[0].reg, block[1].reg);
    const __m256d t1 = _mm256_unpackhi_pd(block[0].reg, block[1].reg);
    const __m256d t2 = _mm256_unpacklo_pd(block[2].reg, block[3].reg);
    const __m256d t3 = _mm256_unpackhi_pd(block[2].reg, block[3].reg);
    block[0].reg = _mm256_permute2f128_pd(t0, t2, 0x20);
    block[1].reg = _mm256_permute2f128_pd(t1, t3, 0x20);
    block[2].reg = _mm256_permute2f128_pd(t0, t2, 0x31);
    block[3].reg = _mm256_permute2f128_pd(t1, t3, 0x31);
}

#else

template <class V, int L>
TRACEA_INLINE void transpose(V (&block)[L]) {
    static_assert(L == V::lanes, "the block is square");
    typename V::element lanes[L][L];
    for (int i = 0; i < L; ++i) store(lanes[i], block[i]);
    for (int i = 0; i < L; ++i) block[i] = load_strided<V>(&lanes[0][i], L, L);
}

#endif

TRACEA_END_NAMESPACE

#endif
