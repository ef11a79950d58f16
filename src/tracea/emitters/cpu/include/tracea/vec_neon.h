// Vector primitives on AArch64 Advanced SIMD: 4 floats or 2 doubles, lane masks as vectors of all-ones lanes. Meanings are stated in vec.h.
#ifndef TRACEA_VEC_NEON_H
#define TRACEA_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>

#include "tracea/config.h"
#include "tracea/storage.h"

TRACEA_BEGIN_NAMESPACE

template <class T>
struct Vec;
template <>
struct Vec<float> {
    using element = float;
    static constexpr int lanes = 4;
    float32x4_t reg;
};
template <>
struct Vec<double> {
    using element = double;
    static constexpr int lanes = 2;
    float64x2_t reg;
};
template <class V>
struct Mask;
template <>
struct Mask<Vec<float>> {
    uint32x4_t reg;
};
template <>
struct Mask<Vec<double>> {
    uint64x2_t reg;
};
using VecF = Vec<float>;
using VecD = Vec<double>;

template <class V>
TRACEA_INLINE V broadcast(typename V::element x);
template <>
TRACEA_INLINE VecF broadcast<VecF>(float x) {
    return {vdupq_n_f32(x)};
}
template <>
TRACEA_INLINE VecD broadcast<VecD>(double x) {
    return {vdupq_n_f64(x)};
}
template <class V>
TRACEA_INLINE V zero() {
    return broadcast<V>(0);
}
template <class V>
TRACEA_INLINE Mask<V> lane_mask(int64_t n);
template <>
TRACEA_INLINE Mask<VecF> lane_mask<VecF>(int64_t n) {
    const uint32_t lane[4] = {0, 1, 2, 3};
    return {vcltq_u32(vld1q_u32(lane), vdupq_n_u32(static_cast<uint32_t>(n > 4 ? 4 : n < 0 ? 0 : n)))};
}
template <>
TRACEA_INLINE Mask<VecD> lane_mask<VecD>(int64_t n) {
    const uint64_t lane[2] = {0, 1};
    return {vcltq_u64(vld1q_u64(lane), vdupq_n_u64(static_cast<uint64_t>(n > 2 ? 2 : n < 0 ? 0 : n)))};
}

// ---- loads and stores: there is no masked memory access, so a masked one goes lane by lane and touches nothing else ---------------------------------
namespace detail {
TRACEA_INLINE uint32_t lane_bits(Mask<VecF> m) {
    const uint32_t weight[4] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m.reg, vld1q_u32(weight)));
}
TRACEA_INLINE uint32_t lane_bits(Mask<VecD> m) {
    const uint64_t weight[2] = {1, 2};
    return static_cast<uint32_t>(vaddvq_u64(vandq_u64(m.reg, vld1q_u64(weight))));
}
TRACEA_INLINE VecF load_lanes(const float* p) { return {vld1q_f32(p)}; }
TRACEA_INLINE VecD load_lanes(const double* p) { return {vld1q_f64(p)}; }
}  // namespace detail
TRACEA_INLINE void store(float* p, VecF v) { vst1q_f32(p, v.reg); }
TRACEA_INLINE void store(double* p, VecD v) { vst1q_f64(p, v.reg); }

#define TRACEA_NEON_MEMORY(T)                                                      \
    template <class V>                                                             \
    TRACEA_INLINE V load(const T* p) {                                             \
        return detail::load_lanes(p);                                              \
    }                                                                              \
    template <class V>                                                             \
    TRACEA_INLINE V load_broadcast(const T* p) {                                   \
        return broadcast<V>(*p);                                                   \
    }                                                                              \
    template <class V, int N>                                                      \
    TRACEA_INLINE V load_repeated(const T* p) {                                    \
        static_assert(N > 0 && V::lanes % N == 0, "N divides the lanes");          \
        if constexpr (N == 1) return broadcast<V>(*p);                             \
        if constexpr (N == V::lanes) return load<V>(p);                            \
        T lanes[V::lanes];                                                         \
        for (int i = 0; i < V::lanes; ++i) lanes[i] = p[i % N];                    \
        return load<V>(lanes);                                                     \
    }                                                                              \
    template <class V>                                                             \
    TRACEA_INLINE V load_masked(const T* p, Mask<V> m) {                           \
        const uint32_t bits = detail::lane_bits(m);                                \
        T lanes[V::lanes] = {};                                                    \
        for (int i = 0; i < V::lanes; ++i)                                         \
            if ((bits >> i & 1U) != 0) lanes[i] = p[i];                            \
        return detail::load_lanes(lanes);                                          \
    }                                                                              \
    TRACEA_INLINE void store_masked(T* p, Vec<T> v, Mask<Vec<T>> m) {              \
        const uint32_t bits = detail::lane_bits(m);                                \
        T lanes[Vec<T>::lanes];                                                    \
        store(lanes, v);                                                           \
        for (int i = 0; i < Vec<T>::lanes; ++i)                                    \
            if ((bits >> i & 1U) != 0) p[i] = lanes[i];                            \
    }                                                                              \
    TRACEA_INLINE void store_streaming(T* p, Vec<T> v) { store(p, v); }            \
    template <class V>                                                             \
    TRACEA_INLINE V load_strided(const T* p, int64_t stride, int64_t n) {          \
        T lanes[V::lanes] = {};                                                    \
        for (int i = 0; i < V::lanes && i < n; ++i) lanes[i] = p[i * stride];      \
        return detail::load_lanes(lanes);                                          \
    }                                                                              \
    TRACEA_INLINE void store_strided(T* p, int64_t stride, Vec<T> v, int64_t n) {  \
        T lanes[Vec<T>::lanes];                                                    \
        store(lanes, v);                                                           \
        for (int i = 0; i < Vec<T>::lanes && i < n; ++i) p[i * stride] = lanes[i]; \
    }
