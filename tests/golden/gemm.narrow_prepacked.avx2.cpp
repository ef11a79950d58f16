// gemm_512x64x768_f32_fe196527b5228a22 | gemm.narrow_prepacked | avx2 | kc=768,mc=512,mr=4,nc=64,nv=2,prefetch_a=0,prefetch_b=0,split=rows,sweep=1,tail=0,unroll=2,upcoming=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/gemm.h"
#include "tracea/index.h"
#include "tracea/team.h"

namespace tracea_gemm_narrow_prepacked_d0b278edb0d11f7bf4a8_text {
using namespace tracea;

using Tile0 = GemmTile<float, 4, 2, 2, RowsA, PackedB, GemmPrefetch<0, 0, true, false>>;
static_assert(Tile0::columns == 16, "the kernel was built for this vector length");
extern "C" __attribute__((visibility("default"))) void tracea_gemm_narrow_prepacked_d0b278edb0d11f7bf4a8(const tracea_call* call, int32_t rank) {
  const float* const a = static_cast<const float*>(call->pointers[0]);
  const float* const b = static_cast<const float*>(call->pointers[1]);
  float* const c = static_cast<float*>(call->pointers[2]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t c_stride0 = call->integers[4];
  for (TaskLoop tasks0(call, rank, 0, (m + 511) / 512); tasks0.next();) {
    const int64_t ic = tasks0.task() * 512;
    const int64_t mc = min_index(m - ic, 512);
    for (int64_t pc = 0; pc < k; pc += 768) {
      const int64_t kc = min_index(k - pc, 768);
      for (int64_t jr = 0; jr < n; jr += 16) {
        const int64_t columns = min_index(n - jr, 16);
        for (int64_t ir = 0; ir < mc; ir += 4) {
          const int64_t rows = min_index(mc - ir, 4);
          // MicroKernel c[ic + ir : +rows, jr : +columns]
          Tile0::run<4>(rows, columns, kc, a + a_stride0 * ic + a_stride0 * ir + pc, a_stride0, b + jr / 16 * k * 16 + pc * 16, 16, c + c_stride0 * ic + c_stride0 * ir + jr, c_stride0, 0 < pc);
        }
      }
    }
  }
}
}  // namespace tracea_gemm_narrow_prepacked_d0b278edb0d11f7bf4a8_text
