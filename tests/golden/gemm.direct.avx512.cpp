// gemm_16x4096x4096_f32_97f1c1eadad930e7 | gemm.direct | avx512 | kc=128,mc=18,mr=6,nc=4096,nv=4,prefetch_b=8,split=columns,tail=4,unroll=2
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/gemm.h"
#include "tracea/index.h"
#include "tracea/team.h"

namespace tracea_gemm_direct_d5c4702a2a2ff0b17e08_text {
using namespace tracea;

using Tile0 = GemmTile<float, 6, 4, 2, RowsA, RowsB, GemmPrefetch<0, 8, true, false>>;
static_assert(Tile0::columns == 64, "the kernel was built for this vector length");
extern "C" __attribute__((visibility("default"))) void tracea_gemm_direct_d5c4702a2a2ff0b17e08(const tracea_call* call, int32_t rank) {
  const float* const a = static_cast<const float*>(call->pointers[0]);
  const float* const b = static_cast<const float*>(call->pointers[1]);
  float* const c = static_cast<float*>(call->pointers[2]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t b_stride0 = call->integers[4];
  const int64_t c_stride0 = call->integers[5];
  for (TaskLoop tasks0(call, rank, 0, (n + 4095) / 4096); tasks0.next();) {
    const int64_t jc = tasks0.task() * 4096;
    const int64_t nc = min_index(n - jc, 4096);
    for (int64_t pc = 0; pc < k; pc += 128) {
      const int64_t kc = min_index(k - pc, 128);
      for (int64_t jr = 0; jr < nc; jr += 64) {
        const int64_t columns = min_index(nc - jr, 64);
        for (int64_t ir = 0; ir < m; ir += 6) {
          const int64_t rows = min_index(m - ir, 6);
          // MicroKernel c[ir : +rows, jc + jr : +columns]
          Tile0::run<6, 4>(rows, columns, kc, a + a_stride0 * ir + pc, a_stride0, b + b_stride0 * pc + jc + jr, b_stride0, c + c_stride0 * ir + jc + jr, c_stride0, 0 < pc);
        }
      }
    }
  }
}
}  // namespace tracea_gemm_direct_d5c4702a2a2ff0b17e08_text
