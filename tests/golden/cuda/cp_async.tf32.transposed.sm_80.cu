// gemm_70x40x104_f32_3295561a23dfc78c | gemm.mma_cp_async | sm_80 | bk=16,bm=32,bn=32,chunk_a=8,chunk_b=16,fragments=1,order=row,split_k=1,stages=3,stream_k=0,swizzle=1,warps_m=1,warps_n=2
#include "tracea/gpu.h"

namespace tracea_gemm_mma_cp_async_870277ba73157ccc716c_text {
using namespace tracea;

using ATile = SharedTile<float, 32, Swizzle<2, 5, 2>>;
using BTile = SharedTile<float, 16, Swizzle<2, 4, 3>>;
using Staging = SharedTile<float, 16, Swizzle<1, 5, 2>>;

struct tracea_gemm_mma_cp_async_870277ba73157ccc716c_args {
  const float* a_t;
  const float* b_t;
  float* c;
  int64_t k;
  int64_t m;
  int64_t a_t_stride0;
  int64_t n;
  int64_t b_t_stride0;
  int64_t c_stride0;
};

TRACEA_KERNEL(64, 1) void tracea_gemm_mma_cp_async_870277ba73157ccc716c(const TRACEA_GRID_CONSTANT tracea_gemm_mma_cp_async_870277ba73157ccc716c_args args) {
  const float* const a_t = args.a_t;
  const float* const b_t = args.b_t;
  float* const c = args.c;
  const int32_t k = static_cast<int32_t>(args.k);
  const int32_t m = static_cast<int32_t>(args.m);
  const int64_t a_t_stride0 = args.a_t_stride0;
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
    if (p < (k + 15) / 16) {
      // AsyncCopy a_t[(p * 16) + (warp * 8) : +8, row : +32] -> a_tiles
      copy_async<ATile, 8, 32, 8>(a_tiles + p % 3 * 2048, warp * 8, a_t + (p * 16 + warp * 8) * a_t_stride0 + row, a_t_stride0, 1, k - p * 16 - warp * 8, m - row);
      // AsyncCopy b_t[column + (warp * 16) : +16, p * 16 : +16] -> b_tiles
      copy_async<BTile, 16, 16, 16>(b_tiles + p % 3 * 2048, warp * 16, b_t + (column + warp * 16) * b_t_stride0 + p * 16, b_t_stride0, 1, n - column - warp * 16, k - p * 16);
    }
    cp_async_commit();
  }
  TRACEA_NO_UNROLL
  for (int32_t k_step = 0; k_step < (k + 15) / 16; ++k_step) {
    cp_async_wait<1>();
    sync_block();
    const int32_t following = k_step + 2;
    if (following < (k + 15) / 16) {
      // AsyncCopy a_t[(following * 16) + (warp * 8) : +8, row : +32] -> a_tiles
      copy_async<ATile, 8, 32, 8>(a_tiles + following % 3 * 2048, warp * 8, a_t + (following * 16 + warp * 8) * a_t_stride0 + row, a_t_stride0, 1, k - following * 16 - warp * 8, m - row);
      // AsyncCopy b_t[column + (warp * 16) : +16, following * 16 : +16] -> b_tiles
      copy_async<BTile, 16, 16, 16>(b_tiles + following % 3 * 2048, warp * 16, b_t + (column + warp * 16) * b_t_stride0 + following * 16, b_t_stride0, 1, n - column - warp * 16, k - following * 16);
    }
    cp_async_commit();
    TRACEA_UNROLL
    for (int32_t kk = 0; kk < 2; ++kk) {
      TRACEA_UNROLL
      for (int32_t i_load = 0; i_load < 2; ++i_load) {
        load_a_tf32_transposed<ATile>(a_fragment[i_load], a_tiles + k_step % 3 * 2048, kk * 8, i_load * 16 + warp_row * 32);
      }
      TRACEA_UNROLL
      for (int32_t j_load = 0; j_load < 1; ++j_load) {
        load_b_tf32<BTile>(b_fragment[j_load * 2], b_fragment[j_load * 2 + 1], b_tiles + k_step % 3 * 2048, j_load * 16 + warp_column * 16, kk * 8);
      }
      TRACEA_UNROLL
      for (int32_t i = 0; i < 2; ++i) {
        TRACEA_UNROLL
        for (int32_t j = 0; j < 2; ++j) {
          mma_m16n8k8_tf32(sums[i][j], a_fragment[i], b_fragment[j]);
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
}  // namespace tracea_gemm_mma_cp_async_870277ba73157ccc716c_text
using tracea_gemm_mma_cp_async_870277ba73157ccc716c_text::tracea_gemm_mma_cp_async_870277ba73157ccc716c, tracea_gemm_mma_cp_async_870277ba73157ccc716c_text::tracea_gemm_mma_cp_async_870277ba73157ccc716c_args;
