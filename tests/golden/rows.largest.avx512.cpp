// largest_512x8_i64_8a130eee50529dee | rows.largest | avx512 | across=0,block=85,tasks=0
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/indexed.h"
#include "tracea/math.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_rows_largest_dc3cee842679ae69fc74_text {
using namespace tracea;

struct Load0 {
  const float* x0;
  int64_t x0_row;
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v0 = load_partial<V>(x0 + row * x0_row + col, lanes);
    return v0;
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    prefetch_l2(x0 + row * x0_row + col);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_rows_largest_dc3cee842679ae69fc74(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  int64_t* const y = static_cast<int64_t*>(call->pointers[1]);
  const int64_t n0 = call->integers[0];
  const int64_t n1 = call->integers[1];
  const int64_t x0_stride0 = call->integers[2];
  const int64_t y_stride0 = call->integers[3];
  for (TaskLoop tasks0(call, rank, 0, (n0 + 84) / 85); tasks0.next();) {
    const int64_t start = tasks0.task() * 85;
    const int64_t length = min_index(n0 - start, 85);
    // largest_of_rows y[start : +length, 0 : +8]
    largest_of_rows<float, 8, false>(length, n1, Load0{x0 + start * x0_stride0, x0_stride0}, y + start * y_stride0, y_stride0, 1);
  }
}
}  // namespace tracea_rows_largest_dc3cee842679ae69fc74_text
