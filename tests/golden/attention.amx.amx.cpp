// attention_1x12x1024x64_f32_6504a99a00f8bcfb | attention.amx | amx, avx512 | bk=256,bq=512
#include "tracea/abi.h"
#include "tracea/attention.h"
#include "tracea/attention_amx.h"
#include "tracea/config.h"
#include "tracea/index.h"
#include "tracea/pack.h"
#include "tracea/pack_terms.h"
#include "tracea/team.h"

namespace tracea_attention_amx_97c66b129890bba6377e_text {
using namespace tracea;

static_assert(32 == kGranule && 32 == kGranule, "the kernel was built for these granules");
using Tile0 = AttentionAmx;
static_assert(Tile0::columns == 32, "the kernel was built for this vector length");
extern "C" __attribute__((visibility("default"))) void tracea_attention_amx_97c66b129890bba6377e(const tracea_call* call, int32_t rank) {
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
  bf16* const queries = reinterpret_cast<bf16*>(thread_scratch(call, rank));
  float* const scores = reinterpret_cast<float*>(thread_scratch(call, rank) + (d + 31) / 32 * 98304);
  float* const peaks = reinterpret_cast<float*>(thread_scratch(call, rank) + (d + 31) / 32 * 98304 + 65536);
  float* const totals = reinterpret_cast<float*>(thread_scratch(call, rank) + (d + 31) / 32 * 98304 + 67584);
  float* const sums = reinterpret_cast<float*>(thread_scratch(call, rank) + (d + 31) / 32 * 98304 + 69632);
  bf16* const key_panels = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 98304 + dv * 2048 + 69632);
  bf16* const value_panels = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 147456 + dv * 2048 + 69632);
  bf16* const weights = reinterpret_cast<bf16*>(thread_scratch(call, rank) + (d + 31) / 32 * 147456 + (dv + 31) / 32 * 49152 + dv * 2048 + 69632);
  for (TaskLoop tasks0(call, rank, 0, (s + 511) / 512 * batch * kv_heads * sharing); tasks0.next();) {
    const int64_t task = tasks0.task();
    const int64_t i_batch = task / ((s + 511) / 512 * kv_heads * sharing);
    const int64_t i_kv = task / ((s + 511) / 512 * sharing) % kv_heads;
    const int64_t i_sharing = task / ((s + 511) / 512) % sharing;
    const int64_t first = task % ((s + 511) / 512) * 512;
    const int64_t rows = min_index(s - first, 512);
    // Pack q[i_batch : +1, i_kv : +1, i_sharing : +1, first : +rows, 0 : +d] -> queries
    pack_b_terms<3>(q + first * q_stride3 + i_batch * q_stride0 + i_kv * q_stride1 + i_sharing * q_stride2, 1, q_stride3, d, rows, (d + 31) / 32 * 32, queries);
    // AttentionStart sums[0 : +(rows + 31) / 32, 0 : +dv, 0 : +32]
    Tile0::start(rows, dv, {peaks, totals, sums});
    const int64_t key_begin = 0;
    const int64_t key_end = min_index(first + rows, t);
    for (int64_t offset = 0; offset < max_index(key_end - key_begin, 0); offset += 256) {
      const int64_t count = min_index(max_index(key_end - key_begin, 0) - offset, 256);
      // Pack k[i_batch : +1, i_kv : +1, key_begin + offset : +count, 0 : +d] -> key_panels
      pack_a_terms<3>(k + i_batch * k_stride0 + i_kv * k_stride1 + k_stride2 * key_begin + k_stride2 * offset, k_stride2, 1, count, d, (d + 31) / 32 * 32, key_panels);
      // Pack v[i_batch : +1, i_kv : +1, key_begin + offset : +count, 0 : +dv] -> value_panels
      pack_a_terms<3>(v + i_batch * v_stride0 + i_kv * v_stride1 + key_begin * v_stride2 + offset * v_stride2, 1, v_stride2, dv, count, 256, value_panels);
      // AttentionStep key_panels[0 : +(count + 31) / 32, 0 : +((d + 31) / 32) * 32, 0 : +96] value_panels[0 : +(dv + 31) / 32, 0 : +((count + 31) / 32) * 32, 0 : +96]
      Tile0::step<3>({queries, (d + 31) / 32 * 3072, (d + 31) / 32, rows, first, kEveryKey, 0, 0, kEveryKey, {q + first * q_stride3 + i_batch * q_stride0 + i_kv * q_stride1 + i_sharing * q_stride2, q_stride3 * 4, d * 4}, {y + first * y_stride3 + i_batch * y_stride0 + i_kv * y_stride1 + i_sharing * y_stride2, y_stride3 * 4, dv * 4}}, AmxKeys{key_panels, (d + 31) / 32 * 3072, value_panels, 24576, count, dv, key_begin + offset, {k + i_batch * k_stride0 + i_kv * k_stride1 + k_stride2 * key_begin + k_stride2 * offset, k_stride2 * 4, d * 4}, {v + i_batch * v_stride0 + i_kv * v_stride1 + key_begin * v_stride2 + offset * v_stride2, v_stride2 * 4, dv * 4}}, {peaks, totals, sums}, scores, weights, 256, float(0.125), PlainScore{});
    }
    // AttentionFinish y[i_batch : +1, i_kv : +1, i_sharing : +1, first : +rows, 0 : +dv]
    Tile0::finish(rows, dv, {peaks, totals, sums}, y + first * y_stride3 + i_batch * y_stride0 + i_kv * y_stride1 + i_sharing * y_stride2, y_stride3, 1);
  }
}
}  // namespace tracea_attention_amx_97c66b129890bba6377e_text
