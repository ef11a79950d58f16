// conv2d_1x256x14x14_by_256x256x3x3_f32_dc268e6782269bab | conv.amx_prepacked | plain | kb=256,rows=3
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/conv_amx.h"
#include "tracea/convert.h"
#include "tracea/gemm_amx.h"
#include "tracea/halo_terms.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_conv_amx_prepacked_73e68b579d02d97cc61b_text {
using namespace tracea;

static_assert(32 == kGranule, "the kernel was built for these granules");
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

extern "C" __attribute__((visibility("default"))) void tracea_conv_amx_prepacked_73e68b579d02d97cc61b(const tracea_call* call, int32_t rank) {
  const float* const x = static_cast<const float*>(call->pointers[0]);
  const bf16* const w = static_cast<const bf16*>(call->pointers[1]);
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
  const int64_t x2_stride3 = call->integers[16];
  const int64_t y_stride0 = call->integers[17];
  const int64_t y_stride3 = call->integers[19];
  bf16* const halo = reinterpret_cast<bf16*>(thread_scratch(call, rank));
  for (TaskLoop tasks0(call, rank, 0, (k + 255) / 256 * ((p + 2) / 3) * images); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t image = task / ((k + 255) / 256 * ((p + 2) / 3));
    const int64_t group = 0;
    const int64_t top = task / ((k + 255) / 256) % ((p + 2) / 3) * 3;
    const int64_t band = min_index(p - top, 3);
    const int64_t first = task % ((k + 255) / 256) * 256;
    const int64_t filters = min_index(k - first, 256);
    // Halo x[image : +1, group : +1, top - 1 : +((band - 1) + (r - 1)) + 1, -1 : +((q - 1) + (s - 1)) + 1, 0 : +c] -> halo
    split_halo<3>(x + group * x_stride1 + image * x_stride0, {x_stride2, x_stride3, 1}, h, width, top - 1, (-1), band + r - 1, q + s - 1, c, halo, HaloShape{(c + 31) / 32, r + 4, q + s - 1, 1, 1}, HaloTaps{r, s, 1, 1});
    // MicroKernel y[image : +1, 0 : +1, top : +band, 0 : +q, first : +filters]
    {
      const auto sink = pixel_sink<false>(y + first + image * y_stride0 + q * top * y_stride3, y_stride3, Epilogue0{x1 + first, x2 + first + image * x2_stride0 + q * top * x2_stride3, x2_stride3});
      amx_conv<3>(ConvWindow{band, q, filters, r, s, 1, 1}, halo, HaloShape{(c + 31) / 32, r + 4, q + s - 1, 1, 1}, w + (c + 31) / 32 * ((k + 31) / 32) * group * r * s * 3072 + (c + 31) / 32 * (first / 32) * r * s * 3072, (c + 31) / 32 * r * s * 3072, sink);
    }
  }
}
}  // namespace tracea_conv_amx_prepacked_73e68b579d02d97cc61b_text
