// low_rank_512x1024x1024x32_f32_084209e0cadc3df7 | gemm.low_rank | neon | kc=1024,mc=48,mr=6,nv=4,nv_rank=4,pack_a=0,pack_b=0,pack_x=0,rc=32,steps=1,tail=2,unroll=2
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/gemm.h"
#include "tracea/gemm_store.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_gemm_low_rank_94f67feb9f923aa485c3_text {
using namespace tracea;

using Tile0 = GemmTile<float, 6, 4, 2, RowsA, RowsB, GemmPrefetch<0, 0, true, false>>;
static_assert(Tile0::columns == 16, "the kernel was built for this vector length");
struct Epilogue0 {
  const float* x1;
  template <class V>
  TRACEA_INLINE V operator()(V x0, [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v1 = load_partial<V>(x1 + col, lanes);
    const auto t0 = add(x0, v1);
    const auto t1 = gelu(t0);
    return t1;
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_gemm_low_rank_94f67feb9f923aa485c3(const tracea_call* call, int32_t rank) {
  const float* const x = static_cast<const float*>(call->pointers[0]);
  const float* const a = static_cast<const float*>(call->pointers[1]);
  const float* const b = static_cast<const float*>(call->pointers[2]);
  const float* const x1 = static_cast<const float*>(call->pointers[3]);
  float* const c = static_cast<float*>(call->pointers[4]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t x_stride0 = call->integers[2];
  const int64_t r = call->integers[3];
  const int64_t a_stride0 = call->integers[4];
  const int64_t n = call->integers[5];
  const int64_t b_stride0 = call->integers[6];
  const int64_t c_stride0 = call->integers[7];
  float* const inner = reinterpret_cast<float*>(thread_scratch(call, rank));
  for (TaskLoop tasks0(call, rank, 0, (m + 47) / 48); tasks0.next();) {
    const int64_t ic = tasks0.task() * 48;
    const int64_t mc = min_index(m - ic, 48);
    for (int64_t pc = 0; pc < k; pc += 1024) {
      const int64_t kc = min_index(k - pc, 1024);
      for (int64_t jr = 0; jr < r; jr += 16) {
        const int64_t wide = min_index(r - jr, 16);
        for (int64_t ir = 0; ir < mc; ir += 6) {
          const int64_t rows = min_index(mc - ir, 6);
          // MicroKernel inner[ir : +rows, jr : +wide]
          Tile0::run<6, 2>(rows, wide, kc, x + ic * x_stride0 + ir * x_stride0 + pc, x_stride0, a + a_stride0 * pc + jr, a_stride0, inner + ir * r + jr, r, 0 < pc);
        }
      }
    }
    for (int64_t pr = 0; pr < r; pr += 32) {
      const int64_t rc = min_index(r - pr, 32);
      for (int64_t is = 0; is < mc; is += 6) {
        const int64_t lines = min_index(mc - is, 6);
        for (int64_t jn = 0; jn < n; jn += 16) {
          const int64_t columns = min_index(n - jn, 16);
          // MicroKernel c[ic + is : +lines, jn : +columns]
          Tile0::run<6, 2>(lines, columns, rc, inner + is * r + pr, r, b + b_stride0 * pr + jn, b_stride0, c + c_stride0 * ic + c_stride0 * is + jn, c_stride0, 0 < pr);
          if (r <= pr + rc) store_tile(c + c_stride0 * ic + c_stride0 * is + jn, c_stride0, lines, columns, 0, 0, c + c_stride0 * ic + c_stride0 * is + jn, c_stride0, 1, Epilogue0{x1 + jn});
        }
      }
    }
  }
}
}  // namespace tracea_gemm_low_rank_94f67feb9f923aa485c3_text
