// conv2d_1x3x224x224_by_64x3x7x7_f32_cea2f0ccd8a911a0 | conv.amx_stem_pack_w | amx, avx512 | kb=64,rows=11
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/pack_terms.h"
#include "tracea/pack_windows.h"
#include "tracea/team.h"

namespace tracea_conv_amx_stem_pack_w_387f610787b47fc04908_text {
using namespace tracea;

static_assert(32 == kGranule && 32 == kGranule, "the kernel was built for these granules");
static_assert(1 * 7 * 3 <= kGranule, "merged taps fit a granule");
extern "C" __attribute__((visibility("default"))) void tracea_conv_amx_stem_pack_w_387f610787b47fc04908(const tracea_call* call, int32_t rank) {
  const float* const w = static_cast<const float*>(call->pointers[0]);
  bf16* const panels = static_cast<bf16*>(call->pointers[1]);
  const int64_t k = call->integers[0];
  const int64_t w_stride0 = call->integers[1];
  const int64_t w_stride1 = call->integers[2];
  const int64_t w_stride2 = call->integers[3];
  const int64_t w_stride3 = call->integers[4];
  const int64_t w_stride4 = call->integers[5];
  for (TaskLoop tasks0(call, rank, 0, (k + 31) / 32); tasks0.next();) {
    const int64_t pack_task = tasks0.task();
    const int64_t pack_group = 0;
    const int64_t pack_first = pack_task * 32;
    const int64_t pack_wide = min_index(k - pack_first, 32);
    for (int64_t pack_tap = 0; pack_tap < 7; ++pack_tap) {
      // Pack w[pack_group : +1, pack_tap : +1, 0 : +7, 0 : +3, pack_first : +pack_wide] -> panels
      pack_windows<3>(w + pack_first * w_stride4 + pack_group * w_stride0 + pack_tap * w_stride1, MergedSteps{{1, 7, 3}, {w_stride1, w_stride2, w_stride3}}, w_stride4, pack_wide, panels + (k + 31) / 32 * pack_group * 21504 + pack_first / 32 * 21504 + pack_tap * 3072);
    }
  }
}
}  // namespace tracea_conv_amx_stem_pack_w_387f610787b47fc04908_text
