// Vector primitives on AVX-512 (F, BW, DQ, VL): 16 floats or 8 doubles, lane masks in mask registers. Meanings are stated in vec.h.
#ifndef TRACEA_VEC_AVX512_H
#define TRACEA_VEC_AVX512_H

// GCC 12 takes the deliberately undefined operand inside its own intrinsics for a mistake (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#include <stdint.h>

#include "tracea/config.h"
#include "tracea/storage.h"

TRACEA_BEGIN_NAMESPACE

template <class T>
struct Vec;
template <>
struct Vec<float> {
    using element = float;
    static constexpr int lanes = 16;
    __m512 reg;
};
template <>
struct Vec<double> {
    using element = double;
    static constexpr int lanes = 8;
    __m512d reg;
};
template <class V>
struct Mask;
template <>
struct Mask<Vec<float>> {
    __mmask16 reg;
};
template <>
struct Mask<Vec<double>> {
    __mmask8 reg;
};
using VecF = Vec<float>;
using VecD = Vec<double>;

template <class V>
TRACEA_INLINE V zero();
template <>
TRACEA_INLINE VecF zero<VecF>() {
    return {_mm512_setzero_ps()};
}
template <>
TRACEA_INLINE VecD zero<VecD>() {
    return {_mm512_setzero_pd()};
}

template <class V>
TRACEA_INLINE V broadcast(typename V::element x);
template <>
TRACEA_INLINE VecF broadcast<VecF>(float x) {
    return {_mm512_set1_ps(x)};
}
template <>
TRACEA_INLINE VecD broadcast<VecD>(double x) {
    return {_mm512_set1_pd(x)};
}

template <class V>
TRACEA_INLINE Mask<V> lane_mask(int64_t n) {
    const uint32_t all = (1U << V::lanes) - 1U;
    return {static_cast<decltype(Mask<V>::reg)>(n >= V::lanes ? all : n <= 0 ? 0U : (1U << n) - 1U)};
}

// ---- float: loads and stores -------------------------------------------------------------------------------------------------------------------
template <class V>
TRACEA_INLINE V load(const float* p) {
    static_assert(V::lanes == 16, "float storage loads into Vec<float>");
    return {_mm512_loadu_ps(p)};
}
template <class V>
TRACEA_INLINE V load_masked(const float* p, Mask<V> m) {
    return {_mm512_maskz_loadu_ps(m.reg, p)};
}
TRACEA_INLINE void store(float* p, VecF v) { _mm512_storeu_ps(p, v.reg); }
TRACEA_INLINE void store_masked(float* p, VecF v, Mask<VecF> m) { _mm512_mask_storeu_ps(p, m.reg, v.reg); }
TRACEA_INLINE void store_streaming(float* p, VecF v) { _mm512_stream_ps(p, v.reg); }

template <class V>
TRACEA_INLINE V load_broadcast(const float* p);
template <>
TRACEA_INLINE VecF load_broadcast<VecF>(const float* p) {
    VecF v;
    __asm__("vbroadcastss %1, %0" : "=v"(v.reg) : "m"(*p));
    return v;
}
template <class V, int N>
TRACEA_INLINE V load_repeated(const float* p) {
    static_assert(N == 1 || N == 2 || N == 4 || N == 8 || N == 16, "N divides the lanes");
    if constexpr (N == 1) return load_broadcast<V>(p);
    if constexpr (N == 16) return load<V>(p);
    const auto& elements = *reinterpret_cast<const float (*)[N]>(p);
    V v;
    if constexpr (N == 2) __asm__("vbroadcastsd %1, %0" : "=v"(v.reg) : "m"(elements));
    if constexpr (N == 4) __asm__("vbroadcastf32x4 %1, %0" : "=v"(v.reg) : "m"(elements));
    if constexpr (N == 8) __asm__("vbroadcastf32x8 %1, %0" : "=v"(v.reg) : "m"(elements));
    return v;
}

