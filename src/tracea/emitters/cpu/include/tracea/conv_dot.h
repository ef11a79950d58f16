// Convolution with few filters: vectors run along channels, which lie next to each other in the image (or in a halo, conv.h) and in each filter.
//
// A tile holds MR pixels of one row by NK filters, a vector of sums each. A step loads a vector of channels of every pixel and of every filter, and multiplies
// each with each; behind the last step the lanes of each sum are added. What a step loads is used NK and MR times, and no lane is left to a filter that there
// is not. A filter is rows x columns x channels without gaps.
//
//   using Tile = ConvDotTile<float, 6, 4>;
//   Tile::run<6, 2>(pixels, filters, taps, a, a_pixel, b, c, c_stride, ConvBorder{row, column, height, width, 1, 1, 1});
#ifndef TRACEA_CONV_DOT_H
#define TRACEA_CONV_DOT_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/transpose.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// The sum of the lanes of each of the first `Count` vectors, in order: lane i is that of vector First + i. Other lanes hold anything.
#if defined(TRACEA_ISA_AVX512)
template <int First, int Count>
TRACEA_INLINE VecF sum_lanes(const VecF* sums) {
    __m512 four[4];
    unroll<4>([&](auto g) TRACEA_LAMBDA {  // blocks of four lanes, of four vectors
        __m512 v[4];
        unroll<4>([&](auto i) TRACEA_LAMBDA { v[i] = sums[First + (4 * g + i < Count ? 4 * g + i : 0)].reg; });
        const __m512 low = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
        const __m512 high = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
        four[g] = _mm512_add_ps(_mm512_shuffle_ps(low, high, 0x44), _mm512_shuffle_ps(low, high, 0xee));
    });
    const auto halves = [](__m512 x, __m512 y) TRACEA_LAMBDA {
        return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
    };
    return {halves(halves(four[0], four[1]), halves(four[2], four[3]))};
}
#endif
template <int First, int Count, class V>
TRACEA_INLINE V sum_lanes(const V* sums) {
    V block[V::lanes];
    unroll<V::lanes>([&](auto i) TRACEA_LAMBDA { block[i] = sums[First + (i < Count ? i : 0)]; });
    transpose(block);
    for (int left = V::lanes / 2; left > 0; left /= 2) {
        for (int i = 0; i < left; ++i) block[i] = add(block[i], block[i + left]);
    }
    return block[0];
}

}  // namespace detail

template <class T, int MR, int NK>
struct ConvDotTile {
    using V = Vec<T>;
    static constexpr int sums = MR * NK;
    static_assert(MR >= 1 && NK >= 1, "a tile has pixels and filters");
#if defined(TRACEA_ISA_AVX512) || defined(TRACEA_ISA_NEON)
    static_assert(sums + NK + 1 <= 32, "sums, NK vectors of filters and one of a pixel must fit in 32 registers");
#elif defined(TRACEA_ISA_AVX2)
    static_assert(sums + NK + 1 <= 16, "sums, NK vectors of filters and one of a pixel must fit in 16 registers");
#endif

    // c[i * c_stride + j] is the sum of pixel i and filter j. Runs the smallest instantiation of Pixels... (descending, the first is MR) that holds `pixels`.
    template <int First, int... Rest, class Storage>
    static TRACEA_INLINE void run(int64_t pixels, int64_t filters, const ConvTaps& taps, const Storage* a,
                                  int64_t a_pixel, const T* b, T* c, int64_t c_stride, const ConvBorder& border) {
        if constexpr (sizeof...(Rest) > 0) {
            constexpr int next[] = {Rest...};
            static_assert(next[0] < First, "pixel counts in descending order");
            if (pixels <= next[0]) {
                run<Rest...>(pixels, filters, taps, a, a_pixel, b, c, c_stride, border);
                return;
            }
        }
        using Part = ConvDotTile<T, First, NK>;
        if (TRACEA_LIKELY(filters == NK && pixels == First)) {
            Part::template compute<true>(pixels, filters, taps, a, a_pixel, b, c, c_stride, border);
        } else {
            Part::template compute<false>(pixels, filters, taps, a, a_pixel, b, c, c_stride, border);
        }
    }

