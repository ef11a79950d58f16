// Vector primitives on AVX2 with FMA and F16C: 8 floats or 4 doubles, lane masks as vectors of all-ones lanes. Meanings are stated in vec.h.
#ifndef TRACEA_VEC_AVX2_H
#define TRACEA_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "tracea/config.h"
#include "tracea/storage.h"

TRACEA_BEGIN_NAMESPACE

template <class T>
struct Vec;
template <>
struct Vec<float> {
    using element = float;
    static constexpr int lanes = 8;
    __m256 reg;
};
template <>
struct Vec<double> {
    using element = double;
    static constexpr int lanes = 4;
    __m256d reg;
};
template <class V>
struct Mask;
template <>
struct Mask<Vec<float>> {
    __m256 reg;
};
template <>
struct Mask<Vec<double>> {
    __m256d reg;
};
using VecF = Vec<float>;
using VecD = Vec<double>;

template <class V>
TRACEA_INLINE V zero();
template <>
TRACEA_INLINE VecF zero<VecF>() {
    return {_mm256_setzero_ps()};
}
template <>
TRACEA_INLINE VecD zero<VecD>() {
    return {_mm256_setzero_pd()};
}
template <class V>
TRACEA_INLINE V broadcast(typename V::element x);
template <>
TRACEA_INLINE VecF broadcast<VecF>(float x) {
    return {_mm256_set1_ps(x)};
}
template <>
TRACEA_INLINE VecD broadcast<VecD>(double x) {
    return {_mm256_set1_pd(x)};
}

template <class V>
TRACEA_INLINE Mask<V> lane_mask(int64_t n);
template <>
TRACEA_INLINE Mask<VecF> lane_mask<VecF>(int64_t n) {
    const __m256i limit = _mm256_set1_epi32(static_cast<int>(n > 8 ? 8 : n < 0 ? 0 : n));
    return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)))};
}
template <>
TRACEA_INLINE Mask<VecD> lane_mask<VecD>(int64_t n) {
    const __m256i limit = _mm256_set1_epi64x(n > 4 ? 4 : n < 0 ? 0 : n);
    return {_mm256_castsi256_pd(_mm256_cmpgt_epi64(limit, _mm256_setr_epi64x(0, 1, 2, 3)))};
}

// ---- float: loads and stores -------------------------------------------------------------------------------------------------------------------
template <class V>
TRACEA_INLINE V load(const float* p) {
    static_assert(V::lanes == 8, "float storage loads into Vec<float>");
    return {_mm256_loadu_ps(p)};
}
template <class V>
TRACEA_INLINE V load_masked(const float* p, Mask<V> m) {
    return {_mm256_maskload_ps(p, _mm256_castps_si256(m.reg))};
}
TRACEA_INLINE void store(float* p, VecF v) { _mm256_storeu_ps(p, v.reg); }
namespace detail {
// The first lanes, whose bits are those of `lanes`, of up to seven: four, two and one at a time.
TRACEA_INLINE void store_first(float* p, __m256 v, int lanes) {
    __m128 part = _mm256_castps256_ps128(v);
    if ((lanes & 8) != 0) {
        _mm_storeu_ps(p, part);
        part = _mm256_extractf128_ps(v, 1);
        p += 4;
        lanes >>= 4;
    }
    if ((lanes & 2) != 0) _mm_storel_pi(reinterpret_cast<__m64*>(p), part);
    if (lanes == 1) _mm_store_ss(p, part);
    if ((lanes & 4) != 0) _mm_store_ss(p + 2, _mm_movehl_ps(part, part));
}
}  // namespace detail
// The masked store takes a Zen 2 or 3 twelve cycles and more (https://uops.info, VMASKMOVPS_M256_YMM_YMM), so it is left to masks of any other shape.
TRACEA_INLINE void store_masked(float* p, VecF v, Mask<VecF> m) {
    const int lanes = _mm256_movemask_ps(m.reg);
    if (lanes == 0xff) return store(p, v);
    if ((lanes & (lanes + 1)) != 0) return _mm256_maskstore_ps(p, _mm256_castps_si256(m.reg), v.reg);
    detail::store_first(p, v.reg, lanes);
}
TRACEA_INLINE void store_streaming(float* p, VecF v) { _mm256_stream_ps(p, v.reg); }
template <class V>
TRACEA_INLINE V load_broadcast(const float* p);
template <>
TRACEA_INLINE VecF load_broadcast<VecF>(const float* p) {
    VecF v;
    __asm__("vbroadcastss %1, %0" : "=x"(v.reg) : "m"(*p));
    return v;
}
template <class V, int N>
TRACEA_INLINE V load_repeated(const float* p) {
    static_assert(N == 1 || N == 2 || N == 4 || N == 8, "N divides the lanes");
    if constexpr (N == 1) return load_broadcast<V>(p);
    if constexpr (N == 8) return load<V>(p);
    const auto& elements = *reinterpret_cast<const float (*)[N]>(p);
    V v;
    if constexpr (N == 2) __asm__("vbroadcastsd %1, %0" : "=x"(v.reg) : "m"(elements));
    if constexpr (N == 4) __asm__("vbroadcastf128 %1, %0" : "=x"(v.reg) : "m"(elements));
    return v;
}
namespace detail {
// Out of line: a kernel has many of these loads, and few that are not whole vectors or have another step than two.
TRACEA_NOINLINE inline __m256 gathered(const float* p, int64_t s, int64_t n) {
    if (n >= 8) return _mm256_setr_ps(p[0], p[s], p[2 * s], p[3 * s], p[4 * s], p[5 * s], p[6 * s], p[7 * s]);
    float lanes[8] = {};
    for (int i = 0; i < 8 && i < n; ++i) lanes[i] = p[i * s];
    return _mm256_loadu_ps(lanes);
}
// Every other element, mixed; nothing is read beyond the last one.
TRACEA_INLINE VecF pairs_apart(const float* p) {
    return {_mm256_shuffle_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 7), 0xd8)};
}
TRACEA_INLINE VecD pairs_apart(const double* p) {
    return {_mm256_shuffle_pd(_mm256_loadu_pd(p), _mm256_loadu_pd(p + 3), 0xa)};
}
}  // namespace detail
// The two quarters in the middle exchanged, which the unpacking instructions, each in its half, undo. Twice is not at all.
TRACEA_INLINE VecF mixed(VecF v) { return {_mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v.reg), 0xd8))}; }
TRACEA_INLINE VecD mixed(VecD v) { return {_mm256_permute4x64_pd(v.reg, 0xd8)}; }
template <class V>
TRACEA_INLINE V load_strided(const float* p, int64_t stride, int64_t n) {
    if (stride != 2 || n < 8) return {detail::gathered(p, stride, n)};
    return mixed(detail::pairs_apart(p));
}

