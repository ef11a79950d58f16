// pointwise_768x512_f32_a1e5f6f2f3fd7bb3 | pointwise.transpose | neon | block=64,streaming=0,tasks=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/transpose_copy.h"

namespace tracea_pointwise_transpose_372796eb85a2792f8df4_text {
using namespace tracea;

extern "C" __attribute__((visibility("default"))) void tracea_pointwise_transpose_372796eb85a2792f8df4(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  float* const y = static_cast<float*>(call->pointers[1]);
  const int64_t n0 = call->integers[0];
  const int64_t n1 = call->integers[1];
  const int64_t x0_stride1 = call->integers[2];
  const int64_t y_stride0 = call->integers[3];
  for (TaskLoop tasks0(call, rank, 0, (n0 + 63) / 64); tasks0.next();) {
    const int64_t start = tasks0.task() * 64;
    const int64_t length = min_index(n0 - start, 64);
    // PointwiseTile y[start : +length, 0 : +n1]
    transpose_copy<float, false>(length, n1, x0 + start, x0_stride1, y + start * y_stride0, y_stride0);
  }
}
}  // namespace tracea_pointwise_transpose_372796eb85a2792f8df4_text
