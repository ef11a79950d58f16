// gemm_70x40x104_f16_2aea39195602b3f9 | gemm.wgmma | sm_90a | bk=64,bm=128,bn=64,chunk_a=16,chunk_b=16,groups=2,order=row,persistent=0,pingpong=0,stages=3,swizzle=1
#include "tracea/gpu.h"

namespace tracea_gemm_wgmma_370e7b0a68923d001cc3_text {
using namespace tracea;

using ATile = SharedTile<f16, 64, Swizzle<3, 4, 3>>;
using BTile = SharedTile<f16, 64, Swizzle<3, 4, 3>>;
using Staging = SharedTile<float, 32, Swizzle<2, 5, 2, Swizzle<1, 4, 3>>>;

struct tracea_gemm_wgmma_370e7b0a68923d001cc3_args {
  TensorMap a_map;
  TensorMap b_t_map;
  f16* c;
  int64_t m;
  int64_t k;
  int64_t a_stride0;
  int64_t n;
  int64_t b_t_stride0;
  int64_t c_stride0;
};

TRACEA_KERNEL(384, 1) void tracea_gemm_wgmma_370e7b0a68923d001cc3(const TRACEA_GRID_CONSTANT tracea_gemm_wgmma_370e7b0a68923d001cc3_args args) {
  f16* const c = args.c;
  const int32_t m = static_cast<int32_t>(args.m);
  const int32_t k = static_cast<int32_t>(args.k);
  const int32_t n = static_cast<int32_t>(args.n);
  const int64_t c_stride0 = args.c_stride0;
  const uint32_t a_tiles = shared_base() + 0;
  const uint32_t b_tiles = shared_base() + 49152;
  const uint32_t full = shared_base() + 73728;
  const uint32_t empty = shared_base() + 73792;
  const uint32_t staging = shared_base() + 74240;
  const int32_t tile = static_cast<int32_t>(block_index());
  const int32_t column = tile % ((n + 63) / 64) * 64;
  const int32_t row = tile / ((n + 63) / 64) * 128;
  if (thread_index() == 0) {
    TRACEA_UNROLL
    for (int32_t s = 0; s < 3; ++s) {
      mbarrier_init(full + s * 8, 1);
      mbarrier_init(empty + s * 8, 8);
    }
    mbarrier_fence_init();
  }
  sync_block();
  const int32_t warp_number = static_cast<int32_t>(warp_index());
  if (warp_number < 8) {
    // Role consumer
    setmaxnreg_inc<232>();
    const int32_t group = warp_number / 4;
    float sums[1][32];
    clear(sums);
    TRACEA_NO_UNROLL
    for (int32_t k_step = 0; k_step < (k + 63) / 64; ++k_step) {
      mbarrier_wait(full + k_step % 3 * 8, k_step / 3 % 2);
      wgmma_fence();
      TRACEA_UNROLL
      for (int32_t kk = 0; kk < 4; ++kk) {
        TRACEA_UNROLL
        for (int32_t i = 0; i < 1; ++i) {
          wgmma_m64k16<64, f16, false, false>(sums[i], tile_descriptor<ATile>(a_tiles + k_step % 3 * 16384, group * 64 + i * 64, kk * 16), tile_descriptor<BTile>(b_tiles + k_step % 3 * 8192, 0, kk * 16), true);
        }
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (0 < k_step) {
        release_slot(empty + (k_step + 2) % 3 * 8);
      }
    }
    wgmma_wait<0>();
    settle(sums);
    if (row + group * 64 < m) {
      TRACEA_UNROLL
      for (int32_t strip = 0; strip < 2; ++strip) {
        if (column + strip * 32 < n) {
          TRACEA_UNROLL
          for (int32_t j_out = 0; j_out < 4; ++j_out) {
            stage_group_sums<Staging>(staging + group * 8192, 0, j_out * 8, sums[0], j_out * 4 + strip * 16);
          }
          sync_warp();
          // PointwiseTile c[row + (group * 64) : +min(64, (m - (row + (group * 64)))), column + (strip * 32) : +min(32, (n - (column + (strip * 32))))]
          store_group_rows<Staging, 64, 32>(staging + group * 8192, c + (group * 64 + row) * c_stride0 + column + strip * 32, c_stride0, 1, min_index(m - group * 64 - row, 64), min_index(n - column - strip * 32, 32), Identity{});
          sync_warp();
        }
      }
    }
  }
  else {
    // Role producer
    setmaxnreg_dec<40>();
    if (warp_number == 8 && elect_one()) {
      TRACEA_NO_UNROLL
      for (int32_t k_fetch = 0; k_fetch < (k + 63) / 64; ++k_fetch) {
        mbarrier_wait(empty + k_fetch % 3 * 8, (k_fetch / 3 + 1) % 2);
        mbarrier_arrive_expect(full + k_fetch % 3 * 8, 24576);
        // TmaCopy a[row : +128, k_fetch * 64 : +64] -> a_tiles
        tma_load<2>(a_tiles + k_fetch % 3 * 16384, args.a_map, full + k_fetch % 3 * 8, k_fetch * 64, row);
        // TmaCopy b_t[column : +64, k_fetch * 64 : +64] -> b_tiles
        tma_load<2>(b_tiles + k_fetch % 3 * 8192, args.b_t_map, full + k_fetch % 3 * 8, k_fetch * 64, column);
      }
    }
  }
}
}  // namespace tracea_gemm_wgmma_370e7b0a68923d001cc3_text
using tracea_gemm_wgmma_370e7b0a68923d001cc3_text::tracea_gemm_wgmma_370e7b0a68923d001cc3, tracea_gemm_wgmma_370e7b0a68923d001cc3_text::tracea_gemm_wgmma_370e7b0a68923d001cc3_args;
