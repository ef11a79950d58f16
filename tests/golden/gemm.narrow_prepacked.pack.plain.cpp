// gemm_512x64x768_f32_fe196527b5228a22 | gemm.pack_b | plain | kc=768,mc=516,mr=6,nc=64,nv=4,prefetch_a=0,prefetch_b=0,split=rows,sweep=1,tail=2,unroll=2,upcoming=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/team.h"

namespace tracea_gemm_pack_b_a2aa206d7942c8ea8ea8_text {
using namespace tracea;

extern "C" __attribute__((visibility("default"))) void tracea_gemm_pack_b_a2aa206d7942c8ea8ea8(const tracea_call* call, int32_t rank) {
  const float* const b = static_cast<const float*>(call->pointers[0]);
  float* const panels = static_cast<float*>(call->pointers[1]);
  const int64_t k = call->integers[0];
  const int64_t n = call->integers[1];
  const int64_t b_stride1 = call->integers[2];
  for (TaskLoop tasks0(call, rank, 0, (n + 511) / 512); tasks0.next();) {
    const int64_t jp = tasks0.task() * 512;
    const int64_t pw = min_index(n - jp, 512);
    // Pack b[0 : +k, jp : +pw] -> panels
    pack_b<float, 64>(b + b_stride1 * jp, 1, b_stride1, k, pw, k, panels + jp / 64 * k * 64);
  }
}
}  // namespace tracea_gemm_pack_b_a2aa206d7942c8ea8ea8_text
