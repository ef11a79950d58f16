// gemm_512x3072x768_f32_97e717988d5338d9 | gemm.packed | avx512 | kc=768,mc=104,mr=8,nc=1536,nv=3,prefetch_a=0,prefetch_b=0,split=rows,sweep=8,tail=0,unroll=2,upcoming=1
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

namespace tracea_gemm_packed_38cb5c95a51db6ff6c95_text {
using namespace tracea;

using Tile0 = GemmTile<float, 8, 3, 2, PanelA<8>, PackedB, GemmPrefetch<0, 0, true, true, false, true>>;
static_assert(Tile0::columns == 48, "the kernel was built for this vector length");
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

extern "C" __attribute__((visibility("default"))) void tracea_gemm_packed_38cb5c95a51db6ff6c95(const tracea_call* call, int32_t rank) {
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
  for (int64_t jc = 0; jc < n; jc += 1536) {
    const int64_t nc = min_index(n - jc, 1536);
    for (int64_t pc = 0; pc < k; pc += 768) {
      const int64_t kc = min_index(k - pc, 768);
      for (TaskLoop tasks0(call, rank, 0, (nc + 383) / 384); tasks0.next();) {
        const int64_t jp = tasks0.task() * 384;
        const int64_t pw = min_index(nc - jp, 384);
        // Pack b[pc : +kc, jc + jp : +pw] -> b_panels
        pack_b<float, 48>(b + b_stride0 * pc + jc + jp, b_stride0, 1, kc, pw, 768, b_panels + jp / 48 * 36864);
      }
      team_barrier(call, rank);
      for (TaskLoop tasks1(call, rank, 1, (m + 103) / 104); tasks1.next();) {
        const int64_t ic = tasks1.task() * 104;
        const int64_t mc = min_index(m - ic, 104);
        // Pack a[ic : +mc, pc : +kc] -> a_panels
        pack_a<float, 8>(a + a_stride0 * ic + pc, a_stride0, 1, mc, kc, 768, a_panels);
        for (int64_t jr = 0; jr < nc; jr += 48) {
          const int64_t columns = min_index(nc - jr, 48);
          for (int64_t ir = 0; ir < mc; ir += 8) {
            const int64_t rows = min_index(mc - ir, 8);
            // MicroKernel c[ic + ir : +rows, jc + jr : +columns]
            Tile0::run<8>(rows, columns, kc, a_panels + ir / 8 * 6144, 8, b_panels + jr / 48 * 36864, 48, c + c_stride0 * ic + c_stride0 * ir + jc + jr, c_stride0, 0 < pc, {b_panels + jr / 48 * 36864 + ir / 8 * 2848 + 36864, 178, 0, k <= pc + kc ? x2 + ic * x2_stride0 + ir * x2_stride0 + jc + jr : c + c_stride0 * ic + c_stride0 * ir + jc + jr, k <= pc + kc ? x2_stride0 : c_stride0});
            if (k <= pc + kc) store_tile(c + c_stride0 * ic + c_stride0 * ir + jc + jr, c_stride0, rows, columns, 0, 0, c + c_stride0 * ic + c_stride0 * ir + jc + jr, c_stride0, 1, Epilogue0{x1 + jc + jr, x2 + ic * x2_stride0 + ir * x2_stride0 + jc + jr, x2_stride0});
          }
        }
      }
      team_barrier(call, rank);
    }
  }
}
}  // namespace tracea_gemm_packed_38cb5c95a51db6ff6c95_text
