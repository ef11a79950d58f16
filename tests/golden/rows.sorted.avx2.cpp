// largest_512x768_i64_0757298d4e7fd028 | rows.sorted | avx2 | block=5,tasks=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/sort.h"
#include "tracea/team.h"

namespace tracea_rows_sorted_83fb46f72450658f21ef_text {
using namespace tracea;

extern "C" __attribute__((visibility("default"))) void tracea_rows_sorted_83fb46f72450658f21ef(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  int64_t* const y = static_cast<int64_t*>(call->pointers[1]);
  const int64_t n0 = call->integers[0];
  const int64_t n1 = call->integers[1];
  const int64_t x0_stride0 = call->integers[2];
  const int64_t y_stride0 = call->integers[3];
  int64_t* const room = reinterpret_cast<int64_t*>(thread_scratch(call, rank));
  for (TaskLoop tasks0(call, rank, 0, (n0 + 4) / 5); tasks0.next();) {
    const int64_t start = tasks0.task() * 5;
    const int64_t length = min_index(n0 - start, 5);
    // sort_rows room[0 : +2 * n1]
    sort_rows<true>(length, n1, x0 + start * x0_stride0, x0_stride0, 1, 768, y + start * y_stride0, y_stride0, 1, room);
  }
}
}  // namespace tracea_rows_sorted_83fb46f72450658f21ef_text
