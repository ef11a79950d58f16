// grouped_gemm_8x512x4096x1024_f32_a6faabdf36f7af30 | gemm.grouped | avx2 | kc=172,mc=258,mr=6,nc=512,nv=2,prefetch_a=0,prefetch_b=0,split=columns,sweep=1,tail=0,unroll=2,upcoming=16
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/gemm.h"
#include "tracea/gemm_store.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/pack.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_gemm_grouped_76a70b096fcceaf2a316_text {
using namespace tracea;

using Tile0 = GemmTile<float, 6, 2, 2, PanelA<6>, PackedB, GemmPrefetch<0, 0, true, true, true>>;
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

extern "C" __attribute__((visibility("default"))) void tracea_gemm_grouped_76a70b096fcceaf2a316(const tracea_call* call, int32_t rank) {
  const float* const a = static_cast<const float*>(call->pointers[0]);
  const float* const b = static_cast<const float*>(call->pointers[1]);
  const float* const bias = static_cast<const float*>(call->pointers[2]);
  const int32_t* const part_first = static_cast<const int32_t*>(call->pointers[3]);
  const int32_t* const part_group = static_cast<const int32_t*>(call->pointers[4]);
  float* const c = static_cast<float*>(call->pointers[5]);
  const int64_t k = call->integers[1];
  const int64_t a_stride0 = call->integers[2];
  const int64_t groups = call->integers[3];
  const int64_t n = call->integers[4];
  const int64_t b_stride0 = call->integers[5];
  const int64_t b_stride1 = call->integers[6];
  const int64_t bias_stride0 = call->integers[7];
  const int64_t c_stride0 = call->integers[9];
  const int64_t parts = call->integers[10];
  float* const a_panels = reinterpret_cast<float*>(thread_scratch(call, rank));
  float* const b_panels = reinterpret_cast<float*>(thread_scratch(call, rank) + 177536);
  for (TaskLoop tasks0(call, rank, 0, (n + 511) / 512 * parts); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t part = task / ((n + 511) / 512);
    const int64_t jc = task % ((n + 511) / 512) * 512;
    const int64_t nc = min_index(n - jc, 512);
    const int64_t part_begin = part_first[part];
    const int64_t part_rows = part_first[part + 1] - part_first[part];
    const int64_t group = part_group[part];
    if (group < groups) {
      for (int64_t ic = 0; ic < part_rows; ic += 258) {
        const int64_t mc = min_index(part_rows - ic, 258);
        for (int64_t pc = 0; pc < k; pc += 172) {
          const int64_t kc = min_index(k - pc, 172);
          // Pack a[part_begin + ic : +mc, pc : +kc] -> a_panels
          pack_a<float, 6>(a + a_stride0 * ic + a_stride0 * part_begin + pc, a_stride0, 1, mc, kc, 172, a_panels);
          for (int64_t jp = 0; jp < nc; jp += 16) {
            const int64_t pw = min_index(nc - jp, 16);
            // Pack b[group : +1, pc : +kc, jc + jp : +pw] -> b_panels
            pack_b<float, 16>(b + b_stride0 * group + b_stride1 * pc + jc + jp, b_stride1, 1, kc, pw, 172, b_panels);
            for (int64_t jr = 0; jr < pw; jr += 16) {
              const int64_t columns = min_index(pw - jr, 16);
              for (int64_t ir = 0; ir < mc; ir += 6) {
                const int64_t rows = min_index(mc - ir, 6);
                // MicroKernel c[(part_begin + ic) + ir : +rows, (jc + jp) + jr : +columns]
                Tile0::run<6, 4, 3, 2>(rows, columns, kc, a_panels + ir / 6 * 1032, 6, b_panels + jr / 16 * 2752, 16, c + c_stride0 * ic + c_stride0 * ir + c_stride0 * part_begin + jc + jp + jr, c_stride0, 0 < pc, {b + ir / 6 * b_stride1 * 16 + b_stride0 * group + b_stride1 * pc + jc + jp + jr + 16, 16, b_stride1});
                if (k <= pc + kc) store_tile(c + c_stride0 * ic + c_stride0 * ir + c_stride0 * part_begin + jc + jp + jr, c_stride0, rows, columns, 0, 0, c + c_stride0 * ic + c_stride0 * ir + c_stride0 * part_begin + jc + jp + jr, c_stride0, 1, Epilogue0{bias + bias_stride0 * group + jc + jp + jr});
              }
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
}  // namespace tracea_gemm_grouped_76a70b096fcceaf2a316_text
