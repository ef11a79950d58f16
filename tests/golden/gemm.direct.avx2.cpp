// gemm_16x4096x4096_f32_97f1c1eadad930e7 | gemm.direct | avx2 | kc=256,mc=16,mr=4,nc=4104,nv=3,prefetch_b=8,split=columns,tail=0,unroll=2
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/gemm.h"
#include "tracea/index.h"
#include "tracea/team.h"

namespace tracea_gemm_direct_2a62395a849ef9c399e8_text {
using namespace tracea;

using Tile0 = GemmTile<float, 4, 3, 2, RowsA, RowsB, GemmPrefetch<0, 8, true, false>>;
static_assert(Tile0::columns == 24, "the kernel was built for this vector length");
extern "C" __attribute__((visibility("default"))) void tracea_gemm_direct_2a62395a849ef9c399e8(const tracea_call* call, int32_t rank) {
  const float* const a = static_cast<const float*>(call->pointers[0]);
  const float* const b = static_cast<const float*>(call->pointers[1]);
  float* const c = static_cast<float*>(call->pointers[2]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t b_stride0 = call->integers[4];
  const int64_t c_stride0 = call->integers[5];
  for (TaskLoop tasks0(call, rank, 0, (n + 4103) / 4104); tasks0.next();) {
    const int64_t jc = tasks0.task() * 4104;
    const int64_t nc = min_index(n - jc, 4104);
    for (int64_t pc = 0; pc < k; pc += 256) {
      const int64_t kc = min_index(k - pc, 256);
      for (int64_t jr = 0; jr < nc; jr += 24) {
        const int64_t columns = min_index(nc - jr, 24);
        for (int64_t ir = 0; ir < m; ir += 4) {
          const int64_t rows = min_index(m - ir, 4);
          // MicroKernel c[ir : +rows, jc + jr : +columns]
          Tile0::run<4>(rows, columns, kc, a + a_stride0 * ir + pc, a_stride0, b + b_stride0 * pc + jc + jr, b_stride0, c + c_stride0 * ir + jc + jr, c_stride0, 0 < pc);
        }
      }
    }
  }
}
}  // namespace tracea_gemm_direct_2a62395a849ef9c399e8_text
