// gemm_70x40x112_e4m3_2f45acc57075e962 | gemm.mma_tma | sm_120a | bk=64,bm=32,bn=32,chunk_a=16,chunk_b=16,fragments=1,order=row,stages=3,swizzle=1,warps_m=1,warps_n=2
#include "tracea/gpu.h"

namespace tracea_gemm_mma_tma_0bf3ff92614bc5e6391d_text {
using namespace tracea;

using ATile = SharedTile<e4m3, 64, Swizzle<2, 4, 3>>;
using BTile = SharedTile<e4m3, 64, Swizzle<2, 4, 3>>;
using Staging = SharedTile<float, 16, Swizzle<1, 5, 2>>;

struct tracea_gemm_mma_tma_0bf3ff92614bc5e6391d_args {
  TensorMap a_map;
  TensorMap b_t_map;
  float* c;
  int64_t m;
  int64_t k;
  int64_t a_stride0;
  int64_t n;
  int64_t b_t_stride0;
  int64_t c_stride0;
};

TRACEA_KERNEL(96, 1) void tracea_gemm_mma_tma_0bf3ff92614bc5e6391d(const TRACEA_GRID_CONSTANT tracea_gemm_mma_tma_0bf3ff92614bc5e6391d_args args) {
  float* const c = args.c;
  const int32_t m = static_cast<int32_t>(args.m);
  const int32_t k = static_cast<int32_t>(args.k);
  const int32_t n = static_cast<int32_t>(args.n);
  const int64_t c_stride0 = args.c_stride0;
  const uint32_t a_tiles = shared_base() + 0;
  const uint32_t b_tiles = shared_base() + 6144;
  const uint32_t full = shared_base() + 12288;
  const uint32_t empty = shared_base() + 12352;
  const uint32_t staging = shared_base() + 12544;
  const int32_t tile = static_cast<int32_t>(block_index());
  const int32_t column = tile % ((n + 31) / 32) * 32;
  const int32_t row = tile / ((n + 31) / 32) * 32;
  if (thread_index() == 0) {
    TRACEA_UNROLL
    for (int32_t s = 0; s < 3; ++s) {
      mbarrier_init(full + s * 8, 1);
      mbarrier_init(empty + s * 8, 2);
    }
    mbarrier_fence_init();
  }
  sync_block();
  const int32_t warp_number = static_cast<int32_t>(warp_index());
  if (warp_number < 2) {
    // Role consumer
    const int32_t warp = warp_number;
    uint32_t a_fragment[2][4];
    uint32_t b_fragment[2][2];
    float sums[2][2][4];
    const int32_t warp_row = warp / 2;
    const int32_t warp_column = warp % 2;
    clear(sums);
    TRACEA_NO_UNROLL
    for (int32_t k_step = 0; k_step < (k + 63) / 64; ++k_step) {
      mbarrier_wait(full + k_step % 3 * 8, k_step / 3 % 2);
      TRACEA_UNROLL
      for (int32_t kk = 0; kk < 2; ++kk) {
        TRACEA_UNROLL
        for (int32_t i_load = 0; i_load < 2; ++i_load) {
          load_a<ATile>(a_fragment[i_load], a_tiles + k_step % 3 * 2048, i_load * 16 + warp_row * 32, kk * 32);
        }
        TRACEA_UNROLL
        for (int32_t j_load = 0; j_load < 1; ++j_load) {
          load_b<BTile>(b_fragment[j_load * 2], b_fragment[j_load * 2 + 1], b_tiles + k_step % 3 * 2048, j_load * 16 + warp_column * 16, kk * 32);
        }
        TRACEA_UNROLL
        for (int32_t i = 0; i < 2; ++i) {
          TRACEA_UNROLL
          for (int32_t j = 0; j < 2; ++j) {
            mma_m16n8k32<e4m3>(sums[i][j], a_fragment[i], b_fragment[j]);
          }
        }
      }
      release_slot(empty + k_step % 3 * 8);
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
  else {
    // Role producer
    if (warp_number == 2 && elect_one()) {
      TRACEA_NO_UNROLL
      for (int32_t k_fetch = 0; k_fetch < (k + 63) / 64; ++k_fetch) {
        mbarrier_wait(empty + k_fetch % 3 * 8, (k_fetch / 3 + 1) % 2);
        mbarrier_arrive_expect(full + k_fetch % 3 * 8, 4096);
        // TmaCopy a[row : +32, k_fetch * 64 : +64] -> a_tiles
        tma_load<2>(a_tiles + k_fetch % 3 * 2048, args.a_map, full + k_fetch % 3 * 8, k_fetch * 64, row);
        // TmaCopy b_t[column : +32, k_fetch * 64 : +64] -> b_tiles
        tma_load<2>(b_tiles + k_fetch % 3 * 2048, args.b_t_map, full + k_fetch % 3 * 8, k_fetch * 64, column);
      }
    }
  }
}
}  // namespace tracea_gemm_mma_tma_0bf3ff92614bc5e6391d_text
using tracea_gemm_mma_tma_0bf3ff92614bc5e6391d_text::tracea_gemm_mma_tma_0bf3ff92614bc5e6391d, tracea_gemm_mma_tma_0bf3ff92614bc5e6391d_text::tracea_gemm_mma_tma_0bf3ff92614bc5e6391d_args;
