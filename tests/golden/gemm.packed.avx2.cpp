// gemm_512x3072x768_f32_97e717988d5338d9 | gemm.packed | avx2 | kc=384,mc=52,mr=4,nc=1032,nv=3,prefetch_a=0,prefetch_b=0,split=rows,sweep=8,tail=0,unroll=2,upcoming=1
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/gemm.h"
#include "tracea/gemm_store.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/pack.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_gemm_packed_50d6e7fb0e803f7c6b11_text {
using namespace tracea;

using Tile0 = GemmTile<float, 4, 3, 2, PanelA<4>, PackedB, GemmPrefetch<0, 0, true, true, false, true>>;
static_assert(Tile0::columns == 24, "the kernel was built for this vector length");
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
};

extern "C" __attribute__((visibility("default"))) void tracea_gemm_packed_50d6e7fb0e803f7c6b11(const tracea_call* call, int32_t rank) {
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
  float* const b_panels = reinterpret_cast<float*>(call->team_scratch);
  float* const a_panels = reinterpret_cast<float*>(thread_scratch(call, rank));
  for (int64_t jc = 0; jc < n; jc += 1032) {
    const int64_t nc = min_index(n - jc, 1032);
    for (int64_t pc = 0; pc < k; pc += 384) {
      const int64_t kc = min_index(k - pc, 384);
      for (TaskLoop tasks0(call, rank, 0, (nc + 191) / 192); tasks0.next();) {
        const int64_t jp = tasks0.task() * 192;
        const int64_t pw = min_index(nc - jp, 192);
        // Pack b[pc : +kc, jc + jp : +pw] -> b_panels
        pack_b<float, 24>(b + b_stride0 * pc + jc + jp, b_stride0, 1, kc, pw, 384, b_panels + jp / 24 * 9216);
      }
      team_barrier(call, rank);
      for (TaskLoop tasks1(call, rank, 1, (m + 51) / 52); tasks1.next();) {
        const int64_t ic = tasks1.task() * 52;
        const int64_t mc = min_index(m - ic, 52);
        // Pack a[ic : +mc, pc : +kc] -> a_panels
        pack_a<float, 4>(a + a_stride0 * ic + pc, a_stride0, 1, mc, kc, 384, a_panels);
        for (int64_t jr = 0; jr < nc; jr += 24) {
          const int64_t columns = min_index(nc - jr, 24);
          for (int64_t ir = 0; ir < mc; ir += 4) {
            const int64_t rows = min_index(mc - ir, 4);
            // MicroKernel c[ic + ir : +rows, jc + jr : +columns]
            Tile0::run<4>(rows, columns, kc, a_panels + ir / 4 * 1536, 4, b_panels + jr / 24 * 9216, 24, c + c_stride0 * ic + c_stride0 * ir + jc + jr, c_stride0, 0 < pc, {b_panels + jr / 24 * 9216 + ir / 4 * 720 + 9216, 45, 0, k <= pc + kc ? x2 + ic * x2_stride0 + ir * x2_stride0 + jc + jr : c + c_stride0 * ic + c_stride0 * ir + jc + jr, k <= pc + kc ? x2_stride0 : c_stride0});
            if (k <= pc + kc) store_tile(c + c_stride0 * ic + c_stride0 * ir + jc + jr, c_stride0, rows, columns, 0, 0, c + c_stride0 * ic + c_stride0 * ir + jc + jr, c_stride0, 1, Epilogue0{x1 + jc + jr, x2 + ic * x2_stride0 + ir * x2_stride0 + jc + jr, x2_stride0});
          }
        }
      }
      team_barrier(call, rank);
    }
  }
}
}  // namespace tracea_gemm_packed_50d6e7fb0e803f7c6b11_text
