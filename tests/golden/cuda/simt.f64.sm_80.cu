// gemm_70x40x30_f64_bfa69d0665253a98 | gemm.simt | sm_80 | bk=16,bm=16,bn=64,chunk_a=8,chunk_b=16,lane_columns=4,lane_rows=4,stages=2,warps_m=1,warps_n=2
#include "tracea/gpu.h"

namespace tracea_gemm_simt_442dda0609bfa7e8a808_text {
using namespace tracea;

using ATile = SharedTile<double, 16>;
using BTile = SharedTile<double, 64>;

struct tracea_gemm_simt_442dda0609bfa7e8a808_args {
  const double* a_t;
  const double* b;
  double* c;
  int64_t k;
  int64_t m;
  int64_t a_t_stride1;
  int64_t n;
  int64_t b_stride0;
  int64_t c_stride0;
};

TRACEA_KERNEL(64, 1) void tracea_gemm_simt_442dda0609bfa7e8a808(const TRACEA_GRID_CONSTANT tracea_gemm_simt_442dda0609bfa7e8a808_args args) {
  const double* const a_t = args.a_t;
  const double* const b = args.b;
  double* const c = args.c;
  const int32_t k = static_cast<int32_t>(args.k);
  const int32_t m = static_cast<int32_t>(args.m);
  const int64_t a_t_stride1 = args.a_t_stride1;
  const int32_t n = static_cast<int32_t>(args.n);
  const int64_t b_stride0 = args.b_stride0;
  const int64_t c_stride0 = args.c_stride0;
  const uint32_t a_tiles = shared_base() + 0;
  const uint32_t b_tiles = shared_base() + 4096;
  const int32_t tile = static_cast<int32_t>(block_index());
  const int32_t column = tile % ((n + 63) / 64) * 64;
  const int32_t row = tile / ((n + 63) / 64) * 16;
  const int32_t warp = static_cast<int32_t>(warp_index());
  double a_fragment[1][4];
  double b_fragment[1][4];
  double sums[1][1][16];
  Words<4> a_held[2];
  Words<4> b_held[8];
  const int32_t warp_row = warp / 2;
  const int32_t warp_column = warp % 2;
  clear(sums);
  // CopyTile a_t[warp * 8 : +8, row : +16] -> a_held
  hold_tile<8, 16, 8>(a_held, a_t + warp * 8 + row * a_t_stride1, 1, a_t_stride1, k - warp * 8, m - row);
  // CopyTile b[warp * 8 : +8, column : +64] -> b_held
  hold_tile<8, 64, 16>(b_held, b + (warp * 8) * b_stride0 + column, b_stride0, 1, k - warp * 8, n - column);
  // CopyTile a_held[0 : +8, 0 : +16] -> a_tiles
  place_tile<ATile, 8, 16>(a_tiles, warp * 8, a_held);
  // CopyTile b_held[0 : +8, 0 : +64] -> b_tiles
  place_tile<BTile, 8, 64>(b_tiles, warp * 8, b_held);
  TRACEA_NO_UNROLL
  for (int32_t k_step = 0; k_step < (k + 15) / 16; ++k_step) {
    sync_block();
    // CopyTile a_t[((k_step + 1) * 16) + (warp * 8) : +8, row : +16] -> a_held
    hold_tile<8, 16, 8>(a_held, a_t + k_step * 16 + warp * 8 + 16 + row * a_t_stride1, 1, a_t_stride1, k - k_step * 16 - warp * 8 - 16, m - row);
    // CopyTile b[((k_step + 1) * 16) + (warp * 8) : +8, column : +64] -> b_held
    hold_tile<8, 64, 16>(b_held, b + (k_step * 16 + warp * 8 + 16) * b_stride0 + column, b_stride0, 1, k - k_step * 16 - warp * 8 - 16, n - column);
    TRACEA_UNROLL
    for (int32_t kk = 0; kk < 16; ++kk) {
      TRACEA_UNROLL
      for (int32_t i_load = 0; i_load < 1; ++i_load) {
        load_a_lanes<ATile, 4>(a_fragment[i_load], a_tiles + k_step % 2 * 2048, kk, i_load * 16 + warp_row * 16);
      }
      TRACEA_UNROLL
      for (int32_t j_load = 0; j_load < 1; ++j_load) {
        load_b_lanes<BTile, 4>(b_fragment[j_load], b_tiles + k_step % 2 * 8192, kk, j_load * 32 + warp_column * 32);
      }
      TRACEA_UNROLL
      for (int32_t i = 0; i < 1; ++i) {
        TRACEA_UNROLL
        for (int32_t j = 0; j < 1; ++j) {
          multiply_lanes(sums[i][j], a_fragment[i], b_fragment[j]);
        }
      }
    }
    // CopyTile a_held[0 : +8, 0 : +16] -> a_tiles
    place_tile<ATile, 8, 16>(a_tiles + (k_step + 1) % 2 * 2048, warp * 8, a_held);
    // CopyTile b_held[0 : +8, 0 : +64] -> b_tiles
    place_tile<BTile, 8, 64>(b_tiles + (k_step + 1) % 2 * 8192, warp * 8, b_held);
  }
  if (row + warp_row * 16 < m && column + warp_column * 32 < n) {
    // StoreFragment c[row + (warp_row * 16) : +min(16, (m - (row + (warp_row * 16)))), column + (warp_column * 32) : +min(32, (n - (column + (warp_column * 32))))]
    store_lanes<4, 4>(sums[0][0], c + (row + warp_row * 16) * c_stride0 + column + warp_column * 32, c_stride0, 1, min_index(m - row - warp_row * 16, 16), min_index(n - column - warp_column * 32, 32), Identity{});
  }
}
}  // namespace tracea_gemm_simt_442dda0609bfa7e8a808_text
using tracea_gemm_simt_442dda0609bfa7e8a808_text::tracea_gemm_simt_442dda0609bfa7e8a808, tracea_gemm_simt_442dda0609bfa7e8a808_text::tracea_gemm_simt_442dda0609bfa7e8a808_args;
