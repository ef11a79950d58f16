// Convolution on vectors along pixels: for images in rows whose filters would fill no vectors.
//
// A halo is channels x rows x columns, the columns next to each other, so that its rows are one axis of pixels in which a tap is an offset. A tile is MR filters
// by NV vectors of that axis, its sums in registers over all taps and channels; it walks on where a row of results ends, and drops the columns between two rows.
//
//   copy_rows<float>(x, strides, height, width, top, left, rows, columns, channels, halo, row_pitch, plane);
//   using Tile = PixelTile<float, 13, 2>;
//   Tile::run<13, 11>(rows, columns, filters, taps, a, pitch, b, out, filter_step, epilogue);
#ifndef TRACEA_PIXELS_H
#define TRACEA_PIXELS_H

#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "tracea/config.h"
#include "tracea/conv.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// `count` elements that are next to each other. A last vector that is not full goes over what the one before it has stored: masked stores of AVX2 take long.
template <class T, class Storage>
TRACEA_INLINE void copy_run(const Storage* source, int64_t count, T* target) {
    using V = Vec<T>;
    constexpr int L = V::lanes;
    if (count < L) {
        store_partial(target, load_partial<V>(source, count), count);
        return;
    }
    for (int64_t j = 0; j + L <= count; j += L) store(target + j, load<V>(source + j));
    store(target + (count - L), load<V>(source + (count - L)));
}

template <class T>
TRACEA_INLINE void clear_run(int64_t count, T* target) {
    for (int64_t j = 0; j < count; ++j) target[j] = T(0);
}

}  // namespace detail

// As copy_halo, into channels `plane` elements apart, of rows row_pitch elements apart, from an image whose columns are next to each other.
template <class T, class Storage>
TRACEA_NOINLINE void copy_rows(const Storage* x, ImageStrides strides, int64_t height, int64_t width, int64_t top,
                               int64_t left, int64_t rows, int64_t columns, int64_t channels, T* halo,
                               int64_t row_pitch, int64_t plane) {
    const int64_t before = left < 0 ? (-left < columns ? -left : columns) : 0;
    const int64_t end = width - left < columns ? width - left : columns;
    const int64_t inside = end > before ? end - before : 0;
    for (int64_t c = 0; c < channels; ++c) {
        for (int64_t i = 0; i < rows; ++i) {
            T* row = halo + c * plane + i * row_pitch;
            if (top + i < 0 || top + i >= height || inside == 0) {
                detail::clear_run(columns, row);
                continue;
            }
            detail::clear_run(before, row);
            detail::copy_run(x + c * strides.channel + (top + i) * strides.row + left + before, inside, row + before);
            detail::clear_run(columns - before - inside, row + before + inside);
        }
    }
}

// The taps of a tile: how many, how far apart in the halo, how many channels each is summed over, and how far apart those are.
struct PixelTaps {
    int64_t rows;
    int64_t columns;
    int64_t channels;
    int64_t row_step;
    int64_t column_step;
    int64_t plane;
};

// Filters of a panel are MR elements apart from step to step, the steps in the order of rows, columns and channels.
template <class T, int MR, int NV>
struct PixelTile {
    using V = Vec<T>;
    static constexpr int width = NV * V::lanes;
    static_assert(MR >= 1 && NV >= 1, "a tile has filters and vectors");
#if defined(TRACEA_ISA_AVX512) || defined(TRACEA_ISA_NEON)
    static_assert(MR * NV + NV + 1 <= 32,
                  "accumulators, NV vectors of pixels and one broadcast must fit in 32 registers");
#elif defined(TRACEA_ISA_AVX2)
    static_assert(MR * NV + NV + 1 <= 16,
                  "accumulators, NV vectors of pixels and one broadcast must fit in 16 registers");
#endif

    // `rows` rows of `columns` results, for the first `filters` of a panel, whose number is at most MR: the smallest of First, Rest... (descending, the
    // first is MR) that holds them is computed. Rows of the halo are `pitch` elements apart; those of `out` follow each other, filters are filter_step apart.
    template <int First, int... Rest, class Storage, class Epilogue>
    static TRACEA_INLINE void run(int64_t rows, int64_t columns, int64_t filters, const PixelTaps& taps, const T* a,
                                  int64_t pitch, const T* b, Storage* out, int64_t filter_step,
                                  const Epilogue& epilogue) {
        if constexpr (sizeof...(Rest) > 0) {
            constexpr int next[] = {Rest...};
            static_assert(next[0] < First, "filters in descending order");
            if (filters <= next[0]) {
                run<Rest...>(rows, columns, filters, taps, a, pitch, b, out, filter_step, epilogue);
                return;
            }
        }
        walk<First>(rows, columns, filters, taps, a, pitch, b, out, filter_step, epilogue);
    }

