// pairs_1x512x32x128_f32_4c4d38d688c3d312 | pointwise.pairs | avx2 | block=8,split=rows,streaming=1,tasks=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/pairs.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_pointwise_pairs_d6fcce6ae26f747fc8c7_text {
using namespace tracea;

struct Load0 {
  const float* x0;
  int64_t x0_row;
  const float* x1;
  int64_t x1_row;
  const float* x2;
  const float* x3;
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v0 = load_strided<V>(x0 + row * x0_row + col * 2, 2, lanes);
    const V v1 = load_strided<V>(x1 + row * x1_row + col * 2, 2, lanes);
    const V v2 = load_partial<V>(x2 + col, lanes);
    const V v3 = load_partial<V>(x3 + col, lanes);
    const auto t0 = mul(v0, v2);
    const auto t1 = mul(v1, v3);
    const auto t2 = sub(t0, t1);
    return select(lane_mask<V>(lanes), t2, zero<V>());
  }
  template <class V>
  TRACEA_INLINE V mixed_at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    const V v0 = load_strided_mixed<V>(x0 + row * x0_row + col * 2, 2);
    const V v1 = load_strided_mixed<V>(x1 + row * x1_row + col * 2, 2);
    const V v2 = mixed(load_partial<V>(x2 + col, V::lanes));
    const V v3 = mixed(load_partial<V>(x3 + col, V::lanes));
    const auto t0 = mul(v0, v2);
    const auto t1 = mul(v1, v3);
    const auto t2 = sub(t0, t1);
    return t2;
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    prefetch_l1(x2 + col);
    prefetch_l1(x3 + col);
  }
};

struct Load1 {
  const float* x0;
  int64_t x0_row;
  const float* x1;
  int64_t x1_row;
  const float* x2;
  const float* x3;
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v0 = load_strided<V>(x0 + row * x0_row + col * 2, 2, lanes);
    const V v1 = load_strided<V>(x1 + row * x1_row + col * 2, 2, lanes);
    const V v2 = load_partial<V>(x2 + col, lanes);
    const V v3 = load_partial<V>(x3 + col, lanes);
    const auto t0 = mul(v0, v3);
    const auto t1 = mul(v1, v2);
    const auto t2 = add(t0, t1);
    return select(lane_mask<V>(lanes), t2, zero<V>());
  }
  template <class V>
  TRACEA_INLINE V mixed_at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    const V v0 = load_strided_mixed<V>(x0 + row * x0_row + col * 2, 2);
    const V v1 = load_strided_mixed<V>(x1 + row * x1_row + col * 2, 2);
    const V v2 = mixed(load_partial<V>(x2 + col, V::lanes));
    const V v3 = mixed(load_partial<V>(x3 + col, V::lanes));
    const auto t0 = mul(v0, v3);
    const auto t1 = mul(v1, v2);
    const auto t2 = add(t0, t1);
    return t2;
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    prefetch_l1(x2 + col);
    prefetch_l1(x3 + col);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_pointwise_pairs_d6fcce6ae26f747fc8c7(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  const float* const x1 = static_cast<const float*>(call->pointers[1]);
  const float* const x2 = static_cast<const float*>(call->pointers[2]);
  const float* const x3 = static_cast<const float*>(call->pointers[3]);
  float* const y = static_cast<float*>(call->pointers[4]);
  const int64_t n0 = call->integers[0];
  const int64_t n1 = call->integers[1];
  const int64_t n2 = call->integers[2];
  const int64_t x0_stride0 = call->integers[3];
  const int64_t x0_stride1 = call->integers[4];
  const int64_t x1_stride0 = call->integers[5];
  const int64_t x1_stride1 = call->integers[6];
  const int64_t x2_stride0 = call->integers[7];
  const int64_t x3_stride0 = call->integers[8];
  const int64_t y_stride0 = call->integers[9];
  const int64_t y_stride1 = call->integers[10];
  for (TaskLoop tasks0(call, rank, 0, n0); tasks0.next();) {
    const int64_t i0 = tasks0.task();
    for (int64_t start = 0; start < n1; start += 8) {
      const int64_t length = min_index(n1 - start, 8);
      // PairsTile y[i0 : +1, start : +length, 0 : +n2, 0 : +2]
      interleave_rows<float, true>(length, n2, Load0{x0 + i0 * x0_stride0 + start * x0_stride1, x0_stride1, x1 + i0 * x1_stride0 + start * x1_stride1, x1_stride1, x2 + i0 * x2_stride0, x3 + i0 * x3_stride0}, Load1{x0 + i0 * x0_stride0 + start * x0_stride1, x0_stride1, x1 + i0 * x1_stride0 + start * x1_stride1, x1_stride1, x2 + i0 * x2_stride0, x3 + i0 * x3_stride0}, y + i0 * y_stride0 + start * y_stride1, y_stride1);
      streaming_fence();
    }
  }
}
}  // namespace tracea_pointwise_pairs_d6fcce6ae26f747fc8c7_text
