// Depthwise convolution: a tile of MR pixels of one row by NV vectors of channels, each channel with taps of its own, read from a halo (conv.h) or from an
// image with channels last, whose border the tile then knows.
//
//   using Tile = DepthwiseTile<float, 14, 1>;
//   Tile::run<14, 7>(pixels, channels, taps, a, a_pixel, b, c, c_stride, ConvBorder::none(taps.rows));
//   Tile::run<14, 7>(pixels, channels, taps, a, a_pixel, b, c, c_stride, ConvBorder{row, column, height, width, 1, 1, 1}, epilogue);
//
// Every product is one fused multiply-add with an operand from memory: two loads a cycle feed two of them.
#ifndef TRACEA_DEPTHWISE_H
#define TRACEA_DEPTHWISE_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/gemm_store.h"
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

    // Runs the smallest instantiation of Pixels... (descending, the first is MR) that holds `pixels`. The epilogue (gemm_store.h) counts from the tile's
    // first pixel and channel.
    template <int First, int... Rest, class Storage, class Epilogue = IdentityEpilogue>
    static TRACEA_INLINE void run(int64_t pixels, int64_t channels, const ConvTaps& taps, const Storage* a,
                                  int64_t a_pixel, const T* b, T* c, int64_t c_stride, const ConvBorder& border,
                                  const Epilogue& epilogue = {}) {
        if constexpr (sizeof...(Rest) > 0) {
            constexpr int next[] = {Rest...};
            static_assert(next[0] < First, "pixel counts in descending order");
            if (pixels <= next[0]) {
                run<Rest...>(pixels, channels, taps, a, a_pixel, b, c, c_stride, border, epilogue);
                return;
            }
        }
        using Part = DepthwiseTile<T, First, NV>;
        const int64_t last = border.column + (First - 1) * border.right + (taps.columns - 1) * border.gap_columns;
        const bool inside = border.column >= 0 && last < border.width;
        if (TRACEA_LIKELY(channels >= columns && pixels == First)) {
            if (TRACEA_LIKELY(inside)) {
                Part::template compute<true, true>(pixels, channels, taps, a, a_pixel, b, c, c_stride, border,
                                                   epilogue);
            } else {
                Part::template compute<true, false>(pixels, channels, taps, a, a_pixel, b, c, c_stride, border,
                                                    epilogue);
            }
        } else {
            Part::template compute<false, false>(pixels, channels, taps, a, a_pixel, b, c, c_stride, border, epilogue);
        }
    }

    // Full: all pixels and channels are valid. Inside: so are all columns of all windows.
    template <bool Full, bool Inside, class Storage, class Epilogue>
    static TRACEA_NOINLINE void compute(int64_t pixels, int64_t channels, const ConvTaps& taps, const Storage* a,
                                        int64_t a_pixel, const T* b, T* c, int64_t c_stride, const ConvBorder& border,
                                        const Epilogue& epilogue) {
        [[maybe_unused]] alignas(64) static constexpr Storage nothing[columns] = {};
        V acc[MR][NV];
        unroll<MR>([&](auto i) TRACEA_LAMBDA { unroll<NV>([&](auto j) TRACEA_LAMBDA { acc[i][j] = zero<V>(); }); });
        Mask<V> valid[NV];
        if constexpr (!Full) {
            unroll<NV>([&](auto j) TRACEA_LAMBDA { valid[j] = lane_mask<V>(channels - j * V::lanes); });
        }
        for (int64_t r = 0; r < taps.rows; ++r, b += taps.columns * columns) {
            const int64_t row = border.row + r * border.gap_rows;
            if (row < 0 || row >= border.height) continue;
            const Storage* x = a + r * taps.row_step;
            const T* taps_of_row = b;
            for (int64_t s = 0; s < taps.columns; ++s, x += taps.column_step, taps_of_row += columns) {
                V tap[NV];
                unroll<NV>([&](auto j) TRACEA_LAMBDA { tap[j] = load<V>(taps_of_row + j * V::lanes); });
                const auto add = [&](auto i, const Storage* pixel) TRACEA_LAMBDA {
                    unroll<NV>([&](auto j) TRACEA_LAMBDA {
                        if constexpr (Full) {
                            acc[i][j] = fma(load<V>(pixel + j * V::lanes), tap[j], acc[i][j]);
                        } else {
                            acc[i][j] = fma(load_masked<V>(pixel + j * V::lanes, valid[j]), tap[j], acc[i][j]);
                        }
                    });
                };
                [[maybe_unused]] const int64_t column = border.column + s * border.gap_columns;
                // Most taps of a long row have every pixel: they are looked at together.
                if (Inside || (Full && column >= 0 && column + (MR - 1) * border.right < border.width)) {
                    unroll<MR>([&](auto i) TRACEA_LAMBDA { add(i, x + i * a_pixel); });
                } else {
                    unroll<MR>([&](auto i) TRACEA_LAMBDA {
                        const int64_t place = column + i * border.right;
                        const bool is_there = place >= 0 && place < border.width && (Full || i < pixels);
                        add(i, is_there ? x + i * a_pixel : nothing);
                    });
                }
            }
        }
        unroll<MR>([&](auto i) TRACEA_LAMBDA {
            if (Full || i < pixels) {
                unroll<NV>([&](auto j) TRACEA_LAMBDA {
                    T* p = c + i * c_stride + j * V::lanes;
                    if constexpr (Full) {
                        store(p, epilogue(acc[i][j], i, j * V::lanes, V::lanes));
                    } else {
                        store_masked(p, epilogue(acc[i][j], i, j * V::lanes, valid_lanes<V>(channels - j * V::lanes)),
                                     valid[j]);
                    }
                });
            }
        });
    }
};

TRACEA_END_NAMESPACE

#endif
