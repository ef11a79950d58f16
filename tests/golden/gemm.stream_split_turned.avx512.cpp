// gemm_1000x2x2048_f32_a2a3263f77a00eec | gemm.stream_split_turned | avx512 | fold=512,kc=1024,nc=1008,prefetch=0,rows=2,steps=8
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/gemv.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_gemm_stream_split_turned_2bbd7e87a8f51d7a5054_text {
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
  const float* x1;
  int64_t x1_row;
  float* y;
  int64_t y_col;
  template <class V>
  TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const {
    const V v1 = load_broadcast<V>(x1 + row * x1_row);
    const auto t0 = add(x0, v1);
    store_strided(y + row * 1 + col * y_col, y_col, t0, lanes);
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_gemm_stream_split_turned_2bbd7e87a8f51d7a5054(const tracea_call* call, int32_t rank) {
  const float* const b = static_cast<const float*>(call->pointers[0]);
  const float* const a = static_cast<const float*>(call->pointers[1]);
  const float* const x1 = static_cast<const float*>(call->pointers[2]);
  float* const c = static_cast<float*>(call->pointers[3]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride1 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t b_stride0 = call->integers[4];
  const int64_t x1_stride0 = call->integers[5];
  const int64_t c_stride1 = call->integers[6];
  float* const partials = reinterpret_cast<float*>(call->team_scratch);
  for (StaticLoop range0(call, rank, (k + 1023) / 1024); range0.next();) {
    const int64_t pc = range0.task() * 1024;
    const int64_t kc = min_index(k - pc, 1024);
    for (int64_t jc = 0; jc < n; jc += 1008) {
      const int64_t nc = min_index(n - jc, 1008);
      // MicroKernel partials[pc / 1024 : +1, 0 : +2, jc : +nc]
      gemv_columns<float, 2, 8>(nc, kc, a + a_stride1 * pc, 1, a_stride1, b + b_stride0 * pc + jc, b_stride0, partials + (n + 63) / 64 * (pc / 1024) * 128 + pc / 1024 * 128 + jc, (n + 63) / 64 * 64 + 64, false, 0);
    }
  }
  team_barrier(call, rank);
  for (StaticLoop range1(call, rank, (n + 511) / 512); range1.next();) {
    const int64_t jf = range1.task() * 512;
    const int64_t columns = min_index(n - jf, 512);
    for (int64_t ir = 0; ir < m; ++ir) {
      // ReduceTile sum c[ir : +1, jf : +columns]
      reduce_columns<float, SumOf>((k + 1023) / 1024, columns, Load0{partials + (n + 63) / 64 * ir * 64 + ir * 64 + jf, (n + 63) / 64 * 128 + 128}, Store0{x1 + ir * x1_stride0, x1_stride0, c + c_stride1 * jf + ir, c_stride1});
    }
  }
}
}  // namespace tracea_gemm_stream_split_turned_2bbd7e87a8f51d7a5054_text
