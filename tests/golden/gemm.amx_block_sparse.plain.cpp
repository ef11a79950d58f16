// block_sparse_2048x2048x2048x64x8_f32_8312a47b557a3d84 | gemm.amx_block_sparse | plain | mc=32
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/gemm_amx.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/pack_terms.h"
#include "tracea/sparse_amx.h"
#include "tracea/step_blocks.h"
#include "tracea/team.h"

namespace tracea_gemm_amx_block_sparse_0397a15f1423b3dbf313_text {
using namespace tracea;

static_assert(32 == kGranule && 32 == kGranule, "the kernel was built for these granules");
extern "C" __attribute__((visibility("default"))) void tracea_gemm_amx_block_sparse_0397a15f1423b3dbf313(const tracea_call* call, int32_t rank) {
  const float* const a = static_cast<const float*>(call->pointers[0]);
  const float* const b = static_cast<const float*>(call->pointers[1]);
  const int32_t* const run_first = static_cast<const int32_t*>(call->pointers[2]);
  const int32_t* const run_line = static_cast<const int32_t*>(call->pointers[3]);
  const int32_t* const run_step = static_cast<const int32_t*>(call->pointers[4]);
  float* const c = static_cast<float*>(call->pointers[5]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t b_stride0 = call->integers[4];
  const int64_t c_stride0 = call->integers[5];
  bf16* const a_panels = reinterpret_cast<bf16*>(thread_scratch(call, rank));
  bf16* const b_panels = reinterpret_cast<bf16*>(call->team_scratch);
  for (TaskLoop tasks0(call, rank, 0, run_first[((k + 63) / 64 + 7) / 8 * ((n + 63) / 64)]); tasks0.next();) {
    const int64_t e = tasks0.task();
    const int64_t block_step = run_step[e];
    const int64_t block_line = run_line[e];
    const int64_t high = min_index(k - block_step * 64, 64);
    const int64_t wide = min_index(n - block_line * 64, 64);
    // Pack b[block_step * 64 : +high, block_line * 64 : +wide] -> b_panels
    pack_b_terms<3>(b + b_stride0 * block_step * 64 + block_line * 64, b_stride0, 1, high, wide, 64, b_panels + e * 12288);
  }
  team_barrier(call, rank);
  for (TaskLoop tasks1(call, rank, 1, (m + 31) / 32); tasks1.next();) {
    const int64_t ic = tasks1.task() * 32;
    const int64_t mc = min_index(m - ic, 32);
    for (int64_t pc = 0; pc < k; pc += 512) {
      const int64_t kc = min_index(k - pc, 512);
      // Pack a[ic : +mc, pc : +kc] -> a_panels
      pack_a_terms<3>(a + a_stride0 * ic + pc, a_stride0, 1, mc, kc, 512, a_panels);
      // RunProduct c[ic : +mc, 0 : +n]
      {
        const auto sink = amx_sink(c + c_stride0 * ic, c_stride0, 0 < pc, false, c + c_stride0 * ic, c_stride0, 1, IdentityEpilogue{});
        const StepLines lines = {run_first + (n + 63) / 64 * (pc / 512), run_step, (n + 63) / 64, 64, k, pc / 512 * 512};
        amx_lines<3>(mc, n, lines, a_panels, 49152, b_panels, 6144, 12288, sink);
      }
    }
  }
}
}  // namespace tracea_gemm_amx_block_sparse_0397a15f1423b3dbf313_text
