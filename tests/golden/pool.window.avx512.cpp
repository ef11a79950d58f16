// pool2d_1x64x56x56_f32_3d7cfe109b327a31 | pool.window | avx512 | channels=64,rows=4
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/pool.h"
#include "tracea/row_tiles.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_pool_window_4df8ad223e6b66a2f8d1_text {
using namespace tracea;

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

extern "C" __attribute__((visibility("default"))) void tracea_pool_window_4df8ad223e6b66a2f8d1(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  float* const y = static_cast<float*>(call->pointers[1]);
  const int64_t images = call->integers[0];
  const int64_t h = call->integers[1];
  const int64_t width = call->integers[2];
  const int64_t c = call->integers[3];
  const int64_t x0_stride0 = call->integers[4];
  const int64_t x0_stride1 = call->integers[5];
  const int64_t x0_stride2 = call->integers[6];
  const int64_t p = call->integers[7];
  const int64_t q = call->integers[8];
  const int64_t y_stride0 = call->integers[9];
  const int64_t y_stride1 = call->integers[10];
  const int64_t y_stride2 = call->integers[11];
  for (TaskLoop tasks0(call, rank, 0, (c + 63) / 64 * ((p + 3) / 4) * images); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t image = task / ((c + 63) / 64 * ((p + 3) / 4));
    const int64_t top = task / ((c + 63) / 64) % ((p + 3) / 4) * 4;
    const int64_t band = min_index(p - top, 4);
    const int64_t first = task % ((c + 63) / 64) * 64;
    const int64_t wide = min_index(c - first, 64);
    for (int64_t line = 0; line < band; ++line) {
      for (int64_t pixel = 0; pixel < q; ++pixel) {
        // ReduceTile max y[image : +1, top + line : +1, pixel : +1, first : +wide]
        pool_window<float, MaxOf, float>(x0 + first + image * x0_stride0 + max_index(line * 2 + top * 2 - 1, 0) * x0_stride1 + max_index(pixel * 2 - 1, 0) * x0_stride2, {x0_stride1, x0_stride2, 1}, min_index(line * 2 + top * 2 + 2, h) - max_index(line * 2 + top * 2 - 1, 0), min_index(pixel * 2 + 2, width) - max_index(pixel * 2 - 1, 0), wide, line * pixel * 4 + min_index(line * 2 + top * 2 + 2, h + 1) + min_index(line * 2 + top * 2 + 2, h + 1) * min_index(pixel * 2 + 2, width + 1) + min_index(pixel * 2 + 2, width + 1) + pixel * top * 4 - line * 2 - line * min_index(pixel * 2 + 2, width + 1) * 2 - min_index(line * 2 + top * 2 + 2, h + 1) * pixel * 2 - min_index(pixel * 2 + 2, width + 1) * top * 2 - pixel * 2 - top * 2 + 1, Store0{y + first + image * y_stride0 + line * y_stride1 + pixel * y_stride2 + top * y_stride1, y_stride2});
      }
    }
  }
}
}  // namespace tracea_pool_window_4df8ad223e6b66a2f8d1_text
