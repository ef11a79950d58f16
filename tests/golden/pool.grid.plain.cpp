// adaptive_pool2d_1x64x5x6_f32_602e44a0f02f50c4 | pool.grid | plain | channels=64,rows=1
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/pool.h"
#include "tracea/row_tiles.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_pool_grid_c36566dc00366de5d586_text {
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

extern "C" __attribute__((visibility("default"))) void tracea_pool_grid_c36566dc00366de5d586(const tracea_call* call, int32_t rank) {
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
  for (TaskLoop tasks0(call, rank, 0, (c + 63) / 64 * images * p); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t image = task / ((c + 63) / 64 * p);
    const int64_t top = task / ((c + 63) / 64) % p;
    const int64_t band = min_index(p - top, 1);
    const int64_t first = task % ((c + 63) / 64) * 64;
    const int64_t wide = min_index(c - first, 64);
    for (int64_t line = 0; line < band; ++line) {
      const int64_t above = (h * line + h * top) / p;
      const int64_t rows = (h + h * line + h * top - 1) / p - above + 1;
      for (int64_t pixel = 0; pixel < q; ++pixel) {
        const int64_t left = pixel * width / q;
        const int64_t columns = (pixel * width + width - 1) / q - left + 1;
        // ReduceTile mean y[image : +1, top + line : +1, pixel : +1, first : +wide]
        pool_window<float, MeanOf, float>(x0 + above * x0_stride1 + first + image * x0_stride0 + left * x0_stride2, {x0_stride1, x0_stride2, 1}, rows, columns, wide, columns * rows, Store0{y + first + image * y_stride0 + line * y_stride1 + pixel * y_stride2 + top * y_stride1, y_stride2});
      }
    }
  }
}
}  // namespace tracea_pool_grid_c36566dc00366de5d586_text
