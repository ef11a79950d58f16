// gemm_512x64x768_f32_085889efbdc85f24 | gemm.narrow | avx512 | kc=768,mc=516,mr=6,nc=64,nv=4,prefetch_a=0,prefetch_b=0,split=rows,sweep=1,tail=2,unroll=2,upcoming=0
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

namespace tracea_gemm_narrow_5091a04a223fb5b3de2c_text {
using namespace tracea;

using Tile0 = GemmTile<float, 6, 4, 2, RowsA, PackedB, GemmPrefetch<0, 0, true, false>>;
static_assert(Tile0::columns == 64, "the kernel was built for this vector length");
struct Epilogue0 {
  const float* x1;
  template <class V>
  TRACEA_INLINE V operator()(V x0, [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v1 = load_partial<V>(x1 + col, lanes);
    const auto t0 = add(x0, v1);
    return t0;
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_gemm_narrow_5091a04a223fb5b3de2c(const tracea_call* call, int32_t rank) {
  const float* const a = static_cast<const float*>(call->pointers[0]);
  const float* const b = static_cast<const float*>(call->pointers[1]);
  const float* const x1 = static_cast<const float*>(call->pointers[2]);
  float* const c = static_cast<float*>(call->pointers[3]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t b_stride1 = call->integers[4];
  const int64_t c_stride0 = call->integers[5];
  float* const b_panels = reinterpret_cast<float*>(call->team_scratch);
  for (TaskLoop tasks0(call, rank, 0, (k + 767) / 768); tasks0.next();) {
    const int64_t pk = tasks0.task() * 768;
    const int64_t depth = min_index(k - pk, 768);
    // Pack b[pk : +depth, 0 : +n] -> b_panels
    pack_b<float, 64>(b + pk, 1, b_stride1, depth, n, k, b_panels + pk * 64);
  }
  team_barrier(call, rank);
  for (TaskLoop tasks1(call, rank, 1, (m + 515) / 516); tasks1.next();) {
    const int64_t ic = tasks1.task() * 516;
    const int64_t mc = min_index(m - ic, 516);
    for (int64_t pc = 0; pc < k; pc += 768) {
      const int64_t kc = min_index(k - pc, 768);
      for (int64_t jr = 0; jr < n; jr += 64) {
        const int64_t columns = min_index(n - jr, 64);
        for (int64_t ir = 0; ir < mc; ir += 6) {
          const int64_t rows = min_index(mc - ir, 6);
          // MicroKernel c[ic + ir : +rows, jr : +columns]
          Tile0::run<6, 2>(rows, columns, kc, a + a_stride0 * ic + a_stride0 * ir + pc, a_stride0, b_panels + jr / 64 * k * 64 + pc * 64, 64, c + c_stride0 * ic + c_stride0 * ir + jr, c_stride0, 0 < pc);
          if (k <= pc + kc) store_tile(c + c_stride0 * ic + c_stride0 * ir + jr, c_stride0, rows, columns, 0, 0, c + c_stride0 * ic + c_stride0 * ir + jr, c_stride0, 1, Epilogue0{x1 + jr});
        }
      }
    }
  }
}
}  // namespace tracea_gemm_narrow_5091a04a223fb5b3de2c_text
