// gemm_2x150x70x104_bf16_a24af4de283153a0 | gemm.wgmma | sm_90a | bk=64,bm=128,bn=64,chunk_a=16,chunk_b=16,groups=2,order=row,persistent=1,pingpong=0,stages=3,swizzle=1
#include "tracea/gpu.h"

namespace tracea_gemm_wgmma_05731b134eb3ed46be6e_text {
using namespace tracea;

using ATile = SharedTile<bf16, 64, Swizzle<3, 4, 3>>;
using BTile = SharedTile<bf16, 64, Swizzle<3, 4, 3>>;
using Staging = SharedTile<float, 32, Swizzle<2, 5, 2, Swizzle<1, 4, 3>>>;

struct Epilogue {
  const bf16* x1;
  const bf16* x2;
  int64_t x2_row;
  template <int width>
  TRACEA_DEVICE void operator()(float (&x0)[width], [[maybe_unused]] int32_t row, [[maybe_unused]] int32_t column, [[maybe_unused]] int32_t count) const {
    float v1[width];
    load_piece(v1, x1 + column, 1, count);
    float v2[width];
    load_piece(v2, x2 + row * x2_row + column, 1, count);
    TRACEA_UNROLL
    for (int e = 0; e < width; ++e) {
      const float t0 = tracea::add(x0[e], v1[e]);
      const float t1 = tracea::gelu(t0);
      const float t2 = tracea::add(t1, v2[e]);
      x0[e] = t2;
    }
  }
};

struct tracea_gemm_wgmma_05731b134eb3ed46be6e_args {
  TensorMap a_map;
  TensorMap b_t_map;
  const bf16* x1;
  const bf16* x2;
  bf16* c;
  int64_t batch0;
  int64_t m;
  int64_t k;
  int64_t a_stride0;
  int64_t a_stride1;
  int64_t n;
  int64_t b_t_stride0;
  int64_t b_t_stride1;
  int64_t x2_stride0;
  int64_t x2_stride1;
  int64_t c_stride0;
  int64_t c_stride1;
  int64_t multiprocessors;
};

TRACEA_KERNEL(384, 1) void tracea_gemm_wgmma_05731b134eb3ed46be6e(const TRACEA_GRID_CONSTANT tracea_gemm_wgmma_05731b134eb3ed46be6e_args args) {
  const bf16* const x1 = args.x1;
  const bf16* const x2 = args.x2;
  bf16* const c = args.c;
  const int32_t batch0 = static_cast<int32_t>(args.batch0);
  const int32_t m = static_cast<int32_t>(args.m);
  const int32_t k = static_cast<int32_t>(args.k);
  const int32_t n = static_cast<int32_t>(args.n);
  const int64_t x2_stride0 = args.x2_stride0;
  const int64_t x2_stride1 = args.x2_stride1;
  const int64_t c_stride0 = args.c_stride0;
  const int64_t c_stride1 = args.c_stride1;
  const int32_t multiprocessors = static_cast<int32_t>(args.multiprocessors);
  const uint32_t a_tiles = shared_base() + 0;
  const uint32_t b_tiles = shared_base() + 49152;
  const uint32_t full = shared_base() + 73728;
  const uint32_t empty = shared_base() + 73792;
  const uint32_t staging = shared_base() + 74240;
  const int32_t worker = static_cast<int32_t>(block_index());
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
    for (Turns turns(worker, min_index((m + 127) / 128 * ((n + 63) / 64) * batch0, multiprocessors), (m + 127) / 128 * ((n + 63) / 64) * batch0, (k + 63) / 64, 0, 1); turns.next();) {
      const int32_t tile = turns.tile;
      const int32_t first = turns.first;
      const int32_t column = tile % ((n + 63) / 64) * 64;
      const int32_t row = tile / ((n + 63) / 64) % ((m + 127) / 128) * 128;
      const int32_t i_batch0 = tile / ((n + 63) / 64) / ((m + 127) / 128);
      clear(sums);
      TRACEA_NO_UNROLL
      for (int32_t k_step = 0; k_step < (k + 63) / 64; ++k_step) {
        mbarrier_wait(full + (first + k_step) % 3 * 8, (first + k_step) / 3 % 2);
        wgmma_fence();
        TRACEA_UNROLL
        for (int32_t kk = 0; kk < 4; ++kk) {
          TRACEA_UNROLL
          for (int32_t i = 0; i < 1; ++i) {
            wgmma_m64k16<64, bf16, false, false>(sums[i], tile_descriptor<ATile>(a_tiles + (first + k_step) % 3 * 16384, group * 64 + i * 64, kk * 16), tile_descriptor<BTile>(b_tiles + (first + k_step) % 3 * 8192, 0, kk * 16), true);
          }
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (0 < k_step) {
          release_slot(empty + (first + k_step + 2) % 3 * 8);
        }
      }
      wgmma_wait<0>();
      settle(sums);
      release_slot(empty + ((k + 63) / 64 + first + 2) % 3 * 8);
      if (group * 64 + row < m) {
        TRACEA_UNROLL
        for (int32_t strip = 0; strip < 2; ++strip) {
          if (column + strip * 32 < n) {
            TRACEA_UNROLL
            for (int32_t j_out = 0; j_out < 4; ++j_out) {
              stage_group_sums<Staging>(staging + group * 8192, 0, j_out * 8, sums[0], j_out * 4 + strip * 16);
            }
            sync_warp();
            // PointwiseTile c[i_batch0 : +1, (group * 64) + row : +min(64, (m - ((group * 64) + row))), column + (strip * 32) : +min(32, (n - (column + (strip * 32))))]
            store_group_rows<Staging, 64, 32>(staging + group * 8192, c + i_batch0 * c_stride0 + (group * 64 + row) * c_stride1 + column + strip * 32, c_stride1, 1, min_index(m - group * 64 - row, 64), min_index(n - column - strip * 32, 32), Epilogue{x1 + column + strip * 32, x2 + i_batch0 * x2_stride0 + (group * 64 + row) * x2_stride1 + column + strip * 32, x2_stride1});
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
      for (Turns turn_fetchs(worker, min_index((m + 127) / 128 * ((n + 63) / 64) * batch0, multiprocessors), (m + 127) / 128 * ((n + 63) / 64) * batch0, (k + 63) / 64, 0, 1); turn_fetchs.next();) {
        const int32_t tile_fetch = turn_fetchs.tile;
        const int32_t first_fetch = turn_fetchs.first;
        const int32_t column_fetch = tile_fetch % ((n + 63) / 64) * 64;
        const int32_t row_fetch = tile_fetch / ((n + 63) / 64) % ((m + 127) / 128) * 128;
        const int32_t i_batch0_fetch = tile_fetch / ((n + 63) / 64) / ((m + 127) / 128);
        TRACEA_NO_UNROLL
        for (int32_t k_fetch = 0; k_fetch < (k + 63) / 64; ++k_fetch) {
          mbarrier_wait(empty + (first_fetch + k_fetch) % 3 * 8, ((first_fetch + k_fetch) / 3 + 1) % 2);
          mbarrier_arrive_expect(full + (first_fetch + k_fetch) % 3 * 8, 24576);
          // TmaCopy a[i_batch0_fetch : +1, row_fetch : +128, k_fetch * 64 : +64] -> a_tiles
          tma_load<3>(a_tiles + (first_fetch + k_fetch) % 3 * 16384, args.a_map, full + (first_fetch + k_fetch) % 3 * 8, k_fetch * 64, row_fetch, i_batch0_fetch);
          // TmaCopy b_t[i_batch0_fetch : +1, column_fetch : +64, k_fetch * 64 : +64] -> b_tiles
          tma_load<3>(b_tiles + (first_fetch + k_fetch) % 3 * 8192, args.b_t_map, full + (first_fetch + k_fetch) % 3 * 8, k_fetch * 64, column_fetch, i_batch0_fetch);
        }
      }
    }
  }
}
}  // namespace tracea_gemm_wgmma_05731b134eb3ed46be6e_text
using tracea_gemm_wgmma_05731b134eb3ed46be6e_text::tracea_gemm_wgmma_05731b134eb3ed46be6e, tracea_gemm_wgmma_05731b134eb3ed46be6e_text::tracea_gemm_wgmma_05731b134eb3ed46be6e_args;
