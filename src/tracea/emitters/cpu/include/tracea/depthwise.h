// Depthwise convolution: a tile of MR pixels of one row by NV vectors of channels, each channel with taps of its own, read from a halo (conv.h).
//
//   using Tile = DepthwiseTile<float, 14, 1>;
//   Tile::run<14, 7>(pixels, channels, taps, a, a_pixel, b, c, c_stride);
//
// Every product is one fused multiply-add with an operand from memory: two loads a cycle feed two of them.
#ifndef TRACEA_DEPTHWISE_H
#define TRACEA_DEPTHWISE_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

template <class T, int MR, int NV>
struct DepthwiseTile {
    using V = Vec<T>;
    static constexpr int columns = NV * V::lanes;
#if defined(TRACEA_ISA_AVX512) || defined(TRACEA_ISA_NEON)
    static_assert((MR + 1) * NV <= 32, "sums and NV vectors of taps must fit in 32 registers");
#elif defined(TRACEA_ISA_AVX2)
    static_assert((MR + 1) * NV <= 16, "sums and NV vectors of taps must fit in 16 registers");
#endif

    // Runs the smallest instantiation of Pixels... (descending, the first is MR) that holds `pixels`.
    template <int First, int... Rest>
    static TRACEA_INLINE void run(int64_t pixels, int64_t channels, const ConvTaps& taps, const T* a, int64_t a_pixel,
                                  const T* b, T* c, int64_t c_stride) {
        if constexpr (sizeof...(Rest) > 0) {
            constexpr int next[] = {Rest...};
            static_assert(next[0] < First, "pixel counts in descending order");
            if (pixels <= next[0]) {
                run<Rest...>(pixels, channels, taps, a, a_pixel, b, c, c_stride);
                return;
            }
        }
        using Part = DepthwiseTile<T, First, NV>;
        if (TRACEA_LIKELY(channels >= columns && pixels == First)) {
            Part::template compute<true>(pixels, channels, taps, a, a_pixel, b, c, c_stride);
        } else {
            Part::template compute<false>(pixels, channels, taps, a, a_pixel, b, c, c_stride);
        }
    }

    template <bool Full>
    static TRACEA_NOINLINE void compute(int64_t pixels, int64_t channels, const ConvTaps& taps, const T* a,
                                        int64_t a_pixel, const T* b, T* c, int64_t c_stride) {
        V acc[MR][NV];
        unroll<MR>([&](auto i) TRACEA_LAMBDA { unroll<NV>([&](auto j) TRACEA_LAMBDA { acc[i][j] = zero<V>(); }); });
        Mask<V> valid[NV];
        int64_t offset[MR];
        if constexpr (!Full) {
            unroll<NV>([&](auto j) TRACEA_LAMBDA { valid[j] = lane_mask<V>(channels - j * V::lanes); });
            unroll<MR>([&](auto i) TRACEA_LAMBDA { offset[i] = i < pixels ? i * a_pixel : 0; });
        }
        for (int64_t r = 0; r < taps.rows; ++r) {
            const T* x = a + r * taps.row_step;
            for (int64_t s = 0; s < taps.columns; ++s, x += taps.column_step, b += columns) {
                V tap[NV];
                unroll<NV>([&](auto j) TRACEA_LAMBDA { tap[j] = load<V>(b + j * V::lanes); });
                unroll<MR>([&](auto i) TRACEA_LAMBDA {
                    unroll<NV>([&](auto j) TRACEA_LAMBDA {
                        if constexpr (Full) {
                            acc[i][j] = fma(load<V>(x + i * a_pixel + j * V::lanes), tap[j], acc[i][j]);
                        } else {
                            acc[i][j] = fma(load_masked<V>(x + offset[i] + j * V::lanes, valid[j]), tap[j], acc[i][j]);
                        }
                    });
                });
            }
        }
        unroll<MR>([&](auto i) TRACEA_LAMBDA {
            if (Full || i < pixels) {
                unroll<NV>([&](auto j) TRACEA_LAMBDA {
                    if constexpr (Full) {
                        store(c + i * c_stride + j * V::lanes, acc[i][j]);
                    } else {
                        store_masked(c + i * c_stride + j * V::lanes, acc[i][j], valid[j]);
                    }
                });
            }
        });
    }
};

TRACEA_END_NAMESPACE

#endif
