// A product with few columns, in place of which vectors hold steps: a tile of MR rows by NV vectors, each of lanes / 4 columns by four steps.
//
// With 16 columns a vector of B has one use for each row, and each product needs an element of A of its own: loads, not products, take the time. Here a load
// of A brings four steps and serves NV vectors (benchmarks/NOTES.md). The four sums of a column are added behind the last step.
//
//   pack_steps<T, Columns>(b, k_stride, column_stride, k, columns, k_panel, panels)   panels of Columns columns, k_panel steps allocated: whole fours
//   StepTile<float, 6, 4, 2>::run<6, 2>(rows, columns, k, a, a_stride, panel, c, c_stride)   element (i, k) of A at a[i * a_stride + k]
//
// Four steps of a panel are NV vectors: lane 4 g + s of vector v is step s of column NV g + v. Missing steps and columns are zero.
#ifndef TRACEA_STEP_TILE_H
#define TRACEA_STEP_TILE_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

constexpr int kSteps = 4;  // of a vector

namespace detail {

#if defined(TRACEA_ISA_AVX512)
template <class V>
TRACEA_INLINE V load_steps(const float* p) {
    return {_mm512_broadcast_f32x4(_mm_loadu_ps(p))};
}
template <class V>
TRACEA_INLINE V load_steps(const float* p, int64_t n) {
    return {_mm512_broadcast_f32x4(_mm_maskz_loadu_ps(static_cast<__mmask8>((1U << n) - 1U), p))};
}

// Adds the four sums of each column: column NV g + v, from lanes 4 g to 4 g + 3 of vector v, becomes lane NV g + v.
template <int NV, class V>
TRACEA_INLINE V add_steps(const V (&sums)[NV]) {
    __m512 v[4];
    unroll<4>([&](auto i) TRACEA_LAMBDA { v[i] = sums[i < NV ? i : 0].reg; });
    const __m512 low = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
    const __m512 high = NV < 3 ? low : _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
    const __m512 all = _mm512_add_ps(_mm512_shuffle_ps(low, high, 0x44), _mm512_shuffle_ps(low, high, 0xee));
    if constexpr (NV == 4) return {all};
    alignas(64) constexpr auto from = [] {
        struct {
            int32_t lane[16];
        } lanes{};
        for (int i = 0; i < 16; ++i) lanes.lane[i] = (i / NV * 4 + i % NV) & 15;
        return lanes;
    }();
    return {_mm512_permutexvar_ps(_mm512_load_si512(from.lane), all)};
}
#else
template <class V>
TRACEA_INLINE V load_steps(const float* p, int64_t n = kSteps) {
    float steps[V::lanes];
    for (int i = 0; i < V::lanes; ++i) steps[i] = i % kSteps < n ? p[i % kSteps] : 0;
    return load<V>(steps);
}
template <int NV, class V>
TRACEA_INLINE V add_steps(const V (&sums)[NV]) {
    float lanes[V::lanes];
    float results[V::lanes] = {};
    for (int v = 0; v < NV; ++v) {
        store(lanes, sums[v]);
        for (int g = 0; g < V::lanes / kSteps; ++g) {
            const float* const four = lanes + g * kSteps;
            results[g * NV + v] = (four[0] + four[2]) + (four[1] + four[3]);
        }
    }
    return load<V>(results);
}
#endif

}  // namespace detail

template <class T, int MR, int NV, int Unroll>
struct StepTile {
    using V = Vec<T>;
    static constexpr int columns = NV * V::lanes / kSteps;
    static_assert(V::lanes % kSteps == 0 && NV <= kSteps, "the columns of a tile are one vector of results");

    // Runs the instantiation of Rows... (descending, the first is MR) that has exactly `rows` rows.
    template <int First, int... Rest>
    static TRACEA_INLINE void run(int64_t rows, int64_t wide, int64_t k, const T* a, int64_t a_stride, const T* panel,
                                  T* c, int64_t c_stride) {
        if constexpr (sizeof...(Rest) > 0) {
            if (rows < First) {
                run<Rest...>(rows, wide, k, a, a_stride, panel, c, c_stride);
                return;
            }
        }
        StepTile<T, First, NV, Unroll>::compute(wide, k, a, a_stride, panel, c, c_stride);
    }

