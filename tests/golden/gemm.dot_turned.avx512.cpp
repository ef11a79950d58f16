// gemm_2000x10x512_f32_99cbf525f61559fe | gemm.dot_turned | avx512 | columns=6,mc=10,nc=2004,prefetch=128,rows=4,split=columns
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/dot.h"
#include "tracea/gemm_store.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_gemm_dot_turned_6bd8d99575a129cd2408_text {
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

extern "C" __attribute__((visibility("default"))) void tracea_gemm_dot_turned_6bd8d99575a129cd2408(const tracea_call* call, int32_t rank) {
  const float* const b = static_cast<const float*>(call->pointers[0]);
  const float* const a = static_cast<const float*>(call->pointers[1]);
  const float* const x1 = static_cast<const float*>(call->pointers[2]);
  float* const c = static_cast<float*>(call->pointers[3]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t b_stride1 = call->integers[4];
  const int64_t x1_stride0 = call->integers[5];
  const int64_t c_stride1 = call->integers[6];
  float* const sums = reinterpret_cast<float*>(thread_scratch(call, rank));
  for (TaskLoop tasks0(call, rank, 0, (n + 2003) / 2004); tasks0.next();) {
    const int64_t jc = tasks0.task() * 2004;
    const int64_t nc = min_index(n - jc, 2004);
    // MicroKernel sums[0 : +m, 0 : +nc]
    dot_block<float, 4, 6>(m, nc, k, a, a_stride0, b + b_stride1 * jc, b_stride1, sums, 2004, false, 128);
    store_tile(sums, 2004, m, nc, 0, 0, c + c_stride1 * jc, 1, c_stride1, Epilogue0{x1, x1_stride0});
  }
}
}  // namespace tracea_gemm_dot_turned_6bd8d99575a129cd2408_text
