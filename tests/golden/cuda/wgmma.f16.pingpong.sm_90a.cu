// gemm_200x200x104_f16_6fa5687e9f5832e0 | gemm.wgmma | sm_90a | bk=64,bm=64,bn=64,chunk_a=16,chunk_b=16,groups=2,order=row,persistent=1,pingpong=1,stages=3,swizzle=1
#include "tracea/gpu.h"

namespace tracea_gemm_wgmma_6f2cf1cb1dfc436f4393_text {
using namespace tracea;

using ATile = SharedTile<f16, 64, Swizzle<3, 4, 3>>;
using BTile = SharedTile<f16, 64, Swizzle<3, 4, 3>>;
using Staging = SharedTile<float, 32, Swizzle<2, 5, 2, Swizzle<1, 4, 3>>>;

struct tracea_gemm_wgmma_6f2cf1cb1dfc436f4393_args {
  TensorMap a_map;
  TensorMap b_t_map;
  f16* c;
  int64_t m;
  int64_t k;
  int64_t a_stride0;
  int64_t n;
  int64_t b_t_stride0;
  int64_t c_stride0;
  int64_t multiprocessors;
};

TRACEA_KERNEL(384, 1) void tracea_gemm_wgmma_6f2cf1cb1dfc436f4393(const TRACEA_GRID_CONSTANT tracea_gemm_wgmma_6f2cf1cb1dfc436f4393_args args) {
  f16* const c = args.c;
  const int32_t m = static_cast<int32_t>(args.m);
  const int32_t k = static_cast<int32_t>(args.k);
  const int32_t n = static_cast<int32_t>(args.n);
  const int64_t c_stride0 = args.c_stride0;
  const int32_t multiprocessors = static_cast<int32_t>(args.multiprocessors);
  const uint32_t a_tiles = shared_base() + 0;
  const uint32_t b_tiles = shared_base() + 24576;
  const uint32_t full = shared_base() + 49152;
  const uint32_t empty = shared_base() + 49216;
  const uint32_t baton = shared_base() + 49280;
  const uint32_t staging = shared_base() + 49664;
  const int32_t worker = static_cast<int32_t>(block_index());
  if (thread_index() == 0) {
    TRACEA_UNROLL
    for (int32_t s_baton = 0; s_baton < 2; ++s_baton) {
      mbarrier_init(baton + s_baton * 8, 4);
    }
    mbarrier_fence_init();
  }
  if (thread_index() == 0) {
    TRACEA_UNROLL
    for (int32_t s = 0; s < 3; ++s) {
      mbarrier_init(full + s * 8, 1);
      mbarrier_init(empty + s * 8, 4);
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
    for (Turns turns(worker, min_index((m + 63) / 64 * ((n + 63) / 64), multiprocessors), (m + 63) / 64 * ((n + 63) / 64), (k + 63) / 64, group, 2); turns.next();) {
      const int32_t tile = turns.tile;
      const int32_t turn = turns.turn;
      const int32_t first = turns.first;
      const int32_t column = tile % ((n + 63) / 64) * 64;
      const int32_t row = tile / ((n + 63) / 64) * 64;
      mbarrier_wait(baton + turn % 2 * 8, ((turn + 1) / 2 + 1) % 2);
      clear(sums);
      TRACEA_NO_UNROLL
      for (int32_t k_step = 0; k_step < (k + 63) / 64; ++k_step) {
        mbarrier_wait(full + (first + k_step) % 3 * 8, (first + k_step) / 3 % 2);
        wgmma_fence();
        TRACEA_UNROLL
        for (int32_t kk = 0; kk < 4; ++kk) {
          TRACEA_UNROLL
          for (int32_t i = 0; i < 1; ++i) {
            wgmma_m64k16<64, f16, false, false>(sums[i], tile_descriptor<ATile>(a_tiles + (first + k_step) % 3 * 8192, i * 64, kk * 16), tile_descriptor<BTile>(b_tiles + (first + k_step) % 3 * 8192, 0, kk * 16), true);
          }
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (0 < k_step) {
          release_slot(empty + (first + k_step + 2) % 3 * 8);
        }
      }
      release_slot(baton + (turn + 1) % 2 * 8);
      wgmma_wait<0>();
      settle(sums);
      release_slot(empty + ((k + 63) / 64 + first + 2) % 3 * 8);
      if (row < m) {
        TRACEA_UNROLL
        for (int32_t strip = 0; strip < 2; ++strip) {
          if (column + strip * 32 < n) {
            TRACEA_UNROLL
            for (int32_t j_out = 0; j_out < 4; ++j_out) {
              stage_group_sums<Staging>(staging + group * 8192, 0, j_out * 8, sums[0], j_out * 4 + strip * 16);
            }
            sync_warp();
            // PointwiseTile c[row : +min(64, (m - row)), column + (strip * 32) : +min(32, (n - (column + (strip * 32))))]
            store_group_rows<Staging, 64, 32>(staging + group * 8192, c + row * c_stride0 + column + strip * 32, c_stride0, 1, min_index(m - row, 64), min_index(n - column - strip * 32, 32), Identity{});
            sync_warp();
          }
        }
      }
    }
  }
  else {
    // Role producer
    setmaxnreg_dec<40>();
    if (warp_number == 8 && elect_one()) {
      for (Turns turn_fetchs(worker, min_index((m + 63) / 64 * ((n + 63) / 64), multiprocessors), (m + 63) / 64 * ((n + 63) / 64), (k + 63) / 64, 0, 1); turn_fetchs.next();) {
        const int32_t tile_fetch = turn_fetchs.tile;
        const int32_t first_fetch = turn_fetchs.first;
        const int32_t column_fetch = tile_fetch % ((n + 63) / 64) * 64;
        const int32_t row_fetch = tile_fetch / ((n + 63) / 64) * 64;
        TRACEA_NO_UNROLL
        for (int32_t k_fetch = 0; k_fetch < (k + 63) / 64; ++k_fetch) {
          mbarrier_wait(empty + (first_fetch + k_fetch) % 3 * 8, ((first_fetch + k_fetch) / 3 + 1) % 2);
          mbarrier_arrive_expect(full + (first_fetch + k_fetch) % 3 * 8, 16384);
          // TmaCopy a[row_fetch : +64, k_fetch * 64 : +64] -> a_tiles
          tma_load<2>(a_tiles + (first_fetch + k_fetch) % 3 * 8192, args.a_map, full + (first_fetch + k_fetch) % 3 * 8, k_fetch * 64, row_fetch);
          // TmaCopy b_t[column_fetch : +64, k_fetch * 64 : +64] -> b_tiles
          tma_load<2>(b_tiles + (first_fetch + k_fetch) % 3 * 8192, args.b_t_map, full + (first_fetch + k_fetch) % 3 * 8, k_fetch * 64, column_fetch);
        }
      }
    }
  }
}
}  // namespace tracea_gemm_wgmma_6f2cf1cb1dfc436f4393_text
using tracea_gemm_wgmma_6f2cf1cb1dfc436f4393_text::tracea_gemm_wgmma_6f2cf1cb1dfc436f4393, tracea_gemm_wgmma_6f2cf1cb1dfc436f4393_text::tracea_gemm_wgmma_6f2cf1cb1dfc436f4393_args;
