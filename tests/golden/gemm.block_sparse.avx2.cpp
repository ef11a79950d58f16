// block_sparse_2048x2048x2048x64x8_f32_8312a47b557a3d84 | gemm.block_sparse | avx2 | ahead=1,mc=60,mr=6,nv=2,streaming=0,tail=2,unroll=2
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/gemm.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/step_blocks.h"
#include "tracea/team.h"

namespace tracea_gemm_block_sparse_7c07ce341d6034e2df4e_text {
using namespace tracea;

using Tile0 = GemmTile<float, 6, 2, 2, PanelA<6>, PackedB, GemmPrefetch<1, 0, true, true>>;
static_assert(Tile0::columns == 16, "the kernel was built for this vector length");
extern "C" __attribute__((visibility("default"))) void tracea_gemm_block_sparse_7c07ce341d6034e2df4e(const tracea_call* call, int32_t rank) {
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
  float* const a_panels = reinterpret_cast<float*>(thread_scratch(call, rank));
  float* const b_panels = reinterpret_cast<float*>(call->team_scratch);
  for (TaskLoop tasks0(call, rank, 0, run_first[((k + 63) / 64 + 7) / 8 * ((n + 63) / 64)]); tasks0.next();) {
    const int64_t e = tasks0.task();
    const int64_t block_step = run_step[e];
    const int64_t block_line = run_line[e];
    const int64_t high = min_index(k - block_step * 64, 64);
    const int64_t wide = min_index(n - block_line * 64, 64);
    // Pack b[block_step * 64 : +high, block_line * 64 : +wide] -> b_panels
    pack_b<float, 16>(b + b_stride0 * block_step * 64 + block_line * 64, b_stride0, 1, high, wide, 64, b_panels + e * 4096);
  }
  team_barrier(call, rank);
  for (TaskLoop tasks1(call, rank, 1, (m + 59) / 60); tasks1.next();) {
    const int64_t ic = tasks1.task() * 60;
    const int64_t mc = min_index(m - ic, 60);
    for (int64_t pc = 0; pc < k; pc += 512) {
      const int64_t kc = min_index(k - pc, 512);
      // Pack a[ic : +mc, pc : +kc] -> a_panels
      pack_a<float, 6>(a + a_stride0 * ic + pc, a_stride0, 1, mc, kc, 512, a_panels);
      for (int64_t jg = 0; jg < n; jg += 64) {
        const int64_t ng = min_index(n - jg, 64);
        for (int64_t jr = 0; jr < ng; jr += 16) {
          const int64_t columns = min_index(ng - jr, 16);
          for (int64_t ir = 0; ir < mc; ir += 6) {
            const int64_t rows = min_index(mc - ir, 6);
            // RunProduct c[ic + ir : +rows, jg + jr : +columns]
            Tile0::run_blocks<6, 2>(rows, columns, StepBlocks{run_step + run_first[(n + 63) / 64 * (pc / 512) + jg / 64], run_first[(n + 63) / 64 * (pc / 512) + jg / 64 + 1] - run_first[(n + 63) / 64 * (pc / 512) + jg / 64], 64, k, pc / 512 * 512}, a_panels + ir / 6 * 3072, 6, b_panels + jr / 16 * 1024 + run_first[(n + 63) / 64 * (pc / 512) + jg / 64] * 4096, 4096, c + c_stride0 * ic + c_stride0 * ir + jg + jr, c_stride0, 0 < pc, upcoming_blocks<Tile0>(run_first, (n + 63) / 64 * (pc / 512) + jg / 64, ((k + 63) / 64 + 7) / 8 * ((n + 63) / 64), jr / 16, 4, 64, b_panels, 4096, ir / 6, 10, 3072));
          }
        }
      }
    }
  }
}
}  // namespace tracea_gemm_block_sparse_7c07ce341d6034e2df4e_text
