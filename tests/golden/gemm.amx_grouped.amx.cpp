// grouped_gemm_8x512x4096x1024_f32_c8a509fe8ef5e1fd | gemm.amx_grouped | amx, avx512 | kc=352,mc=256,nc=512,split=columns,sweep=8
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/gemm_amx.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/pack.h"
#include "tracea/pack_terms.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_gemm_amx_grouped_edba7bbbb03948003263_text {
using namespace tracea;

static_assert(32 == kGranule && 32 == kGranule, "the kernel was built for these granules");
struct Load0 {
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const auto k0 = broadcast<V>(typename V::element(0.0));
    return select(lane_mask<V>(lanes), k0, zero<V>());
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
  }
};

struct Store0 {
  float* y;
  int64_t y_row;
  template <class V>
  TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const {
    StoreRows<float, false>{y, y_row}.template at<V>(row, col, x0, lanes);
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    StoreRows<float, false>{y, y_row}.prefetch(row, col);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_gemm_amx_grouped_edba7bbbb03948003263(const tracea_call* call, int32_t rank) {
  const float* const a = static_cast<const float*>(call->pointers[0]);
  const float* const b = static_cast<const float*>(call->pointers[1]);
  const int32_t* const part_first = static_cast<const int32_t*>(call->pointers[2]);
  const int32_t* const part_group = static_cast<const int32_t*>(call->pointers[3]);
  float* const c = static_cast<float*>(call->pointers[4]);
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t groups = call->integers[3];
  const int64_t n = call->integers[4];
  const int64_t b_stride0 = call->integers[5];
  const int64_t b_stride1 = call->integers[6];
  const int64_t c_stride0 = call->integers[7];
  const int64_t parts = call->integers[8];
  bf16* const a_panels = reinterpret_cast<bf16*>(thread_scratch(call, rank));
  bf16* const b_panels = reinterpret_cast<bf16*>(thread_scratch(call, rank) + 540672);
  for (TaskLoop tasks0(call, rank, 0, (n + 511) / 512 * parts); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t part = task / ((n + 511) / 512);
    const int64_t jc = task % ((n + 511) / 512) * 512;
    const int64_t nc = min_index(n - jc, 512);
    const int64_t part_begin = part_first[part];
    const int64_t part_rows = part_first[part + 1] - part_first[part];
    const int64_t group = part_group[part];
    if (group < groups) {
      for (int64_t ic = 0; ic < part_rows; ic += 256) {
        const int64_t mc = min_index(part_rows - ic, 256);
        for (int64_t pc = 0; pc < k; pc += 352) {
          const int64_t kc = min_index(k - pc, 352);
          // Pack a[part_begin + ic : +mc, pc : +kc] -> a_panels
          pack_a_terms<3>(a + a_stride0 * ic + a_stride0 * part_begin + pc, a_stride0, 1, mc, kc, 352, a_panels);
          for (int64_t jp = 0; jp < nc; jp += 256) {
            const int64_t pw = min_index(nc - jp, 256);
            // Pack b[group : +1, pc : +kc, jc + jp : +pw] -> b_panels
            pack_b_terms<3>(b + b_stride0 * group + b_stride1 * pc + jc + jp, b_stride1, 1, kc, pw, 352, b_panels);
            // MicroKernel c[part_begin + ic : +mc, jc + jp : +pw]
            {
              const auto sink = amx_sink(c + c_stride0 * ic + c_stride0 * part_begin + jc + jp, c_stride0, 0 < pc, k <= pc + kc, c + c_stride0 * ic + c_stride0 * part_begin + jc + jp, c_stride0, 1, IdentityEpilogue{});
              amx_block<3>(mc, pw, kc, a_panels, 33792, b_panels, 33792, sink);
            }
          }
        }
      }
    }
    else {
      // PointwiseTile c[part_begin : +part_rows, jc : +nc]
      map_rows<float, 0>(part_rows, nc, Load0{}, Store0{c + c_stride0 * part_begin + jc, c_stride0});
    }
  }
}
}  // namespace tracea_gemm_amx_grouped_edba7bbbb03948003263_text
