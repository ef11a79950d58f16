// gemm_2x70x40x104_f16_46c5ef86f56b82fb | gemm.mma_sync | sm_75 | bk=32,bm=32,bn=32,chunk_a=16,chunk_b=16,fragments=1,order=row,stages=2,swizzle=1,warps_m=1,warps_n=2
#include "tracea/gpu.h"

namespace tracea_gemm_mma_sync_29e21ce7ab37f82ace85_text {
using namespace tracea;

using ATile = SharedTile<f16, 32, Swizzle<2, 4, 3>>;
using BTile = SharedTile<f16, 32, Swizzle<2, 4, 3>>;
using Staging = SharedTile<float, 16, Swizzle<1, 5, 2, Swizzle<1, 4, 3>>>;

struct tracea_gemm_mma_sync_29e21ce7ab37f82ace85_args {
  const f16* a;
  const f16* b;
  f16* c;
  int64_t batch0;
  int64_t m;
  int64_t k;
  int64_t a_stride0;
  int64_t a_stride1;
  int64_t n;
  int64_t b_stride0;
  int64_t b_stride1;
  int64_t c_stride0;
  int64_t c_stride1;
};

TRACEA_KERNEL(64, 1) void tracea_gemm_mma_sync_29e21ce7ab37f82ace85(const TRACEA_GRID_CONSTANT tracea_gemm_mma_sync_29e21ce7ab37f82ace85_args args) {
  const f16* const a = args.a;
  const f16* const b = args.b;
  f16* const c = args.c;
  const int32_t m = static_cast<int32_t>(args.m);
  const int32_t k = static_cast<int32_t>(args.k);
  const int64_t a_stride0 = args.a_stride0;
  const int64_t a_stride1 = args.a_stride1;
  const int32_t n = static_cast<int32_t>(args.n);
  const int64_t b_stride0 = args.b_stride0;
  const int64_t b_stride1 = args.b_stride1;
  const int64_t c_stride0 = args.c_stride0;
  const int64_t c_stride1 = args.c_stride1;
  const uint32_t a_tiles = shared_base() + 0;
  const uint32_t b_tiles = shared_base() + 4096;
  const uint32_t staging = shared_base() + 8192;
  const int32_t tile = static_cast<int32_t>(block_index());
  const int32_t column = tile % ((n + 31) / 32) * 32;
  const int32_t row = tile / ((n + 31) / 32) % ((m + 31) / 32) * 32;
  const int32_t i_batch0 = tile / ((n + 31) / 32) / ((m + 31) / 32);
  const int32_t warp = static_cast<int32_t>(warp_index());
  uint32_t a_fragment[2][4];
  uint32_t b_fragment[2][2];
  float sums[2][2][4];
  Words<4> a_held[2];
  Words<4> b_held[2];
  const int32_t warp_row = warp / 2;
  const int32_t warp_column = warp % 2;
  clear(sums);
  // CopyTile a[i_batch0 : +1, row + (warp * 16) : +16, 0 : +32] -> a_held
  hold_tile<16, 32, 16>(a_held, a + i_batch0 * a_stride0 + (row + warp * 16) * a_stride1, a_stride1, 1, m - row - warp * 16, k);
  // CopyTile b[i_batch0 : +1, warp * 16 : +16, column : +32] -> b_held
  hold_tile<16, 32, 16>(b_held, b + i_batch0 * b_stride0 + (warp * 16) * b_stride1 + column, b_stride1, 1, k - warp * 16, n - column);
  // CopyTile a_held[0 : +16, 0 : +32] -> a_tiles
  place_tile<ATile, 16, 32>(a_tiles, warp * 16, a_held);
  // CopyTile b_held[0 : +16, 0 : +32] -> b_tiles
  place_tile<BTile, 16, 32>(b_tiles, warp * 16, b_held);
  TRACEA_NO_UNROLL
  for (int32_t k_step = 0; k_step < (k + 31) / 32; ++k_step) {
    sync_block();
    // CopyTile a[i_batch0 : +1, row + (warp * 16) : +16, (k_step + 1) * 32 : +32] -> a_held
    hold_tile<16, 32, 16>(a_held, a + i_batch0 * a_stride0 + (row + warp * 16) * a_stride1 + k_step * 32 + 32, a_stride1, 1, m - row - warp * 16, k - k_step * 32 - 32);
    // CopyTile b[i_batch0 : +1, ((k_step + 1) * 32) + (warp * 16) : +16, column : +32] -> b_held
    hold_tile<16, 32, 16>(b_held, b + i_batch0 * b_stride0 + (k_step * 32 + warp * 16 + 32) * b_stride1 + column, b_stride1, 1, k - k_step * 32 - warp * 16 - 32, n - column);
    TRACEA_UNROLL
    for (int32_t kk = 0; kk < 2; ++kk) {
      TRACEA_UNROLL
      for (int32_t i_load = 0; i_load < 2; ++i_load) {
        load_a<ATile>(a_fragment[i_load], a_tiles + k_step % 2 * 2048, i_load * 16 + warp_row * 32, kk * 16);
      }
      TRACEA_UNROLL
      for (int32_t j_load = 0; j_load < 1; ++j_load) {
        load_b_transposed<BTile>(b_fragment[j_load * 2], b_fragment[j_load * 2 + 1], b_tiles + k_step % 2 * 2048, kk * 16, j_load * 16 + warp_column * 16);
      }
      TRACEA_UNROLL
      for (int32_t i = 0; i < 2; ++i) {
        TRACEA_UNROLL
        for (int32_t j = 0; j < 2; ++j) {
          multiply_halves(sums[i][j], a_fragment[i], b_fragment[j]);
        }
      }
    }
    // CopyTile a_held[0 : +16, 0 : +32] -> a_tiles
    place_tile<ATile, 16, 32>(a_tiles + (k_step + 1) % 2 * 2048, warp * 16, a_held);
    // CopyTile b_held[0 : +16, 0 : +32] -> b_tiles
    place_tile<BTile, 16, 32>(b_tiles + (k_step + 1) % 2 * 2048, warp * 16, b_held);
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
        // PointwiseTile c[i_batch0 : +1, (row + (warp_row * 32)) + (i_out * 16) : +min(16, (m - ((row + (warp_row * 32)) + (i_out * 16)))), column + (warp_column * 16) : +min(16, (n - (column + (warp_column * 16))))]
        store_rows<Staging, 16, 16>(staging + warp * 1024, c + i_batch0 * c_stride0 + (i_out * 16 + row + warp_row * 32) * c_stride1 + column + warp_column * 16, c_stride1, 1, min_index(m - i_out * 16 - row - warp_row * 32, 16), min_index(n - column - warp_column * 16, 16), Identity{});
        sync_warp();
      }
    }
  }
}
}  // namespace tracea_gemm_mma_sync_29e21ce7ab37f82ace85_text
using tracea_gemm_mma_sync_29e21ce7ab37f82ace85_text::tracea_gemm_mma_sync_29e21ce7ab37f82ace85, tracea_gemm_mma_sync_29e21ce7ab37f82ace85_text::tracea_gemm_mma_sync_29e21ce7ab37f82ace85_args;
