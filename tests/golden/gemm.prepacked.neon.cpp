// gemm_128x3072x768_f32_8f473adfed1f59de | gemm.prepacked | neon | kc=384,mc=132,mr=6,nc=3072,nv=4,prefetch_a=0,prefetch_b=0,split=columns,sweep=1,tail=2,unroll=2,upcoming=1
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

namespace tracea_gemm_prepacked_22d5dcddc97ec02e5a78_text {
using namespace tracea;

using Tile0 = GemmTile<float, 6, 4, 2, PanelA<6>, PackedB, GemmPrefetch<0, 0, true, true, false, true>>;
static_assert(Tile0::columns == 16, "the kernel was built for this vector length");
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

extern "C" __attribute__((visibility("default"))) void tracea_gemm_prepacked_22d5dcddc97ec02e5a78(const tracea_call* call, int32_t rank) {
  const float* const a = static_cast<const float*>(call->pointers[0]);
  const float* const b = static_cast<const float*>(call->pointers[1]);
  const float* const x1 = static_cast<const float*>(call->pointers[2]);
  const float* const x2 = static_cast<const float*>(call->pointers[3]);
  float* const c = static_cast<float*>(call->pointers[4]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t x2_stride0 = call->integers[4];
  const int64_t c_stride0 = call->integers[5];
  float* const a_panels = reinterpret_cast<float*>(thread_scratch(call, rank));
  for (TaskLoop tasks0(call, rank, 0, (n + 3071) / 3072); tasks0.next();) {
    const int64_t jc = tasks0.task() * 3072;
    const int64_t nc = min_index(n - jc, 3072);
    for (int64_t pc = 0; pc < k; pc += 384) {
      const int64_t kc = min_index(k - pc, 384);
      // Pack a[0 : +m, pc : +kc] -> a_panels
      pack_a<float, 6>(a + pc, a_stride0, 1, m, kc, 384, a_panels);
      for (int64_t jr = 0; jr < nc; jr += 16) {
        const int64_t columns = min_index(nc - jr, 16);
        for (int64_t ir = 0; ir < m; ir += 6) {
          const int64_t rows = min_index(m - ir, 6);
          // MicroKernel c[ir : +rows, jc + jr : +columns]
          Tile0::run<6, 2>(rows, columns, kc, a_panels + ir / 6 * 2304, 6, b + jc / 16 * k * 16 + jr / 16 * k * 16 + pc * 16, 16, c + c_stride0 * ir + jc + jr, c_stride0, 0 < pc, {b + jc / 16 * k * 16 + jr / 16 * k * 16 + pc * 16 + ir / 6 * 288 + k * 16, 18, 0, k <= pc + kc ? x2 + ir * x2_stride0 + jc + jr : c + c_stride0 * ir + jc + jr, k <= pc + kc ? x2_stride0 : c_stride0});
          if (k <= pc + kc) store_tile(c + c_stride0 * ir + jc + jr, c_stride0, rows, columns, 0, 0, c + c_stride0 * ir + jc + jr, c_stride0, 1, Epilogue0{x1 + jc + jr, x2 + ir * x2_stride0 + jc + jr, x2_stride0});
        }
      }
    }
  }
}
}  // namespace tracea_gemm_prepacked_22d5dcddc97ec02e5a78_text
