// Lanes moved within a vector.
//
//   shift_up<N>(v)      lane i of the result is lane i - N; the first N lanes are zero
//   shift_down<N>(v)    lane i of the result is lane i + N; the last N lanes are zero
//   repeat_first(v)  repeat_last(v)    all lanes are the first, the last
//
// N is 1 or more and less than the lanes.
#ifndef TRACEA_SHIFT_H
#define TRACEA_SHIFT_H

#include "tracea/config.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

#if defined(TRACEA_ISA_AVX512)

template <int N>
TRACEA_INLINE VecF shift_up(VecF v) {
    return {_mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(v.reg), _mm512_setzero_si512(), 16 - N))};
}
template <int N>
TRACEA_INLINE VecD shift_up(VecD v) {
    return {_mm512_castsi512_pd(_mm512_alignr_epi64(_mm512_castpd_si512(v.reg), _mm512_setzero_si512(), 8 - N))};
}
template <int N>
TRACEA_INLINE VecF shift_down(VecF v) {
    return {_mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_setzero_si512(), _mm512_castps_si512(v.reg), N))};
}
template <int N>
TRACEA_INLINE VecD shift_down(VecD v) {
    return {_mm512_castsi512_pd(_mm512_alignr_epi64(_mm512_setzero_si512(), _mm512_castpd_si512(v.reg), N))};
}
TRACEA_INLINE VecF repeat_first(VecF v) { return {_mm512_broadcastss_ps(_mm512_castps512_ps128(v.reg))}; }
TRACEA_INLINE VecD repeat_first(VecD v) { return {_mm512_broadcastsd_pd(_mm512_castpd512_pd128(v.reg))}; }
TRACEA_INLINE VecF repeat_last(VecF v) { return {_mm512_permutexvar_ps(_mm512_set1_epi32(15), v.reg)}; }
TRACEA_INLINE VecD repeat_last(VecD v) { return {_mm512_permutexvar_pd(_mm512_set1_epi64(7), v.reg)}; }

#elif defined(TRACEA_ISA_AVX2)

namespace detail {
// Shifts of bytes stay within halves of a vector: the other half's lanes come from a vector moved by half.
template <int Bytes>
TRACEA_INLINE __m256i shift_bytes_up(__m256i v) {
    const __m256i low_up = _mm256_permute2x128_si256(v, v, 0x08);
    if constexpr (Bytes == 16) return low_up;
    if constexpr (Bytes < 16) return _mm256_alignr_epi8(v, low_up, 16 - Bytes);
    if constexpr (Bytes > 16) return _mm256_slli_si256(low_up, Bytes - 16);
}
template <int Bytes>
TRACEA_INLINE __m256i shift_bytes_down(__m256i v) {
    const __m256i high_down = _mm256_permute2x128_si256(v, v, 0x81);
    if constexpr (Bytes == 16) return high_down;
    if constexpr (Bytes < 16) return _mm256_alignr_epi8(high_down, v, Bytes);
    if constexpr (Bytes > 16) return _mm256_srli_si256(high_down, Bytes - 16);
}
}  // namespace detail
template <int N>
TRACEA_INLINE VecF shift_up(VecF v) {
    return {_mm256_castsi256_ps(detail::shift_bytes_up<4 * N>(_mm256_castps_si256(v.reg)))};
}
template <int N>
TRACEA_INLINE VecD shift_up(VecD v) {
    return {_mm256_castsi256_pd(detail::shift_bytes_up<8 * N>(_mm256_castpd_si256(v.reg)))};
}
template <int N>
TRACEA_INLINE VecF shift_down(VecF v) {
    return {_mm256_castsi256_ps(detail::shift_bytes_down<4 * N>(_mm256_castps_si256(v.reg)))};
}
template <int N>
TRACEA_INLINE VecD shift_down(VecD v) {
    return {_mm256_castsi256_pd(detail::shift_bytes_down<8 * N>(_mm256_castpd_si256(v.reg)))};
}
TRACEA_INLINE VecF repeat_first(VecF v) { return {_mm256_broadcastss_ps(_mm256_castps256_ps128(v.reg))}; }
TRACEA_INLINE VecD repeat_first(VecD v) { return {_mm256_broadcastsd_pd(_mm256_castpd256_pd128(v.reg))}; }
TRACEA_INLINE VecF repeat_last(VecF v) { return {_mm256_permutevar8x32_ps(v.reg, _mm256_set1_epi32(7))}; }
TRACEA_INLINE VecD repeat_last(VecD v) { return {_mm256_permute4x64_pd(v.reg, 0xff)}; }

#elif defined(TRACEA_ISA_NEON)

template <int N>
TRACEA_INLINE VecF shift_up(VecF v) {
    return {vextq_f32(vdupq_n_f32(0.0F), v.reg, 4 - N)};
}
template <int N>
TRACEA_INLINE VecD shift_up(VecD v) {
    return {vextq_f64(vdupq_n_f64(0.0), v.reg, 2 - N)};
}
template <int N>
TRACEA_INLINE VecF shift_down(VecF v) {
    return {vextq_f32(v.reg, vdupq_n_f32(0.0F), N)};
}
template <int N>
TRACEA_INLINE VecD shift_down(VecD v) {
    return {vextq_f64(v.reg, vdupq_n_f64(0.0), N)};
}
TRACEA_INLINE VecF repeat_first(VecF v) { return {vdupq_laneq_f32(v.reg, 0)}; }
TRACEA_INLINE VecD repeat_first(VecD v) { return {vdupq_laneq_f64(v.reg, 0)}; }
TRACEA_INLINE VecF repeat_last(VecF v) { return {vdupq_laneq_f32(v.reg, 3)}; }
TRACEA_INLINE VecD repeat_last(VecD v) { return {vdupq_laneq_f64(v.reg, 1)}; }

#else

template <int N, class T>
TRACEA_INLINE Vec<T> shift_up(Vec<T> v) {
    return detail::lanewise<T>([&](int i) { return i < N ? T(0) : v.reg[i - N]; });
}
template <int N, class T>
TRACEA_INLINE Vec<T> shift_down(Vec<T> v) {
    return detail::lanewise<T>([&](int i) { return i + N < Vec<T>::lanes ? v.reg[i + N] : T(0); });
}
template <class T>
TRACEA_INLINE Vec<T> repeat_first(Vec<T> v) {
    return broadcast<Vec<T>>(v.reg[0]);
}
template <class T>
TRACEA_INLINE Vec<T> repeat_last(Vec<T> v) {
    return broadcast<Vec<T>>(v.reg[Vec<T>::lanes - 1]);
}

#endif

TRACEA_END_NAMESPACE

#endif
