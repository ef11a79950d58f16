// Convolution on vectors: the halo that a task copies, and the tile of pixels by filters that reads it in place.
//
// A halo is rows x columns pixels, each with its channels next to each other and column_pitch elements apart, rows row_pitch elements apart; what lies outside
// of the image is zero. A tile holds MR pixels of one row of results by NV vectors of filters; its sums stay in registers over all taps and channels.
//
//   copy_halo<float>(x, strides, height, width, top, left, rows, columns, channels, halo, row_pitch, column_pitch);
//   using Tile = ConvTile<float, 14, 2, 2, 8>;
//   Tile::run<14, 7>(pixels, filters, taps, a, a_pixel, b, c, c_stride, accumulate);
#ifndef TRACEA_CONV_H
#define TRACEA_CONV_H

#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "tracea/config.h"
#include "tracea/gemm_store.h"
#include "tracea/transpose.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// Distances in elements from a row, a column and a channel of an image to the next.
struct ImageStrides {
    int64_t row;
    int64_t column;
    int64_t channel;
};

namespace detail {

// `columns` pixels of `channels` channels, all of them inside of the image.
template <class T, class Storage>
TRACEA_INLINE void copy_pixels(const Storage* x, const ImageStrides& strides, int64_t columns, int64_t channels,
                               T* target, int64_t pitch) {
    using V = Vec<T>;
    constexpr int L = V::lanes;
    if (strides.channel == 1) {
        if (strides.column == channels && pitch == channels) {  // one long run
            channels *= columns;
            columns = 1;
        }
        for (int64_t j = 0; j < columns; ++j, x += strides.column, target += pitch) {
            int64_t c = 0;
            for (; c + L <= channels; c += L) store(target + c, load<V>(x + c));
            if (c < channels) store_partial(target + c, load_partial<V>(x + c, channels - c), channels - c);
        }
    } else if (strides.column == 1) {
        for (int64_t c = 0; c < channels; c += L) {
            const int64_t n = channels - c < L ? channels - c : L;
            for (int64_t j = 0; j < columns; j += L) {
                const int64_t m = columns - j < L ? columns - j : L;
                const Storage* line = x + c * strides.channel + j;
                V block[L];
                for (int i = 0; i < L; ++i)
                    block[i] = i < n ? load_partial<V>(line + i * strides.channel, m) : zero<V>();
                transpose(block);
                T* place = target + j * pitch + c;
                for (int i = 0; i < L && i < m; ++i) store_partial(place + i * pitch, block[i], n);
            }
        }
    } else {
        for (int64_t j = 0; j < columns; ++j) {
            for (int64_t c = 0; c < channels; ++c)
                target[j * pitch + c] = static_cast<T>(to_float(x[j * strides.column + c * strides.channel]));
        }
    }
}

template <class T>
TRACEA_INLINE void clear_pixels(int64_t columns, int64_t channels, T* target, int64_t pitch) {
    for (int64_t j = 0; j < columns; ++j) memset(target + j * pitch, 0, channels * sizeof(T));
}

}  // namespace detail

// Rows top .. top + rows and columns left .. left + columns of an image of height x width, with zeros where it has none. `x` is its first element.
template <class T, class Storage>
TRACEA_NOINLINE void copy_halo(const Storage* x, ImageStrides strides, int64_t height, int64_t width, int64_t top,
                               int64_t left, int64_t rows, int64_t columns, int64_t channels, T* halo,
                               int64_t row_pitch, int64_t column_pitch) {
    const int64_t before = left < 0 ? (-left < columns ? -left : columns) : 0;
    const int64_t end = width - left < columns ? width - left : columns;
    const int64_t inside = end > before ? end - before : 0;
    for (int64_t i = 0; i < rows; ++i, halo += row_pitch) {
        if (top + i < 0 || top + i >= height || inside == 0) {
            detail::clear_pixels(columns, channels, halo, column_pitch);
            continue;
        }
        detail::clear_pixels(before, channels, halo, column_pitch);
        detail::copy_pixels(x + (top + i) * strides.row + (left + before) * strides.column, strides, inside, channels,
                            halo + before * column_pitch, column_pitch);
        detail::clear_pixels(columns - before - inside, channels, halo + (before + inside) * column_pitch,
                             column_pitch);
    }
}

// The taps of a tile: how many, how far apart in the halo, and how many channels each is summed over. A tap of the panel is b_tap elements after the last.
// Channels of the image itself may lie apart, channel_step elements.
struct ConvTaps {
    int64_t rows;
    int64_t columns;
    int64_t channels;
    int64_t row_step;
    int64_t column_step;
    int64_t b_tap;
    int64_t channel_step = 1;
};

