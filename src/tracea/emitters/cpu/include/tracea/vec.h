// The vector vocabulary of all CPU kernels: one name, one meaning, one implementation per instruction set.
//
// V is Vec<float> (VecF) or Vec<double> (VecD); V::lanes is its width and V::element its type. Storage is float, double, f16 or bf16; 16-bit
// storage is widened on load and rounded (nearest, ties to even, NaN kept) on store. No primitive needs an aligned address, except store_streaming.
//
//   zero<V>()  broadcast<V>(x)                      all lanes
//   load<V>(p)  store(p, v)                         V::lanes elements
//   lane_mask<V>(n)                                 lanes 0 .. n-1 (n is clamped to 0 .. lanes)
//   load_masked<V>(p, m)  store_masked(p, v, m)     lanes outside the mask read as zero, are not written; their addresses are never touched
//   load_partial<V>(p, n)  store_partial(p, v, n)   the same by count; a constant n >= lanes is a plain load or store
//   load_broadcast<V>(p)                            one element into all lanes
//   load_repeated<V, N>(p)                          N elements over and over, N a divisor of the lanes (float and double only)
//   load_strided<V>(p, stride, n)  store_strided(p, stride, v, n)      element i at p[i * stride], any stride, first n lanes
//   store_streaming(p, v)                           past the caches, p aligned to the vector; streaming_fence() before others may read
//   add sub mul div sqrt neg abs copysign fma(a, b, c) = a*b+c  fnma(a, b, c) = c-a*b  fma_into(acc, a, b)
//   round_even floor
//   maximum(a, b)  minimum(a, b)                    NaN if either is NaN
//   max_second(a, b)  min_second(a, b)              one instruction on x86: b where either is NaN or both are zero
//   less less_equal equal                           masks; NaN compares false
//   not_less not_greater not_equal unordered        masks; NaN compares true
//   mask_and mask_or mask_not any(m)  select(m, a, b)                  m ? a : b
//   scale_pow2(a, n)                                a * 2^n with one rounding for finite a, integral n in -1000 .. 1000; for doubles in [2^-20, 2) -1100 .. 1100
//   scale_pow2_where(m, a, n)                       a * 2^n in the lanes of the mask, zero in the others whatever they hold (float only); n in -126 .. 127
//                                                   and a normal result, or NaN
//   pow2<Bias>(n)                                   2^(n + Bias), n and the sum integral and small, the sum from -126 to 127, or 128, which is infinity; of NaN
//                                                   anything (float only)
//   exponent_field(s)                               of s = 1.5 * 2^23 + k, k integral in 0 .. 255: 2^(k - 127), 0 for 0, infinity for 255; of NaN anything
//                                                   (float only)
//   keep_where(m, a)                                a in the lanes of the mask, zero in the others (float only)
//   scale_pow2_or_zero(m, a, n)                     scale_pow2(a, n) in the lanes of the mask, zero in the others whatever they hold
//   split_exponent(a, m, e)                         a = m * 2^e, m in [2/3, 4/3), a positive and finite (float only)
//   reciprocal_estimate rsqrt_estimate              relative error <= 2^-8 at least, NaN, infinity and zero as in the exact function (float only)
//   interleave(a, b, low, high)                     the lanes of a and b in turns: a0 b0 a1 b1 ...; low has the first of them, high the others
//   interleave_mixed(a, b, low, high)               the same of vectors whose lanes mixed(v) and load_strided_mixed<V>(p, stride) put into an order of the
//                                                   instruction set's own, which saves turning them across its halves
//   reduce_add reduce_max reduce_min                over the lanes; max and min are NaN if any lane is; the order of the sum is fixed per ISA
//   prefetch_l1(p)  prefetch_l1_write(p)  prefetch_l2(p)
#ifndef TRACEA_VEC_H
#define TRACEA_VEC_H

#include <stdint.h>

#include <type_traits>