    // Full: all pixels and filters are valid. Those that are not are the first one again.
    template <bool Full, class Storage>
    static TRACEA_NOINLINE void compute(int64_t pixels, int64_t filters, const ConvTaps& taps, const Storage* a,
                                        int64_t a_pixel, const T* b, T* c, int64_t c_stride, const ConvBorder& border) {
        constexpr int L = V::lanes;
        V acc[sums];
        unroll<sums>([&](auto n) TRACEA_LAMBDA { acc[n] = zero<V>(); });
        const int64_t b_row = taps.columns * taps.channels;
        const int64_t b_filter = taps.rows * b_row;
        // A run of channels of every pixel and filter; of a pixel none is read where `there` does not say so.
        const auto sum = [&](const Storage* x, const T* w, int64_t channels, auto&& there) TRACEA_LAMBDA {
            const auto step = [&](int64_t n) TRACEA_LAMBDA {
                V filter[NK];
                unroll<NK>([&](auto j) TRACEA_LAMBDA {
                    filter[j] = load_partial<V>(w + (Full || j < filters ? j * b_filter : 0), n);
                });
                unroll<MR>([&](auto i) TRACEA_LAMBDA {
                    const V pixel = there(i, x + (Full || i < pixels ? i * a_pixel : 0), n);
                    unroll<NK>([&](auto j) TRACEA_LAMBDA { fma_into(acc[i * NK + j], pixel, filter[j]); });
                });
                x += L;
                w += L;
            };
            for (; channels >= L; channels -= L) step(L);
            if (channels > 0) step(channels);
        };
        const auto every = [&](auto, const Storage* p, int64_t n) TRACEA_LAMBDA { return load_partial<V>(p, n); };
        const int64_t last = border.column + ((Full ? MR : pixels) - 1) * border.right;
        const int64_t reach = (taps.columns - 1) * border.gap_columns;
        const bool inside = border.column >= 0 && last + reach < border.width;
        const bool one_run = taps.column_step == taps.channels;  // of a row of taps
        for (int64_t r = 0; r < taps.rows; ++r) {
            const int64_t row = border.row + r * border.gap_rows;
            if (row < 0 || row >= border.height) continue;
            const Storage* x = a + r * taps.row_step;
            const T* w = b + r * b_row;
            if (inside && one_run) {
                sum(x, w, b_row, every);
                continue;
            }
            for (int64_t s = 0; s < taps.columns; ++s, x += taps.column_step, w += taps.channels) {
                const int64_t column = border.column + s * border.gap_columns;
                if (inside || (column >= 0 && last + s * border.gap_columns < border.width)) {
                    sum(x, w, taps.channels, every);
                } else if (last + s * border.gap_columns >= 0 && column < border.width) {
                    sum(x, w, taps.channels, [&](auto i, const Storage* p, int64_t n) TRACEA_LAMBDA {
                        const int64_t place = column + (Full || i < pixels ? i * border.right : 0);
                        return load_masked<V>(p, lane_mask<V>(place >= 0 && place < border.width ? n : 0));
                    });
                }
            }
        }
        constexpr int vectors = (sums + L - 1) / L;
        alignas(64) T whole[vectors * L];
        const bool dense = Full && c_stride == NK;
        unroll<vectors>([&](auto v) TRACEA_LAMBDA {
            constexpr int first = v * L;
            constexpr int count = sums - first < L ? sums - first : L;
            const V each = detail::sum_lanes<first, count>(acc);
            if (dense) {
                store_partial(c + first, each, count);
            } else {
                store(whole + first, each);
            }
        });
        if (dense) return;
        unroll<MR>([&](auto i) TRACEA_LAMBDA {
            if (Full || i < pixels) {
                unroll<NK>([&](auto j) TRACEA_LAMBDA {
                    if (Full || j < filters) c[i * c_stride + j] = whole[i * NK + j];
                });
            }
        });
    }
};

TRACEA_END_NAMESPACE

#endif