// A panel of filters, and the lines of one that is needed later: where those begin that a tile asks for, into the second-level cache.
template <class T>
struct ConvPanel {
    const T* first;
    const T* upcoming;

    TRACEA_INLINE ConvPanel(const T* first, const T* upcoming = nullptr) : first(first), upcoming(upcoming) {}
};

// Where a tile's windows begin in an image of `height` rows, and how far apart its taps' rows are. Rows outside of the image are zeros in the halo.
struct ImageRows {
    int64_t first;
    int64_t height;
    int64_t gap;
};

// The same of columns; `step` from a pixel's window to its neighbour's.
struct ImageColumns {
    int64_t first;
    int64_t width;
    int64_t gap;
    int64_t step;
};

// Where the first pixel's window begins in an image of height x width, and how far apart taps and pixels are. Taps outside of the image count as zero and are
// not read.
struct ConvBorder {
    int64_t row;
    int64_t column;
    int64_t height;
    int64_t width;
    int64_t gap_rows;
    int64_t gap_columns;
    int64_t right;

    // Of a halo, which has every tap.
    static TRACEA_INLINE ConvBorder none(int64_t tap_rows) { return {0, 0, tap_rows, INT64_MAX, 1, 0, 0}; }
};

namespace detail {

// The taps of a row that a tile's first pixel has over the image begin at `begin`, those of its last pixel end at `end`.
struct TapsInside {
    int64_t begin;
    int64_t end;
};

TRACEA_INLINE TapsInside taps_inside(const ImageColumns& image, int64_t pixels, int64_t columns) {
    TapsInside inside = {0, columns};
    while (inside.begin < columns && image.first + inside.begin * image.gap < 0) ++inside.begin;
    const int64_t last = image.first + (pixels - 1) * image.step;
    while (inside.end > inside.begin && last + (inside.end - 1) * image.gap >= image.width) --inside.end;
    return inside;
}

// Taps of a row that no pixel of a tile leaves out.
struct EveryTap {};

}  // namespace detail

// How many lanes of a vector are valid where `left` elements are left from its first lane on.
template <class V>
TRACEA_INLINE int64_t valid_lanes(int64_t left) {
    return left < 0 ? 0 : left < V::lanes ? left : int64_t{V::lanes};
}

// Prefetch: how many steps ahead a tile asks for the panel; 0 leaves it to the hardware. Apart: channels are not next to each other. Ahead: for the results,
// and for what the epilogue reads, of the tile of the row that comes so many later; 0: not at all. Each tile's lines lie as far apart as pixels do, where no
// hardware prefetcher follows. Upcoming: lines of the panel that is needed later, asked for in each run of Unroll steps.
template <class T, int MR, int NV, int Unroll, int Prefetch, bool Apart = false, int Ahead = 0, int Upcoming = 0>
struct ConvTile {
    using V = Vec<T>;
    static constexpr int columns = NV * V::lanes;
#if defined(TRACEA_ISA_AVX512)
    // Registers that a tile leaves free. With 3 it is part of the loop over tiles: of short sums a call is a twentieth. Measured: with 1 the accumulators
    // would move to memory there, a seventh slower.
    static constexpr int spare = 32 - (MR * NV + NV + 1);
#else
    static constexpr int spare = 0;
#endif
    static_assert(MR >= 1 && NV >= 1 && Unroll >= 1, "a tile has pixels, vectors and steps");
#if defined(TRACEA_ISA_AVX512) || defined(TRACEA_ISA_NEON)
    static_assert(MR * NV + NV + 1 <= 32, "accumulators, NV vectors of B and one broadcast must fit in 32 registers");
#elif defined(TRACEA_ISA_AVX2)
    static_assert(MR * NV + NV + 1 <= 16, "accumulators, NV vectors of B and one broadcast must fit in 16 registers");
#endif

    // As run, without the rows of taps that lie over zeros around the image.
    template <int First, int... Rest, class Epilogue = IdentityEpilogue>
    static TRACEA_INLINE void run_within(ImageRows image, int64_t pixels, int64_t filters, ConvTaps taps, const T* a,
                                         int64_t a_pixel, ConvPanel<T> b, T* c, int64_t c_stride, bool accumulate,
                                         const Epilogue& epilogue = {}) {
        leave_out(image, taps, a, b);
        run<First, Rest...>(pixels, filters, taps, a, a_pixel, b, c, c_stride, accumulate, epilogue);
    }

