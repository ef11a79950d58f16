// The halo of a convolution of few channels as sums of bf16 terms: a pixel holds whole rows of taps, so that a granule is filled.
//
// Pixel (i, j) is what the windows of `runs` rows by `run` floats hold that begin at row i and float j * step of `x`, one row after the other, and zeros behind
// them: at most 32 lanes in all, laid out and marked as in halo_terms.h. Neighbouring windows share floats, which are split once for each: a pixel of two
// vectors costs less than a tile of one channel would.
#ifndef TRACEA_HALO_WINDOWS_H
#define TRACEA_HALO_WINDOWS_H

#include <stdint.h>
#include <string.h>

#include "tracea/config.h"
#include "tracea/halo_terms.h"
#include "tracea/vec.h"

// A pixel's granule is two vectors of sixteen: with shorter ones the header is empty, and no variant asks for it.
#if !defined(TRACEA_ISA_AVX2) && !defined(TRACEA_ISA_NEON)

TRACEA_BEGIN_NAMESPACE

namespace detail {

// Where the 32 lanes of a pixel come from. Pieces of a half are runs that overlap it: lanes of its mask, from `place` on as if all lanes were read.
struct WindowLanes {
    struct Piece {
        int64_t place;
        uint16_t lanes;
    };
    Piece pieces[2][kTileColumns];
    int count[2] = {0, 0};

    TRACEA_INLINE WindowLanes(int64_t run, int64_t runs, int64_t row_pitch) {
        for (int half = 0; half < 2; ++half) {
            for (int64_t r = 0; r < runs; ++r) {
                uint32_t lanes = 0;
                for (int lane = 0; lane < kTileColumns; ++lane) {
                    const int64_t place = half * kTileColumns + lane;
                    if (place >= r * run && place < (r + 1) * run) lanes |= uint32_t{1} << lane;
                }
                if (lanes == 0) continue;
                pieces[half][count[half]++] = {half * kTileColumns + r * (row_pitch - run),
                                               static_cast<uint16_t>(lanes)};
            }
        }
    }

    template <int Half>
    TRACEA_INLINE VecF load_half(const float* x) const {
#if defined(TRACEA_ISA_AVX512)
        __m512 values = _mm512_setzero_ps();
        for (int i = 0; i < count[Half]; ++i)
            values = _mm512_mask_loadu_ps(values, pieces[Half][i].lanes, x + pieces[Half][i].place);
        return {values};
#else
        float values[kTileColumns] = {};
        for (int i = 0; i < count[Half]; ++i) {
            for (int lane = 0; lane < kTileColumns; ++lane) {
                if ((pieces[Half][i].lanes >> lane & 1) != 0) values[lane] = x[pieces[Half][i].place + lane];
            }
        }
        return load<VecF>(values);
#endif
    }
};

}  // namespace detail

// rows x columns pixels of the halo. What no tap reads stays as it is.
template <int Terms>
TRACEA_NOINLINE void split_windows(const float* x, int64_t row_pitch, int64_t step, int64_t run, int64_t runs,
                                   int64_t rows, int64_t columns, bf16* halo, const HaloShape& shape,
                                   const HaloTaps& taps) {
    const int64_t term = shape.term() * kGranule;
    const uint64_t read_rows = phases_read(taps.rows, taps.gap_rows, shape.down);
    const detail::WindowLanes lanes(run, runs, row_pitch);
    bf16* marks = halo_marks<Terms>(halo, shape);
    memset(static_cast<void*>(marks), 0, shape.blocks * shape.term() * sizeof(bf16));
    for (int64_t i = 0; i < rows; ++i) {
        if ((read_rows >> (i % shape.down & 63) & 1) == 0) continue;
        const float* row = x + i * row_pitch;
        const int64_t first = shape.pixel(i, 0);
        for (int64_t j = 0; j < columns; ++j, row += step) {
            detail::split_pixel<Terms>(lanes.load_half<0>(row), lanes.load_half<1>(row), halo + (first + j) * kGranule,
                                       term, marks + first + j);
        }
    }
}

TRACEA_END_NAMESPACE

#endif

#endif
