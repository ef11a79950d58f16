// moments_1x3136x256_f32_with_gradient_d82285893483bb66 | rows.moments | avx512 | fold=64,prefetch=1,rows=242
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/moments.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_rows_moments_52ebc1702064b475977f_text {
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

struct Load1 {
  const float* x0;
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v0 = load_partial<V>(x0 + col, lanes);
    return v0;
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

extern "C" __attribute__((visibility("default"))) void tracea_rows_moments_52ebc1702064b475977f(const tracea_call* call, int32_t rank) {
  const float* const x = static_cast<const float*>(call->pointers[0]);
  const float* const about = static_cast<const float*>(call->pointers[1]);
  const float* const grad = static_cast<const float*>(call->pointers[2]);
  float* const y = static_cast<float*>(call->pointers[3]);
  const int64_t images = call->integers[0];
  const int64_t rows = call->integers[1];
  const int64_t columns = call->integers[2];
  const int64_t x_stride0 = call->integers[3];
  const int64_t x_stride1 = call->integers[4];
  const int64_t about_stride0 = call->integers[5];
  const int64_t grad_stride0 = call->integers[6];
  const int64_t grad_stride1 = call->integers[7];
  const int64_t y_stride0 = call->integers[8];
  const int64_t y_stride1 = call->integers[9];
  float* const sums = reinterpret_cast<float*>(call->team_scratch);
  for (TaskLoop tasks0(call, rank, 0, (rows + 241) / 242 * images); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t image = task / ((rows + 241) / 242);
    const int64_t part = task % ((rows + 241) / 242);
    const int64_t first = part * 242;
    const int64_t count = min_index(rows - first, 242);
    // MomentsTile sums[image : +1, part : +1, 0 : +5, 0 : +columns]
    column_moments<float, true, 4096>(count, columns, Load0{x + first * x_stride1 + image * x_stride0, x_stride1}, Load0{grad + first * grad_stride1 + grad_stride0 * image, grad_stride1}, sums + (rows + 241) / 242 * columns * image * 5 + columns * part * 5, columns);
  }
  team_barrier(call, rank);
  for (TaskLoop tasks1(call, rank, 1, (columns + 63) / 64 * images); tasks1.next();) {
    const int64_t place = tasks1.task();
    const int64_t of = place / ((columns + 63) / 64);
    const int64_t start = place % ((columns + 63) / 64) * 64;
    const int64_t width = min_index(columns - start, 64);
    // MomentsFold y[of : +1, 0 : +4, start : +width]
    fold_moments<float, true>(242, rows, width, sums + (rows + 241) / 242 * columns * of * 5 + start, columns * 5, columns, Load0{x + of * x_stride0 + start, x_stride1}, Load1{about + about_stride0 * of + start}, Load0{grad + grad_stride0 * of + start, grad_stride1}, Store0{y + of * y_stride0 + start, y_stride1});
  }
}
}  // namespace tracea_rows_moments_52ebc1702064b475977f_text