    // As run, without these rows, and without the taps beside the image of a whole tile's first and last pixel.
    template <int First, int... Rest, class Epilogue = IdentityEpilogue>
    static TRACEA_INLINE void run_within(ImageRows rows, const ImageColumns& image, int64_t pixels, int64_t filters,
                                         ConvTaps taps, const T* a, int64_t a_pixel, ConvPanel<T> b, T* c,
                                         int64_t c_stride, bool accumulate, const Epilogue& epilogue = {}) {
        leave_out(rows, taps, a, b);
        const auto inside = detail::taps_inside(image, pixels, taps.columns);
        if (inside.begin == 0 && inside.end == taps.columns) {
            run<First, Rest...>(pixels, filters, taps, a, a_pixel, b, c, c_stride, accumulate, epilogue);
        } else {
            run_inside<First, Rest...>(inside, pixels, filters, taps, a, a_pixel, b, c, c_stride, accumulate, epilogue);
        }
    }

    // Moves to the first row of taps over the image, and counts those that are.
    static TRACEA_INLINE void leave_out(ImageRows image, ConvTaps& taps, const T*& a, ConvPanel<T>& b) {
        while (taps.rows > 0 && image.first < 0) {
            image.first += image.gap;
            --taps.rows;
            a += taps.row_step;
            b.first += taps.columns * taps.b_tap;
        }
        while (taps.rows > 0 && image.first + (taps.rows - 1) * image.gap >= image.height) --taps.rows;
    }

    // Runs the smallest instantiation of Pixels... (descending, the first is MR) that holds `pixels`; the others are counted down to 1 beneath the last.
    // Pixels that are not valid are those of the first one again: a tile reads nothing but its own.
    template <int First, int... Rest, class Epilogue = IdentityEpilogue>
    static TRACEA_INLINE void run(int64_t pixels, int64_t filters, ConvTaps taps, const T* a, int64_t a_pixel,
                                  ConvPanel<T> b, T* c, int64_t c_stride, bool accumulate,
                                  const Epilogue& epilogue = {}) {
        // The taps of a row are one run where neither operand has a gap between them: few channels are summed in one loop.
        if (!Apart && taps.column_step == taps.channels && taps.b_tap == taps.channels * columns) {
            taps.channels *= taps.columns;
            taps.b_tap *= taps.columns;
            taps.columns = 1;
        }
        run_inside<First, Rest...>(detail::EveryTap{}, pixels, filters, taps, a, a_pixel, b, c, c_stride, accumulate,
                                   epilogue);
    }

    // As run; `inside` are the taps that the first and the last pixel of a whole tile take, or EveryTap.
    template <int First, int... Rest, class Inside, class Epilogue>
    static TRACEA_INLINE void run_inside(const Inside& inside, int64_t pixels, int64_t filters, const ConvTaps& taps,
                                         const T* a, int64_t a_pixel, ConvPanel<T> b, T* c, int64_t c_stride,
                                         bool accumulate, const Epilogue& epilogue) {
        if constexpr (sizeof...(Rest) > 0) {
            constexpr int next[] = {Rest...};
            static_assert(next[0] < First, "pixel counts in descending order");
            if (pixels <= next[0]) {
                run_inside<Rest...>(inside, pixels, filters, taps, a, a_pixel, b, c, c_stride, accumulate, epilogue);
                return;
            }
        }
        using Part = ConvTile<T, First, NV, Unroll, Prefetch, Apart, Ahead, Upcoming>;
        if (TRACEA_LIKELY(filters >= columns && pixels == First)) {
            if constexpr (Part::spare >= 3) {
                Part::template compute<true>(inside, pixels, filters, taps, a, a_pixel, b, c, c_stride, accumulate,
                                             epilogue);
            } else {
                Part::template apart<true>(inside, pixels, filters, taps, a, a_pixel, b, c, c_stride, accumulate,
                                           epilogue);
            }
        } else {
            Part::template apart<false>(detail::EveryTap{}, pixels, filters, taps, a, a_pixel, b, c, c_stride,
                                        accumulate, epilogue);
        }
    }

    // A function of its own keeps what surrounds a tile out of its registers.
    template <bool Full, class Inside, class Epilogue>
    static TRACEA_NOINLINE void apart(const Inside& inside, int64_t pixels, int64_t filters, const ConvTaps& taps,
                                      const T* a, int64_t a_pixel, ConvPanel<T> b, T* c, int64_t c_stride,
                                      bool accumulate, const Epilogue& epilogue) {
        compute<Full>(inside, pixels, filters, taps, a, a_pixel, b, c, c_stride, accumulate, epilogue);
    }

