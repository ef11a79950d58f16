// conv2d_1x64x1x4000_by_16x64x1x7_f32_062f150e2be2c26b | conv.pack_w | avx512 | ahead=0,cb=32,gap=16,kb=16,mr=28,nv=1,prefetch=48,rows=1,tail=24,unroll=4,upcoming=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/team.h"

namespace tracea_conv_pack_w_cd64944be8ff20f07cdf_text {
using namespace tracea;

extern "C" __attribute__((visibility("default"))) void tracea_conv_pack_w_cd64944be8ff20f07cdf(const tracea_call* call, int32_t rank) {
  const float* const w = static_cast<const float*>(call->pointers[0]);
  float* const panels = static_cast<float*>(call->pointers[1]);
  const int64_t r = call->integers[0];
  const int64_t s = call->integers[1];
  const int64_t c = call->integers[2];
  const int64_t k = call->integers[3];
  const int64_t w_stride0 = call->integers[4];
  const int64_t w_stride1 = call->integers[5];
  const int64_t w_stride2 = call->integers[6];
  const int64_t w_stride3 = call->integers[7];
  const int64_t w_stride4 = call->integers[8];
  for (TaskLoop tasks0(call, rank, 0, (k + 15) / 16); tasks0.next();) {
    const int64_t pack_task = tasks0.task();
    const int64_t pack_group = 0;
    const int64_t pack_first = pack_task * 16;
    const int64_t pack_wide = min_index(k - pack_first, 16);
    for (int64_t pack_c0 = 0; pack_c0 < c; pack_c0 += 16) {
      const int64_t pack_depth = min_index(c - pack_c0, 16);
      for (int64_t pack_r = 0; pack_r < r; ++pack_r) {
        for (int64_t pack_s = 0; pack_s < s; ++pack_s) {
          // Pack w[pack_group : +1, pack_r : +1, pack_s : +1, pack_c0 : +pack_depth, pack_first : +pack_wide] -> panels
          pack_b<float, 16>(w + pack_c0 * w_stride3 + pack_first * w_stride4 + pack_group * w_stride0 + pack_r * w_stride1 + pack_s * w_stride2, w_stride3, w_stride4, pack_depth, pack_wide, c, panels + (k + 15) / 16 * c * pack_group * r * s * 16 + pack_first / 16 * c * r * s * 16 + c * pack_r * s * 16 + c * pack_s * 16 + pack_c0 * 16);
        }
      }
    }
  }
}
}  // namespace tracea_conv_pack_w_cd64944be8ff20f07cdf_text
