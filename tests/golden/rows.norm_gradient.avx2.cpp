// norm_gradient_layer_norm_512x768_f32_539a6da952d01a92 | rows.norm_gradient | avx2 | fixed=0,fold=768,prefetch=1,rows=16,streaming=0,together=1
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/norm_gradient.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_rows_norm_gradient_349c89f5fd073825ca0e_text {
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

struct Store1 {
  float* y;
  template <class V>
  TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const {
    StoreRows<float, false>{y, 0}.template at<V>(row, col, x0, lanes);
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    StoreRows<float, false>{y, 0}.prefetch(row, col);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_rows_norm_gradient_349c89f5fd073825ca0e(const tracea_call* call, int32_t rank) {
  const float* const grad = static_cast<const float*>(call->pointers[0]);
  const float* const x = static_cast<const float*>(call->pointers[1]);
  const float* const weight = static_cast<const float*>(call->pointers[2]);
  float* const grad_x = static_cast<float*>(call->pointers[3]);
  float* const grad_weight = static_cast<float*>(call->pointers[4]);
  float* const grad_bias = static_cast<float*>(call->pointers[5]);
  const int64_t rows = call->integers[0];
  const int64_t columns = call->integers[1];
  const int64_t grad_stride0 = call->integers[2];
  const int64_t x_stride0 = call->integers[3];
  const int64_t grad_x_stride0 = call->integers[4];
  float* const sums = reinterpret_cast<float*>(call->team_scratch);
  for (TaskLoop tasks0(call, rank, 0, (rows + 15) / 16); tasks0.next();) {
    const int64_t first = tasks0.task() * 16;
    const int64_t count = min_index(rows - first, 16);
    // NormGradientTile layer_norm grad_x[first : +count, 0 : +columns]
    norm_gradient_rows<float, true, 1, 1>(count, columns, 1e-05, sums + (columns + 63) / 64 * (first / 16) * 128 + first / 16 * 128, (columns + 63) / 64 * 64 + 64, Load0{grad + first * grad_stride0, grad_stride0}, Load0{x + first * x_stride0, x_stride0}, Load1{weight}, Store0{grad_x + first * grad_x_stride0, grad_x_stride0});
  }
  team_barrier(call, rank);
  for (StaticLoop range0(call, rank, (columns + 767) / 768); range0.next();) {
    const int64_t start = range0.task() * 768;
    const int64_t width = min_index(columns - start, 768);
    // ReduceTile sum grad_weight[0 : +1, start : +width]
    reduce_columns<float, SumOf>((rows + 15) / 16, width, Load0{sums + start, (columns + 63) / 64 * 128 + 128}, Store1{grad_weight + start});
    // ReduceTile sum grad_bias[0 : +1, start : +width]
    reduce_columns<float, SumOf>((rows + 15) / 16, width, Load0{sums + (columns + 63) / 64 * 64 + start + 64, (columns + 63) / 64 * 128 + 128}, Store1{grad_bias + start});
  }
}
}  // namespace tracea_rows_norm_gradient_349c89f5fd073825ca0e_text
