// gather_rows_1024x768_f32_147cf0558fd8171b | rows.gather | avx2 | block=85
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/indexed.h"
#include "tracea/team.h"

namespace tracea_rows_gather_f5de4088f897bd201d14_text {
using namespace tracea;

extern "C" __attribute__((visibility("default"))) void tracea_rows_gather_f5de4088f897bd201d14(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  const int64_t* const x1 = static_cast<const int64_t*>(call->pointers[1]);
  float* const y = static_cast<float*>(call->pointers[2]);
  const int64_t rows = call->integers[0];
  const int64_t columns = call->integers[1];
  const int64_t x0_stride0 = call->integers[2];
  const int64_t count = call->integers[3];
  const int64_t x1_stride0 = call->integers[4];
  const int64_t y_stride0 = call->integers[5];
  for (TaskLoop tasks0(call, rank, 0, (count + 84) / 85); tasks0.next();) {
    const int64_t start = tasks0.task() * 85;
    const int64_t length = min_index(count - start, 85);
    // gather_rows y[start : +length, 0 : +columns]
    gather_rows(length, columns, x0, rows, x0_stride0, 1, x1 + start * x1_stride0, x1_stride0, y + start * y_stride0, y_stride0, 1);
  }
}
}  // namespace tracea_rows_gather_f5de4088f897bd201d14_text