#include "tracea/config.h"
#include "tracea/storage.h"

#if defined(TRACEA_ISA_AVX512)
#include "tracea/vec_avx512.h"
#elif defined(TRACEA_ISA_AVX2)
#include "tracea/vec_avx2.h"
#include "tracea/vec_avx2_half.h"
#elif defined(TRACEA_ISA_NEON)
#include "tracea/vec_neon.h"
#else
#include "tracea/vec_plain.h"
#endif

TRACEA_BEGIN_NAMESPACE

#if !defined(TRACEA_ISA_AVX2)
// One instruction everywhere, but one that compilers do not find on AVX2.
TRACEA_INLINE VecF keep_where(Mask<VecF> m, VecF a) { return select(m, a, zero<VecF>()); }
#endif
#if !defined(TRACEA_ISA_AVX512)
// One instruction on AVX-512, both.
template <int Bias>
TRACEA_INLINE VecF pow2(VecF n) {
    return exponent_field(add(n, broadcast<VecF>(0x1.8p+23F + static_cast<float>(127 + Bias))));
}
TRACEA_INLINE VecF scale_pow2_or_zero(Mask<VecF> m, VecF a, VecF n) {
    return select(m, scale_pow2(a, n), zero<VecF>());
}
TRACEA_INLINE VecD scale_pow2_or_zero(Mask<VecD> m, VecD a, VecD n) {
    return select(m, scale_pow2(a, n), zero<VecD>());
}
#endif

// ---- 16-bit storage, on the conversions of the instruction set ------------------------------------------------------------------------------------
template <class V>
TRACEA_INLINE V load(const f16* p) {
    return detail::load_half(p);
}
template <class V>
TRACEA_INLINE V load(const bf16* p) {
    return detail::load_half(p);
}
template <class V>
TRACEA_INLINE V load_masked(const f16* p, Mask<V> m) {
    return detail::load_half_masked(p, m);
}
template <class V>
TRACEA_INLINE V load_masked(const bf16* p, Mask<V> m) {
    return detail::load_half_masked(p, m);
}
TRACEA_INLINE void store(f16* p, VecF v) { detail::store_half(p, v); }
TRACEA_INLINE void store(bf16* p, VecF v) { detail::store_half(p, v); }
TRACEA_INLINE void store_masked(f16* p, VecF v, Mask<VecF> m) { detail::store_half_masked(p, v, m); }
TRACEA_INLINE void store_masked(bf16* p, VecF v, Mask<VecF> m) { detail::store_half_masked(p, v, m); }
TRACEA_INLINE void store_streaming(f16* p, VecF v) { detail::store_half_streaming(p, v); }
TRACEA_INLINE void store_streaming(bf16* p, VecF v) { detail::store_half_streaming(p, v); }

template <class V, class Half>
TRACEA_INLINE V load_strided_half(const Half* p, int64_t stride, int64_t n) {
#if defined(TRACEA_ISA_AVX512) || defined(TRACEA_ISA_AVX2)
    if (stride == 2 && n >= V::lanes) return detail::every_other(p);  // nothing is read beyond the last element
#endif
    Half lanes[V::lanes] = {};
    for (int i = 0; i < V::lanes && i < n; ++i) lanes[i] = p[i * stride];
    return load<V>(lanes);
}
template <class V>
TRACEA_INLINE V load_strided(const f16* p, int64_t stride, int64_t n) {
    return load_strided_half<V>(p, stride, n);
}
template <class V>
TRACEA_INLINE V load_strided(const bf16* p, int64_t stride, int64_t n) {
    return load_strided_half<V>(p, stride, n);
}
template <class Half>
TRACEA_INLINE void store_strided_half(Half* p, int64_t stride, VecF v, int64_t n) {
    Half lanes[VecF::lanes];
    store(lanes, v);
    for (int i = 0; i < VecF::lanes && i < n; ++i) p[i * stride] = lanes[i];
}
TRACEA_INLINE void store_strided(f16* p, int64_t stride, VecF v, int64_t n) { store_strided_half(p, stride, v, n); }
TRACEA_INLINE void store_strided(bf16* p, int64_t stride, VecF v, int64_t n) { store_strided_half(p, stride, v, n); }

