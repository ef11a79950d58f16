// Elements of 16 bits in memory as vectors of eight floats: conversions, and loads and stores of as many as a mask has lanes.
//
// Nearly every mask is one by count, of the first lanes. So many elements are read and written as two words that overlap, which is neither a lane at a time nor
// beyond the last one.
#ifndef TRACEA_VEC_AVX2_HALF_H
#define TRACEA_VEC_AVX2_HALF_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "tracea/config.h"
#include "tracea/storage.h"
#include "tracea/vec_avx2.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

TRACEA_INLINE __m128i to_bits(VecF v, f16) {
    return _mm256_cvtps_ph(v.reg, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TRACEA_INLINE __m128i to_bits(VecF v, bf16) {
    const __m256i u = _mm256_castps_si256(v.reg);
    const __m256i high = _mm256_srli_epi32(u, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v.reg, v.reg, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
TRACEA_INLINE VecF from_bits(__m128i u, f16) { return {_mm256_cvtph_ps(u)}; }
TRACEA_INLINE VecF from_bits(__m128i u, bf16) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(u), 16))};
}
template <class Half>
TRACEA_INLINE VecF load_half(const Half* p) {
    return from_bits(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), Half{});
}
template <class Word, class Half>
TRACEA_INLINE uint64_t word_at(const Half* p) {
    Word word;
    memcpy(&word, p, sizeof(word));
    return word;
}
template <class Word, class Half>
TRACEA_INLINE void put_word(Half* p, uint64_t bits) {
    const Word word = static_cast<Word>(bits);
    memcpy(p, &word, sizeof(word));
}
// So many bits of a word, counted from 0 to all of it.
TRACEA_INLINE uint64_t without_low(uint64_t word, int bits) { return bits < 64 ? word >> bits : 0; }
TRACEA_INLINE bool is_by_count(unsigned lanes) { return (lanes & (lanes + 1)) == 0; }

template <class Half>
TRACEA_NOINLINE __m128i read_lanes(const Half* p, unsigned lanes) {
    Half values[8] = {};
    for (int i = 0; i < 8; ++i)
        if ((lanes >> i & 1) != 0) values[i] = p[i];
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
}
template <class Half>
TRACEA_NOINLINE void write_lanes(Half* p, __m128i bits, unsigned lanes) {
    Half values[8];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values), bits);
    for (int i = 0; i < 8; ++i)
        if ((lanes >> i & 1) != 0) p[i] = values[i];
}

// Eight elements, each the next but one.
template <class Half>
TRACEA_INLINE VecF every_other(const Half* p) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i last = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 7));
    const __m128i low = _mm_shuffle_epi8(first, _mm_set_epi8(-1, -1, -1, -1, -1, -1, -1, -1, 13, 12, 9, 8, 5, 4, 1, 0));
    const __m128i high =
        _mm_shuffle_epi8(last, _mm_set_epi8(15, 14, 11, 10, 7, 6, 3, 2, -1, -1, -1, -1, -1, -1, -1, -1));
    return from_bits(_mm_or_si128(low, high), Half{});
}

template <class Half>
TRACEA_INLINE VecF load_half_masked(const Half* p, Mask<VecF> m) {
    const unsigned lanes = static_cast<unsigned>(_mm256_movemask_ps(m.reg));
    if (TRACEA_UNLIKELY(!is_by_count(lanes))) return from_bits(read_lanes(p, lanes), Half{});
    const int n = __builtin_popcount(lanes);
    uint64_t low = 0, high = 0;
    if (n >= 4) {
        low = word_at<uint64_t>(p);
        high = without_low(word_at<uint64_t>(p + n - 4), 16 * (8 - n));
    } else if (n >= 2) {
        low = word_at<uint32_t>(p) | word_at<uint32_t>(p + n - 2) << (16 * (n - 2));
    } else if (n == 1) {
        low = word_at<uint16_t>(p);
    }
    return from_bits(_mm_set_epi64x(static_cast<int64_t>(high), static_cast<int64_t>(low)), Half{});
}
template <class Half>
TRACEA_INLINE void store_half(Half* p, VecF v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_bits(v, Half{}));
}
template <class Half>
TRACEA_INLINE void store_half_masked(Half* p, VecF v, Mask<VecF> m) {
    const unsigned lanes = static_cast<unsigned>(_mm256_movemask_ps(m.reg));
    const __m128i bits = to_bits(v, Half{});
    if (TRACEA_UNLIKELY(!is_by_count(lanes))) {
        write_lanes(p, bits, lanes);
        return;
    }
    const int n = __builtin_popcount(lanes);
    const uint64_t low = static_cast<uint64_t>(_mm_cvtsi128_si64(bits));
    if (n >= 4) {
        const uint64_t high = static_cast<uint64_t>(_mm_extract_epi64(bits, 1));
        const int shift = 16 * (n - 4);
        put_word<uint64_t>(p, low);
        put_word<uint64_t>(p + n - 4, without_low(low, shift) | (shift > 0 ? high << (64 - shift) : 0));
    } else if (n >= 2) {
        put_word<uint32_t>(p, low);
        put_word<uint32_t>(p + n - 2, low >> (16 * (n - 2)));
    } else if (n == 1) {
        put_word<uint16_t>(p, low);
    }
}
template <class Half>
TRACEA_INLINE void store_half_streaming(Half* p, VecF v) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(p), to_bits(v, Half{}));
}

}  // namespace detail

TRACEA_END_NAMESPACE

#endif
