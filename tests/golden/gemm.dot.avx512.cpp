// gemm_1x4096x4096_bf16_d3de81232ac58ac3 | gemm.dot | avx512 | columns=8,mc=1,nc=4096,prefetch=256,rows=1,split=columns
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/dot.h"
#include "tracea/gemm_store.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_gemm_dot_1250d4a964f525a8256b_text {
using namespace tracea;

struct Epilogue0 {
  const bf16* x1;
  int64_t x1_row;
  template <class V>
  TRACEA_INLINE V operator()(V x0, [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v1 = load_partial<V>(x1 + row * x1_row + col, lanes);
    const auto t0 = add(x0, v1);
    return t0;
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_gemm_dot_1250d4a964f525a8256b(const tracea_call* call, int32_t rank) {
  const bf16* const a = static_cast<const bf16*>(call->pointers[0]);
  const bf16* const b = static_cast<const bf16*>(call->pointers[1]);
  const bf16* const x1 = static_cast<const bf16*>(call->pointers[2]);
  bf16* const c = static_cast<bf16*>(call->pointers[3]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t b_stride1 = call->integers[4];
  const int64_t x1_stride0 = call->integers[5];
  const int64_t c_stride0 = call->integers[6];
  float* const sums = reinterpret_cast<float*>(thread_scratch(call, rank));
  for (TaskLoop tasks0(call, rank, 0, (n + 4095) / 4096); tasks0.next();) {
    const int64_t jc = tasks0.task() * 4096;
    const int64_t nc = min_index(n - jc, 4096);
    // MicroKernel sums[0 : +m, 0 : +nc]
    dot_block<float, 1, 8>(m, nc, k, a, a_stride0, b + b_stride1 * jc, b_stride1, sums, 4096, false, 256);
    store_tile(sums, 4096, m, nc, 0, 0, c + jc, c_stride0, 1, Epilogue0{x1 + jc, x1_stride0});
  }
}
}  // namespace tracea_gemm_dot_1250d4a964f525a8256b_text
