// conv2d_1x256x28x28_by_512x256x1x1_f32_8e0a2e3442c33723 | conv.amx | amx, avx512 | kb=512,rows=7
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/conv_amx.h"
#include "tracea/convert.h"
#include "tracea/gemm_amx.h"
#include "tracea/halo_terms.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/pack.h"
#include "tracea/pack_terms.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_conv_amx_4bf34b770937c41376b3_text {
using namespace tracea;

static_assert(32 == kGranule && 32 == kGranule, "the kernel was built for these granules");
static_assert(32 == kGranule, "the kernel was built for these granules");
struct Epilogue0 {
  const float* x1;
  const float* x2;
  int64_t x2_row;
  template <class V>
  TRACEA_INLINE V operator()(V x0, [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v1 = load_broadcast<V>(x1 + row * 1);
    const V v2 = load_partial<V>(x2 + row * x2_row + col, lanes);
    const auto t0 = add(x0, v1);
    const auto t1 = add(t0, v2);
    return t1;
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_conv_amx_4bf34b770937c41376b3(const tracea_call* call, int32_t rank) {
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
  const int64_t x_stride4 = call->integers[7];
  const int64_t r = call->integers[8];
  const int64_t s = call->integers[9];
  const int64_t k = call->integers[10];
  const int64_t w_stride0 = call->integers[11];
  const int64_t w_stride1 = call->integers[12];
  const int64_t w_stride2 = call->integers[13];
  const int64_t w_stride4 = call->integers[14];
  const int64_t p = call->integers[16];
  const int64_t q = call->integers[17];
  const int64_t x2_stride0 = call->integers[18];
  const int64_t x2_stride4 = call->integers[20];
  const int64_t y_stride0 = call->integers[21];
  const int64_t y_stride4 = call->integers[23];
  bf16* const panels = reinterpret_cast<bf16*>(call->team_scratch);
  bf16* const halo = reinterpret_cast<bf16*>(thread_scratch(call, rank));
  for (TaskLoop tasks0(call, rank, 0, (k + 31) / 32); tasks0.next();) {
    const int64_t pack_task = tasks0.task();
    const int64_t pack_group = 0;
    const int64_t pack_first = pack_task * 32;
    const int64_t pack_wide = min_index(k - pack_first, 32);
    for (int64_t pack_c = 0; pack_c < c; pack_c += 32) {
      const int64_t pack_steps = min_index(c - pack_c, 32);
      for (int64_t pack_r = 0; pack_r < r; ++pack_r) {
        for (int64_t pack_s = 0; pack_s < s; ++pack_s) {
          // Pack w[pack_group : +1, pack_r : +1, pack_s : +1, pack_c : +pack_steps, pack_first : +pack_wide] -> panels
          pack_b_terms<3>(w + pack_c + pack_first * w_stride4 + pack_group * w_stride0 + pack_r * w_stride1 + pack_s * w_stride2, 1, w_stride4, pack_steps, pack_wide, 32, panels + (c + 31) / 32 * ((k + 31) / 32) * pack_group * r * s * 3072 + (c + 31) / 32 * (pack_first / 32) * r * s * 3072 + pack_c / 32 * r * s * 3072 + pack_r * s * 3072 + pack_s * 3072);
        }
      }
    }
  }
  team_barrier(call, rank);
  for (TaskLoop tasks1(call, rank, 1, (k + 511) / 512 * ((p + 6) / 7) * images); tasks1.next();) {
    const int64_t task = tasks1.task();
    const int64_t image = task / ((k + 511) / 512 * ((p + 6) / 7));
    const int64_t group = 0;
    const int64_t top = task / ((k + 511) / 512) % ((p + 6) / 7) * 7;
    const int64_t band = min_index(p - top, 7);
    const int64_t first = task % ((k + 511) / 512) * 512;
    const int64_t filters = min_index(k - first, 512);
    // Halo x[image : +1, group : +1, top * 2 : +(((band - 1) * 2) + (r - 1)) + 1, 0 : +(((q - 1) * 2) + (s - 1)) + 1, 0 : +c] -> halo
    split_halo<3>(x + group * x_stride1 + image * x_stride0, {x_stride2, 1, x_stride4}, h, width, top * 2, 0, band * 2 + r - 2, q * 2 + s - 2, c, halo, HaloShape{(c + 31) / 32, (r + 1) / 2 * 2 + 18, (s + 1) / 2 * 2 + q * 2 - 2, 2, 2}, HaloTaps{r, s, 1, 1});
    // MicroKernel y[image : +1, 0 : +1, top : +band, 0 : +q, first : +filters]
    {
      const auto sink = pixel_sink<true>(y + first * y_stride4 + image * y_stride0 + q * top, y_stride4, Epilogue0{x1 + first, x2 + first * x2_stride4 + image * x2_stride0 + q * top, x2_stride4});
      amx_conv<3>(ConvWindow{band, q, filters, r, s, 1, 1}, halo, HaloShape{(c + 31) / 32, (r + 1) / 2 * 2 + 18, (s + 1) / 2 * 2 + q * 2 - 2, 2, 2}, panels + (c + 31) / 32 * ((k + 31) / 32) * group * r * s * 3072 + (c + 31) / 32 * (first / 32) * r * s * 3072, (c + 31) / 32 * r * s * 3072, sink);
    }
  }
}
}  // namespace tracea_conv_amx_4bf34b770937c41376b3_text
