// conv2d_1x144x56x56_by_144x1x3x3_f32_5c71a4678ec410fd | conv.depthwise | avx2 | cb=16,mr=14,nv=1,rows=8,tail=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/convert.h"
#include "tracea/depthwise.h"
#include "tracea/gemm_store.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/pack.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_conv_depthwise_96c86b131ec3b21f0512_text {
using namespace tracea;

using Tile0 = DepthwiseTile<float, 14, 1>;
static_assert(Tile0::columns == 8, "the kernel was built for this vector length");
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

extern "C" __attribute__((visibility("default"))) void tracea_conv_depthwise_96c86b131ec3b21f0512(const tracea_call* call, int32_t rank) {
  const float* const x_last = static_cast<const float*>(call->pointers[0]);
  const float* const w_last = static_cast<const float*>(call->pointers[1]);
  const float* const x1_last = static_cast<const float*>(call->pointers[2]);
  float* const y_last = static_cast<float*>(call->pointers[3]);
  const int64_t images = call->integers[0];
  const int64_t h = call->integers[1];
  const int64_t width = call->integers[2];
  const int64_t groups = call->integers[3];
  const int64_t x_last_stride0 = call->integers[4];
  const int64_t x_last_stride1 = call->integers[5];
  const int64_t x_last_stride3 = call->integers[6];
  const int64_t r = call->integers[7];
  const int64_t s = call->integers[8];
  const int64_t w_last_stride0 = call->integers[9];
  const int64_t w_last_stride2 = call->integers[10];
  const int64_t p = call->integers[11];
  const int64_t q = call->integers[12];
  const int64_t y_last_stride0 = call->integers[13];
  const int64_t y_last_stride1 = call->integers[14];
  const int64_t y_last_stride3 = call->integers[15];
  float* const panels = reinterpret_cast<float*>(call->team_scratch);
  float* const halo = reinterpret_cast<float*>(thread_scratch(call, rank));
  float* const sums = reinterpret_cast<float*>(thread_scratch(call, rank) + q * 448 + q * r * 64 + r * s * 64 + s * 448 - r * 64 - 448);
  for (TaskLoop tasks0(call, rank, 0, (groups + 7) / 8); tasks0.next();) {
    const int64_t pack_first = tasks0.task() * 8;
    const int64_t pack_wide = min_index(groups - pack_first, 8);
    for (int64_t pack_r = 0; pack_r < r; ++pack_r) {
      // Pack w_last[pack_r : +1, 0 : +s, pack_first : +pack_wide] -> panels
      pack_b<float, 8>(w_last + pack_first * w_last_stride2 + pack_r * w_last_stride0, 1, w_last_stride2, s, pack_wide, s, panels + pack_first / 8 * r * s * 8 + pack_r * s * 8);
    }
  }
  team_barrier(call, rank);
  for (TaskLoop tasks1(call, rank, 1, (groups + 15) / 16 * ((p + 7) / 8) * images); tasks1.next();) {
    const int64_t task = tasks1.task();
    const int64_t image = task / ((groups + 15) / 16 * ((p + 7) / 8));
    const int64_t top = task / ((groups + 15) / 16) % ((p + 7) / 8) * 8;
    const int64_t band = min_index(p - top, 8);
    const int64_t first = task % ((groups + 15) / 16) * 16;
    const int64_t channels = min_index(groups - first, 16);
    // CopyTile x_last[image : +1, top - 1 : +((band - 1) + (r - 1)) + 1, -1 : +((q - 1) + (s - 1)) + 1, first : +channels] -> halo
    copy_halo<float>(x_last + first * x_last_stride3 + image * x_last_stride0, {x_last_stride1, 1, x_last_stride3}, h, width, top - 1, (-1), band + r - 1, q + s - 1, channels, halo, q * 16 + s * 16 - 16, 16);
    for (int64_t channel = 0; channel < channels; channel += 8) {
      const int64_t wide = min_index(channels - channel, 8);
      for (int64_t line = 0; line < band; ++line) {
        for (int64_t pixel = 0; pixel < q; pixel += 14) {
          const int64_t pixels = min_index(q - pixel, 14);
          // MicroKernel sums[0 : +pixels, 0 : +wide]
          Tile0::run<14>(pixels, wide, ConvTaps{r, s, 1, q * 16 + s * 16 - 16, 16, 8}, halo + channel + line * q * 16 + line * s * 16 + pixel * 16 - line * 16, 16, panels + (channel + first) / 8 * r * s * 8, sums, 8, ConvBorder::none(r));
          store_tile_transposed(sums, 8, pixels, wide, y_last + channel * y_last_stride3 + first * y_last_stride3 + image * y_last_stride0 + line * y_last_stride1 + pixel + top * y_last_stride1, y_last_stride3, Epilogue0{x1_last + channel + first});
        }
      }
    }
  }
}
}  // namespace tracea_conv_depthwise_96c86b131ec3b21f0512_text
