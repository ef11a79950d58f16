// attention_1x12x1x64_f32_87abd190bf38e336 | attention.decode | avx512 | ahead=256,bk=32768,copy_keys=0,copy_values=0,part=32768
#include "tracea/abi.h"
#include "tracea/attention.h"
#include "tracea/attention_rows.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/team.h"

namespace tracea_attention_decode_d4f7f4fef5988cb87b6f_text {
using namespace tracea;

using Rows0 = AttentionRows<float, 256>;
static_assert(Rows0::columns == 1, "the kernel was built for this vector length");
extern "C" __attribute__((visibility("default"))) void tracea_attention_decode_d4f7f4fef5988cb87b6f(const tracea_call* call, int32_t rank) {
  const float* const q = static_cast<const float*>(call->pointers[0]);
  const float* const k = static_cast<const float*>(call->pointers[1]);
  const float* const v = static_cast<const float*>(call->pointers[2]);
  float* const y = static_cast<float*>(call->pointers[3]);
  const int64_t batch = call->integers[0];
  const int64_t kv_heads = call->integers[1];
  const int64_t sharing = call->integers[2];
  const int64_t s = call->integers[3];
  const int64_t d = call->integers[4];
  const int64_t q_stride0 = call->integers[5];
  const int64_t q_stride1 = call->integers[6];
  const int64_t q_stride2 = call->integers[7];
  const int64_t q_stride3 = call->integers[8];
  const int64_t t = call->integers[9];
  const int64_t k_stride0 = call->integers[10];
  const int64_t k_stride1 = call->integers[11];
  const int64_t k_stride2 = call->integers[12];
  const int64_t dv = call->integers[13];
  const int64_t v_stride0 = call->integers[14];
  const int64_t v_stride1 = call->integers[15];
  const int64_t v_stride2 = call->integers[16];
  const int64_t y_stride0 = call->integers[17];
  const int64_t y_stride1 = call->integers[18];
  const int64_t y_stride2 = call->integers[19];
  const int64_t y_stride3 = call->integers[20];
  float* const queries = reinterpret_cast<float*>(thread_scratch(call, rank));
  float* const scores = reinterpret_cast<float*>(thread_scratch(call, rank) + (d * s + 15) / 16 * 64);
  float* const peaks = reinterpret_cast<float*>(call->team_scratch);
  float* const totals = reinterpret_cast<float*>(call->team_scratch + ((t + 32767) / 32768 * batch * kv_heads * s * sharing + 15) / 16 * 64);
  float* const sums = reinterpret_cast<float*>(call->team_scratch + ((t + 32767) / 32768 * batch * kv_heads * s * sharing + 15) / 16 * 128);
  for (TaskLoop tasks0(call, rank, 0, (t + 32767) / 32768 * batch * kv_heads * sharing); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t i_batch = task / ((t + 32767) / 32768 * kv_heads * sharing);
    const int64_t i_kv = task / ((t + 32767) / 32768 * sharing) % kv_heads;
    const int64_t part = task / sharing % ((t + 32767) / 32768);
    const int64_t i_sharing = task % sharing;
    // Pack q[i_batch : +1, i_kv : +1, i_sharing : +1, 0 : +s, 0 : +d] -> queries
    pack_a<float, 1>(q + i_batch * q_stride0 + i_kv * q_stride1 + i_sharing * q_stride2, q_stride3, 1, s, d, d, queries);
    // AttentionStart sums[i_batch : +1, i_kv : +1, i_sharing : +1, part : +1, 0 : +s, 0 : +dv, 0 : +1]
    Rows0::start(s, dv, {peaks + (t + 32767) / 32768 * i_batch * kv_heads * s * sharing + (t + 32767) / 32768 * i_kv * s * sharing + (t + 32767) / 32768 * i_sharing * s + part * s, totals + (t + 32767) / 32768 * i_batch * kv_heads * s * sharing + (t + 32767) / 32768 * i_kv * s * sharing + (t + 32767) / 32768 * i_sharing * s + part * s, sums + (t + 32767) / 32768 * dv * i_batch * kv_heads * s * sharing + (t + 32767) / 32768 * dv * i_kv * s * sharing + (t + 32767) / 32768 * dv * i_sharing * s + dv * part * s});
    const int64_t key_begin = part * 32768;
    const int64_t key_end = min_index(part * 32768 + 32768, t);
    for (int64_t offset = 0; offset < max_index(key_end - key_begin, 0); offset += 32768) {
      const int64_t count = min_index(max_index(key_end - key_begin, 0) - offset, 32768);
      // AttentionStep k[i_batch : +1, i_kv : +1, key_begin + offset : +count, 0 : +d] v[i_batch : +1, i_kv : +1, key_begin + offset : +count, 0 : +dv]
      Rows0::step({queries, s, d, 0, kEveryKey, kEveryKey}, AttentionKeys<float>{k + i_batch * k_stride0 + i_kv * k_stride1 + k_stride2 * key_begin + k_stride2 * offset, k_stride2, v + i_batch * v_stride0 + i_kv * v_stride1 + key_begin * v_stride2 + offset * v_stride2, v_stride2, count, dv, key_begin + offset}, {peaks + (t + 32767) / 32768 * i_batch * kv_heads * s * sharing + (t + 32767) / 32768 * i_kv * s * sharing + (t + 32767) / 32768 * i_sharing * s + part * s, totals + (t + 32767) / 32768 * i_batch * kv_heads * s * sharing + (t + 32767) / 32768 * i_kv * s * sharing + (t + 32767) / 32768 * i_sharing * s + part * s, sums + (t + 32767) / 32768 * dv * i_batch * kv_heads * s * sharing + (t + 32767) / 32768 * dv * i_kv * s * sharing + (t + 32767) / 32768 * dv * i_sharing * s + dv * part * s}, scores, float(0.125), PlainScore{});
    }
  }
  team_barrier(call, rank);
  for (TaskLoop tasks1(call, rank, 1, batch * kv_heads * sharing); tasks1.next();) {
    const int64_t sum_task = tasks1.task();
    const int64_t sum_batch = sum_task / (kv_heads * sharing);
    const int64_t sum_kv = sum_task / sharing % kv_heads;
    const int64_t sum_sharing = sum_task % sharing;
    // AttentionCombine y[sum_batch : +1, sum_kv : +1, sum_sharing : +1, 0 : +s, 0 : +dv]
    Rows0::combine((t + 32767) / 32768, s, dv, {peaks + (t + 32767) / 32768 * kv_heads * s * sharing * sum_batch + (t + 32767) / 32768 * s * sharing * sum_kv + (t + 32767) / 32768 * s * sum_sharing, totals + (t + 32767) / 32768 * kv_heads * s * sharing * sum_batch + (t + 32767) / 32768 * s * sharing * sum_kv + (t + 32767) / 32768 * s * sum_sharing, sums + (t + 32767) / 32768 * dv * kv_heads * s * sharing * sum_batch + (t + 32767) / 32768 * dv * s * sharing * sum_kv + (t + 32767) / 32768 * dv * s * sum_sharing}, y + sum_batch * y_stride0 + sum_kv * y_stride1 + sum_sharing * y_stride2, y_stride3, 1);
  }
}
}  // namespace tracea_attention_decode_d4f7f4fef5988cb87b6f_text
