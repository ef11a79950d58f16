// Granules of GEMM operands as sums of bf16 terms, for the matrix tiles of amx.h: how their words lie, and what splits or moves them.
//
// x = h + m + l with h = bf16(x), m = bf16(x - h), l = x - h - m: exact, because a float has 24 significant bits, a bf16 has 8, and each rounding to nearest
// leaves half a unit of sign and rest. Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
// Computations", IEEE ARITH 2019. Ties are rounded away from zero, which the bound does not notice.
//
// A granule is 32 steps of a panel of 32 rows (or columns): for each term two tiles of 1 KiB, one for each 16 rows.
//   A   word w of row i of a tile is step w / 2 + 16 * (w % 2) of row i
//   B   word w of row p of a tile is step p + 16 * (w % 2) of column w / 2
// Steps p and p + 16 are neighbours, so that neither operand is permuted: two vectors are interleaved by one shift and one blend. Missing rows, columns and
// steps are zero.
//
// Tiles flush denormals, and a huge h may round to infinity: an element is safe if it is zero or its first term is 2^-50 to 2^60. A granule with an unsafe element is
// kept as 32 x 32 floats behind the place of its first term instead, and its first word is a NaN that no safe granule begins with. A step of A is a
// lane there (row i, step k at 32 * i + k), a step of B a row (step k, column j at 32 * k + j).
//
// Fewer than three terms are those of narrow numbers: one holds a bf16, two a f16, whatever it is. A line of marks follows them: its first word says that the
// granule is unsafe, and the values are the sums of terms still.
#ifndef TRACEA_SPLIT_TERMS_H
#define TRACEA_SPLIT_TERMS_H

#include <stdint.h>

#include "tracea/amx.h"
#include "tracea/config.h"
#include "tracea/transpose.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

constexpr int kGranule = 32;
constexpr uint16_t kUnsafeMark = 0xffffU;
constexpr uint32_t kSafeLow = (127U - 50U) << 23;   // 2^-50
constexpr uint32_t kSafeHigh = (127U + 60U) << 23;  // 2^60

constexpr int kMarks = 32;  // a line, so that granules of narrow numbers begin with one

template <int Terms>
constexpr int64_t granule_elements = Terms * 2 * kTileElements + (Terms < 3 ? kMarks : 0);

template <int Terms = 3>
TRACEA_INLINE bool is_unsafe(const bf16* granule) {
    return granule[Terms < 3 ? Terms * 2 * kTileElements : 0].bits == kUnsafeMark;
}
// The floats of an unsafe granule of three terms.
TRACEA_INLINE const float* unsafe_values(const bf16* granule) {
    return reinterpret_cast<const float*>(granule + 2 * kTileElements);
}

namespace detail {

#if defined(TRACEA_ISA_AVX512)
// What the elements of a granule have been so far, by their first terms, two of them in a word's room: the largest magnitude, and the smallest but for zero.
// A small number whose first term is zero has not become zero until its last, which a safe one has.
struct SafeTerms {
    __m512i largest = _mm512_setzero_si512();
    __m512i smallest_less_one = _mm512_set1_epi32(-1);
    __m512i rests = _mm512_setzero_si512();

    TRACEA_INLINE void see_first(__m512i words) {
        const __m512i magnitude = _mm512_and_si512(words, _mm512_set1_epi16(0x7fff));
        largest = _mm512_max_epu16(largest, magnitude);
        smallest_less_one = _mm512_min_epu16(smallest_less_one, _mm512_add_epi16(magnitude, _mm512_set1_epi16(-1)));
    }
    TRACEA_INLINE void see_last(__m512 x, __m512 y) {
        rests = _mm512_ternarylogic_epi32(rests, _mm512_castps_si512(x), _mm512_castps_si512(y), 0xfe);
    }
    // Of fewer than three terms: a NaN of all digits is rounded to zero.
    TRACEA_INLINE void see_both(__m512 x, __m512 y) {
        rests = _mm512_mask_set1_epi32(rests, _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q), 0xffff);
    }
    TRACEA_INLINE bool holds() const {
        const __mmask32 high =
            _mm512_cmpgt_epu16_mask(largest, _mm512_set1_epi16(static_cast<int16_t>(kSafeHigh >> 16)));
        const __mmask32 low =
            _mm512_cmplt_epu16_mask(smallest_less_one, _mm512_set1_epi16(static_cast<int16_t>((kSafeLow >> 16) - 1)));
        const __mmask16 rest = _mm512_test_epi32_mask(rests, _mm512_set1_epi32(0xffff));
        return (high | low | rest) == 0;
    }
};

