// gemm_128x768x0_f32_b067e83ffb491ea3 | gemm.empty | avx2 | mc=64
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_gemm_empty_6646ae7d244b05cb0e93_text {
using namespace tracea;

struct Load0 {
  const float* x0;
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v0 = load_partial<V>(x0 + col, lanes);
    const auto k0 = broadcast<V>(typename V::element(0.0));
    const auto t1 = add(k0, v0);
    return select(lane_mask<V>(lanes), t1, zero<V>());
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    prefetch_l2(x0 + col);
  }
};

struct Store0 {
  float* y;
  int64_t y_row;
  template <class V>
  TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const {
    StoreRows<float, false>{y, y_row}.template at<V>(row, col, x0, lanes);
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    StoreRows<float, false>{y, y_row}.prefetch(row, col);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_gemm_empty_6646ae7d244b05cb0e93(const tracea_call* call, int32_t rank) {
  const float* const x1 = static_cast<const float*>(call->pointers[2]);
  float* const c = static_cast<float*>(call->pointers[3]);
  const int64_t m = call->integers[0];
  const int64_t n = call->integers[2];
  const int64_t c_stride0 = call->integers[4];
  for (TaskLoop tasks0(call, rank, 0, (m + 63) / 64); tasks0.next();) {
    const int64_t ic = tasks0.task() * 64;
    const int64_t mc = min_index(m - ic, 64);
    // PointwiseTile c[ic : +mc, 0 : +n]
    map_rows<float, 0>(mc, n, Load0{x1}, Store0{c + c_stride0 * ic, c_stride0});
  }
}
}  // namespace tracea_gemm_empty_6646ae7d244b05cb0e93_text
