// attention_1x12x1024x64_f32_6504a99a00f8bcfb | attention.flash | avx512 | bk=256,bq=64,copy_keys=0,copy_values=0,mr=8,nv=2,tail=0,unroll=2
#include "tracea/abi.h"
#include "tracea/attention.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/team.h"

namespace tracea_attention_flash_838a8ab2b91401294fa6_text {
using namespace tracea;

using Tile0 = AttentionTile<float, 8, 2, 2>;
static_assert(Tile0::columns == 32, "the kernel was built for this vector length");
extern "C" __attribute__((visibility("default"))) void tracea_attention_flash_838a8ab2b91401294fa6(const tracea_call* call, int32_t rank) {
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
  float* const scores = reinterpret_cast<float*>(thread_scratch(call, rank) + d * 256);
  float* const peaks = reinterpret_cast<float*>(thread_scratch(call, rank) + d * 256 + 32768);
  float* const totals = reinterpret_cast<float*>(thread_scratch(call, rank) + d * 256 + 33024);
  float* const sums = reinterpret_cast<float*>(thread_scratch(call, rank) + d * 256 + 33280);
  for (TaskLoop tasks0(call, rank, 0, (s + 63) / 64 * batch * kv_heads * sharing); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t i_batch = task / ((s + 63) / 64 * kv_heads * sharing);
    const int64_t i_kv = task / ((s + 63) / 64 * sharing) % kv_heads;
    const int64_t i_sharing = task / ((s + 63) / 64) % sharing;
    const int64_t first = task % ((s + 63) / 64) * 64;
    const int64_t rows = min_index(s - first, 64);
    // Pack q[i_batch : +1, i_kv : +1, i_sharing : +1, first : +rows, 0 : +d] -> queries
    pack_a<float, 32>(q + first * q_stride3 + i_batch * q_stride0 + i_kv * q_stride1 + i_sharing * q_stride2, q_stride3, 1, rows, d, d, queries);
    // AttentionStart sums[0 : +(rows + 31) / 32, 0 : +dv, 0 : +32]
    Tile0::start(rows, dv, {peaks, totals, sums});
    const int64_t key_begin = 0;
    const int64_t key_end = min_index(first + rows, t);
    for (int64_t offset = 0; offset < max_index(key_end - key_begin, 0); offset += 256) {
      const int64_t count = min_index(max_index(key_end - key_begin, 0) - offset, 256);
      // AttentionStep k[i_batch : +1, i_kv : +1, key_begin + offset : +count, 0 : +d] v[i_batch : +1, i_kv : +1, key_begin + offset : +count, 0 : +dv]
      Tile0::step<0>({queries, rows, d, first, kEveryKey, 0}, AttentionKeys<float>{k + i_batch * k_stride0 + i_kv * k_stride1 + k_stride2 * key_begin + k_stride2 * offset, k_stride2, v + i_batch * v_stride0 + i_kv * v_stride1 + key_begin * v_stride2 + offset * v_stride2, v_stride2, count, dv, key_begin + offset}, {peaks, totals, sums}, scores, float(0.125), PlainScore{});
    }
    // AttentionFinish y[i_batch : +1, i_kv : +1, i_sharing : +1, first : +rows, 0 : +dv]
    Tile0::finish(rows, dv, {peaks, totals, sums}, y + first * y_stride3 + i_batch * y_stride0 + i_kv * y_stride1 + i_sharing * y_stride2, y_stride3, 1);
  }
}
}  // namespace tracea_attention_flash_838a8ab2b91401294fa6_text