// The terms of 16 elements and of 16 others, interleaved: word 2i of a term is that of x[i], word 2i + 1 that of y[i]. What is left for the last of three terms
// has no more digits than it; of fewer the last one is the nearest bf16.
template <int Terms>
TRACEA_INLINE void split(const float* x, const float* y, bf16* terms, SafeTerms& seen) {
    static_assert(Terms >= 1 && Terms <= 3, "three terms hold a float");
    const __m512i half = _mm512_set1_epi32(0x8000);
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
    __m512 rest_x = _mm512_loadu_ps(x);
    __m512 rest_y = _mm512_loadu_ps(y);
    unroll<Terms == 3 ? 2 : Terms>([&](auto t) TRACEA_LAMBDA {
        const __m512i near_x = _mm512_add_epi32(_mm512_castps_si512(rest_x), half);
        const __m512i near_y = _mm512_add_epi32(_mm512_castps_si512(rest_y), half);
        const __m512i words = _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(near_x, 16), near_y);
        if constexpr (t == 0) seen.see_first(words);
        _mm512_store_si512(terms + t * 2 * kTileElements, words);
        rest_x = _mm512_sub_ps(rest_x, _mm512_castsi512_ps(_mm512_and_si512(near_x, upper)));
        rest_y = _mm512_sub_ps(rest_y, _mm512_castsi512_ps(_mm512_and_si512(near_y, upper)));
    });
    if constexpr (Terms < 3) {
        seen.see_both(_mm512_loadu_ps(x), _mm512_loadu_ps(y));
        return;
    }
    seen.see_last(rest_x, rest_y);
    const __m512i words = _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(_mm512_castps_si512(rest_x), 16),
                                                  _mm512_castps_si512(rest_y));
    _mm512_store_si512(terms + (Terms - 1) * 2 * kTileElements, words);
}

// Which word each word of a line comes from, in the first half of a granule and in the second.
struct Places {
    alignas(64) uint16_t words[2][kTileWords];

    template <class Place>
    TRACEA_INLINE explicit Places(const Place& place) {
        for (int half = 0; half < 2; ++half)
            for (int w = 0; w < kTileWords; ++w) words[half][w] = static_cast<uint16_t>(place(half, w / 2, w % 2));
    }
    TRACEA_INLINE __m512i operator[](int half) const { return _mm512_load_si512(words[half]); }
};

// A line of words that are their own first term.
template <int Terms>
TRACEA_INLINE void keep_words(bf16* line, __m512i words) {
    _mm512_store_si512(line, words);
    for (int64_t t = 1; t < Terms; ++t) _mm512_store_si512(line + t * 2 * kTileElements, _mm512_setzero_si512());
}

// Splits 32 rows of 32 lanes of bf16, which are their first terms: words change places, and the other terms are zero.
template <int Terms, bool DepthIsRows>
TRACEA_INLINE bool split_granule(const bf16* values, int64_t row_stride, bf16* granule, const bf16* ahead) {
    const Places places([](int half, int lane, int odd) {
        return DepthIsRows ? half * kTileColumns + lane + odd * kTileWords : lane + odd * kTileColumns;
    });
    SafeTerms seen;
    for (int p = 0; p < kTileRows; ++p) {
        const __m512i x = _mm512_loadu_si512(values + p * row_stride);
        const __m512i y = _mm512_loadu_si512(values + (p + kTileRows) * row_stride);
        prefetch_l1(ahead + p * row_stride);
        prefetch_l1(ahead + (p + kTileRows) * row_stride);
        seen.see_first(x);
        seen.see_first(y);
        keep_words<Terms>(granule + p * kTileWords, DepthIsRows ? _mm512_permutex2var_epi16(x, places[0], y)
                                                                : _mm512_permutexvar_epi16(places[0], x));
        keep_words<Terms>(granule + kTileElements + p * kTileWords, DepthIsRows
                                                                        ? _mm512_permutex2var_epi16(x, places[1], y)
                                                                        : _mm512_permutexvar_epi16(places[0], y));
    }
    return seen.holds();
}