TRACEA_NEON_MEMORY(float)
TRACEA_NEON_MEMORY(double)
#undef TRACEA_NEON_MEMORY

// ---- 16-bit storage ----------------------------------------------------------------------------------------------------------------------------
namespace detail {
TRACEA_INLINE uint16x4_t to_bits(VecF v, f16) { return vreinterpret_u16_f16(vcvt_f16_f32(v.reg)); }
TRACEA_INLINE uint16x4_t to_bits(VecF v, bf16) {
    const uint32x4_t u = vreinterpretq_u32_f32(v.reg);
    const uint32x4_t high = vshrq_n_u32(u, 16);
    const uint32x4_t rounded =
        vshrq_n_u32(vaddq_u32(u, vaddq_u32(vandq_u32(high, vdupq_n_u32(1)), vdupq_n_u32(0x7fff))), 16);
    return vmovn_u32(vbslq_u32(vceqq_f32(v.reg, v.reg), rounded, vorrq_u32(high, vdupq_n_u32(0x40))));
}
TRACEA_INLINE VecF from_bits(uint16x4_t u, f16) { return {vcvt_f32_f16(vreinterpret_f16_u16(u))}; }
TRACEA_INLINE VecF from_bits(uint16x4_t u, bf16) { return {vreinterpretq_f32_u32(vshll_n_u16(u, 16))}; }
template <class Half>
TRACEA_INLINE VecF load_half(const Half* p) {
    return from_bits(vld1_u16(reinterpret_cast<const uint16_t*>(p)), Half{});
}
template <class Half>
TRACEA_INLINE VecF load_half_masked(const Half* p, Mask<VecF> m) {
    const uint32_t bits = lane_bits(m);
    Half lanes[4] = {};
    for (int i = 0; i < 4; ++i)
        if ((bits >> i & 1U) != 0) lanes[i] = p[i];
    return load_half(lanes);
}
template <class Half>
TRACEA_INLINE void store_half(Half* p, VecF v) {
    vst1_u16(reinterpret_cast<uint16_t*>(p), to_bits(v, Half{}));
}
template <class Half>
TRACEA_INLINE void store_half_masked(Half* p, VecF v, Mask<VecF> m) {
    const uint32_t bits = lane_bits(m);
    Half lanes[4];
    store_half(lanes, v);
    for (int i = 0; i < 4; ++i)
        if ((bits >> i & 1U) != 0) p[i] = lanes[i];
}
template <class Half>
TRACEA_INLINE void store_half_streaming(Half* p, VecF v) {
    store_half(p, v);
}
}  // namespace detail

