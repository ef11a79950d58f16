// cumulative_sum_512x768_f32_5e7f7c9c8fc6ed8b | rows.scan | avx2 | block=64,tasks=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/rows.h"
#include "tracea/scan.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_rows_scan_8d6ee2d798642c8cd501_text {
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

extern "C" __attribute__((visibility("default"))) void tracea_rows_scan_8d6ee2d798642c8cd501(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  float* const y = static_cast<float*>(call->pointers[1]);
  const int64_t n0 = call->integers[0];
  const int64_t n1 = call->integers[1];
  const int64_t x0_stride0 = call->integers[2];
  const int64_t y_stride0 = call->integers[3];
  for (TaskLoop tasks0(call, rank, 0, (n0 + 63) / 64); tasks0.next();) {
    const int64_t start = tasks0.task() * 64;
    const int64_t length = min_index(n0 - start, 64);
    // scan_rows y[start : +length, 0 : +n1]
    scan_rows<float>(length, n1, Load0{x0 + start * x0_stride0, x0_stride0}, Store0{y + start * y_stride0, y_stride0});
  }
}
}  // namespace tracea_rows_scan_8d6ee2d798642c8cd501_text
