// gemm_1024x3072x768_f32_add32547f4ef895b | gemm.amx | plain | kc=768,mc=32,nc=3072,split=rows,sweep=8
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

namespace tracea_gemm_amx_c2956f91e5cfb89ed426_text {
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

extern "C" __attribute__((visibility("default"))) void tracea_gemm_amx_c2956f91e5cfb89ed426(const tracea_call* call, int32_t rank) {
  const float* const a = static_cast<const float*>(call->pointers[0]);
  const float* const b = static_cast<const float*>(call->pointers[1]);
  const float* const x1 = static_cast<const float*>(call->pointers[2]);
  const float* const x2 = static_cast<const float*>(call->pointers[3]);
  float* const c = static_cast<float*>(call->pointers[4]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t b_stride0 = call->integers[4];
  const int64_t x2_stride0 = call->integers[5];
  const int64_t c_stride0 = call->integers[6];
  bf16* const b_panels = reinterpret_cast<bf16*>(call->team_scratch);
  bf16* const a_panels = reinterpret_cast<bf16*>(thread_scratch(call, rank));
  for (int64_t jc = 0; jc < n; jc += 3072) {
    const int64_t nc = min_index(n - jc, 3072);
    for (int64_t pc = 0; pc < k; pc += 768) {
      const int64_t kc = min_index(k - pc, 768);
      for (TaskLoop tasks0(call, rank, 0, (nc + 255) / 256); tasks0.next();) {
        const int64_t jp = tasks0.task() * 256;
        const int64_t pw = min_index(nc - jp, 256);
        // Pack b[pc : +kc, jc + jp : +pw] -> b_panels
        pack_b_terms<3>(b + b_stride0 * pc + jc + jp, b_stride0, 1, kc, pw, 768, b_panels + jp / 32 * 73728);
      }
      team_barrier(call, rank);
      for (TaskLoop tasks1(call, rank, 1, (m + 31) / 32); tasks1.next();) {
        const int64_t ic = tasks1.task() * 32;
        const int64_t mc = min_index(m - ic, 32);
        // Pack a[ic : +mc, pc : +kc] -> a_panels
        pack_a_terms<3>(a + a_stride0 * ic + pc, a_stride0, 1, mc, kc, 768, a_panels);
        // MicroKernel c[ic : +mc, jc : +nc]
        {
          const auto sink = amx_sink(c + c_stride0 * ic + jc, c_stride0, 0 < pc, k <= pc + kc, c + c_stride0 * ic + jc, c_stride0, 1, Epilogue0{x1 + jc, x2 + ic * x2_stride0 + jc, x2_stride0});
          amx_block<3>(mc, nc, kc, a_panels, 73728, b_panels, 73728, sink);
        }
      }
      team_barrier(call, rank);
    }
  }
}
}  // namespace tracea_gemm_amx_c2956f91e5cfb89ed426_text