// ---- arithmetic --------------------------------------------------------------------------------------------------------------------------------
#define TRACEA_UNARY(name, f)                                    \
    TRACEA_INLINE VecF name(VecF a) { return {f##_f32(a.reg)}; } \
    TRACEA_INLINE VecD name(VecD a) { return {f##_f64(a.reg)}; }
#define TRACEA_BINARY(name, f)                                                  \
    TRACEA_INLINE VecF name(VecF a, VecF b) { return {f##_f32(a.reg, b.reg)}; } \
    TRACEA_INLINE VecD name(VecD a, VecD b) { return {f##_f64(a.reg, b.reg)}; }
TRACEA_BINARY(add, vaddq)
TRACEA_BINARY(sub, vsubq)
TRACEA_BINARY(mul, vmulq)
TRACEA_BINARY(div, vdivq)
TRACEA_UNARY(sqrt, vsqrtq)
TRACEA_UNARY(neg, vnegq)
TRACEA_UNARY(abs, vabsq)
TRACEA_UNARY(round_even, vrndnq)
TRACEA_UNARY(floor, vrndmq)
#undef TRACEA_UNARY
#undef TRACEA_BINARY
TRACEA_INLINE VecF fma(VecF a, VecF b, VecF c) { return {vfmaq_f32(c.reg, a.reg, b.reg)}; }
TRACEA_INLINE VecD fma(VecD a, VecD b, VecD c) { return {vfmaq_f64(c.reg, a.reg, b.reg)}; }
TRACEA_INLINE VecF fnma(VecF a, VecF b, VecF c) { return {vfmsq_f32(c.reg, a.reg, b.reg)}; }
TRACEA_INLINE VecD fnma(VecD a, VecD b, VecD c) { return {vfmsq_f64(c.reg, a.reg, b.reg)}; }
TRACEA_INLINE void fma_into(VecF& acc, VecF a, VecF b) { acc.reg = vfmaq_f32(acc.reg, a.reg, b.reg); }
TRACEA_INLINE void fma_into(VecD& acc, VecD a, VecD b) { acc.reg = vfmaq_f64(acc.reg, a.reg, b.reg); }
TRACEA_INLINE VecF copysign(VecF a, VecF s) { return {vbslq_f32(vdupq_n_u32(0x80000000U), s.reg, a.reg)}; }
TRACEA_INLINE VecD copysign(VecD a, VecD s) { return {vbslq_f64(vdupq_n_u64(0x8000000000000000U), s.reg, a.reg)}; }
TRACEA_INLINE VecF max_second(VecF a, VecF b) { return {vbslq_f32(vcgtq_f32(a.reg, b.reg), a.reg, b.reg)}; }
TRACEA_INLINE VecD max_second(VecD a, VecD b) { return {vbslq_f64(vcgtq_f64(a.reg, b.reg), a.reg, b.reg)}; }
TRACEA_INLINE VecF min_second(VecF a, VecF b) { return {vbslq_f32(vcltq_f32(a.reg, b.reg), a.reg, b.reg)}; }
TRACEA_INLINE VecD min_second(VecD a, VecD b) { return {vbslq_f64(vcltq_f64(a.reg, b.reg), a.reg, b.reg)}; }
TRACEA_INLINE VecF reciprocal_estimate(VecF a) { return {vdivq_f32(vdupq_n_f32(1.0F), a.reg)}; }
TRACEA_INLINE VecF rsqrt_estimate(VecF a) { return {vdivq_f32(vdupq_n_f32(1.0F), vsqrtq_f32(a.reg))}; }

// ---- comparison and selection ------------------------------------------------------------------------------------------------------------------
TRACEA_INLINE Mask<VecF> mask_not(Mask<VecF> a) { return {vmvnq_u32(a.reg)}; }
TRACEA_INLINE Mask<VecD> mask_not(Mask<VecD> a) { return {veorq_u64(a.reg, vdupq_n_u64(~uint64_t{0}))}; }
TRACEA_INLINE Mask<VecF> mask_and(Mask<VecF> a, Mask<VecF> b) { return {vandq_u32(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecD> mask_and(Mask<VecD> a, Mask<VecD> b) { return {vandq_u64(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecF> mask_or(Mask<VecF> a, Mask<VecF> b) { return {vorrq_u32(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecD> mask_or(Mask<VecD> a, Mask<VecD> b) { return {vorrq_u64(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecF> less(VecF a, VecF b) { return {vcltq_f32(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecD> less(VecD a, VecD b) { return {vcltq_f64(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecF> less_equal(VecF a, VecF b) { return {vcleq_f32(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecD> less_equal(VecD a, VecD b) { return {vcleq_f64(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecF> equal(VecF a, VecF b) { return {vceqq_f32(a.reg, b.reg)}; }
TRACEA_INLINE Mask<VecD> equal(VecD a, VecD b) { return {vceqq_f64(a.reg, b.reg)}; }
template <class V>
TRACEA_INLINE Mask<V> not_equal(V a, V b) {
    return mask_not(equal(a, b));
}
template <class V>
TRACEA_INLINE Mask<V> unordered(V a, V b) {
    return mask_not(mask_and(equal(a, a), equal(b, b)));
}
template <class V>
TRACEA_INLINE Mask<V> not_less(V a, V b) {
    return mask_not(less(a, b));
}
template <class V>
TRACEA_INLINE Mask<V> not_greater(V a, V b) {
    return mask_not(less(b, a));
}
TRACEA_INLINE VecF select(Mask<VecF> m, VecF a, VecF b) { return {vbslq_f32(m.reg, a.reg, b.reg)}; }
TRACEA_INLINE VecD select(Mask<VecD> m, VecD a, VecD b) { return {vbslq_f64(m.reg, a.reg, b.reg)}; }
template <class V>
TRACEA_INLINE bool any(Mask<V> m) {
    return detail::lane_bits(m) != 0;
}

// ---- exponents ---------------------------------------------------------------------------------------------------------------------------------
// At most three factors, each as large as the exponent range allows: only the last product of a finite result can round.
TRACEA_INLINE VecF scale_pow2(VecF a, VecF n) {
    float32x4_t product = a.reg;
    float32x4_t left = n.reg;
    for (int i = 0; i < 3; ++i) {
        const float32x4_t part = vmaxq_f32(vminq_f32(left, vdupq_n_f32(127.0F)), vdupq_n_f32(-126.0F));
        const int32x4_t power = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(part), vdupq_n_s32(127)), 23);
        product = vmulq_f32(product, vreinterpretq_f32_s32(power));
        left = vsubq_f32(left, part);
    }
    return {vbslq_f32(vceqq_f32(n.reg, n.reg), product, n.reg)};
}
TRACEA_INLINE VecF scale_pow2_where(Mask<VecF> m, VecF a, VecF n) {
    const int32x4_t power = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n.reg), vdupq_n_s32(127)), 23);
    const float32x4_t product = vmulq_f32(a.reg, vreinterpretq_f32_s32(power));
    return {vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(product), m.reg))};
}
TRACEA_INLINE VecF exponent_field(VecF s) {
    return {vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(s.reg), 23))};
}
// Two factors, the first of which a power up to 1000 leaves nothing to: only the last product of a finite result rounds. A sum's low bits are the field.
TRACEA_INLINE VecD scale_pow2(VecD a, VecD n) {
    float64x2_t product = a.reg;
    float64x2_t left = n.reg;
    for (int i = 0; i < 2; ++i) {
        const float64x2_t part = vmaxq_f64(vminq_f64(left, vdupq_n_f64(1000.0)), vdupq_n_f64(-1000.0));
        const float64x2_t field = vaddq_f64(part, vdupq_n_f64(0x1.8p+52 + 1023.0));
        product = vmulq_f64(product, vreinterpretq_f64_s64(vshlq_n_s64(vreinterpretq_s64_f64(field), 52)));
        left = vsubq_f64(left, part);
    }
    return {vbslq_f64(vceqq_f64(n.reg, n.reg), product, n.reg)};
}
TRACEA_INLINE void split_exponent(VecF a, VecF& mantissa, VecF& exponent) {
    const uint32x4_t tiny = vcltq_f32(a.reg, vdupq_n_f32(0x1p-126F));
    const int32x4_t u = vreinterpretq_s32_f32(vbslq_f32(tiny, vmulq_f32(a.reg, vdupq_n_f32(0x1p23F)), a.reg));
    const int32x4_t e = vshrq_n_s32(vsubq_s32(u, vdupq_n_s32(0x3f2aaaab)), 23);
    mantissa.reg = vreinterpretq_f32_s32(vsubq_s32(u, vshlq_n_s32(e, 23)));
    exponent.reg = vsubq_f32(vcvtq_f32_s32(e), vbslq_f32(tiny, vdupq_n_f32(23.0F), vdupq_n_f32(0.0F)));
}

// ---- lanes in turns ------------------------------------------------------------------------------------------------------------------------------
TRACEA_INLINE void interleave(VecF a, VecF b, VecF& low, VecF& high) {
    low.reg = vzip1q_f32(a.reg, b.reg);
    high.reg = vzip2q_f32(a.reg, b.reg);
}
TRACEA_INLINE void interleave(VecD a, VecD b, VecD& low, VecD& high) {
    low.reg = vzip1q_f64(a.reg, b.reg);
    high.reg = vzip2q_f64(a.reg, b.reg);
}

// ---- reductions --------------------------------------------------------------------------------------------------------------------------------
TRACEA_INLINE float reduce_add(VecF a) {
    const float32x2_t two = vadd_f32(vget_low_f32(a.reg), vget_high_f32(a.reg));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
TRACEA_INLINE double reduce_add(VecD a) { return vgetq_lane_f64(a.reg, 0) + vgetq_lane_f64(a.reg, 1); }
namespace detail {
TRACEA_INLINE float reduce_max_ordered(VecF a) { return vmaxvq_f32(a.reg); }
TRACEA_INLINE double reduce_max_ordered(VecD a) { return vmaxvq_f64(a.reg); }
TRACEA_INLINE float reduce_min_ordered(VecF a) { return vminvq_f32(a.reg); }
TRACEA_INLINE double reduce_min_ordered(VecD a) { return vminvq_f64(a.reg); }
}  // namespace detail

TRACEA_INLINE void streaming_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

TRACEA_END_NAMESPACE

#endif