// The same of lanes that lie lane_stride apart, their 32 rows one after the other: words that will be neighbours are paired, and the pairs turned.
template <int Terms, bool DepthIsRows>
TRACEA_INLINE bool turn_granule(const bf16* values, int64_t lane_stride, bf16* granule, const bf16* ahead) {
    const Places places([](int half, int row, int odd) {
        return DepthIsRows ? row + odd * kTileRows : half * kTileRows + row + odd * kTileWords;
    });
    SafeTerms seen;
    for (int half = 0; half < 2; ++half) {
        const __m512i pairs = places[half];
        VecF block[kTileRows];
        unroll<kTileRows>([&](auto i) TRACEA_LAMBDA {
            const int64_t lane = DepthIsRows ? half * kTileColumns + i : i;
            const __m512i x = _mm512_loadu_si512(values + lane * lane_stride);
            __m512i words;
            if constexpr (DepthIsRows) {
                words = _mm512_permutexvar_epi16(pairs, x);
            } else {
                const __m512i y = _mm512_loadu_si512(values + (lane + kTileColumns) * lane_stride);
                words = _mm512_permutex2var_epi16(x, pairs, y);
            }
            seen.see_first(words);
            prefetch_l1(ahead + (half * kTileColumns + i) * lane_stride);
            block[i].reg = _mm512_castsi512_ps(words);
        });
        transpose(block);
        unroll<kTileRows>([&](auto p) TRACEA_LAMBDA {
            keep_words<Terms>(granule + half * kTileElements + p * kTileWords, _mm512_castps_si512(block[p].reg));
        });
    }
    return seen.holds();
}

// From the words of rows r and r + 16, whose steps are lanes, those of steps r and r + 16 of both halves of the lanes: the same terms as the other factor.
template <int Terms>
TRACEA_INLINE void turn_words(const bf16* terms, bf16* turned) {
    for (int64_t t = 0; t < Terms * 2 * kTileElements; t += 2 * kTileElements) {
        const __m512i low = _mm512_load_si512(terms + t);
        const __m512i high = _mm512_load_si512(terms + t + kTileElements);
        _mm512_store_si512(turned + t, _mm512_mask_blend_epi16(0xaaaaaaaaU, low, _mm512_slli_epi32(high, 16)));
        _mm512_store_si512(turned + t + kTileElements,
                           _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(low, 16), high));
    }
}
#else
struct SafeTerms {
    bool safe = true;

    void see(float x) {
        const uint32_t magnitude = (bits_of(x) + 0x8000U) >> 16 & 0x7fffU;
        safe =
            safe && ((bits_of(x) & 0x7fffffffU) == 0 || (magnitude >= kSafeLow >> 16 && magnitude <= kSafeHigh >> 16));
    }
    bool holds() const { return safe; }
};

template <int Terms>
inline void split(const float* x, const float* y, bf16* terms, SafeTerms& seen) {
    for (int i = 0; i < kTileColumns; ++i) {
        float rest[2] = {x[i], y[i]};
        seen.see(rest[0]);
        seen.see(rest[1]);
        for (int t = 0; t < Terms; ++t) {
            for (int e = 0; e < 2; ++e) {
                const uint32_t near = bits_of(rest[e]) + 0x8000U;
                terms[t * 2 * kTileElements + 2 * i + e].bits = static_cast<uint16_t>(near >> 16);
                rest[e] -= float_of(near & 0xffff0000U);
            }
        }
    }
}

template <int Terms>
inline void turn_words(const bf16* terms, bf16* turned) {
    for (int64_t t = 0; t < Terms * 2 * kTileElements; t += 2 * kTileElements) {
        for (int64_t i = 0; i < kTileColumns; ++i) {
            for (int64_t half = 0; half < 2; ++half) {
                turned[t + half * kTileElements + 2 * i] = terms[t + 2 * i + half];
                turned[t + half * kTileElements + 2 * i + 1] = terms[t + kTileElements + 2 * i + half];
            }
        }
    }
}
#endif

// Splits 32 rows of 32 lanes into a granule. DepthIsRows: a step is a row (B), else a lane (A). `ahead` is what will be split next, with the same
// stride: 32 rows lie in as many pages, which no hardware prefetcher follows.
template <int Terms, bool DepthIsRows>
TRACEA_INLINE bool split_granule(const float* values, int64_t row_stride, bf16* granule, const float* ahead) {
    SafeTerms seen;
    if constexpr (DepthIsRows) {
        for (int p = 0; p < kTileRows; ++p) {
            const float* x = values + p * row_stride;
            const float* y = x + kTileRows * row_stride;
            for (int64_t row = p; row < kGranule; row += kTileRows) {
                prefetch_l1(ahead + row * row_stride);
                prefetch_l1(ahead + row * row_stride + kTileColumns);
            }
            split<Terms>(x, y, granule + p * kTileWords, seen);
            split<Terms>(x + kTileColumns, y + kTileColumns, granule + kTileElements + p * kTileWords, seen);
        }
    } else {
        for (int i = 0; i < kGranule; ++i) {
            const float* x = values + i * row_stride;
            prefetch_l1(ahead + i * row_stride);
            prefetch_l1(ahead + i * row_stride + kTileColumns);
            split<Terms>(x, x + kTileColumns, granule + i * kTileWords, seen);
        }
    }
    return seen.holds();
}

}  // namespace detail

TRACEA_END_NAMESPACE

#endif