    template <int Rows, class Storage, class Epilogue>
    static TRACEA_NOINLINE void walk(int64_t rows, int64_t columns, int64_t filters, const PixelTaps& taps, const T* a,
                                     int64_t pitch, const T* b, Storage* out, int64_t filter_step,
                                     const Epilogue epilogue) {
        const int64_t pixels = (rows - 1) * pitch + columns;
        int64_t row = 0, column = 0;
        for (int64_t first = 0; first < pixels;) {
            const Place place = {row, column, columns, pitch, filters, filter_step};
            const int64_t left = pixels - first;
            if (TRACEA_LIKELY(left >= width)) {
                tile<Rows, NV, true>(width, taps, a + first, b, out, place, epilogue);
            } else {
                last<Rows, NV>(left, taps, a + first, b, out, place, epilogue);
            }
            first += width;
            column += width;
            while (column >= pitch) column -= pitch, ++row;
            if (column >= columns) {  // nothing until the next row
                first += pitch - column;
                column = 0;
                ++row;
            }
        }
    }

    // Where a tile's first pixel is among `columns` results of a row, rows being `pitch` pixels apart.
    struct Place {
        int64_t row;
        int64_t column;
        int64_t columns;
        int64_t pitch;
        int64_t filters;
        int64_t filter_step;
    };

    // The last pixels of all, by as many vectors as hold them.
    template <int Rows, int Vectors, class Storage, class Epilogue>
    static TRACEA_INLINE void last(int64_t pixels, const PixelTaps& taps, const T* a, const T* b, Storage* out,
                                   const Place& place, const Epilogue& epilogue) {
        if constexpr (Vectors > 1) {
            if (pixels <= (Vectors - 1) * V::lanes) {
                last<Rows, Vectors - 1>(pixels, taps, a, b, out, place, epilogue);
                return;
            }
        }
        tile<Rows, Vectors, false>(pixels, taps, a, b, out, place, epilogue);
    }

    template <int Rows, int Vectors, bool Full, class Storage, class Epilogue>
    static TRACEA_NOINLINE void tile(int64_t pixels, const PixelTaps& taps, const T* a, const T* b, Storage* out,
                                     const Place& place, const Epilogue epilogue) {
        V acc[Rows][Vectors];
        unroll<Rows>([&](auto i)
                         TRACEA_LAMBDA { unroll<Vectors>([&](auto j) TRACEA_LAMBDA { acc[i][j] = zero<V>(); }); });
        for (int64_t r = 0; r < taps.rows; ++r) {
            for (int64_t s = 0; s < taps.columns; ++s) {
                const T* a_k = a + r * taps.row_step + s * taps.column_step;
                for (int64_t c = 0; c < taps.channels; ++c, a_k += taps.plane, b += MR) {
                    V pixel[Vectors];
                    unroll<Vectors>([&](auto j) TRACEA_LAMBDA {
                        constexpr int at = j * V::lanes;
                        if constexpr (Full) {
                            pixel[j] = load<V>(a_k + at);
                        } else {
                            pixel[j] = load_partial<V>(a_k + at, pixels - at);
                        }
                    });
                    unroll<Rows>([&](auto i) TRACEA_LAMBDA {
                        const V filter = load_broadcast<V>(b + i);
                        unroll<Vectors>([&](auto j) TRACEA_LAMBDA { fma_into(acc[i][j], filter, pixel[j]); });
                    });
                }
            }
        }
        const int64_t filters = place.filters, number = place.row * place.columns + place.column;
        if (Full && place.column + Vectors * V::lanes <= place.columns) {  // all within one row
            unroll<Rows>([&](auto i) TRACEA_LAMBDA {
                if (i < filters) {
                    unroll<Vectors>([&](auto j) TRACEA_LAMBDA {
                        constexpr int at = j * V::lanes;
                        store(out + i * place.filter_step + number + at, epilogue(acc[i][j], i, number + at, V::lanes));
                    });
                }
            });
            return;
        }
        T sums[Rows * Vectors * V::lanes];
        unroll<Rows>([&](auto i) TRACEA_LAMBDA {
            unroll<Vectors>([&](auto j) TRACEA_LAMBDA { store(sums + (i * Vectors + j) * V::lanes, acc[i][j]); });
        });
        int64_t column = place.column, to = number;
        for (int64_t done = 0; done < pixels;) {
            const int64_t run = place.columns - column < pixels - done ? place.columns - column : pixels - done;
            for (int64_t i = 0; i < filters && i < Rows; ++i) {
                for (int64_t j = 0; j < run; j += V::lanes) {
                    const int64_t n = run - j < V::lanes ? run - j : V::lanes;
                    const V sum = load_partial<V>(sums + i * Vectors * V::lanes + done + j, n);
                    store_partial(out + i * place.filter_step + to + j, epilogue(sum, i, to + j, n), n);
                }
            }
            done += run + (place.pitch - place.columns);
            to += run;
            column = 0;
        }
    }
};

TRACEA_END_NAMESPACE

#endif
