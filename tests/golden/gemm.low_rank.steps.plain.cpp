// low_rank_512x1024x1024x16_f32_eb73182e5a114fe8 | gemm.low_rank | plain | kc=1024,mc=516,mr=6,nv=4,nv_rank=4,pack_a=1,pack_b=0,pack_x=0,rc=16,steps=4,tail=2,unroll=2
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/gemm.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/step_tile.h"
#include "tracea/team.h"

namespace tracea_gemm_low_rank_cf74e4ecbe48b9d70e20_text {
using namespace tracea;

static_assert(4 == kSteps, "the kernel was built for these steps");
using Tile0 = StepTile<float, 6, 4, 2>;
static_assert(Tile0::columns == 16, "the kernel was built for this vector length");
using Tile1 = GemmTile<float, 6, 4, 2, RowsA, RowsB, GemmPrefetch<0, 0, true, false>>;
static_assert(Tile1::columns == 64, "the kernel was built for this vector length");
extern "C" __attribute__((visibility("default"))) void tracea_gemm_low_rank_cf74e4ecbe48b9d70e20(const tracea_call* call, int32_t rank) {
  const float* const x = static_cast<const float*>(call->pointers[0]);
  const float* const a = static_cast<const float*>(call->pointers[1]);
  const float* const b = static_cast<const float*>(call->pointers[2]);
  float* const c = static_cast<float*>(call->pointers[3]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t x_stride0 = call->integers[2];
  const int64_t r = call->integers[3];
  const int64_t a_stride0 = call->integers[4];
  const int64_t n = call->integers[5];
  const int64_t b_stride0 = call->integers[6];
  const int64_t c_stride0 = call->integers[7];
  float* const a_panels = reinterpret_cast<float*>(thread_scratch(call, rank));
  float* const inner = reinterpret_cast<float*>(thread_scratch(call, rank) + (k + 3) / 4 * ((r + 15) / 16) * 256);
  for (TaskLoop tasks0(call, rank, 0, (m + 515) / 516); tasks0.next();) {
    const int64_t ic = tasks0.task() * 516;
    const int64_t mc = min_index(m - ic, 516);
    // Pack a[0 : +k, 0 : +r] -> a_panels
    pack_steps<float, 16>(a, a_stride0, 1, k, r, (k + 3) / 4 * 4, a_panels);
    for (int64_t ib = 0; ib < mc; ib += 48) {
      const int64_t high = min_index(mc - ib, 48);
      for (int64_t ir = 0; ir < high; ir += 6) {
        const int64_t rows = min_index(high - ir, 6);
        for (int64_t jr = 0; jr < r; jr += 16) {
          const int64_t wide = min_index(r - jr, 16);
          // MicroKernel inner[ir : +rows, jr : +wide]
          Tile0::run<6, 2>(rows, wide, k, x + ib * x_stride0 + ic * x_stride0 + ir * x_stride0, x_stride0, a_panels + (k + 3) / 4 * (jr / 16) * 64, inner + ir * r + jr, r);
        }
      }
      for (int64_t pr = 0; pr < r; pr += 16) {
        const int64_t rc = min_index(r - pr, 16);
        for (int64_t is = 0; is < high; is += 6) {
          const int64_t lines = min_index(high - is, 6);
          for (int64_t jn = 0; jn < n; jn += 64) {
            const int64_t columns = min_index(n - jn, 64);
            // MicroKernel c[(ic + ib) + is : +lines, jn : +columns]
            Tile1::run<6, 2>(lines, columns, rc, inner + is * r + pr, r, b + b_stride0 * pr + jn, b_stride0, c + c_stride0 * ib + c_stride0 * ic + c_stride0 * is + jn, c_stride0, 0 < pr);
          }
        }
      }
    }
  }
}
}  // namespace tracea_gemm_low_rank_cf74e4ecbe48b9d70e20_text
