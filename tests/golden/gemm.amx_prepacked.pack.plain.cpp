// gemm_128x3072x768_f32_8f473adfed1f59de | gemm.amx_pack_b | plain | kc=384,mc=128,nc=3072,split=columns,sweep=8
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/pack_terms.h"
#include "tracea/team.h"

namespace tracea_gemm_amx_pack_b_53863a066e4b57811742_text {
using namespace tracea;

static_assert(32 == kGranule && 32 == kGranule, "the kernel was built for these granules");
extern "C" __attribute__((visibility("default"))) void tracea_gemm_amx_pack_b_53863a066e4b57811742(const tracea_call* call, int32_t rank) {
  const float* const b = static_cast<const float*>(call->pointers[0]);
  bf16* const panels = static_cast<bf16*>(call->pointers[1]);
  const int64_t k = call->integers[0];
  const int64_t n = call->integers[1];
  const int64_t b_stride0 = call->integers[2];
  for (TaskLoop tasks0(call, rank, 0, (n + 255) / 256); tasks0.next();) {
    const int64_t jp = tasks0.task() * 256;
    const int64_t pw = min_index(n - jp, 256);
    // Pack b[0 : +k, jp : +pw] -> panels
    pack_b_terms<3>(b + jp, b_stride0, 1, k, pw, (k + 31) / 32 * 32, panels + (k + 31) / 32 * (jp / 32) * 3072);
  }
}
}  // namespace tracea_gemm_amx_pack_b_53863a066e4b57811742_text
