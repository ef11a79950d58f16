// conv2d_1x64x112x112_by_3x64x3x3_f32_496c694b92b97b4c | conv.dot_prepacked | avx2 | gap=16,kb=3,mr=4,nk=3,rows=4,tail=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/conv_dot.h"
#include "tracea/convert.h"
#include "tracea/gemm_store.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_conv_dot_prepacked_d8ed35560f77b23d955a_text {
using namespace tracea;

using Tile0 = ConvDotTile<float, 4, 3>;
struct Epilogue0 {
  const float* x1;
  template <class V>
  TRACEA_INLINE V operator()(V x0, [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v1 = load_partial<V>(x1 + col, lanes);
    const auto t0 = add(x0, v1);
    return t0;
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_conv_dot_prepacked_d8ed35560f77b23d955a(const tracea_call* call, int32_t rank) {
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
  const int64_t x_stride3 = call->integers[7];
  const int64_t k = call->integers[8];
  const int64_t r = call->integers[9];
  const int64_t s = call->integers[10];
  const int64_t p = call->integers[12];
  const int64_t q = call->integers[13];
  const int64_t y_stride0 = call->integers[14];
  const int64_t y_stride2 = call->integers[16];
  const int64_t y_stride3 = call->integers[17];
  float* const sums = reinterpret_cast<float*>(thread_scratch(call, rank));
  for (TaskLoop tasks0(call, rank, 0, (k + 2) / 3 * ((p + 3) / 4) * images); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t image = task / ((k + 2) / 3 * ((p + 3) / 4));
    const int64_t group = 0;
    const int64_t top = task / ((k + 2) / 3) % ((p + 3) / 4) * 4;
    const int64_t band = min_index(p - top, 4);
    const int64_t first = task % ((k + 2) / 3) * 3;
    const int64_t filters = min_index(k - first, 3);
    for (int64_t filter = 0; filter < filters; filter += 3) {
      const int64_t wide = min_index(filters - filter, 3);
      for (int64_t line = 0; line < band; ++line) {
        for (int64_t pixel = 0; pixel < q; pixel += 4) {
          const int64_t pixels = min_index(q - pixel, 4);
          // MicroKernel sums[0 : +pixels, 0 : +wide]
          Tile0::run<4>(pixels, wide, ConvTaps{r, s, c, x_stride2, x_stride3, c}, x + group * x_stride1 + image * x_stride0 + line * x_stride2 + pixel * x_stride3 + top * x_stride2 - x_stride2 - x_stride3, x_stride3, w + c * filter * r * s + c * first * r * s + c * group * k * r * s, sums, 3, ConvBorder{line + top - 1, pixel - 1, h, width, 1, 1, 1});
          store_tile(sums, 3, pixels, wide, 0, 0, y + filter + first + image * y_stride0 + line * y_stride2 + pixel * y_stride3 + top * y_stride2, y_stride3, 1, Epilogue0{x1 + filter + first});
        }
      }
    }
  }
}
}  // namespace tracea_conv_dot_prepacked_d8ed35560f77b23d955a_text
