// conv2d_1x144x56x56_by_144x1x3x3_f32_e5d64b3d07c1adf7 | conv.depthwise_prepacked | avx2 | cb=80,inner=1,mr=7,nv=2,rows=2,tail=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/convert.h"
#include "tracea/depthwise.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_conv_depthwise_prepacked_28930fa115820074b5af_text {
using namespace tracea;

using Tile0 = DepthwiseTile<float, 7, 2>;
static_assert(Tile0::columns == 16, "the kernel was built for this vector length");
struct Epilogue0 {
  const float* x1;
  template <class V>
  TRACEA_INLINE V operator()(V x0, [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v1 = load_partial<V>(x1 + col, lanes);
    const auto t0 = add(x0, v1);
    const auto t1 = relu(t0);
    return t1;
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_conv_depthwise_prepacked_28930fa115820074b5af(const tracea_call* call, int32_t rank) {
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
  const int64_t x_last_stride2 = call->integers[6];
  const int64_t r = call->integers[7];
  const int64_t s = call->integers[8];
  const int64_t p = call->integers[9];
  const int64_t q = call->integers[10];
  const int64_t y_last_stride0 = call->integers[11];
  const int64_t y_last_stride1 = call->integers[12];
  const int64_t y_last_stride2 = call->integers[13];
  for (TaskLoop tasks0(call, rank, 0, (groups + 79) / 80 * ((p + 1) / 2) * images); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t image = task / ((groups + 79) / 80 * ((p + 1) / 2));
    const int64_t top = task / ((groups + 79) / 80) % ((p + 1) / 2) * 2;
    const int64_t band = min_index(p - top, 2);
    const int64_t first = task % ((groups + 79) / 80) * 80;
    const int64_t channels = min_index(groups - first, 80);
    for (int64_t line = 0; line < band; ++line) {
      for (int64_t pixel = 0; pixel < q; pixel += 7) {
        const int64_t pixels = min_index(q - pixel, 7);
        for (int64_t channel = 0; channel < channels; channel += 16) {
          const int64_t wide = min_index(channels - channel, 16);
          // MicroKernel y_last[image : +1, top + line : +1, pixel : +pixels, first + channel : +wide]
          Tile0::run<7>(pixels, wide, ConvTaps{r, s, 1, x_last_stride1, x_last_stride2, 16}, x_last + channel + first + image * x_last_stride0 + line * x_last_stride1 + pixel * x_last_stride2 + top * x_last_stride1 - x_last_stride1 - x_last_stride2, x_last_stride2, w_last + (channel + first) / 16 * r * s * 16, y_last + channel + first + image * y_last_stride0 + line * y_last_stride1 + pixel * y_last_stride2 + top * y_last_stride1, y_last_stride2, ConvBorder{line + top - 1, pixel - 1, h, width, 1, 1, 1}, Epilogue0{x1_last + channel + first});
        }
      }
    }
  }
}
}  // namespace tracea_conv_depthwise_prepacked_28930fa115820074b5af_text