namespace detail {
// Lane offsets are 64-bit, so any stride is right.
TRACEA_INLINE __m512i strided_offsets(int64_t stride, int64_t first) {
    const __m512i lane = _mm512_add_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(first));
    return _mm512_mullo_epi64(lane, _mm512_set1_epi64(stride));
}
}  // namespace detail
template <class V>
TRACEA_INLINE V load_strided(const float* p, int64_t stride, int64_t n) {
    if (stride == 2 && n >= 16) {  // nothing is read beyond the last element
        const __m512i places = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
        return {_mm512_permutex2var_ps(_mm512_loadu_ps(p), places, _mm512_loadu_ps(p + 15))};
    }
    const uint32_t m = lane_mask<VecF>(n).reg;
    const __m256 z = _mm256_setzero_ps();
    const __m256 low = _mm512_mask_i64gather_ps(z, static_cast<__mmask8>(m), detail::strided_offsets(stride, 0), p, 4);
    const __m256 high =
        _mm512_mask_i64gather_ps(z, static_cast<__mmask8>(m >> 8), detail::strided_offsets(stride, 8), p, 4);
    return {_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1)};
}
// A store for each lane, not a scatter: strided copies take 0.47 to 0.74 of the time on a Zen 4.
TRACEA_INLINE void store_strided(float* p, int64_t stride, VecF v, int64_t n) {
    alignas(64) float lanes[16];
    _mm512_store_ps(lanes, v.reg);
    for (int i = 0; i < 16 && i < n; ++i) p[i * stride] = lanes[i];
}

// ---- double: loads and stores ------------------------------------------------------------------------------------------------------------------
template <class V>
TRACEA_INLINE V load(const double* p) {
    static_assert(V::lanes == 8, "double storage loads into Vec<double>");
    return {_mm512_loadu_pd(p)};
}
template <class V>
TRACEA_INLINE V load_masked(const double* p, Mask<V> m) {
    return {_mm512_maskz_loadu_pd(m.reg, p)};
}
TRACEA_INLINE void store(double* p, VecD v) { _mm512_storeu_pd(p, v.reg); }
TRACEA_INLINE void store_masked(double* p, VecD v, Mask<VecD> m) { _mm512_mask_storeu_pd(p, m.reg, v.reg); }
TRACEA_INLINE void store_streaming(double* p, VecD v) { _mm512_stream_pd(p, v.reg); }

template <class V>
TRACEA_INLINE V load_broadcast(const double* p);
template <>
TRACEA_INLINE VecD load_broadcast<VecD>(const double* p) {
    VecD v;
    __asm__("vbroadcastsd %1, %0" : "=v"(v.reg) : "m"(*p));
    return v;
}
template <class V, int N>
TRACEA_INLINE V load_repeated(const double* p) {
    static_assert(N == 1 || N == 2 || N == 4 || N == 8, "N divides the lanes");
    if constexpr (N == 1) return load_broadcast<V>(p);
    if constexpr (N == 8) return load<V>(p);
    const auto& elements = *reinterpret_cast<const double (*)[N]>(p);
    V v;
    if constexpr (N == 2) __asm__("vbroadcastf64x2 %1, %0" : "=v"(v.reg) : "m"(elements));
    if constexpr (N == 4) __asm__("vbroadcastf64x4 %1, %0" : "=v"(v.reg) : "m"(elements));
    return v;
}
template <class V>
TRACEA_INLINE V load_strided(const double* p, int64_t stride, int64_t n) {
    return {_mm512_mask_i64gather_pd(_mm512_setzero_pd(), lane_mask<VecD>(n).reg, detail::strided_offsets(stride, 0), p,
                                     8)};
}
TRACEA_INLINE void store_strided(double* p, int64_t stride, VecD v, int64_t n) {
    alignas(64) double lanes[8];
    _mm512_store_pd(lanes, v.reg);
    for (int i = 0; i < 8 && i < n; ++i) p[i * stride] = lanes[i];
}

