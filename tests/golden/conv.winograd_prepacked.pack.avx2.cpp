// conv2d_1x256x14x14_by_256x256x3x3_f32_normwise_2840fdc6a5262ed6 | conv.winograd_pack | avx2 | columns=4,gap=16,kb=256,m=4,mr=6,nv=2,prefetch=0,rows=1,tail=4,unroll=4,upcoming=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/team.h"
#include "tracea/winograd.h"

namespace tracea_conv_winograd_pack_cd1ba8a2e4f937d7d6bc_text {
using namespace tracea;

static_assert(16 % Vec<float>::lanes == 0, "the kernel was built for this vector length");
extern "C" __attribute__((visibility("default"))) void tracea_conv_winograd_pack_cd1ba8a2e4f937d7d6bc(const tracea_call* call, int32_t rank) {
  const float* const w = static_cast<const float*>(call->pointers[0]);
  float* const panels = static_cast<float*>(call->pointers[1]);
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
    // TransformFilters w[pack_group : +1, 0 : +r, 0 : +s, 0 : +c, pack_first : +pack_wide] -> panels
    winograd_filters<4, 3, float, 16 / Vec<float>::lanes>(w + pack_first * w_stride4 + pack_group * w_stride0, {w_stride1, w_stride2, w_stride3, w_stride4}, c, pack_wide, panels + (k + 15) / 16 * c * pack_group * 576 + pack_first / 16 * c * 576);
  }
}
}  // namespace tracea_conv_winograd_pack_cd1ba8a2e4f937d7d6bc_text