// ---- double: loads and stores ------------------------------------------------------------------------------------------------------------------
template <class V>
TRACEA_INLINE V load(const double* p) {
    static_assert(V::lanes == 4, "double storage loads into Vec<double>");
    return {_mm256_loadu_pd(p)};
}
template <class V>
TRACEA_INLINE V load_masked(const double* p, Mask<V> m) {
    return {_mm256_maskload_pd(p, _mm256_castpd_si256(m.reg))};
}
TRACEA_INLINE void store(double* p, VecD v) { _mm256_storeu_pd(p, v.reg); }
TRACEA_INLINE void store_masked(double* p, VecD v, Mask<VecD> m) {
    const int lanes = _mm256_movemask_pd(m.reg);
    if (lanes == 0xf) return store(p, v);
    if ((lanes & (lanes + 1)) != 0) return _mm256_maskstore_pd(p, _mm256_castpd_si256(m.reg), v.reg);
    // Two floats for each: 1, 3 and 7 become 3, 15 and 63.
    detail::store_first(reinterpret_cast<float*>(p), _mm256_castpd_ps(v.reg), (lanes + 1) * (lanes + 1) - 1);
}
TRACEA_INLINE void store_streaming(double* p, VecD v) { _mm256_stream_pd(p, v.reg); }
template <class V>
TRACEA_INLINE V load_broadcast(const double* p);
template <>
TRACEA_INLINE VecD load_broadcast<VecD>(const double* p) {
    VecD v;
    __asm__("vbroadcastsd %1, %0" : "=x"(v.reg) : "m"(*p));
    return v;
}
template <class V, int N>
TRACEA_INLINE V load_repeated(const double* p) {
    static_assert(N == 1 || N == 2 || N == 4, "N divides the lanes");
    if constexpr (N == 1) return load_broadcast<V>(p);
    if constexpr (N == 4) return load<V>(p);
    V v;
    __asm__("vbroadcastf128 %1, %0" : "=x"(v.reg) : "m"(*reinterpret_cast<const double (*)[N]>(p)));
    return v;
}
template <class V>
TRACEA_INLINE V load_strided(const double* p, int64_t stride, int64_t n) {
    if (stride == 2 && n >= 4) return mixed(detail::pairs_apart(p));
    double lanes[4] = {};
    for (int i = 0; i < 4 && i < n; ++i) lanes[i] = p[i * stride];
    return {_mm256_loadu_pd(lanes)};
}
template <class V>
TRACEA_INLINE void store_strided(typename V::element* p, int64_t stride, V v, int64_t n) {
    typename V::element lanes[V::lanes];
    store(lanes, v);
    for (int i = 0; i < V::lanes && i < n; ++i) p[i * stride] = lanes[i];
}

