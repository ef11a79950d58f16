// statistics_mean_mean23_8x32x8x3136_f32_43857a4470cf453e | rows.statistics | neon | block=1,fixed=0,streaming=1,tasks=1
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/math.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/slabs.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_rows_statistics_1d844826c71e8466994f_text {
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
  int64_t x0_row;
  const float* x1;
  template <class V> struct Numbers {
    V v1;
  };
  template <class V> TRACEA_INLINE Numbers<V> numbers([[maybe_unused]] int64_t row) const {
    return {load_broadcast<V>(x1)};
  }
  template <class V>
  TRACEA_INLINE V at(int64_t row, int64_t col, int64_t lanes) const {
    return at<V>(row, col, lanes, numbers<V>(row));
  }
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes, const Numbers<V>& of) const {
    const V v0 = load_partial<V>(x0 + row * x0_row + col, lanes);
    const V v1 = of.v1;
    const auto t0 = sub(v0, v1);
    const auto t1 = mul(t0, t0);
    return select(lane_mask<V>(lanes), t1, zero<V>());
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    prefetch_l2(x0 + row * x0_row + col);
  }
  TRACEA_INLINE bool is_one_row([[maybe_unused]] int64_t columns) const {
    return x0_row == columns;
  }
};

struct Load2 {
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
    const auto k0 = broadcast<V>(typename V::element(1e-05));
    const auto t1 = add(v0, k0);
    const auto t2 = rsqrt(t1);
    return select(lane_mask<V>(lanes), t2, zero<V>());
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
  }
};

struct Load3 {
  const float* x0;
  int64_t x0_row;
  const float* x1;
  int64_t x1_row;
  const float* x2;
  const float* x3;
  template <class V> struct Numbers {
    V v1, v2, v3;
  };
  template <class V> TRACEA_INLINE Numbers<V> numbers([[maybe_unused]] int64_t row) const {
    return {load_broadcast<V>(x1 + row * x1_row), load_broadcast<V>(x2), load_broadcast<V>(x3)};
  }
  template <class V>
  TRACEA_INLINE V at(int64_t row, int64_t col, int64_t lanes) const {
    return at<V>(row, col, lanes, numbers<V>(row));
  }
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes, const Numbers<V>& of) const {
    const V v0 = load_partial<V>(x0 + row * x0_row + col, lanes);
    const V v1 = of.v1;
    const V v2 = of.v2;
    const V v3 = of.v3;
    const auto t0 = sub(v0, v2);
    const auto t1 = mul(t0, v3);
    const auto t2 = mul(t1, v1);
    return select(lane_mask<V>(lanes), t2, zero<V>());
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    prefetch_l2(x0 + row * x0_row + col);
  }
};

struct Store1 {
  float* y;
  int64_t y_row;
  template <class V>
  TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const {
    StoreRows<float, true>{y, y_row}.template at<V>(row, col, x0, lanes);
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    StoreRows<float, true>{y, y_row}.prefetch(row, col);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_rows_statistics_1d844826c71e8466994f(const tracea_call* call, int32_t rank) {
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
  const int64_t x1_stride1 = call->integers[7];
  const int64_t x1_stride2 = call->integers[8];
  const int64_t y_stride0 = call->integers[9];
  const int64_t y_stride1 = call->integers[10];
  const int64_t y_stride2 = call->integers[11];
  float* const s0 = reinterpret_cast<float*>(thread_scratch(call, rank));
  float* const s1 = reinterpret_cast<float*>(thread_scratch(call, rank) + 64);
  float* const s2 = reinterpret_cast<float*>(thread_scratch(call, rank) + 128);
  for (TaskLoop tasks0(call, rank, 0, n1); tasks0.next();) {
    const int64_t i1 = tasks0.task();
    for (int64_t i0 = 0; i0 < n0; ++i0) {
      // ReduceTile mean s0[0 : +1, 0 : +1, 0 : +1, 0 : +1]
      reduce_slab<float, MeanOf>(n2, n3, Load0{x0 + i0 * x0_stride0 + i1 * x0_stride1, x0_stride2}, Store0{s0});
      // ReduceTile mean s1[0 : +1, 0 : +1, 0 : +1, 0 : +1]
      reduce_slab<float, MeanOf>(n2, n3, Load1{x0 + i0 * x0_stride0 + i1 * x0_stride1, x0_stride2, s0}, Store0{s1});
      // PointwiseTile s2[0 : +1, 0 : +1, 0 : +1, 0 : +1]
      map_rows<float, 0>(1, 1, Load2{s1}, Store0{s2});
      // PointwiseTile y[i0 : +1, i1 : +1, 0 : +n2, 0 : +n3]
      map_rows<float, 0>(n2, n3, Load3{x0 + i0 * x0_stride0 + i1 * x0_stride1, x0_stride2, x1 + i1 * x1_stride1, x1_stride2, s0, s2}, Store1{y + i0 * y_stride0 + i1 * y_stride1, y_stride2});
      streaming_fence();
    }
  }
}
}  // namespace tracea_rows_statistics_1d844826c71e8466994f_text
