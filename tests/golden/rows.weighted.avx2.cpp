// weighted_rows_1x112x3584_f32_b45474cc9c64e4d2 | rows.weighted | avx2 | block=18,tasks=1
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"
#include "tracea/weighted_rows.h"

namespace tracea_rows_weighted_91d785eef28508b662ae_text {
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
  int64_t y_row;
  template <class V>
  TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const {
    StoreRows<float, false>{y, y_row}.template at<V>(row, col, x0, lanes);
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    StoreRows<float, false>{y, y_row}.prefetch(row, col);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_rows_weighted_91d785eef28508b662ae(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  const int64_t* const x1 = static_cast<const int64_t*>(call->pointers[1]);
  const float* const x2 = static_cast<const float*>(call->pointers[2]);
  float* const y = static_cast<float*>(call->pointers[3]);
  const int64_t batch = call->integers[0];
  const int64_t rows = call->integers[1];
  const int64_t columns = call->integers[2];
  const int64_t x0_stride0 = call->integers[3];
  const int64_t x0_stride1 = call->integers[4];
  const int64_t sums = call->integers[5];
  const int64_t x1_stride0 = call->integers[6];
  const int64_t x2_stride0 = call->integers[7];
  const int64_t y_stride0 = call->integers[8];
  const int64_t y_stride1 = call->integers[9];
  for (TaskLoop tasks0(call, rank, 0, (sums + 17) / 18); tasks0.next();) {
    const int64_t start = tasks0.task() * 18;
    const int64_t length = min_index(sums - start, 18);
    for (int64_t i0 = 0; i0 < batch; ++i0) {
      // weighted_rows y[i0 : +1, start : +length, 0 : +columns]
      weighted_rows<float, 2>(length, columns, Load0{x0 + i0 * x0_stride0, x0_stride1}, rows, x1 + start * x1_stride0, x1_stride0, 1, x2 + start * x2_stride0, x2_stride0, 1, Store0{y + i0 * y_stride0 + start * y_stride1, y_stride1});
    }
  }
}
}  // namespace tracea_rows_weighted_91d785eef28508b662ae_text
