// gemm_128x3072x768_f32_8f473adfed1f59de | gemm.packed | neon | kc=192,mc=132,mr=6,nc=3072,nv=4,prefetch_a=0,prefetch_b=0,split=columns,sweep=1,tail=2,unroll=2,upcoming=1
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

namespace tracea_gemm_packed_2806ea8040e429b4cf15_text {
using namespace tracea;

using Tile0 = GemmTile<float, 6, 4, 2, PanelA<6>, PackedB, GemmPrefetch<0, 0, true, true, true, true>>;
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

extern "C" __attribute__((visibility("default"))) void tracea_gemm_packed_2806ea8040e429b4cf15(const tracea_call* call, int32_t rank) {
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
  float* const b_panels = reinterpret_cast<float*>(thread_scratch(call, rank));
  float* const a_panels = reinterpret_cast<float*>(thread_scratch(call, rank) + 12288);
  for (TaskLoop tasks0(call, rank, 0, (n + 3071) / 3072); tasks0.next();) {
    const int64_t jc = tasks0.task() * 3072;
    const int64_t nc = min_index(n - jc, 3072);
    for (int64_t pc = 0; pc < k; pc += 192) {
      const int64_t kc = min_index(k - pc, 192);
      // Pack a[0 : +m, pc : +kc] -> a_panels
      pack_a<float, 6>(a + pc, a_stride0, 1, m, kc, 192, a_panels);
      for (int64_t jp = 0; jp < nc; jp += 16) {
        const int64_t pw = min_index(nc - jp, 16);
        // Pack b[pc : +kc, jc + jp : +pw] -> b_panels
        pack_b<float, 16>(b + b_stride0 * pc + jc + jp, b_stride0, 1, kc, pw, 192, b_panels);
        for (int64_t jr = 0; jr < pw; jr += 16) {
          const int64_t columns = min_index(pw - jr, 16);
          for (int64_t ir = 0; ir < m; ir += 6) {
            const int64_t rows = min_index(m - ir, 6);
            // MicroKernel c[ir : +rows, (jc + jp) + jr : +columns]
            Tile0::run<6, 2>(rows, columns, kc, a_panels + ir / 6 * 1152, 6, b_panels + jr / 16 * 3072, 16, c + c_stride0 * ir + jc + jp + jr, c_stride0, 0 < pc, {b + ir / 6 * b_stride0 * 9 + b_stride0 * pc + jc + jp + jr + 16, 9, b_stride0, k <= pc + kc ? x2 + ir * x2_stride0 + jc + jp + jr : c + c_stride0 * ir + jc + jp + jr, k <= pc + kc ? x2_stride0 : c_stride0});
            if (k <= pc + kc) store_tile(c + c_stride0 * ir + jc + jp + jr, c_stride0, rows, columns, 0, 0, c + c_stride0 * ir + jc + jp + jr, c_stride0, 1, Epilogue0{x1 + jc + jp + jr, x2 + ir * x2_stride0 + jc + jp + jr, x2_stride0});
          }
        }
      }
    }
  }
}
}  // namespace tracea_gemm_packed_2806ea8040e429b4cf15_text