// ---- 16-bit storage ----------------------------------------------------------------------------------------------------------------------------
namespace detail {
TRACEA_INLINE __m256i to_bits(VecF v, f16) {
    return _mm512_cvtps_ph(v.reg, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// Integer arithmetic, not vcvtneps2bf16, which flushes subnormals.
TRACEA_INLINE __m256i to_bits(VecF v, bf16) {
    const __m512i u = _mm512_castps_si512(v.reg);
    const __m512i high = _mm512_srli_epi32(u, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(v.reg, v.reg, _CMP_UNORD_Q), quiet));
}
TRACEA_INLINE VecF from_bits(__m256i u, f16) { return {_mm512_cvtph_ps(u)}; }
TRACEA_INLINE VecF from_bits(__m256i u, bf16) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(u), 16))};
}
template <class Half>
TRACEA_INLINE VecF load_half(const Half* p) {
    return from_bits(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), Half{});
}
// Sixteen elements, each the next but one.
template <class Half>
TRACEA_INLINE VecF every_other(const Half* p) {
    const __m256i places = _mm256_setr_epi16(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i last = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 15));
    return from_bits(_mm256_permutex2var_epi16(first, places, last), Half{});
}
template <class Half>
TRACEA_INLINE VecF load_half_masked(const Half* p, Mask<VecF> m) {
    return from_bits(_mm256_maskz_loadu_epi16(m.reg, p), Half{});
}
template <class Half>
TRACEA_INLINE void store_half(Half* p, VecF v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bits(v, Half{}));
}
template <class Half>
TRACEA_INLINE void store_half_masked(Half* p, VecF v, Mask<VecF> m) {
    _mm256_mask_storeu_epi16(p, m.reg, to_bits(v, Half{}));
}
template <class Half>
TRACEA_INLINE void store_half_streaming(Half* p, VecF v) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), to_bits(v, Half{}));
}
}  // namespace detail

