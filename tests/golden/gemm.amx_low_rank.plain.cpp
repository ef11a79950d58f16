// low_rank_512x1024x1024x32_f32_084209e0cadc3df7 | gemm.amx_low_rank | plain | mc=64
#include "tracea/abi.h"
#include "tracea/config.h"
#include "tracea/convert.h"
#include "tracea/gemm_amx.h"
#include "tracea/index.h"
#include "tracea/math.h"
#include "tracea/pack.h"
#include "tracea/pack_terms.h"
#include "tracea/team.h"
#include "tracea/thin_amx.h"
#include "tracea/vec.h"

namespace tracea_gemm_amx_low_rank_87f6bb2400570eb94041_text {
using namespace tracea;

static_assert(32 == kGranule && 32 == kGranule, "the kernel was built for these granules");
struct Epilogue0 {
  const float* x1;
  template <class V>
  TRACEA_INLINE V operator()(V x0, [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes) const {
    const V v1 = load_partial<V>(x1 + col, lanes);
    const auto t0 = add(x0, v1);
    const auto t1 = gelu(t0);
    return t1;
  }
  TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const {
  }
};

extern "C" __attribute__((visibility("default"))) void tracea_gemm_amx_low_rank_87f6bb2400570eb94041(const tracea_call* call, int32_t rank) {
  const float* const x = static_cast<const float*>(call->pointers[0]);
  const float* const a = static_cast<const float*>(call->pointers[1]);
  const float* const b = static_cast<const float*>(call->pointers[2]);
  const float* const x1 = static_cast<const float*>(call->pointers[3]);
  float* const c = static_cast<float*>(call->pointers[4]);
  const int64_t m = call->integers[0];
  const int64_t k = call->integers[1];
  const int64_t x_stride0 = call->integers[2];
  const int64_t r = call->integers[3];
  const int64_t a_stride0 = call->integers[4];
  const int64_t n = call->integers[5];
  const int64_t b_stride0 = call->integers[6];
  const int64_t c_stride0 = call->integers[7];
  bf16* const a_panels = reinterpret_cast<bf16*>(call->team_scratch);
  bf16* const b_panels = reinterpret_cast<bf16*>(call->team_scratch + (k + 31) / 32 * ((r + 31) / 32) * 6144);
  float* const inner = reinterpret_cast<float*>(thread_scratch(call, rank));
  bf16* const inner_panels = reinterpret_cast<bf16*>(thread_scratch(call, rank) + r * 256);
  for (TaskLoop tasks0(call, rank, 0, (r + 31) / 32); tasks0.next();) {
    const int64_t jp = tasks0.task() * 32;
    const int64_t pw = min_index(r - jp, 32);
    // Pack a[0 : +k, jp : +pw] -> a_panels
    pack_b_terms<3>(a + jp, a_stride0, 1, k, pw, (k + 31) / 32 * 32, a_panels + (k + 31) / 32 * (jp / 32) * 3072);
  }
  for (TaskLoop tasks1(call, rank, 1, (n + 127) / 128); tasks1.next();) {
    const int64_t jq = tasks1.task() * 128;
    const int64_t qw = min_index(n - jq, 128);
    // Pack b[0 : +r, jq : +qw] -> b_panels
    pack_b_terms<3>(b + jq, b_stride0, 1, r, qw, (r + 31) / 32 * 32, b_panels + (r + 31) / 32 * (jq / 32) * 3072);
  }
  team_barrier(call, rank);
  for (TaskLoop tasks2(call, rank, 2, (m + 63) / 64); tasks2.next();) {
    const int64_t ic = tasks2.task() * 64;
    const int64_t mc = min_index(m - ic, 64);
    // MicroKernel inner[0 : +mc, 0 : +r]
    {
      const auto sink = amx_sink(inner, r, false, true, inner, r, 1, IdentityEpilogue{});
      amx_rows<3>(mc, r, k, x + ic * x_stride0, x_stride0, a_panels, (k + 31) / 32 * 3072, sink);
    }
    // Pack inner[0 : +mc, 0 : +r] -> inner_panels
    pack_a_terms<3>(inner, r, 1, mc, r, (r + 31) / 32 * 32, inner_panels);
    // MicroKernel c[ic : +mc, 0 : +n]
    {
      const auto sink = amx_sink(c + c_stride0 * ic, c_stride0, false, true, c + c_stride0 * ic, c_stride0, 1, Epilogue0{x1});
      amx_block<3>(mc, n, r, inner_panels, (r + 31) / 32 * 3072, b_panels, (r + 31) / 32 * 3072, sink);
    }
  }
}
}  // namespace tracea_gemm_amx_low_rank_87f6bb2400570eb94041_text
