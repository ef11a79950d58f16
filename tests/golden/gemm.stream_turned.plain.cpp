// gemm_4096x1x4096_f32_83cb94a8219eb9a1 | gemm.stream_turned | plain | nc=4096,prefetch=0,rows=1,steps=4
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/gemm_store.h"
#include "tracea/gemv.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_gemm_stream_turned_ffaef66219d38efa03cf_text {
using namespace tracea;

struct Epilogue0 {
  const float* x1;
  int64_t x1_row;
  template <class V>
  TRACEA_INLINE V operator()(V x0, [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v1 = load_broadcast<V>(x1 + row * x1_row);
    const auto t0 = add(x0, v1);
    return t0;
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_gemm_stream_turned_ffaef66219d38efa03cf(const tracea_call* call, int32_t rank) {
  const float* const b = static_cast<const float*>(call->pointers[0]);
  const float* const a = static_cast<const float*>(call->pointers[1]);
  const float* const x1 = static_cast<const float*>(call->pointers[2]);
  float* const c = static_cast<float*>(call->pointers[3]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t b_stride0 = call->integers[4];
  const int64_t x1_stride0 = call->integers[5];
  const int64_t c_stride0 = call->integers[6];
  for (StaticLoop range0(call, rank, (n + 4095) / 4096); range0.next();) {
    const int64_t jc = range0.task() * 4096;
    const int64_t nc = min_index(n - jc, 4096);
    // MicroKernel c[0 : +m, jc : +nc]
    gemv_columns<float, 1, 4>(nc, k, a, a_stride0, 1, b + jc, b_stride0, c + jc, c_stride0, false, 0);
    store_tile(c + jc, c_stride0, m, nc, 0, 0, c + jc, c_stride0, 1, Epilogue0{x1, x1_stride0});
  }
}
}  // namespace tracea_gemm_stream_turned_ffaef66219d38efa03cf_text
