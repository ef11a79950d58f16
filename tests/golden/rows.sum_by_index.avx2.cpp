// sum_rows_50257x768_f32_d9dcb7663519045f | rows.sum_by_index | avx2 | columns=768,rows=12565,streaming=1
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/row_sums.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_rows_sum_by_index_7115eea173353a0af95f_text {
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

struct Store0 {
  float* y;
  int64_t y_row;
  template <class V>
  TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const {
    StoreRows<float, true>{y, y_row}.template at<V>(row, col, x0, lanes);
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    StoreRows<float, true>{y, y_row}.prefetch(row, col);
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_rows_sum_by_index_7115eea173353a0af95f(const tracea_call* call, int32_t rank) {
  const float* const x0 = static_cast<const float*>(call->pointers[0]);
  const int64_t* const x1 = static_cast<const int64_t*>(call->pointers[1]);
  float* const y = static_cast<float*>(call->pointers[2]);
  const int64_t count = call->integers[0];
  const int64_t columns = call->integers[1];
  const int64_t x0_stride0 = call->integers[2];
  const int64_t x1_stride0 = call->integers[3];
  const int64_t rows = call->integers[4];
  const int64_t y_stride0 = call->integers[5];
  int32_t* const heads = reinterpret_cast<int32_t*>(thread_scratch(call, rank));
  int32_t* const links = reinterpret_cast<int32_t*>(thread_scratch(call, rank) + (min_index(12565, rows) + 15) / 16 * 64);
  for (TaskLoop tasks0(call, rank, 0, (columns + 767) / 768 * ((rows + 12564) / 12565)); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t start = task / ((columns + 767) / 768) * 12565;
    const int64_t length = min_index(rows - start, 12565);
    const int64_t first = task % ((columns + 767) / 768) * 768;
    const int64_t width = min_index(columns - first, 768);
    // chain_rows links[0 : +1, 0 : +count]
    chain_rows(count, x1, x1_stride0, start, length, -1, heads, links);
    // sum_chained_rows y[start : +length, first : +width]
    sum_chained_rows<float>(length, width, heads, links, Load0{x0 + first, x0_stride0}, Store0{y + first + start * y_stride0, y_stride0}, y + first + start * y_stride0, y_stride0 == width && 4 * count <= rows);
    streaming_fence();
  }
}
}  // namespace tracea_rows_sum_by_index_7115eea173353a0af95f_text
