// gemm_70x1x8_f16_cd4edad94813ccda | gemm.mma_cp_async | sm_80 | bk=32,bm=32,bn=32,chunk_a=16,chunk_b=16,fragments=1,order=row,split_k=1,stages=3,stream_k=0,swizzle=1,warps_m=1,warps_n=2
#include "tracea/gpu.h"

namespace tracea_gemm_mma_cp_async_ccaa1201f2ffcd846012_text {
using namespace tracea;

using ATile = SharedTile<f16, 32, Swizzle<2, 4, 3>>;
using BTile = SharedTile<f16, 32, Swizzle<2, 4, 3>>;
using Staging = SharedTile<float, 16, Swizzle<1, 5, 2, Swizzle<1, 4, 3>>>;

struct tracea_gemm_mma_cp_async_ccaa1201f2ffcd846012_args {
  const f16* a;
  const f16* b_t;
  f16* c;
  int64_t m;
  int64_t k;
  int64_t a_stride0;
  int64_t n;
  int64_t b_t_stride0;
  int64_t c_stride0;
};

TRACEA_KERNEL(64, 1) void tracea_gemm_mma_cp_async_ccaa1201f2ffcd846012(const TRACEA_GRID_CONSTANT tracea_gemm_mma_cp_async_ccaa1201f2ffcd846012_args args) {
  const f16* const a = args.a;
  const f16* const b_t = args.b_t;
  f16* const c = args.c;
  const int32_t m = static_cast<int32_t>(args.m);
  const int32_t k = static_cast<int32_t>(args.k);
  const int64_t a_stride0 = args.a_stride0;
  const int32_t n = static_cast<int32_t>(args.n);
  const int64_t b_t_stride0 = args.b_t_stride0;
  const int64_t c_stride0 = args.c_stride0;
  const uint32_t a_tiles = shared_base() + 0;
  const uint32_t b_tiles = shared_base() + 6144;
  const uint32_t staging = shared_base() + 12288;
  const int32_t tile = static_cast<int32_t>(block_index());
  const int32_t column = tile % ((n + 31) / 32) * 32;
  const int32_t row = tile / ((n + 31) / 32) * 32;
  const int32_t warp = static_cast<int32_t>(warp_index());
  uint32_t a_fragment[2][4];
  uint32_t b_fragment[2][2];
  float sums[2][2][4];
  const int32_t warp_row = warp / 2;
  const int32_t warp_column = warp % 2;
  clear(sums);
  TRACEA_UNROLL
  for (int32_t p = 0; p < 2; ++p) {
    if (p < (k + 31) / 32) {
      // AsyncCopy a[row + (warp * 16) : +16, p * 32 : +32] -> a_tiles
      copy_async<ATile, 16, 32, 16>(a_tiles + p % 3 * 2048, warp * 16, a + (row + warp * 16) * a_stride0 + p * 32, a_stride0, 1, m - row - warp * 16, k - p * 32);
      // AsyncCopy b_t[column + (warp * 16) : +16, p * 32 : +32] -> b_tiles
      copy_async<BTile, 16, 32, 16>(b_tiles + p % 3 * 2048, warp * 16, b_t + (column + warp * 16) * b_t_stride0 + p * 32, b_t_stride0, 1, n - column - warp * 16, k - p * 32);
    }
    cp_async_commit();
  }
  TRACEA_NO_UNROLL
  for (int32_t k_step = 0; k_step < (k + 31) / 32; ++k_step) {
    cp_async_wait<1>();
    sync_block();
    const int32_t following = k_step + 2;
    if (following < (k + 31) / 32) {
      // AsyncCopy a[row + (warp * 16) : +16, following * 32 : +32] -> a_tiles
      copy_async<ATile, 16, 32, 16>(a_tiles + following % 3 * 2048, warp * 16, a + (row + warp * 16) * a_stride0 + following * 32, a_stride0, 1, m - row - warp * 16, k - following * 32);
      // AsyncCopy b_t[column + (warp * 16) : +16, following * 32 : +32] -> b_tiles
      copy_async<BTile, 16, 32, 16>(b_tiles + following % 3 * 2048, warp * 16, b_t + (column + warp * 16) * b_t_stride0 + following * 32, b_t_stride0, 1, n - column - warp * 16, k - following * 32);
    }
    cp_async_commit();
    TRACEA_UNROLL
    for (int32_t kk = 0; kk < 2; ++kk) {
      TRACEA_UNROLL
      for (int32_t i_load = 0; i_load < 2; ++i_load) {
        load_a<ATile>(a_fragment[i_load], a_tiles + k_step % 3 * 2048, i_load * 16 + warp_row * 32, kk * 16);
      }
      TRACEA_UNROLL
      for (int32_t j_load = 0; j_load < 1; ++j_load) {
        load_b<BTile>(b_fragment[j_load * 2], b_fragment[j_load * 2 + 1], b_tiles + k_step % 3 * 2048, j_load * 16 + warp_column * 16, kk * 16);
      }
      TRACEA_UNROLL
      for (int32_t i = 0; i < 2; ++i) {
        TRACEA_UNROLL
        for (int32_t j = 0; j < 2; ++j) {
          mma_m16n8k16<f16>(sums[i][j], a_fragment[i], b_fragment[j]);
        }
      }
    }
  }
  if (row + warp_row * 32 < m && column + warp_column * 16 < n) {
    TRACEA_UNROLL
    for (int32_t i_out = 0; i_out < 2; ++i_out) {
      if (row + warp_row * 32 + i_out * 16 < m) {
        TRACEA_UNROLL
        for (int32_t j_out = 0; j_out < 2; ++j_out) {
          stage_sums<Staging>(staging + warp * 1024, 0, j_out * 8, sums[i_out][j_out]);
        }
        sync_warp();
        // PointwiseTile c[(row + (warp_row * 32)) + (i_out * 16) : +min(16, (m - ((row + (warp_row * 32)) + (i_out * 16)))), column + (warp_column * 16) : +min(16, (n - (column + (warp_column * 16))))]
        store_rows<Staging, 16, 16>(staging + warp * 1024, c + (i_out * 16 + row + warp_row * 32) * c_stride0 + column + warp_column * 16, c_stride0, 1, min_index(m - i_out * 16 - row - warp_row * 32, 16), min_index(n - column - warp_column * 16, 16), Identity{});
        sync_warp();
      }
    }
  }
}
}  // namespace tracea_gemm_mma_cp_async_ccaa1201f2ffcd846012_text
using tracea_gemm_mma_cp_async_ccaa1201f2ffcd846012_text::tracea_gemm_mma_cp_async_ccaa1201f2ffcd846012, tracea_gemm_mma_cp_async_ccaa1201f2ffcd846012_text::tracea_gemm_mma_cp_async_ccaa1201f2ffcd846012_args;