// ---- arithmetic --------------------------------------------------------------------------------------------------------------------------------
TRACEA_INLINE VecF add(VecF a, VecF b) { return {_mm512_add_ps(a.reg, b.reg)}; }
TRACEA_INLINE VecD add(VecD a, VecD b) { return {_mm512_add_pd(a.reg, b.reg)}; }
TRACEA_INLINE VecF sub(VecF a, VecF b) { return {_mm512_sub_ps(a.reg, b.reg)}; }
TRACEA_INLINE VecD sub(VecD a, VecD b) { return {_mm512_sub_pd(a.reg, b.reg)}; }
TRACEA_INLINE VecF mul(VecF a, VecF b) { return {_mm512_mul_ps(a.reg, b.reg)}; }
TRACEA_INLINE VecD mul(VecD a, VecD b) { return {_mm512_mul_pd(a.reg, b.reg)}; }
TRACEA_INLINE VecF div(VecF a, VecF b) { return {_mm512_div_ps(a.reg, b.reg)}; }
TRACEA_INLINE VecD div(VecD a, VecD b) { return {_mm512_div_pd(a.reg, b.reg)}; }
TRACEA_INLINE VecF sqrt(VecF a) { return {_mm512_sqrt_ps(a.reg)}; }
TRACEA_INLINE VecD sqrt(VecD a) { return {_mm512_sqrt_pd(a.reg)}; }
TRACEA_INLINE VecF fma(VecF a, VecF b, VecF c) { return {_mm512_fmadd_ps(a.reg, b.reg, c.reg)}; }
TRACEA_INLINE VecD fma(VecD a, VecD b, VecD c) { return {_mm512_fmadd_pd(a.reg, b.reg, c.reg)}; }
TRACEA_INLINE VecF fnma(VecF a, VecF b, VecF c) { return {_mm512_fnmadd_ps(a.reg, b.reg, c.reg)}; }
TRACEA_INLINE VecD fnma(VecD a, VecD b, VecD c) { return {_mm512_fnmadd_pd(a.reg, b.reg, c.reg)}; }
// Pinned by assembly: the micro-kernel's accumulators stay in place and no operand is folded into a memory form. The local keeps an array of
// accumulators out of memory: as an operand of assembly its element would pin the array.
TRACEA_INLINE void fma_into(VecF& acc, VecF a, VecF b) {
    __m512 sum = acc.reg;
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a.reg), "v"(b.reg));
    acc.reg = sum;
}
TRACEA_INLINE void fma_into(VecD& acc, VecD a, VecD b) {
    __m512d sum = acc.reg;
    __asm__("vfmadd231pd %2, %1, %0" : "+v"(sum) : "v"(a.reg), "v"(b.reg));
    acc.reg = sum;
}
TRACEA_INLINE VecF neg(VecF a) { return {_mm512_xor_ps(a.reg, _mm512_set1_ps(-0.0F))}; }
TRACEA_INLINE VecD neg(VecD a) { return {_mm512_xor_pd(a.reg, _mm512_set1_pd(-0.0))}; }
TRACEA_INLINE VecF abs(VecF a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0F), a.reg)}; }
TRACEA_INLINE VecD abs(VecD a) { return {_mm512_andnot_pd(_mm512_set1_pd(-0.0), a.reg)}; }
TRACEA_INLINE VecF copysign(VecF a, VecF s) {
    return {_mm512_or_ps(abs(a).reg, _mm512_and_ps(_mm512_set1_ps(-0.0F), s.reg))};
}
TRACEA_INLINE VecD copysign(VecD a, VecD s) {
    return {_mm512_or_pd(abs(a).reg, _mm512_and_pd(_mm512_set1_pd(-0.0), s.reg))};
}
TRACEA_INLINE VecF max_second(VecF a, VecF b) { return {_mm512_max_ps(a.reg, b.reg)}; }
TRACEA_INLINE VecD max_second(VecD a, VecD b) { return {_mm512_max_pd(a.reg, b.reg)}; }
TRACEA_INLINE VecF min_second(VecF a, VecF b) { return {_mm512_min_ps(a.reg, b.reg)}; }
TRACEA_INLINE VecD min_second(VecD a, VecD b) { return {_mm512_min_pd(a.reg, b.reg)}; }
TRACEA_INLINE VecF round_even(VecF a) {
    return {_mm512_roundscale_ps(a.reg, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
TRACEA_INLINE VecD round_even(VecD a) {
    return {_mm512_roundscale_pd(a.reg, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
TRACEA_INLINE VecF floor(VecF a) { return {_mm512_roundscale_ps(a.reg, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
TRACEA_INLINE VecD floor(VecD a) { return {_mm512_roundscale_pd(a.reg, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
TRACEA_INLINE VecF reciprocal_estimate(VecF a) { return {_mm512_rcp14_ps(a.reg)}; }
TRACEA_INLINE VecF rsqrt_estimate(VecF a) { return {_mm512_rsqrt14_ps(a.reg)}; }

// ---- comparison and selection ------------------------------------------------------------------------------------------------------------------
#define TRACEA_COMPARE(name, predicate)                                                                     \
    TRACEA_INLINE Mask<VecF> name(VecF a, VecF b) { return {_mm512_cmp_ps_mask(a.reg, b.reg, predicate)}; } \
    TRACEA_INLINE Mask<VecD> name(VecD a, VecD b) { return {_mm512_cmp_pd_mask(a.reg, b.reg, predicate)}; }
TRACEA_COMPARE(less, _CMP_LT_OQ)
TRACEA_COMPARE(less_equal, _CMP_LE_OQ)
TRACEA_COMPARE(equal, _CMP_EQ_OQ)
TRACEA_COMPARE(not_equal, _CMP_NEQ_UQ)
TRACEA_COMPARE(unordered, _CMP_UNORD_Q)
TRACEA_COMPARE(not_less, _CMP_NLT_UQ)
TRACEA_COMPARE(not_greater, _CMP_NGT_UQ)
#undef TRACEA_COMPARE
template <class V>
TRACEA_INLINE Mask<V> mask_and(Mask<V> a, Mask<V> b) {
    return {static_cast<decltype(a.reg)>(a.reg & b.reg)};
}
template <class V>
TRACEA_INLINE Mask<V> mask_or(Mask<V> a, Mask<V> b) {
    return {static_cast<decltype(a.reg)>(a.reg | b.reg)};
}
template <class V>
TRACEA_INLINE Mask<V> mask_not(Mask<V> a) {
    return {static_cast<decltype(a.reg)>(~a.reg)};
}
TRACEA_INLINE VecF select(Mask<VecF> m, VecF a, VecF b) { return {_mm512_mask_mov_ps(b.reg, m.reg, a.reg)}; }
TRACEA_INLINE VecD select(Mask<VecD> m, VecD a, VecD b) { return {_mm512_mask_mov_pd(b.reg, m.reg, a.reg)}; }

// ---- exponents ---------------------------------------------------------------------------------------------------------------------------------
TRACEA_INLINE VecF scale_pow2(VecF a, VecF n) { return {_mm512_scalef_ps(a.reg, n.reg)}; }
TRACEA_INLINE VecD scale_pow2(VecD a, VecD n) { return {_mm512_scalef_pd(a.reg, n.reg)}; }
TRACEA_INLINE VecF scale_pow2_where(Mask<VecF> m, VecF a, VecF n) {
    return {_mm512_maskz_scalef_ps(m.reg, a.reg, n.reg)};
}
TRACEA_INLINE VecF exponent_field(VecF s) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(s.reg), 23))};
}
template <int Bias>
TRACEA_INLINE VecF pow2(VecF n) {
    return {_mm512_scalef_ps(_mm512_set1_ps(__builtin_ldexpf(1.0F, Bias)), n.reg)};
}
TRACEA_INLINE VecF scale_pow2_or_zero(Mask<VecF> m, VecF a, VecF n) { return scale_pow2_where(m, a, n); }
TRACEA_INLINE VecD scale_pow2_or_zero(Mask<VecD> m, VecD a, VecD n) {
    return {_mm512_maskz_scalef_pd(m.reg, a.reg, n.reg)};
}
TRACEA_INLINE void split_exponent(VecF a, VecF& mantissa, VecF& exponent) {
    const __mmask16 tiny = _mm512_cmp_ps_mask(a.reg, _mm512_set1_ps(0x1p-126F), _CMP_LT_OQ);
    const __m512i u = _mm512_castps_si512(_mm512_mask_mul_ps(a.reg, tiny, a.reg, _mm512_set1_ps(0x1p23F)));
    const __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(u, _mm512_set1_epi32(0x3f2aaaab)), 23);
    mantissa.reg = _mm512_castsi512_ps(_mm512_sub_epi32(u, _mm512_slli_epi32(e, 23)));
    const __m512 n = _mm512_cvtepi32_ps(e);
    exponent.reg = _mm512_mask_sub_ps(n, tiny, n, _mm512_set1_ps(23.0F));
}

// ---- lanes in turns ------------------------------------------------------------------------------------------------------------------------------
TRACEA_INLINE void interleave(VecF a, VecF b, VecF& low, VecF& high) {
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i last = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    low.reg = _mm512_permutex2var_ps(a.reg, first, b.reg);
    high.reg = _mm512_permutex2var_ps(a.reg, last, b.reg);
}
TRACEA_INLINE void interleave(VecD a, VecD b, VecD& low, VecD& high) {
    low.reg = _mm512_permutex2var_pd(a.reg, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), b.reg);
    high.reg = _mm512_permutex2var_pd(a.reg, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), b.reg);
}

// ---- reductions --------------------------------------------------------------------------------------------------------------------------------
TRACEA_INLINE float reduce_add(VecF a) { return _mm512_reduce_add_ps(a.reg); }
TRACEA_INLINE double reduce_add(VecD a) { return _mm512_reduce_add_pd(a.reg); }
namespace detail {
TRACEA_INLINE float reduce_max_ordered(VecF a) { return _mm512_reduce_max_ps(a.reg); }
TRACEA_INLINE double reduce_max_ordered(VecD a) { return _mm512_reduce_max_pd(a.reg); }
TRACEA_INLINE float reduce_min_ordered(VecF a) { return _mm512_reduce_min_ps(a.reg); }
TRACEA_INLINE double reduce_min_ordered(VecD a) { return _mm512_reduce_min_pd(a.reg); }
}  // namespace detail
template <class V>
TRACEA_INLINE bool any(Mask<V> m) {
    return m.reg != 0;
}

TRACEA_INLINE void streaming_fence() { _mm_sfence(); }

TRACEA_END_NAMESPACE

#endif
