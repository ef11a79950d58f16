// reduce_mean02_8x256x3136_f32_28ac7e94fe950015 | rows.reduce_slabs | avx2 | block=1,fixed=0,streaming=0,tasks=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/math.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/slabs.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_rows_reduce_slabs_f4898e30f70b3e7b0157_text {
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
  TRACEA_INLINE bool is_one_row([[maybe_unused]] int64_t columns) const {
    return x0_row == columns;
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

struct Load1 {
  const float* x0;
  template <class V> struct Numbers {
    V v0;
  };
  template <class V> TRACEA_INLINE Numbers<V> numbers([[maybe_unused]] int64_t row) const {
    return {load_broadcast<V>(x0)};
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

extern "C" __attribute__((visibility("default"))) void tracea_rows_reduce_slabs_f4898e30f70b3e7b0157(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  float* const y = static_cast<float*>(call->pointers[1]);
  const int64_t n0 = call->integers[0];
  const int64_t n1 = call->integers[1];
  const int64_t n2 = call->integers[2];
  const int64_t x0_stride0 = call->integers[3];
  const int64_t x0_stride1 = call->integers[4];
  const int64_t y_stride0 = call->integers[5];
  float* const s0 = reinterpret_cast<float*>(thread_scratch(call, rank));
  for (TaskLoop tasks0(call, rank, 0, n0); tasks0.next();) {
    const int64_t i0 = tasks0.task();
    // ReduceTile mean s0[0 : +1, 0 : +1, 0 : +1]
    reduce_slab<float, MeanOf>(n1, n2, Load0{x0 + i0 * x0_stride0, x0_stride1}, Store0{s0});
    // PointwiseTile y[i0 : +1, 0 : +1, 0 : +1]
    map_rows<float, 0>(1, 1, Load1{s0}, Store0{y + i0 * y_stride0});
  }
}
}  // namespace tracea_rows_reduce_slabs_f4898e30f70b3e7b0157_text