    static TRACEA_NOINLINE void compute(int64_t wide, int64_t k, const T* a, int64_t a_stride, const T* panel, T* c,
                                        int64_t c_stride) {
        V acc[MR][NV];
        unroll<MR>([&](auto i) TRACEA_LAMBDA { unroll<NV>([&](auto j) TRACEA_LAMBDA { acc[i][j] = zero<V>(); }); });
        // Rows in threes: each address is a pointer and none, one or two strides.
        constexpr int threes = (MR + 2) / 3;
        const T* row[threes];
        unroll<threes>([&](auto i) TRACEA_LAMBDA { row[i] = a + 3 * i * a_stride; });

        const auto step = [&](int u, auto&& steps_of) TRACEA_LAMBDA {
            V b[NV];
            unroll<NV>([&](auto j) TRACEA_LAMBDA { b[j] = load<V>(panel + (u * NV + j) * V::lanes); });
            unroll<MR>([&](auto i) TRACEA_LAMBDA {
                const V four = steps_of(row[i / 3] + i % 3 * a_stride + u * kSteps);
                unroll<NV>([&](auto j) TRACEA_LAMBDA { fma_into(acc[i][j], four, b[j]); });
            });
        };
        const auto advance = [&](int count) TRACEA_LAMBDA {
            unroll<threes>([&](auto i) TRACEA_LAMBDA { row[i] += count * kSteps; });
            panel += count * NV * V::lanes;
        };
        const auto whole = [](const T* p) TRACEA_LAMBDA { return detail::load_steps<V>(p); };
        for (; k >= Unroll * kSteps; k -= Unroll * kSteps) {
            unroll<Unroll>([&](auto u) TRACEA_LAMBDA { step(u, whole); });
            advance(Unroll);
        }
        for (; k >= kSteps; k -= kSteps) {
            step(0, whole);
            advance(1);
        }
        if (k > 0) step(0, [&](const T* p) TRACEA_LAMBDA { return detail::load_steps<V>(p, k); });
        unroll<MR>([&](auto i) TRACEA_LAMBDA {
            store_partial(c + i * c_stride, detail::add_steps(acc[i]), wide < columns ? wide : columns);
        });
    }
};

// Panels of B for such tiles, from any strides; k_panel, the allocated length of a panel, is at least k and a whole number of fours.
template <class T, int Columns, class Storage>
TRACEA_NOINLINE void pack_steps(const Storage* b, int64_t k_stride, int64_t column_stride, int64_t k, int64_t columns,
                                int64_t k_panel, T* panels) {
    using V = Vec<T>;
    constexpr int NV = Columns * kSteps / V::lanes;
    static_assert(NV * V::lanes == Columns * kSteps, "columns of whole vectors");
    for (int64_t first = 0; first < columns; first += Columns, panels += k_panel * Columns) {
        const int64_t wide = columns - first < Columns ? columns - first : Columns;
        for (int64_t step = 0; step < k; step += kSteps) {
            const int64_t steps = k - step < kSteps ? k - step : kSteps;
            const Storage* const source = b + step * k_stride + first * column_stride;
            T* const four = panels + step * Columns;
#if defined(TRACEA_ISA_AVX512)
            if (column_stride == 1) {
                V row[kSteps];
                unroll<kSteps>([&](auto s) TRACEA_LAMBDA {
                    row[s] = s < steps ? load_partial<V>(source + s * k_stride, wide) : zero<V>();
                });
                unroll<NV>([&](auto v) TRACEA_LAMBDA {
                    const __m512i lane =
                        _mm512_setr_epi32(0, 16, 0, 16, NV, NV + 16, NV, NV + 16, 2 * NV, 2 * NV + 16, 2 * NV,
                                          2 * NV + 16, 3 * NV, 3 * NV + 16, 3 * NV, 3 * NV + 16);
                    const __m512i from = _mm512_add_epi32(lane, _mm512_set1_epi32(v));
                    const __m512 early = _mm512_permutex2var_ps(row[0].reg, from, row[1].reg);
                    const __m512 late = _mm512_permutex2var_ps(row[2].reg, from, row[3].reg);
                    store(four + v * V::lanes, V{_mm512_mask_blend_ps(0xcccc, early, late)});
                });
                continue;
            }
#endif
            for (int64_t column = 0; column < Columns; ++column) {
                T* const target = four + column % NV * V::lanes + column / NV * kSteps;
                for (int64_t s = 0; s < kSteps; ++s) {
                    const bool there = column < wide && s < steps;
                    target[s] = there ? static_cast<T>(source[s * k_stride + column * column_stride]) : T(0);
                }
            }
        }
    }
}

TRACEA_END_NAMESPACE

#endif
