// conv2d_1x144x56x56_by_144x1x3x3_f32_5c71a4678ec410fd | conv.depthwise_pack_w | avx2 | cb=16,mr=14,nv=1,rows=8,tail=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/team.h"

namespace tracea_conv_depthwise_pack_w_f1fab61567dba91bd5a1_text {
using namespace tracea;

extern "C" __attribute__((visibility("default"))) void tracea_conv_depthwise_pack_w_f1fab61567dba91bd5a1(const tracea_call* call, int32_t rank) {
  const float* const w_last = static_cast<const float*>(call->pointers[0]);
  float* const panels = static_cast<float*>(call->pointers[1]);
  const int64_t r = call->integers[0];
  const int64_t s = call->integers[1];
  const int64_t groups = call->integers[2];
  const int64_t w_last_stride0 = call->integers[3];
  const int64_t w_last_stride2 = call->integers[4];
  for (TaskLoop tasks0(call, rank, 0, (groups + 7) / 8); tasks0.next();) {
    const int64_t pack_first = tasks0.task() * 8;
    const int64_t pack_wide = min_index(groups - pack_first, 8);
    for (int64_t pack_r = 0; pack_r < r; ++pack_r) {
      // Pack w_last[pack_r : +1, 0 : +s, pack_first : +pack_wide] -> panels
      pack_b<float, 8>(w_last + pack_first * w_last_stride2 + pack_r * w_last_stride0, 1, w_last_stride2, s, pack_wide, s, panels + pack_first / 8 * r * s * 8 + pack_r * s * 8);
    }
  }
}
}  // namespace tracea_conv_depthwise_pack_w_f1fab61567dba91bd5a1_text
