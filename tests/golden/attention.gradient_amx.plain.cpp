// attention_gradient_2359296_f32_0121107ddfe302f0 | attention.gradient_amx | plain | bk=64,bq=64
#include "tracea/abi.h"
#include "tracea/attention.h"
#include "tracea/attention_gradient_amx.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/pack.h"
#include "tracea/pack_terms.h"
#include "tracea/row_tiles.h"
#include "tracea/rows.h"
#include "tracea/team.h"
#include "tracea/vec.h"

namespace tracea_attention_gradient_amx_5f8cfc3c8d7555b4935a_text {
using namespace tracea;

struct Load0 {
  template <class V>
  TRACEA_INLINE V at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const auto k0 = broadcast<V>(typename V::element(0.0));
    return select(lane_mask<V>(lanes), k0, zero<V>());
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
  }
};

struct Store0 {
  float* y;
  int64_t y_row;
  template <class V>
  TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const {
    StoreRows<float, false>{y, y_row}.template at<V>(row, col, x0, lanes);
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
    StoreRows<float, false>{y, y_row}.prefetch(row, col);
  }
};

static_assert(32 == kGranule && 32 == kGranule, "the kernel was built for these granules");
using Tile0 = AttentionGradientAmx;
static_assert(Tile0::columns == 32, "the kernel was built for this vector length");
struct Load1 {
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

extern "C" __attribute__((visibility("default"))) void tracea_attention_gradient_amx_5f8cfc3c8d7555b4935a(const tracea_call* call, int32_t rank) {
  const float* const grad = static_cast<const float*>(call->pointers[0]);
  const float* const y = static_cast<const float*>(call->pointers[1]);
  const float* const q = static_cast<const float*>(call->pointers[2]);
  const float* const k = static_cast<const float*>(call->pointers[3]);
  const float* const v = static_cast<const float*>(call->pointers[4]);
  float* const grad_q = static_cast<float*>(call->pointers[5]);
  float* const grad_k = static_cast<float*>(call->pointers[6]);
  float* const grad_v = static_cast<float*>(call->pointers[7]);
  const int64_t batch = call->integers[0];
  const int64_t kv_heads = call->integers[1];
  const int64_t sharing = call->integers[2];
  const int64_t s = call->integers[3];
  const int64_t dv = call->integers[4];
  const int64_t grad_stride0 = call->integers[5];
  const int64_t grad_stride1 = call->integers[6];
  const int64_t grad_stride2 = call->integers[7];
  const int64_t grad_stride3 = call->integers[8];
  const int64_t y_stride0 = call->integers[9];
  const int64_t y_stride1 = call->integers[10];
  const int64_t y_stride2 = call->integers[11];
  const int64_t y_stride3 = call->integers[12];
  const int64_t d = call->integers[13];
  const int64_t q_stride0 = call->integers[14];
  const int64_t q_stride1 = call->integers[15];
  const int64_t q_stride2 = call->integers[16];
  const int64_t q_stride3 = call->integers[17];
  const int64_t t = call->integers[18];
  const int64_t k_stride0 = call->integers[19];
  const int64_t k_stride1 = call->integers[20];
  const int64_t k_stride2 = call->integers[21];
  const int64_t v_stride0 = call->integers[22];
  const int64_t v_stride1 = call->integers[23];
  const int64_t v_stride2 = call->integers[24];
  const int64_t grad_q_stride0 = call->integers[25];
  const int64_t grad_q_stride1 = call->integers[26];
  const int64_t grad_q_stride2 = call->integers[27];
  const int64_t grad_q_stride3 = call->integers[28];
  const int64_t grad_k_stride0 = call->integers[29];
  const int64_t grad_k_stride1 = call->integers[30];
  const int64_t grad_k_stride2 = call->integers[31];
  const int64_t grad_v_stride0 = call->integers[32];
  const int64_t grad_v_stride1 = call->integers[33];
  const int64_t grad_v_stride2 = call->integers[34];
  float* const peaks = reinterpret_cast<float*>(thread_scratch(call, rank));
  float* const totals = reinterpret_cast<float*>(thread_scratch(call, rank) + 256);
  float* const deltas = reinterpret_cast<float*>(thread_scratch(call, rank) + 512);
  float* const sums = reinterpret_cast<float*>(thread_scratch(call, rank) + 768);
  float* const grads = reinterpret_cast<float*>(thread_scratch(call, rank) + d * 256 + 768);
  float* const results = reinterpret_cast<float*>(thread_scratch(call, rank) + d * 256 + dv * 256 + 768);
  bf16* const queries = reinterpret_cast<bf16*>(thread_scratch(call, rank) + d * 256 + dv * 512 + 768);
  bf16* const grad_panels = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 12288 + d * 256 + dv * 512 + 768);
  bf16* const query_rows = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 12288 + (dv + 31) / 32 * 12288 + d * 256 + dv * 512 + 768);
  bf16* const grad_rows = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 24576 + (dv + 31) / 32 * 12288 + d * 256 + dv * 512 + 768);
  bf16* const peak_keys = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 24576 + (dv + 31) / 32 * 24576 + d * 256 + dv * 512 + 768);
  bf16* const key_panels = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 36864 + (dv + 31) / 32 * 24576 + d * 256 + dv * 512 + 768);
  bf16* const value_panels = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 49152 + (dv + 31) / 32 * 24576 + d * 256 + dv * 512 + 768);
  bf16* const key_columns = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 49152 + (dv + 31) / 32 * 36864 + d * 256 + dv * 512 + 768);
  float* const scores = reinterpret_cast<float*>(thread_scratch(call, rank) + (d + 31) / 32 * 61440 + (dv + 31) / 32 * 36864 + d * 256 + dv * 512 + 768);
  float* const slopes = reinterpret_cast<float*>(thread_scratch(call, rank) + (d + 31) / 32 * 61440 + (dv + 31) / 32 * 36864 + d * 256 + dv * 512 + 17152);
  bf16* const weights = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 61440 + (dv + 31) / 32 * 36864 + d * 256 + dv * 512 + 33536);
  bf16* const kept_slopes = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 61440 + (dv + 31) / 32 * 36864 + d * 256 + dv * 512 + 58112);
  bf16* const turned_slopes = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 61440 + (dv + 31) / 32 * 36864 + d * 256 + dv * 512 + 82688);
  float* const key_sums = reinterpret_cast<float*>(thread_scratch(call, rank) + (d + 31) / 32 * 61440 + (dv + 31) / 32 * 36864 + d * 256 + dv * 512 + 107264);
  float* const value_sums = reinterpret_cast<float*>(thread_scratch(call, rank) + (d * t + 15) / 16 * 64 + (d + 31) / 32 * 61440 + (dv + 31) / 32 * 36864 + d * 256 + dv * 512 + 107264);
  for (TaskLoop tasks0(call, rank, 0, batch * kv_heads); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t i_batch = task / kv_heads;
    const int64_t i_kv = task % kv_heads;
    // PointwiseTile key_sums[0 : +t, 0 : +d]
    map_rows<float, 0>(t, d, Load0{}, Store0{key_sums, d});
    // PointwiseTile value_sums[0 : +t, 0 : +dv]
    map_rows<float, 0>(t, dv, Load0{}, Store0{value_sums, dv});
    for (int64_t i_sharing = 0; i_sharing < sharing; ++i_sharing) {
      for (int64_t first = 0; first < s; first += 64) {
        const int64_t rows = min_index(s - first, 64);
        // Pack q[i_batch : +1, i_kv : +1, i_sharing : +1, first : +rows, 0 : +d] -> queries
        pack_b_terms<3>(q + first * q_stride3 + i_batch * q_stride0 + i_kv * q_stride1 + i_sharing * q_stride2, 1, q_stride3, d, rows, (d + 31) / 32 * 32, queries);
        // Pack grad[i_batch : +1, i_kv : +1, i_sharing : +1, first : +rows, 0 : +dv] -> grad_panels
        pack_b_terms<3>(grad + first * grad_stride3 + grad_stride0 * i_batch + grad_stride1 * i_kv + grad_stride2 * i_sharing, 1, grad_stride3, dv, rows, (dv + 31) / 32 * 32, grad_panels);
        // Pack q[i_batch : +1, i_kv : +1, i_sharing : +1, first : +rows, 0 : +d] -> query_rows
        pack_b_terms<3>(q + first * q_stride3 + i_batch * q_stride0 + i_kv * q_stride1 + i_sharing * q_stride2, q_stride3, 1, rows, d, 64, query_rows);
        // Pack grad[i_batch : +1, i_kv : +1, i_sharing : +1, first : +rows, 0 : +dv] -> grad_rows
        pack_b_terms<3>(grad + first * grad_stride3 + grad_stride0 * i_batch + grad_stride1 * i_kv + grad_stride2 * i_sharing, grad_stride3, 1, rows, dv, 64, grad_rows);
        // Pack grad[i_batch : +1, i_kv : +1, i_sharing : +1, first : +rows, 0 : +dv] -> grads
        pack_a<float, 32>(grad + first * grad_stride3 + grad_stride0 * i_batch + grad_stride1 * i_kv + grad_stride2 * i_sharing, grad_stride3, 1, rows, dv, dv, grads);
        // Pack y[i_batch : +1, i_kv : +1, i_sharing : +1, first : +rows, 0 : +dv] -> results
        pack_a<float, 32>(y + first * y_stride3 + i_batch * y_stride0 + i_kv * y_stride1 + i_sharing * y_stride2, y_stride3, 1, rows, dv, dv, results);
        // AttentionStart sums[0 : +(rows + 31) / 32, 0 : +d, 0 : +32]
        Tile0::start(rows, d, {peaks, totals, sums});
        const int64_t peak_begin = 0;
        const int64_t peak_end = min_index(first + rows, t);
        for (int64_t peak_offset = 0; peak_offset < max_index(peak_end - peak_begin, 0); peak_offset += 64) {
          const int64_t peak_count = min_index(max_index(peak_end - peak_begin, 0) - peak_offset, 64);
          // Pack k[i_batch : +1, i_kv : +1, peak_begin + peak_offset : +peak_count, 0 : +d] -> peak_keys
          pack_a_terms<3>(k + i_batch * k_stride0 + i_kv * k_stride1 + k_stride2 * peak_begin + k_stride2 * peak_offset, k_stride2, 1, peak_count, d, (d + 31) / 32 * 32, peak_keys);
          // AttentionPeaks peak_keys[0 : +(peak_count + 31) / 32, 0 : +((d + 31) / 32) * 32, 0 : +96]
          Tile0::peak<3>({queries, (d + 31) / 32 * 3072, (d + 31) / 32, rows, first, kEveryKey, 0, 0, kEveryKey, {}, {}}, {peak_keys, (d + 31) / 32 * 3072, nullptr, 0, peak_count, 0, peak_begin + peak_offset, {}, {}}, {peaks, totals, nullptr}, scores, 64, float(0.125), PlainScore{});
        }
        // AttentionDeltas deltas[0 : +(rows + 31) / 32, 0 : +32]
        Tile0::begin(rows, dv, grads, results, totals, deltas);
        const int64_t slope_begin = 0;
        const int64_t slope_end = min_index(first + rows, t);
        for (int64_t slope_offset = 0; slope_offset < max_index(slope_end - slope_begin, 0); slope_offset += 64) {
          const int64_t slope_count = min_index(max_index(slope_end - slope_begin, 0) - slope_offset, 64);
          // Pack k[i_batch : +1, i_kv : +1, slope_begin + slope_offset : +slope_count, 0 : +d] -> key_panels
          pack_a_terms<3>(k + i_batch * k_stride0 + i_kv * k_stride1 + k_stride2 * slope_begin + k_stride2 * slope_offset, k_stride2, 1, slope_count, d, (d + 31) / 32 * 32, key_panels);
          // Pack v[i_batch : +1, i_kv : +1, slope_begin + slope_offset : +slope_count, 0 : +dv] -> value_panels
          pack_a_terms<3>(v + i_batch * v_stride0 + i_kv * v_stride1 + slope_begin * v_stride2 + slope_offset * v_stride2, v_stride2, 1, slope_count, dv, (dv + 31) / 32 * 32, value_panels);
          // Pack k[i_batch : +1, i_kv : +1, slope_begin + slope_offset : +slope_count, 0 : +d] -> key_columns
          pack_a_terms<3>(k + i_batch * k_stride0 + i_kv * k_stride1 + k_stride2 * slope_begin + k_stride2 * slope_offset, 1, k_stride2, d, slope_count, 64, key_columns);
          // AttentionGradient key_panels[0 : +(slope_count + 31) / 32, 0 : +((d + 31) / 32) * 32, 0 : +96] value_panels[0 : +(slope_count + 31) / 32, 0 : +((dv + 31) / 32) * 32, 0 : +96]
          Tile0::step<3>({{queries, (d + 31) / 32 * 3072}, {grad_panels, (dv + 31) / 32 * 3072}, {query_rows, 6144}, {grad_rows, 6144}, peaks, totals, deltas, sums, rows, d, dv, first, kEveryKey, 0}, {{key_panels, (d + 31) / 32 * 3072}, {value_panels, (dv + 31) / 32 * 3072}, {key_columns, 6144}, key_sums + d * slope_begin + d * slope_offset, value_sums + dv * slope_begin + dv * slope_offset, slope_count, slope_begin + slope_offset}, {scores, slopes, weights, kept_slopes, turned_slopes, 64}, float(0.125), PlainScore{}, PlainSlope{});
        }
        // AttentionSlopeEnd grad_q[i_batch : +1, i_kv : +1, i_sharing : +1, first : +rows, 0 : +d]
        Tile0::end(rows, d, sums, grad_q + first * grad_q_stride3 + grad_q_stride0 * i_batch + grad_q_stride1 * i_kv + grad_q_stride2 * i_sharing, grad_q_stride3, 1);
      }
    }
    // PointwiseTile grad_k[i_batch : +1, i_kv : +1, 0 : +t, 0 : +d]
    map_rows<float, 0>(t, d, Load1{key_sums, d}, Store0{grad_k + grad_k_stride0 * i_batch + grad_k_stride1 * i_kv, grad_k_stride2});
    // PointwiseTile grad_v[i_batch : +1, i_kv : +1, 0 : +t, 0 : +dv]
    map_rows<float, 0>(t, dv, Load1{value_sums, dv}, Store0{grad_v + grad_v_stride0 * i_batch + grad_v_stride1 * i_kv, grad_v_stride2});
  }
}
}  // namespace tracea_attention_gradient_amx_5f8cfc3c8d7555b4935a_text
