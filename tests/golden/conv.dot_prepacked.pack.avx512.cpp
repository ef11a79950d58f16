// conv2d_1x64x112x112_by_3x64x3x3_f32_496c694b92b97b4c | conv.dot_pack_w | avx512 | gap=16,kb=3,mr=9,nk=3,rows=4,tail=4
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/team.h"

namespace tracea_conv_dot_pack_w_b739b3180aecc28d34e4_text {
using namespace tracea;

extern "C" __attribute__((visibility("default"))) void tracea_conv_dot_pack_w_b739b3180aecc28d34e4(const tracea_call* call, int32_t rank) {
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
  for (TaskLoop tasks0(call, rank, 0, k); tasks0.next();) {
    const int64_t pack_task = tasks0.task();
    const int64_t pack_group = 0;
    const int64_t pack_first = pack_task;
    const int64_t pack_wide = min_index(k - pack_first, 1);
    for (int64_t pack_c0 = 0; pack_c0 < c; pack_c0 += 16) {
      const int64_t pack_depth = min_index(c - pack_c0, 16);
      for (int64_t pack_r = 0; pack_r < r; ++pack_r) {
        for (int64_t pack_s = 0; pack_s < s; ++pack_s) {
          // Pack w[pack_group : +1, pack_r : +1, pack_s : +1, pack_c0 : +pack_depth, pack_first : +pack_wide] -> panels
          pack_b<float, 1>(w + pack_c0 * w_stride3 + pack_first * w_stride4 + pack_group * w_stride0 + pack_r * w_stride1 + pack_s * w_stride2, w_stride3, w_stride4, pack_depth, pack_wide, c, panels + c * k * pack_group * r * s + c * pack_first * r * s + c * pack_r * s + c * pack_s + pack_c0);
        }
      }
    }
  }
}
}  // namespace tracea_conv_dot_pack_w_b739b3180aecc28d34e4_text
