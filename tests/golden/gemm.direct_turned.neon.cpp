// gemm_900x37x500_f32_0976d41f78319fef | gemm.direct_turned | neon | kc=250,mc=40,mr=8,nc=900,nv=3,prefetch_b=8,split=columns,tail=5,unroll=2
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/gemm.h"
#include "tracea/gemm_store.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_gemm_direct_turned_601db1f836b84a3f3ec0_text {
using namespace tracea;

using Tile0 = GemmTile<float, 8, 3, 2, PackedA, RowsB, GemmPrefetch<0, 8, true, false>>;
static_assert(Tile0::columns == 12, "the kernel was built for this vector length");
struct Epilogue0 {
  const float* x1;
  int64_t x1_col;
  template <class V>
  TRACEA_INLINE V operator()(V x0, [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v1 = load_strided<V>(x1 + col * x1_col, x1_col, lanes);
    const auto t0 = add(x0, v1);
    return t0;
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_gemm_direct_turned_601db1f836b84a3f3ec0(const tracea_call* call, int32_t rank) {
  const float* const b = static_cast<const float*>(call->pointers[0]);
  const float* const a = static_cast<const float*>(call->pointers[1]);
  const float* const x1 = static_cast<const float*>(call->pointers[2]);
  float* const c = static_cast<float*>(call->pointers[3]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t a_stride1 = call->integers[2];
  const int64_t n = call->integers[3];
  const int64_t b_stride0 = call->integers[4];
  const int64_t x1_stride0 = call->integers[5];
  const int64_t c_stride1 = call->integers[6];
  float* const sums = reinterpret_cast<float*>(thread_scratch(call, rank));
  for (TaskLoop tasks0(call, rank, 0, (n + 899) / 900); tasks0.next();) {
    const int64_t jc = tasks0.task() * 900;
    const int64_t nc = min_index(n - jc, 900);
    for (int64_t pc = 0; pc < k; pc += 250) {
      const int64_t kc = min_index(k - pc, 250);
      for (int64_t jr = 0; jr < nc; jr += 12) {
        const int64_t columns = min_index(nc - jr, 12);
        for (int64_t ir = 0; ir < m; ir += 8) {
          const int64_t rows = min_index(m - ir, 8);
          // MicroKernel sums[ir : +rows, jr : +columns]
          Tile0::run<8, 5>(rows, columns, kc, a + a_stride1 * pc + ir, a_stride1, b + b_stride0 * pc + jc + jr, b_stride0, sums + ir * 900 + jr, 900, 0 < pc);
          if (k <= pc + kc) store_tile_transposed(sums + ir * 900 + jr, 900, rows, columns, c + c_stride1 * jc + c_stride1 * jr + ir, c_stride1, Epilogue0{x1 + ir * x1_stride0, x1_stride0});
        }
      }
    }
  }
}
}  // namespace tracea_gemm_direct_turned_601db1f836b84a3f3ec0_text
