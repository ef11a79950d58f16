// reduce_sum2_54x3x54x48_f32_232aaea48f853aea | rows.reduce | neon | columns=256,rows=14
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_rows_reduce_9ab385cecccf0b2715a8_text {
using namespace tracea;

struct Load0 {
  const float* x0;
  int64_t x0_row;
  const float* x1;
  int64_t x1_row;
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v0 = load_partial<V>(x0 + row * x0_row + col, lanes);
    const V v1 = load_partial<V>(x1 + row * x1_row + col, lanes);
    const auto t0 = mul(v0, v1);
    return select(lane_mask<V>(lanes), t0, zero<V>());
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    prefetch_l1(x0 + row * x0_row + col);
    prefetch_l1(x1 + row * x1_row + col);
  }
};

struct Store0 {
  float* y;
  template <class V>
  TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const {
    StoreRows<float, false>{y, 0}.template at<V>(row, col, x0, lanes);
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    StoreRows<float, false>{y, 0}.prefetch(row, col);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_rows_reduce_9ab385cecccf0b2715a8(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  const float* const x1 = static_cast<const float*>(call->pointers[1]);
  float* const y = static_cast<float*>(call->pointers[2]);
  const int64_t n0 = call->integers[0];
  const int64_t n1 = call->integers[1];
  const int64_t n2 = call->integers[2];
  const int64_t n3 = call->integers[3];
  const int64_t x0_stride0 = call->integers[4];
  const int64_t x0_stride1 = call->integers[5];
  const int64_t x0_stride2 = call->integers[6];
  const int64_t x1_stride0 = call->integers[7];
  const int64_t x1_stride2 = call->integers[8];
  const int64_t y_stride0 = call->integers[9];
  const int64_t y_stride1 = call->integers[10];
  for (TaskLoop tasks0(call, rank, 0, n0); tasks0.next();) {
    const int64_t i0 = tasks0.task();
    for (int64_t i1 = 0; i1 < n1; ++i1) {
      for (int64_t start = 0; start < n3; start += 256) {
        const int64_t length = min_index(n3 - start, 256);
        // ReduceTile sum y[i0 : +1, i1 : +1, 0 : +1, start : +length]
        reduce_columns<float, SumOf>(n2, length, Load0{x0 + i0 * x0_stride0 + i1 * x0_stride1 + start, x0_stride2, x1 + i0 * x1_stride0 + start, x1_stride2}, Store0{y + i0 * y_stride0 + i1 * y_stride1 + start});
      }
    }
  }
}
}  // namespace tracea_rows_reduce_9ab385cecccf0b2715a8_text
