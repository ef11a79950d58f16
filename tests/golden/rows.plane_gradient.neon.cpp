// norm_gradient_layer_norm_4x8x4x12544_over_2_3_f32_50bdc0ea9145e876 | rows.plane_gradient | neon | fixed=0,fold=32,streaming=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/plane_gradient.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_rows_plane_gradient_a18f6c759fde931d6f98_text {
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
  int64_t x0_row;
  template <class V> struct Numbers {
    V v0;
  };
  template <class V> TRACEA_INLINE Numbers<V> numbers([[maybe_unused]] int64_t row) const {
    return {load_broadcast<V>(x0 + row * x0_row)};
  }
  template <class V>
  TRACEA_INLINE V at(int64_t row, int64_t col, int64_t lanes) const {
    return at<V>(row, col, lanes, numbers<V>(row));
  }
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes, const Numbers<V>& of) const {
    const V v0 = of.v0;
    return select(lane_mask<V>(lanes), v0, zero<V>());
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
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

extern "C" __attribute__((visibility("default"))) void tracea_rows_plane_gradient_a18f6c759fde931d6f98(const tracea_call* call, int32_t rank) {
  const float* const grad = static_cast<const float*>(call->pointers[0]);
  const float* const x = static_cast<const float*>(call->pointers[1]);
  const float* const weight = static_cast<const float*>(call->pointers[2]);
  float* const grad_x = static_cast<float*>(call->pointers[3]);
  float* const grad_weight = static_cast<float*>(call->pointers[4]);
  float* const grad_bias = static_cast<float*>(call->pointers[5]);
  const int64_t images = call->integers[0];
  const int64_t groups = call->integers[1];
  const int64_t planes = call->integers[2];
  const int64_t length = call->integers[3];
  const int64_t grad_stride0 = call->integers[4];
  const int64_t grad_stride1 = call->integers[5];
  const int64_t grad_stride2 = call->integers[6];
  const int64_t x_stride0 = call->integers[7];
  const int64_t x_stride1 = call->integers[8];
  const int64_t x_stride2 = call->integers[9];
  const int64_t weight_stride1 = call->integers[10];
  const int64_t weight_stride2 = call->integers[11];
  const int64_t grad_x_stride0 = call->integers[12];
  const int64_t grad_x_stride1 = call->integers[13];
  const int64_t grad_x_stride2 = call->integers[14];
  float* const sums = reinterpret_cast<float*>(call->team_scratch);
  for (TaskLoop tasks0(call, rank, 0, groups * images); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t image = task / groups;
    const int64_t group = task % groups;
    // PlaneGradientTile grad_x[image : +1, group : +1, 0 : +planes, 0 : +length]
    plane_gradient<float, true>(planes, length, 1e-05, sums + group * planes + groups * image * planes * 2, groups * planes, Load0{grad + grad_stride0 * image + grad_stride1 * group, grad_stride2}, Load0{x + group * x_stride1 + image * x_stride0, x_stride2}, Load1{weight + group * weight_stride1, weight_stride2}, Store0{grad_x + grad_x_stride0 * image + grad_x_stride1 * group, grad_x_stride2});
  }
  team_barrier(call, rank);
  for (StaticLoop range0(call, rank, (groups * planes + 31) / 32); range0.next();) {
    const int64_t start = range0.task() * 32;
    const int64_t width = min_index(groups * planes - start, 32);
    // ReduceTile sum grad_weight[0 : +1, start : +width]
    reduce_columns<float, SumOf>(images, width, Load0{sums + start, groups * planes * 2}, Store1{grad_weight + start});
    // ReduceTile sum grad_bias[0 : +1, start : +width]
    reduce_columns<float, SumOf>(images, width, Load0{sums + groups * planes + start, groups * planes * 2}, Store1{grad_bias + start});
  }
}
}  // namespace tracea_rows_plane_gradient_a18f6c759fde931d6f98_text
