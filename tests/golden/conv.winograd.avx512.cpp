// conv2d_1x256x14x14_by_256x256x3x3_f32_normwise_2840fdc6a5262ed6 | conv.winograd | avx512 | columns=7,gap=16,kb=256,m=2,mr=14,nv=2,prefetch=48,rows=7,tail=7,unroll=4,upcoming=2
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/team.h"
#include "tracea/vec.h"
#include "tracea/winograd.h"

namespace tracea_conv_winograd_26ad57d20f183f01cb3e_text {
using namespace tracea;

static_assert(32 % Vec<float>::lanes == 0, "the kernel was built for this vector length");
using Tile0 = ConvTile<float, 14, 2, 4, 48, false, 0, 2>;
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

extern "C" __attribute__((visibility("default"))) void tracea_conv_winograd_26ad57d20f183f01cb3e(const tracea_call* call, int32_t rank) {
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
  const int64_t k = call->integers[10];
  const int64_t w_stride0 = call->integers[11];
  const int64_t w_stride1 = call->integers[12];
  const int64_t w_stride2 = call->integers[13];
  const int64_t w_stride3 = call->integers[14];
  const int64_t w_stride4 = call->integers[15];
  const int64_t p = call->integers[17];
  const int64_t q = call->integers[18];
  const int64_t x2_stride0 = call->integers[19];
  const int64_t x2_stride2 = call->integers[21];
  const int64_t x2_stride3 = call->integers[22];
  const int64_t y_stride0 = call->integers[23];
  const int64_t y_stride2 = call->integers[25];
  const int64_t y_stride3 = call->integers[26];
  float* const panels = reinterpret_cast<float*>(call->team_scratch);
  float* const image_places = reinterpret_cast<float*>(thread_scratch(call, rank));
  float* const sums = reinterpret_cast<float*>(thread_scratch(call, rank) + c * 3136 + 50176);
  for (TaskLoop tasks0(call, rank, 0, (k + 31) / 32); tasks0.next();) {
    const int64_t pack_task = tasks0.task();
    const int64_t pack_group = 0;
    const int64_t pack_first = pack_task * 32;
    const int64_t pack_wide = min_index(k - pack_first, 32);
    // TransformFilters w[pack_group : +1, 0 : +r, 0 : +s, 0 : +c, pack_first : +pack_wide] -> panels
    winograd_filters<2, 3, float, 32 / Vec<float>::lanes>(w + pack_first * w_stride4 + pack_group * w_stride0, {w_stride1, w_stride2, w_stride3, w_stride4}, c, pack_wide, panels + (k + 31) / 32 * c * pack_group * 512 + pack_first / 32 * c * 512);
  }
  team_barrier(call, rank);
  for (TaskLoop tasks1(call, rank, 1, (k + 255) / 256 * ((p + 13) / 14) * images); tasks1.next();) {
    const int64_t task = tasks1.task();
    const int64_t image = task / ((k + 255) / 256 * ((p + 13) / 14));
    const int64_t group = 0;
    const int64_t top = task / ((k + 255) / 256) % ((p + 13) / 14) * 14;
    const int64_t band = min_index(p - top, 14);
    const int64_t first = task % ((k + 255) / 256) * 256;
    const int64_t filters = min_index(k - first, 256);
    for (int64_t left = 0; left < q; left += 14) {
      const int64_t across = min_index(q - left, 14);
      // TransformImage x[image : +1, group : +1, top - 1 : +16, left - 1 : +(((across + 1) / 2) * 2) + 2, 0 : +c] -> image_places
      winograd_image<2, 3, float>(x + group * x_stride1 + image * x_stride0, {x_stride2, x_stride3, 1}, h, width, top - 1, left - 1, 7, (across + 1) / 2, c, image_places, c * 49 + 784, c + 16);
      for (int64_t filter = 0; filter < filters; filter += 32) {
        const int64_t wide = min_index(filters - filter, 32);
        for (int64_t place = 0; place < 16; ++place) {
          for (int64_t tile = 0; tile < (across + 1) / 2 * 7; tile += 14) {
            const int64_t tiles = min_index((across + 1) / 2 * 7 - tile, 14);
            // MicroKernel sums[place : +1, tile : +tiles, 0 : +wide]
            Tile0::run<14, 7>(tiles, wide, ConvTaps{1, 1, c, 0, 0, 0}, image_places + c * place * 49 + c * tile + place * 784 + tile * 16, c + 16, {panels + (filter + first) / 32 * c * 512 + (k + 31) / 32 * c * group * 512 + c * place * 32, panels + (filter + first) / 32 * c * 512 + (k + 31) / 32 * c * group * 512 + c / 4 * (tile / 14) * 32 + c * 32 + c * place * 32}, sums + place * 1568 + tile * 32, 32, false);
          }
        }
        // TransformBack sums -> y[image : +1, 0 : +1, top : +band, left : +across, first + filter : +wide]
        {
          const auto epilogue_of = [&]([[maybe_unused]] int64_t row_of_results) TRACEA_LAMBDA {
            return Epilogue0{x1 + filter + first, x2 + filter + first + image * x2_stride0 + left * x2_stride3 + row_of_results * x2_stride2 + top * x2_stride2, x2_stride3};
          };
          winograd_back<2, 3, float>(sums, 1568, 32, (across + 1) / 2, band, across, wide, y + filter + first + image * y_stride0 + left * y_stride3 + top * y_stride2, y_stride2, y_stride3, 1, epilogue_of);
        }
      }
    }
  }
}
}  // namespace tracea_conv_winograd_26ad57d20f183f01cb3e_text