// ---- arithmetic --------------------------------------------------------------------------------------------------------------------------------
TRACEA_INLINE VecF add(VecF a, VecF b) { return {_mm256_add_ps(a.reg, b.reg)}; }
TRACEA_INLINE VecD add(VecD a, VecD b) { return {_mm256_add_pd(a.reg, b.reg)}; }
TRACEA_INLINE VecF sub(VecF a, VecF b) { return {_mm256_sub_ps(a.reg, b.reg)}; }
TRACEA_INLINE VecD sub(VecD a, VecD b) { return {_mm256_sub_pd(a.reg, b.reg)}; }
TRACEA_INLINE VecF mul(VecF a, VecF b) { return {_mm256_mul_ps(a.reg, b.reg)}; }
TRACEA_INLINE VecD mul(VecD a, VecD b) { return {_mm256_mul_pd(a.reg, b.reg)}; }
TRACEA_INLINE VecF div(VecF a, VecF b) { return {_mm256_div_ps(a.reg, b.reg)}; }
TRACEA_INLINE VecD div(VecD a, VecD b) { return {_mm256_div_pd(a.reg, b.reg)}; }
TRACEA_INLINE VecF sqrt(VecF a) { return {_mm256_sqrt_ps(a.reg)}; }
TRACEA_INLINE VecD sqrt(VecD a) { return {_mm256_sqrt_pd(a.reg)}; }
TRACEA_INLINE VecF fma(VecF a, VecF b, VecF c) { return {_mm256_fmadd_ps(a.reg, b.reg, c.reg)}; }
TRACEA_INLINE VecD fma(VecD a, VecD b, VecD c) { return {_mm256_fmadd_pd(a.reg, b.reg, c.reg)}; }
TRACEA_INLINE VecF fnma(VecF a, VecF b, VecF c) { return {_mm256_fnmadd_ps(a.reg, b.reg, c.reg)}; }
TRACEA_INLINE VecD fnma(VecD a, VecD b, VecD c) { return {_mm256_fnmadd_pd(a.reg, b.reg, c.reg)}; }
// Pinned by assembly: the micro-kernel's accumulators stay in place and no operand is folded into a memory form. The local keeps an array of
// accumulators out of memory: as an operand of assembly its element would pin the array.
TRACEA_INLINE void fma_into(VecF& acc, VecF a, VecF b) {
    __m256 sum = acc.reg;
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a.reg), "x"(b.reg));
    acc.reg = sum;
}
TRACEA_INLINE void fma_into(VecD& acc, VecD a, VecD b) {
    __m256d sum = acc.reg;
    __asm__("vfmadd231pd %2, %1, %0" : "+x"(sum) : "x"(a.reg), "x"(b.reg));
    acc.reg = sum;
}
TRACEA_INLINE VecF neg(VecF a) { return {_mm256_xor_ps(a.reg, _mm256_set1_ps(-0.0F))}; }
TRACEA_INLINE VecD neg(VecD a) { return {_mm256_xor_pd(a.reg, _mm256_set1_pd(-0.0))}; }
TRACEA_INLINE VecF abs(VecF a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0F), a.reg)}; }
TRACEA_INLINE VecD abs(VecD a) { return {_mm256_andnot_pd(_mm256_set1_pd(-0.0), a.reg)}; }
TRACEA_INLINE VecF copysign(VecF a, VecF s) {
    return {_mm256_or_ps(abs(a).reg, _mm256_and_ps(_mm256_set1_ps(-0.0F), s.reg))};
}
TRACEA_INLINE VecD copysign(VecD a, VecD s) {
    return {_mm256_or_pd(abs(a).reg, _mm256_and_pd(_mm256_set1_pd(-0.0), s.reg))};
}
TRACEA_INLINE VecF max_second(VecF a, VecF b) { return {_mm256_max_ps(a.reg, b.reg)}; }
TRACEA_INLINE VecD max_second(VecD a, VecD b) { return {_mm256_max_pd(a.reg, b.reg)}; }
TRACEA_INLINE VecF min_second(VecF a, VecF b) { return {_mm256_min_ps(a.reg, b.reg)}; }
TRACEA_INLINE VecD min_second(VecD a, VecD b) { return {_mm256_min_pd(a.reg, b.reg)}; }
TRACEA_INLINE VecF round_even(VecF a) {
    return {_mm256_round_ps(a.reg, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
TRACEA_INLINE VecD round_even(VecD a) {
    return {_mm256_round_pd(a.reg, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
TRACEA_INLINE VecF floor(VecF a) { return {_mm256_floor_ps(a.reg)}; }
TRACEA_INLINE VecD floor(VecD a) { return {_mm256_floor_pd(a.reg)}; }
TRACEA_INLINE VecF reciprocal_estimate(VecF a) { return {_mm256_rcp_ps(a.reg)}; }
TRACEA_INLINE VecF rsqrt_estimate(VecF a) { return {_mm256_rsqrt_ps(a.reg)}; }

// ---- comparison and selection ------------------------------------------------------------------------------------------------------------------
#define TRACEA_COMPARE(name, predicate)                                                                \
    TRACEA_INLINE Mask<VecF> name(VecF a, VecF b) { return {_mm256_cmp_ps(a.reg, b.reg, predicate)}; } \
    TRACEA_INLINE Mask<VecD> name(VecD a, VecD b) { return {_mm256_cmp_pd(a.reg, b.reg, predicate)}; }
TRACEA_COMPARE(less, _CMP_LT_OQ)
TRACEA_COMPARE(less_equal, _CMP_LE_OQ)
TRACEA_COMPARE(equal, _CMP_EQ_OQ)
TRACEA_COMPARE(not_equal, _CMP_NEQ_UQ)
TRACEA_COMPARE(unordered, _CMP_UNORD_Q)
TRACEA_COMPARE(not_less, _CMP_NLT_UQ)
TRACEA_COMPARE(not_greater, _CMP_NGT_UQ)
#undef TRACEA_COMPARE
TRACEA_INLINE Mask<VecF> mask_and(Mask<VecF> a, Mask<VecF> b) { return {_mm256_and_ps(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecD> mask_and(Mask<VecD> a, Mask<VecD> b) { return {_mm256_and_pd(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecF> mask_or(Mask<VecF> a, Mask<VecF> b) { return {_mm256_or_ps(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecD> mask_or(Mask<VecD> a, Mask<VecD> b) { return {_mm256_or_pd(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecF> mask_not(Mask<VecF> a) {
    return {_mm256_xor_ps(a.reg, _mm256_castsi256_ps(_mm256_set1_epi32(-1)))};
}
TRACEA_INLINE Mask<VecD> mask_not(Mask<VecD> a) {
    return {_mm256_xor_pd(a.reg, _mm256_castsi256_pd(_mm256_set1_epi32(-1)))};
}
TRACEA_INLINE VecF select(Mask<VecF> m, VecF a, VecF b) { return {_mm256_blendv_ps(b.reg, a.reg, m.reg)}; }
TRACEA_INLINE VecD select(Mask<VecD> m, VecD a, VecD b) { return {_mm256_blendv_pd(b.reg, a.reg, m.reg)}; }
TRACEA_INLINE VecF keep_where(Mask<VecF> m, VecF a) { return {_mm256_and_ps(a.reg, m.reg)}; }
TRACEA_INLINE bool any(Mask<VecF> m) { return _mm256_movemask_ps(m.reg) != 0; }
TRACEA_INLINE bool any(Mask<VecD> m) { return _mm256_movemask_pd(m.reg) != 0; }

// ---- exponents ---------------------------------------------------------------------------------------------------------------------------------
// At most three factors, each as large as the exponent range allows: only the last product of a finite result can round.
TRACEA_INLINE VecF scale_pow2(VecF a, VecF n) {
    __m256 product = a.reg;
    __m256 left = n.reg;
    for (int i = 0; i < 3; ++i) {
        const __m256 part = _mm256_max_ps(_mm256_min_ps(left, _mm256_set1_ps(127.0F)), _mm256_set1_ps(-126.0F));
        const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(part), _mm256_set1_epi32(127)), 23);
        product = _mm256_mul_ps(product, _mm256_castsi256_ps(power));
        left = _mm256_sub_ps(left, part);
    }
    return {_mm256_blendv_ps(product, n.reg, _mm256_cmp_ps(n.reg, n.reg, _CMP_UNORD_Q))};
}
TRACEA_INLINE VecF scale_pow2_where(Mask<VecF> m, VecF a, VecF n) {
    // Added to the exponent, which leaves the multipliers alone; of NaN the conversion makes 2^31, whose low bits are zero.
    const __m256i by = _mm256_slli_epi32(_mm256_cvtps_epi32(n.reg), 23);
    const __m256i scaled = _mm256_add_epi32(_mm256_castps_si256(a.reg), by);
    return {_mm256_and_ps(_mm256_castsi256_ps(scaled), m.reg)};
}
// The sum's low bits are the field; what is above them leaves by the shift.
TRACEA_INLINE VecF exponent_field(VecF s) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(s.reg), 23))};
}
// Two factors, the first of which a power up to 1000 leaves nothing to: only the last product of a finite result rounds. A sum's low bits are the field.
TRACEA_INLINE VecD scale_pow2(VecD a, VecD n) {
    __m256d product = a.reg;
    __m256d left = n.reg;
    for (int i = 0; i < 2; ++i) {
        const __m256d part = _mm256_max_pd(_mm256_min_pd(left, _mm256_set1_pd(1000.0)), _mm256_set1_pd(-1000.0));
        const __m256d field = _mm256_add_pd(part, _mm256_set1_pd(0x1.8p+52 + 1023.0));
        product = _mm256_mul_pd(product, _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(field), 52)));
        left = _mm256_sub_pd(left, part);
    }
    return {_mm256_blendv_pd(product, n.reg, _mm256_cmp_pd(n.reg, n.reg, _CMP_UNORD_Q))};
}
TRACEA_INLINE void split_exponent(VecF a, VecF& mantissa, VecF& exponent) {
    const __m256 tiny = _mm256_cmp_ps(a.reg, _mm256_set1_ps(0x1p-126F), _CMP_LT_OQ);
    const __m256i u = _mm256_castps_si256(_mm256_blendv_ps(a.reg, _mm256_mul_ps(a.reg, _mm256_set1_ps(0x1p23F)), tiny));
    const __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(u, _mm256_set1_epi32(0x3f2aaaab)), 23);
    mantissa.reg = _mm256_castsi256_ps(_mm256_sub_epi32(u, _mm256_slli_epi32(e, 23)));
    exponent.reg = _mm256_sub_ps(_mm256_cvtepi32_ps(e), _mm256_and_ps(tiny, _mm256_set1_ps(23.0F)));
}

// ---- lanes in turns ------------------------------------------------------------------------------------------------------------------------------
TRACEA_INLINE void interleave_mixed(VecF a, VecF b, VecF& low, VecF& high) {
    low.reg = _mm256_unpacklo_ps(a.reg, b.reg);
    high.reg = _mm256_unpackhi_ps(a.reg, b.reg);
}
TRACEA_INLINE void interleave_mixed(VecD a, VecD b, VecD& low, VecD& high) {
    low.reg = _mm256_unpacklo_pd(a.reg, b.reg);
    high.reg = _mm256_unpackhi_pd(a.reg, b.reg);
}
template <class V>
TRACEA_INLINE void interleave(V a, V b, V& low, V& high) {
    interleave_mixed(mixed(a), mixed(b), low, high);
}

// ---- reductions --------------------------------------------------------------------------------------------------------------------------------
namespace detail {
template <class F>
TRACEA_INLINE float reduce(VecF a, F&& f) {
    const __m128 four = f(_mm256_castps256_ps128(a.reg), _mm256_extractf128_ps(a.reg, 1));
    const __m128 two = f(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(f(two, _mm_movehdup_ps(two)));
}
template <class F>
TRACEA_INLINE double reduce(VecD a, F&& f) {
    const __m128d two = f(_mm256_castpd256_pd128(a.reg), _mm256_extractf128_pd(a.reg, 1));
    return _mm_cvtsd_f64(f(two, _mm_unpackhi_pd(two, two)));
}
TRACEA_INLINE float reduce_max_ordered(VecF a) {
    return reduce(a, [](__m128 x, __m128 y) { return _mm_max_ps(x, y); });
}
TRACEA_INLINE double reduce_max_ordered(VecD a) {
    return reduce(a, [](__m128d x, __m128d y) { return _mm_max_pd(x, y); });
}
TRACEA_INLINE float reduce_min_ordered(VecF a) {
    return reduce(a, [](__m128 x, __m128 y) { return _mm_min_ps(x, y); });
}
TRACEA_INLINE double reduce_min_ordered(VecD a) {
    return reduce(a, [](__m128d x, __m128d y) { return _mm_min_pd(x, y); });
}
}  // namespace detail
TRACEA_INLINE float reduce_add(VecF a) {
    return detail::reduce(a, [](__m128 x, __m128 y) { return _mm_add_ps(x, y); });
}
TRACEA_INLINE double reduce_add(VecD a) {
    return detail::reduce(a, [](__m128d x, __m128d y) { return _mm_add_pd(x, y); });
}

TRACEA_INLINE void streaming_fence() { _mm_sfence(); }

TRACEA_END_NAMESPACE

#endif
