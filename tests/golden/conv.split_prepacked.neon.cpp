// conv2d_1x64x1x4000_by_16x64x1x7_f32_062f150e2be2c26b | conv.split_prepacked | neon | ahead=0,cb=32,gap=16,kb=16,mr=12,nv=2,prefetch=0,rows=1,tail=4,unroll=4,upcoming=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_conv_split_prepacked_2bff521947d9fb55de24_text {
using namespace tracea;

using Tile0 = ConvTile<float, 12, 2, 4, 0>;
static_assert(Tile0::columns == 8, "the kernel was built for this vector length");
struct Load0 {
  const float* x0;
  int64_t x0_row;
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v0 = load_partial<V>(x0 + row * x0_row + col, lanes);
    return v0;
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    prefetch_l2(x0 + row * x0_row + col);
  }
};

struct Store0 {
  const float* x1;
  float* y;
  int64_t y_row;
  template <class V>
  TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const {
    const V v1 = load_partial<V>(x1 + col, lanes);
    const auto t0 = add(x0, v1);
    const auto t1 = relu(t0);
    StoreRows<float, false>{y, y_row}.template at<V>(row, col, t1, lanes);
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    StoreRows<float, false>{y, y_row}.prefetch(row, col);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_conv_split_prepacked_2bff521947d9fb55de24(const tracea_call* call, int32_t rank) {
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
  const int64_t p = call->integers[11];
  const int64_t x1_stride2 = call->integers[13];
  const int64_t q = call->integers[14];
  const int64_t y_stride0 = call->integers[15];
  const int64_t y_stride2 = call->integers[17];
  const int64_t y_stride3 = call->integers[18];
  float* const partials = reinterpret_cast<float*>(call->team_scratch);
  float* const halo = reinterpret_cast<float*>(thread_scratch(call, rank));
  for (StaticLoop range0(call, rank, (c + 31) / 32); range0.next();) {
    const int64_t part_first = range0.task() * 32;
    const int64_t part_depth = min_index(c - part_first, 32);
    for (int64_t image = 0; image < images; ++image) {
      for (int64_t group = 0; group < 1; ++group) {
        for (int64_t top = 0; top < p; ++top) {
          const int64_t band = min_index(p - top, 1);
          for (int64_t first = 0; first < k; first += 16) {
            const int64_t filters = min_index(k - first, 16);
            // CopyTile x[image : +1, group : +1, top : +((band - 1) + (r - 1)) + 1, -3 : +((q - 1) + (s - 1)) + 1, part_first : +part_depth] -> halo
            copy_halo<float>(x + group * x_stride1 + image * x_stride0 + part_first, {x_stride2, x_stride3, 1}, h, width, top, (-3), band + r - 1, q + s - 1, part_depth, halo, q * 48 + s * 48 - 48, 48);
            for (int64_t filter = 0; filter < filters; filter += 8) {
              const int64_t wide = min_index(filters - filter, 8);
              for (int64_t line = 0; line < band; ++line) {
                for (int64_t pixel = 0; pixel < q; pixel += 12) {
                  const int64_t pixels = min_index(q - pixel, 12);
                  // MicroKernel partials[part_first / 32 : +1, image : +1, group : +1, top + line : +1, pixel : +pixels, first + filter : +wide]
                  Tile0::run<12, 4>(pixels, wide, {r, s, part_depth, q * 48 + s * 48 - 48, 48, c * 8}, halo + line * q * 48 + line * s * 48 + pixel * 48 - line * 48, 48, w + (filter + first) / 8 * c * r * s * 8 + (k + 7) / 8 * c * group * r * s * 8 + part_first * 8, partials + part_first / 32 * images * k * p * q + filter + first + group * k * p * q + image * k * p * q + k * line * q + k * pixel + k * q * top, k, false);
                }
              }
            }
          }
        }
      }
    }
  }
  team_barrier(call, rank);
  for (StaticLoop range1(call, rank, q); range1.next();) {
    const int64_t sum_pixel = range1.task();
    for (int64_t sum_image = 0; sum_image < images; ++sum_image) {
      for (int64_t sum_group = 0; sum_group < 1; ++sum_group) {
        for (int64_t sum_row = 0; sum_row < p; ++sum_row) {
          // ReduceTile sum y[sum_image : +1, 0 : +1, sum_row : +1, sum_pixel : +1, 0 : +k]
          reduce_columns<float, SumOf>((c + 31) / 32, k, Load0{partials + k * p * q * sum_group + k * p * q * sum_image + k * q * sum_row + k * sum_pixel, images * k * p * q}, Store0{x1 + sum_row * x1_stride2, y + sum_image * y_stride0 + sum_pixel * y_stride3 + sum_row * y_stride2, y_stride3});
        }
      }
    }
  }
}
}  // namespace tracea_conv_split_prepacked_2bff521947d9fb55de24_text
