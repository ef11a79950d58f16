// conv2d_1x256x14x14_by_256x256x3x3_f32_dc268e6782269bab | conv.prepacked | plain | ahead=0,cb=0,gap=16,kb=256,mr=7,nv=2,prefetch=8,rows=7,tail=0,unroll=2,upcoming=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_conv_prepacked_89a90e748c460e804913_text {
using namespace tracea;

using Tile0 = ConvTile<float, 7, 2, 2, 8>;
static_assert(Tile0::columns == 32, "the kernel was built for this vector length");
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

extern "C" __attribute__((visibility("default"))) void tracea_conv_prepacked_89a90e748c460e804913(const tracea_call* call, int32_t rank) {
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
  const int64_t r = call->integers[9];
  const int64_t s = call->integers[10];
  const int64_t p = call->integers[12];
  const int64_t q = call->integers[13];
  const int64_t x2_stride0 = call->integers[14];
  const int64_t x2_stride2 = call->integers[16];
  const int64_t x2_stride3 = call->integers[17];
  const int64_t y_stride0 = call->integers[18];
  const int64_t y_stride2 = call->integers[20];
  const int64_t y_stride3 = call->integers[21];
  float* const halo = reinterpret_cast<float*>(thread_scratch(call, rank));
  for (TaskLoop tasks0(call, rank, 0, (k + 255) / 256 * ((p + 6) / 7) * images); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t image = task / ((k + 255) / 256 * ((p + 6) / 7));
    const int64_t group = 0;
    const int64_t top = task / ((k + 255) / 256) % ((p + 6) / 7) * 7;
    const int64_t band = min_index(p - top, 7);
    const int64_t first = task % ((k + 255) / 256) * 256;
    const int64_t filters = min_index(k - first, 256);
    // CopyTile x[image : +1, group : +1, top - 1 : +((band - 1) + (r - 1)) + 1, -1 : +((q - 1) + (s - 1)) + 1, 0 : +c] -> halo
    copy_halo<float>(x + group * x_stride1 + image * x_stride0, {x_stride2, x_stride3, 1}, h, width, top - 1, (-1), band + r - 1, q + s - 1, c, halo, c * q + c * s + q * 16 + s * 16 - c - 16, c + 16);
    for (int64_t filter = 0; filter < filters; filter += 32) {
      const int64_t wide = min_index(filters - filter, 32);
      for (int64_t line = 0; line < band; ++line) {
        for (int64_t pixel = 0; pixel < q; pixel += 7) {
          const int64_t pixels = min_index(q - pixel, 7);
          // MicroKernel y[image : +1, 0 : +1, top + line : +1, pixel : +pixels, first + filter : +wide]
          Tile0::run_within<7>(ImageRows{line + top - 1, h, 1}, ImageColumns{pixel - 1, width, 1, 1}, pixels, wide, {r, s, c, c * q + c * s + q * 16 + s * 16 - c - 16, c + 16, c * 32}, halo + c * line * q + c * line * s + c * pixel + line * q * 16 + line * s * 16 + pixel * 16 - c * line - line * 16, c + 16, w + (filter + first) / 32 * c * r * s * 32 + (k + 31) / 32 * c * group * r * s * 32, y + filter + first + image * y_stride0 + line * y_stride2 + pixel * y_stride3 + top * y_stride2, y_stride3, false, Epilogue0{x1 + filter + first, x2 + filter + first + image * x2_stride0 + line * x2_stride2 + pixel * x2_stride3 + top * x2_stride2, x2_stride3});
        }
      }
    }
  }
}
}  // namespace tracea_conv_prepacked_89a90e748c460e804913_text
