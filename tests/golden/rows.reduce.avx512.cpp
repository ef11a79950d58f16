// reduce_mean0_128x768_f32_2ce99c74ee9c64f4 | rows.reduce | avx512 | columns=256,rows=32
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_rows_reduce_763078fb9874d1b87cb0_text {
using namespace tracea;

struct Load0 {
  const float* x0;
  int64_t x0_row;
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
  float* y;
  template <class V>
  TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const {
    StoreRows<float, false>{y, 0}.template at<V>(row, col, x0, lanes);
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    StoreRows<float, false>{y, 0}.prefetch(row, col);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_rows_reduce_763078fb9874d1b87cb0(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  float* const y = static_cast<float*>(call->pointers[1]);
  const int64_t n0 = call->integers[0];
  const int64_t n1 = call->integers[1];
  const int64_t x0_stride0 = call->integers[2];
  for (TaskLoop tasks0(call, rank, 0, (n1 + 255) / 256); tasks0.next();) {
    const int64_t start = tasks0.task() * 256;
    const int64_t length = min_index(n1 - start, 256);
    // ReduceTile mean y[0 : +1, start : +length]
    reduce_columns<float, MeanOf>(n0, length, Load0{x0 + start, x0_stride0}, Store0{y + start});
  }
}
}  // namespace tracea_rows_reduce_763078fb9874d1b87cb0_text
