// gemm_128x3072x768_f32_8f473adfed1f59de | gemm.amx_prepacked | plain | kc=384,mc=128,nc=3072,split=columns,sweep=8
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/gemm_amx.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/pack.h"
#include "tracea/pack_terms.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_gemm_amx_prepacked_eeba513fea17ce898055_text {
using namespace tracea;

static_assert(32 == kGranule && 32 == kGranule, "the kernel was built for these granules");
struct Epilogue0 {
  const float* x1;
  const float* x2;
  int64_t x2_row;
  template <class V>
  TRACEA_INLINE V operator()(V x0, [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v1 = load_partial<V>(x1 + col, lanes);
    const V v2 = load_partial<V>(x2 + row * x2_row + col, lanes);
    const auto t0 = add(x0, v1);
    const auto t1 = gelu(t0);
    const auto t2 = add(t1, v2);
    return t2;
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    prefetch_l2(x2 + row * x2_row + col);
    prefetch_l2(x2 + row * x2_row + col + 31);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_gemm_amx_prepacked_eeba513fea17ce898055(const tracea_call* call, int32_t rank) {
  const float* const a = static_cast<const float*>(call->pointers[0]);
  const bf16* const b = static_cast<const bf16*>(call->pointers[1]);
  const float* const x1 = static_cast<const float*>(call->pointers[2]);
  const float* const x2 = static_cast<const float*>(call->pointers[3]);
  float* const c = static_cast<float*>(call->pointers[4]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t x2_stride0 = call->integers[4];
  const int64_t c_stride0 = call->integers[5];
  bf16* const a_panels = reinterpret_cast<bf16*>(thread_scratch(call, rank));
  for (TaskLoop tasks0(call, rank, 0, (n + 3071) / 3072); tasks0.next();) {
    const int64_t jc = tasks0.task() * 3072;
    const int64_t nc = min_index(n - jc, 3072);
    for (int64_t pc = 0; pc < k; pc += 384) {
      const int64_t kc = min_index(k - pc, 384);
      // Pack a[0 : +m, pc : +kc] -> a_panels
      pack_a_terms<3>(a + pc, a_stride0, 1, m, kc, 384, a_panels);
      // MicroKernel c[0 : +m, jc : +nc]
      {
        const auto sink = amx_sink(c + jc, c_stride0, 0 < pc, k <= pc + kc, c + jc, c_stride0, 1, Epilogue0{x1 + jc, x2 + jc, x2_stride0});
        amx_block<3>(m, nc, kc, a_panels, 36864, b + (k + 31) / 32 * (jc / 32) * 3072 + pc * 96, (k + 31) / 32 * 3072, sink);
      }
    }
  }
}
}  // namespace tracea_gemm_amx_prepacked_eeba513fea17ce898055_text
