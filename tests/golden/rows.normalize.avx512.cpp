// row_layer_norm_128x768_f32_e3a31feb70318b3a | rows.normalize | avx512 | fixed=1,near=0,overlap=0,prefetch=0,rows=16,split=rows,streaming=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/normalize.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_rows_normalize_baa377f696db4099fbf3_text {
using namespace tracea;

struct Load0 {
  const float* x0;
  int64_t x0_row;
  static constexpr bool again = true;
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v0 = load_partial<V>(x0 + row * x0_row + col, lanes);
    return v0;
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    prefetch_l2(x0 + row * x0_row + col);
  }
};

struct Store0 {
  const float* x1;
  const float* x2;
  float* y;
  int64_t y_row;
  template <class V>
  TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const {
    const V v1 = load_partial<V>(x1 + col, lanes);
    const V v2 = load_partial<V>(x2 + col, lanes);
    const auto t0 = mul(x0, v1);
    const auto t1 = add(t0, v2);
    StoreRows<float, false>{y, y_row}.template at<V>(row, col, t1, lanes);
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    StoreRows<float, false>{y, y_row}.prefetch(row, col);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_rows_normalize_baa377f696db4099fbf3(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  const float* const x1 = static_cast<const float*>(call->pointers[1]);
  const float* const x2 = static_cast<const float*>(call->pointers[2]);
  float* const y = static_cast<float*>(call->pointers[3]);
  const int64_t n0 = call->integers[0];
  const int64_t n1 = call->integers[1];
  const int64_t x0_stride0 = call->integers[2];
  const int64_t y_stride0 = call->integers[3];
  float* const row = reinterpret_cast<float*>(thread_scratch(call, rank));
  for (StaticLoop range0(call, rank, (n0 + 15) / 16); range0.next();) {
    const int64_t start = range0.task() * 16;
    const int64_t length = min_index(n0 - start, 16);
    // RowTile layer_norm y[start : +length, 0 : +n1]
    layer_norm_rows<float, 0, 0>(length, n1, 1e-05, row, Load0{x0 + start * x0_stride0, x0_stride0}, Store0{x1, x2, y + start * y_stride0, y_stride0});
  }
}
}  // namespace tracea_rows_normalize_baa377f696db4099fbf3_text