// ---- lanes in an order that is interleaved fast -----------------------------------------------------------------------------------------------
#if !defined(TRACEA_ISA_AVX2)
template <class V>
TRACEA_INLINE V mixed(V v) {
    return v;
}
template <class V>
TRACEA_INLINE void interleave_mixed(V a, V b, V& low, V& high) {
    interleave(a, b, low, high);
}
#endif
template <class V, class Storage>
TRACEA_INLINE V load_strided_mixed(const Storage* p, int64_t stride) {
#if defined(TRACEA_ISA_AVX2)
    if constexpr (std::is_floating_point_v<Storage>) {
        if (stride == 2) return detail::pairs_apart(p);
    }
#endif
    return mixed(load_strided<V>(p, stride, V::lanes));
}

// The vector that arithmetic on a storage type uses.
template <class Storage>
using vec_t = Vec<arithmetic_t<Storage>>;

template <class V>
TRACEA_INLINE V load_broadcast(const f16* p) {
    return broadcast<V>(to_float(*p));
}
template <class V>
TRACEA_INLINE V load_broadcast(const bf16* p) {
    return broadcast<V>(to_float(*p));
}

// ---- by count --------------------------------------------------------------------------------------------------------------------------------
namespace detail {
// Whether an access of n lanes is a plain one. AVX-512 masks are part of the instruction, elsewhere a branch is what costs less.
template <class V>
TRACEA_INLINE bool is_whole(int64_t n) {
#if defined(TRACEA_ISA_AVX512)
    return __builtin_constant_p(n) && n >= V::lanes;
#else
    return n >= V::lanes;
#endif
}
}  // namespace detail

template <class V, class Storage>
TRACEA_INLINE V load_partial(const Storage* p, int64_t n) {
    if (detail::is_whole<V>(n)) return load<V>(p);
    return load_masked<V>(p, lane_mask<V>(n));
}
template <class V, class Storage>
TRACEA_INLINE void store_partial(Storage* p, V v, int64_t n) {
    if (detail::is_whole<V>(n)) {
        store(p, v);
        return;
    }
    store_masked(p, v, lane_mask<V>(n));
}

// ---- NaN-propagating extremes, as torch.maximum, relu and amax define them ------------------------------------------------------------------------
template <class V>
TRACEA_INLINE V maximum(V a, V b) {
    return select(unordered(a, a), a, max_second(a, b));
}
template <class V>
TRACEA_INLINE V minimum(V a, V b) {
    return select(unordered(a, a), a, min_second(a, b));
}
template <class V>
TRACEA_INLINE typename V::element reduce_max(V a) {
    if (TRACEA_UNLIKELY(any(unordered(a, a)))) return static_cast<typename V::element>(__builtin_nan(""));
    return detail::reduce_max_ordered(a);
}
template <class V>
TRACEA_INLINE typename V::element reduce_min(V a) {
    if (TRACEA_UNLIKELY(any(unordered(a, a)))) return static_cast<typename V::element>(__builtin_nan(""));
    return detail::reduce_min_ordered(a);
}

template <class Pointer>
TRACEA_INLINE void prefetch_l1(const Pointer* p) {
    __builtin_prefetch(p, 0, 3);
}
template <class Pointer>
TRACEA_INLINE void prefetch_l1_write(const Pointer* p) {
    __builtin_prefetch(p, 1, 3);
}
template <class Pointer>
TRACEA_INLINE void prefetch_l2(const Pointer* p) {
    __builtin_prefetch(p, 0, 2);
}

TRACEA_END_NAMESPACE

#endif
