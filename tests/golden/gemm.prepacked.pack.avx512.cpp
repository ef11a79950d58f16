// gemm_128x3072x768_f32_8f473adfed1f59de | gemm.pack_b | avx512 | kc=384,mc=128,mr=8,nc=3072,nv=3,prefetch_a=0,prefetch_b=0,split=columns,sweep=1,tail=0,unroll=2,upcoming=1
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/team.h"

namespace tracea_gemm_pack_b_1d300104aac3464bbe5a_text {
using namespace tracea;

extern "C" __attribute__((visibility("default"))) void tracea_gemm_pack_b_1d300104aac3464bbe5a(const tracea_call* call, int32_t rank) {
  const float* const b = static_cast<const float*>(call->pointers[0]);
  float* const panels = static_cast<float*>(call->pointers[1]);
  const int64_t k = call->integers[0];
  const int64_t n = call->integers[1];
  const int64_t b_stride0 = call->integers[2];
  for (TaskLoop tasks0(call, rank, 0, (n + 383) / 384); tasks0.next();) {
    const int64_t jp = tasks0.task() * 384;
    const int64_t pw = min_index(n - jp, 384);
    // Pack b[0 : +k, jp : +pw] -> panels
    pack_b<float, 48>(b + jp, b_stride0, 1, k, pw, k, panels + jp / 48 * k * 48);
  }
}
}  // namespace tracea_gemm_pack_b_1d300104aac3464bbe5a_text
