// conv2d_1x64x56x56_by_64x64x3x3_f32_e87e3595462b3bc8 | conv.packed | plain | ahead=0,cb=0,gap=16,kb=64,mr=7,nv=2,prefetch=8,rows=5,tail=0,unroll=2,upcoming=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/convert.h"
#include "tracea/gemm_store.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/pack.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_conv_packed_6e03c32f5cb2d5666e95_text {
using namespace tracea;

using Tile0 = ConvTile<float, 7, 2, 2, 8>;
static_assert(Tile0::columns == 32, "the kernel was built for this vector length");
struct Epilogue0 {
  const float* x1;
  template <class V>
  TRACEA_INLINE V operator()(V x0, [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v1 = load_broadcast<V>(x1 + row * 1);
    const auto t0 = add(x0, v1);
    const auto t1 = relu(t0);
    return t1;
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_conv_packed_6e03c32f5cb2d5666e95(const tracea_call* call, int32_t rank) {
  const float* const x = static_cast<const float*>(call->pointers[0]);
  const float* const w = static_cast<const float*>(call->pointers[1]);
  const float* const x1 = static_cast<const float*>(call->pointers[2]);
  float* const y = static_cast<float*>(call->pointers[3]);
  const int64_t images = call->integers[0];
  const int64_t h = call->integers[1];
  const int64_t width = call->integers[2];
  const int64_t c = call->integers[3];
  const int64_t x_stride0 = call->integers[4];
  const int64_t x_stride1 = call->integers[5];
  const int64_t x_stride2 = call->integers[6];
  const int64_t x_stride4 = call->integers[7];
  const int64_t r = call->integers[8];
  const int64_t s = call->integers[9];
  const int64_t k = call->integers[10];
  const int64_t w_stride0 = call->integers[11];
  const int64_t w_stride1 = call->integers[12];
  const int64_t w_stride2 = call->integers[13];
  const int64_t w_stride3 = call->integers[14];
  const int64_t w_stride4 = call->integers[15];
  const int64_t p = call->integers[17];
  const int64_t q = call->integers[18];
  const int64_t y_stride0 = call->integers[19];
  const int64_t y_stride2 = call->integers[21];
  const int64_t y_stride4 = call->integers[22];
  float* const panels = reinterpret_cast<float*>(call->team_scratch);
  float* const halo = reinterpret_cast<float*>(thread_scratch(call, rank));
  float* const sums = reinterpret_cast<float*>(thread_scratch(call, rank) + (c * q * 16 + c * q * r * 4 + c * r * s * 4 + c * s * 16 + q * 256 + q * r * 64 + r * s * 64 + s * 256 - c * 16 - c * r * 4 - r * 64 - 193) / 64 * 64);
  for (TaskLoop tasks0(call, rank, 0, (k + 31) / 32); tasks0.next();) {
    const int64_t pack_task = tasks0.task();
    const int64_t pack_group = 0;
    const int64_t pack_first = pack_task * 32;
    const int64_t pack_wide = min_index(k - pack_first, 32);
    for (int64_t pack_c0 = 0; pack_c0 < c; pack_c0 += 16) {
      const int64_t pack_depth = min_index(c - pack_c0, 16);
      for (int64_t pack_r = 0; pack_r < r; ++pack_r) {
        for (int64_t pack_s = 0; pack_s < s; ++pack_s) {
          // Pack w[pack_group : +1, pack_r : +1, pack_s : +1, pack_c0 : +pack_depth, pack_first : +pack_wide] -> panels
          pack_b<float, 32>(w + pack_c0 * w_stride3 + pack_first * w_stride4 + pack_group * w_stride0 + pack_r * w_stride1 + pack_s * w_stride2, w_stride3, w_stride4, pack_depth, pack_wide, c, panels + (k + 31) / 32 * c * pack_group * r * s * 32 + pack_first / 32 * c * r * s * 32 + c * pack_r * s * 32 + c * pack_s * 32 + pack_c0 * 32);
        }
      }
    }
  }
  team_barrier(call, rank);
  for (TaskLoop tasks1(call, rank, 1, (k + 63) / 64 * ((p + 4) / 5) * images); tasks1.next();) {
    const int64_t task = tasks1.task();
    const int64_t image = task / ((k + 63) / 64 * ((p + 4) / 5));
    const int64_t group = 0;
    const int64_t top = task / ((k + 63) / 64) % ((p + 4) / 5) * 5;
    const int64_t band = min_index(p - top, 5);
    const int64_t first = task % ((k + 63) / 64) * 64;
    const int64_t filters = min_index(k - first, 64);
    // CopyTile x[image : +1, group : +1, top - 1 : +((band - 1) + (r - 1)) + 1, -1 : +((q - 1) + (s - 1)) + 1, 0 : +c] -> halo
    copy_halo<float>(x + group * x_stride1 + image * x_stride0, {x_stride2, 1, x_stride4}, h, width, top - 1, (-1), band + r - 1, q + s - 1, c, halo, c * q + c * s + q * 16 + s * 16 - c - 16, c + 16);
    for (int64_t filter = 0; filter < filters; filter += 32) {
      const int64_t wide = min_index(filters - filter, 32);
      for (int64_t line = 0; line < band; ++line) {
        for (int64_t pixel = 0; pixel < q; pixel += 7) {
          const int64_t pixels = min_index(q - pixel, 7);
          // MicroKernel sums[0 : +pixels, 0 : +wide]
          Tile0::run_within<7>(ImageRows{line + top - 1, h, 1}, pixels, wide, {r, s, c, c * q + c * s + q * 16 + s * 16 - c - 16, c + 16, c * 32}, halo + c * line * q + c * line * s + c * pixel + line * q * 16 + line * s * 16 + pixel * 16 - c * line - line * 16, c + 16, panels + (filter + first) / 32 * c * r * s * 32 + (k + 31) / 32 * c * group * r * s * 32, sums, 32, false);
          store_tile_transposed(sums, 32, pixels, wide, y + filter * y_stride4 + first * y_stride4 + image * y_stride0 + line * y_stride2 + pixel + top * y_stride2, y_stride4, Epilogue0{x1 + filter + first});
        }
      }
    }
  }
}
}  // namespace tracea_conv_packed_6e03c32f5cb2d5666e95_text
