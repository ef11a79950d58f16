// conv2d_1x3x224x224_by_64x3x7x7_f32_cea2f0ccd8a911a0 | conv.amx_stem_prepacked | amx, avx512 | kb=64,rows=11
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/conv_amx.h"
#include "tracea/convert.h"
#include "tracea/gemm_amx.h"
#include "tracea/halo_terms.h"
#include "tracea/halo_windows.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_conv_amx_stem_prepacked_42092f9160f0eb2d8f53_text {
using namespace tracea;

static_assert(32 == kGranule, "the kernel was built for these granules");
static_assert(1 * 21 <= kGranule, "merged taps fit a granule");
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

extern "C" __attribute__((visibility("default"))) void tracea_conv_amx_stem_prepacked_42092f9160f0eb2d8f53(const tracea_call* call, int32_t rank) {
  const float* const x = static_cast<const float*>(call->pointers[0]);
  const bf16* const w = static_cast<const bf16*>(call->pointers[1]);
  const float* const x1 = static_cast<const float*>(call->pointers[2]);
  float* const y = static_cast<float*>(call->pointers[3]);
  const int64_t images = call->integers[0];
  const int64_t h = call->integers[1];
  const int64_t width = call->integers[2];
  const int64_t x_stride0 = call->integers[3];
  const int64_t x_stride1 = call->integers[4];
  const int64_t x_stride2 = call->integers[5];
  const int64_t x_stride4 = call->integers[6];
  const int64_t k = call->integers[7];
  const int64_t p = call->integers[9];
  const int64_t q = call->integers[10];
  const int64_t y_stride0 = call->integers[11];
  const int64_t y_stride4 = call->integers[13];
  float* const band_of_image = reinterpret_cast<float*>(thread_scratch(call, rank));
  bf16* const halo = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (q * 81 + 2) / 8 * 64 + 1664);
  for (TaskLoop tasks0(call, rank, 0, (k + 63) / 64 * ((p + 10) / 11) * images); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t image = task / ((k + 63) / 64 * ((p + 10) / 11));
    const int64_t group = 0;
    const int64_t top = task / ((k + 63) / 64) % ((p + 10) / 11) * 11;
    const int64_t band = min_index(p - top, 11);
    const int64_t first = task % ((k + 63) / 64) * 64;
    const int64_t filters = min_index(k - first, 64);
    // CopyTile x[image : +1, group : +1, (top * 2) - 3 : +((band - 1) * 2) + 7, -3 : +((q - 1) * 2) + 7, 0 : +3] -> band_of_image
    copy_halo<float>(x + group * x_stride1 + image * x_stride0, {x_stride2, 1, x_stride4}, h, width, top * 2 - 3, (-3), band * 2 + 5, q * 2 + 5, 3, band_of_image, q * 6 + 15, 3);
    // Halo band_of_image[0 : +((band - 1) * 2) + 7, 0 : +((q - 1) * 2) + 7, 0 : +3] -> halo
    split_windows<3>(band_of_image, q * 6 + 15, 6, 21, 1, band * 2 + 5, q, halo, HaloShape{1, 30, q, 2, 1}, HaloTaps{7, 1, 1, 1});
    // MicroKernel y[image : +1, 0 : +1, top : +band, 0 : +q, first : +filters]
    {
      const auto sink = pixel_sink<true>(y + first * y_stride4 + image * y_stride0 + q * top, y_stride4, Epilogue0{x1 + first});
      amx_conv<3, true>(ConvWindow{band, q, filters, 7, 1, 1, 1}, halo, HaloShape{1, 30, q, 2, 1}, w + (k + 31) / 32 * group * 21504 + first / 32 * 21504, 21504, sink);
    }
  }
}
}  // namespace tracea_conv_amx_stem_prepacked_42092f9160f0eb2d8f53_text