    // The epilogue by value: what its members point to may be where results are stored, its members themselves are not.
    template <bool Full, class Inside, class Epilogue>
    static TRACEA_INLINE void compute(const Inside& inside, int64_t pixels, int64_t filters, const ConvTaps& taps,
                                      const T* a, int64_t a_pixel, ConvPanel<T> b, T* c, int64_t c_stride,
                                      bool accumulate, const Epilogue epilogue) {
        if constexpr (Full && Ahead > 0) {
            constexpr int line = 64 / static_cast<int>(sizeof(T));
            const T* later = c + Ahead * MR * c_stride;
            for (int i = 0; i < MR; ++i, later += c_stride) {
                epilogue.prefetch(Ahead * MR + i, 0);
                for (int j = 0; j < columns; j += line) prefetch_l1_write(later + j);
            }
        }
        [[maybe_unused]] const T* upcoming = b.upcoming;
        V acc[MR][NV];
        unroll<MR>([&](auto i) TRACEA_LAMBDA { unroll<NV>([&](auto j) TRACEA_LAMBDA { acc[i][j] = zero<V>(); }); });
        int64_t offset[MR];
        unroll<MR>([&](auto i) TRACEA_LAMBDA { offset[i] = Full || i < pixels ? i * a_pixel : 0; });
        // The products of a step with the pixels from `first` to the one before `end`.
        const auto step = [&](auto first, auto end, const T* a_k, const T* b_k) TRACEA_LAMBDA {
            V b_vector[NV];
            unroll<NV>([&](auto j) TRACEA_LAMBDA { b_vector[j] = load<V>(b_k + j * V::lanes); });
            if constexpr (Prefetch > 0) {
                unroll<NV>([&](auto j) TRACEA_LAMBDA { prefetch_l1(b_k + Prefetch * columns + j * V::lanes); });
            }
            unroll<end - first>([&](auto n) TRACEA_LAMBDA {
                constexpr int i = first + n;
                const V a_vector = load_broadcast<V>(a_k + (Full ? i * a_pixel : offset[i]));
                unroll<NV>([&](auto j) TRACEA_LAMBDA { fma_into(acc[i][j], a_vector, b_vector[j]); });
            });
        };
        const auto sum = [&](auto first, auto end, int64_t r, int64_t begin, int64_t after) TRACEA_LAMBDA {
            for (int64_t s = begin; s < after; ++s) {
                const T* a_k = a + r * taps.row_step + s * taps.column_step;
                const T* b_k = b.first + (r * taps.columns + s) * taps.b_tap;
                const int64_t next = Apart ? taps.channel_step : 1;
                int64_t left = taps.channels;
                for (; left >= Unroll; left -= Unroll) {
                    if constexpr (Upcoming > 0) {
                        constexpr int line = 64 / static_cast<int>(sizeof(T));
                        unroll<Upcoming>([&](auto n) TRACEA_LAMBDA { prefetch_l2(upcoming + n * line); });
                        upcoming += Upcoming * line;
                    }
                    unroll<Unroll>([&](auto u) TRACEA_LAMBDA { step(first, end, a_k + u * next, b_k + u * columns); });
                    a_k += Unroll * next;
                    b_k += Unroll * columns;
                }
                for (; left > 0; --left, a_k += next, b_k += columns) step(first, end, a_k, b_k);
            }
        };
        for (int64_t r = 0; r < taps.rows; ++r) {
            if constexpr (std::is_same_v<Inside, detail::TapsInside>) {
                sum(constant<1>{}, constant<MR>{}, r, 0, inside.begin);
                sum(constant<0>{}, constant<MR>{}, r, inside.begin, inside.end);
                sum(constant<0>{}, constant<MR - 1>{}, r, inside.end, taps.columns);
            } else {
                sum(constant<0>{}, constant<MR>{}, r, 0, taps.columns);
            }
        }
        unroll<MR>([&](auto i) TRACEA_LAMBDA {
            if (Full || i < pixels) {
                T* row = c + i * c_stride;
                unroll<NV>([&](auto j) TRACEA_LAMBDA {
                    T* p = row + j * V::lanes;
                    if constexpr (Full) {
                        const V sum = accumulate ? add(acc[i][j], load<V>(p)) : acc[i][j];
                        store(p, epilogue(sum, i, j * V::lanes, V::lanes));
                    } else {
                        const int64_t lanes = filters - j * V::lanes;
                        const Mask<V> valid = lane_mask<V>(lanes);
                        const V sum = accumulate ? add(acc[i][j], load_masked<V>(p, valid)) : acc[i][j];
                        store_masked(p, epilogue(sum, i, j * V::lanes, valid_lanes<V>(lanes)), valid);
                    }
                });
            }
        });
    }
};

TRACEA_END_NAMESPACE

#endif
