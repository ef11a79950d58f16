// conv2d_1x256x14x14_by_256x256x3x3_f32_normwise_2840fdc6a5262ed6 | conv.winograd_prepacked | avx2 | columns=4,gap=16,kb=256,m=4,mr=6,nv=2,prefetch=0,rows=1,tail=4,unroll=4,upcoming=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/team.h"
#include "tracea/vec.h"
#include "tracea/winograd.h"

namespace tracea_conv_winograd_prepacked_b36f73185884610dfa0c_text {
using namespace tracea;

using Tile0 = ConvTile<float, 6, 2, 4, 0>;
static_assert(Tile0::columns == 16, "the kernel was built for this vector length");
struct Epilogue0 {
  const float* x1;
  const float* x2;
  int64_t x2_row;
  template <class V>
  TRACEA_INLINE V operator()(V x0, [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v1 = load_partial<V>(x1 + col, lanes);
    const V v2 = load_partial<V>(x2 + row * x2_row + col, lanes);
    const auto t0 = add(x0, v1);
    const auto t1 = relu(t0);
    const auto t2 = add(t1, v2);
    return t2;
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_conv_winograd_prepacked_b36f73185884610dfa0c(const tracea_call* call, int32_t rank) {
  const float* const x = static_cast<const float*>(call->pointers[0]);
  const float* const w = static_cast<const float*>(call->pointers[1]);
  const float* const x1 = static_cast<const float*>(call->pointers[2]);
  const float* const x2 = static_cast<const float*>(call->pointers[3]);
  float* const y = static_cast<float*>(call->pointers[4]);
  const int64_t images = call->integers[0];
  const int64_t h = call->integers[1];
  const int64_t width = call->integers[2];
  const int64_t c = call->integers[3];
  const int64_t x_stride0 = call->integers[4];
  const int64_t x_stride1 = call->integers[5];
  const int64_t x_stride2 = call->integers[6];
  const int64_t x_stride3 = call->integers[7];
  const int64_t k = call->integers[8];
  const int64_t p = call->integers[10];
  const int64_t q = call->integers[11];
  const int64_t x2_stride0 = call->integers[12];
  const int64_t x2_stride2 = call->integers[14];
  const int64_t x2_stride3 = call->integers[15];
  const int64_t y_stride0 = call->integers[16];
  const int64_t y_stride2 = call->integers[18];
  const int64_t y_stride3 = call->integers[19];
  float* const image_places = reinterpret_cast<float*>(thread_scratch(call, rank));
  float* const sums = reinterpret_cast<float*>(thread_scratch(call, rank) + c * 576 + 9216);
  for (TaskLoop tasks0(call, rank, 0, (k + 255) / 256 * ((p + 3) / 4) * images); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t image = task / ((k + 255) / 256 * ((p + 3) / 4));
    const int64_t group = 0;
    const int64_t top = task / ((k + 255) / 256) % ((p + 3) / 4) * 4;
    const int64_t band = min_index(p - top, 4);
    const int64_t first = task % ((k + 255) / 256) * 256;
    const int64_t filters = min_index(k - first, 256);
    for (int64_t left = 0; left < q; left += 16) {
      const int64_t across = min_index(q - left, 16);
      // TransformImage x[image : +1, group : +1, top - 1 : +6, left - 1 : +(((across + 3) / 4) * 4) + 2, 0 : +c] -> image_places
      winograd_image<4, 3, float>(x + group * x_stride1 + image * x_stride0, {x_stride2, x_stride3, 1}, h, width, top - 1, left - 1, 1, (across + 3) / 4, c, image_places, c * 4 + 64, c + 16);
      for (int64_t filter = 0; filter < filters; filter += 16) {
        const int64_t wide = min_index(filters - filter, 16);
        for (int64_t place = 0; place < 36; ++place) {
          for (int64_t tile = 0; tile < (across + 3) / 4; tile += 6) {
            const int64_t tiles = min_index((across + 3) / 4 - tile, 6);
            // MicroKernel sums[place : +1, tile : +tiles, 0 : +wide]
            Tile0::run<6, 4>(tiles, wide, ConvTaps{1, 1, c, 0, 0, 0}, image_places + c * place * 4 + c * tile + place * 64 + tile * 16, c + 16, w + (filter + first) / 16 * c * 576 + (k + 15) / 16 * c * group * 576 + c * place * 16, sums + place * 64 + tile * 16, 16, false);
          }
        }
        // TransformBack sums -> y[image : +1, 0 : +1, top : +band, left : +across, first + filter : +wide]
        {
          const auto epilogue_of = [&]([[maybe_unused]] int64_t row_of_results) TRACEA_LAMBDA {
            return Epilogue0{x1 + filter + first, x2 + filter + first + image * x2_stride0 + left * x2_stride3 + row_of_results * x2_stride2 + top * x2_stride2, x2_stride3};
          };
          winograd_back<4, 3, float>(sums, 64, 16, (across + 3) / 4, band, across, wide, y + filter + first + image * y_stride0 + left * y_stride3 + top * y_stride2, y_stride2, y_stride3, 1, epilogue_of);
        }
      }
    }
  }
}
}  // namespace tracea_conv_winograd_prepacked_b36f73185884610dfa0c_text
