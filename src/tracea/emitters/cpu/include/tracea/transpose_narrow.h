// A copy that turns a matrix of elements of one or two bytes, as they are: no arithmetic, so that every bit pattern stays. Square blocks of 16 bytes a row are
// turned by interleaving: a row with the one half a block behind it, as often as a row's elements halve (Eklundh, IEEE Trans. Computers C-21, 1972).
#ifndef TRACEA_TRANSPOSE_NARROW_H
#define TRACEA_TRANSPOSE_NARROW_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/transpose_few.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// Sixteen bytes, whose elements two of them interleave: those of the lower halves, or of the upper ones.
#if defined(TRACEA_ISA_AVX512) || defined(TRACEA_ISA_AVX2)
using Sixteen = __m128i;
template <int Bytes>
TRACEA_INLINE Sixteen interleave_low(Sixteen a, Sixteen b) {
    return Bytes == 1 ? _mm_unpacklo_epi8(a, b) : _mm_unpacklo_epi16(a, b);
}
template <int Bytes>
TRACEA_INLINE Sixteen interleave_high(Sixteen a, Sixteen b) {
    return Bytes == 1 ? _mm_unpackhi_epi8(a, b) : _mm_unpackhi_epi16(a, b);
}
#elif defined(TRACEA_ISA_NEON)
using Sixteen = uint8x16_t;
template <int Bytes>
TRACEA_INLINE Sixteen interleave_low(Sixteen a, Sixteen b) {
    if constexpr (Bytes == 1) return vzip1q_u8(a, b);
    return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}
template <int Bytes>
TRACEA_INLINE Sixteen interleave_high(Sixteen a, Sixteen b) {
    if constexpr (Bytes == 1) return vzip2q_u8(a, b);
    return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}
#else
struct Sixteen {
    uint8_t bytes[16];
};
template <int Bytes>
TRACEA_INLINE Sixteen interleaved(const uint8_t* a, const uint8_t* b) {
    Sixteen both;
    for (int i = 0; i < 8; i += Bytes) {
        __builtin_memcpy(both.bytes + 2 * i, a + i, Bytes);
        __builtin_memcpy(both.bytes + 2 * i + Bytes, b + i, Bytes);
    }
    return both;
}
template <int Bytes>
TRACEA_INLINE Sixteen interleave_low(const Sixteen& a, const Sixteen& b) {
    return interleaved<Bytes>(a.bytes, b.bytes);
}
template <int Bytes>
TRACEA_INLINE Sixteen interleave_high(const Sixteen& a, const Sixteen& b) {
    return interleaved<Bytes>(a.bytes + 8, b.bytes + 8);
}
#endif

template <int Bytes>
TRACEA_INLINE void interleave(const Sixteen (&from)[16 / Bytes], Sixteen (&to)[16 / Bytes]) {
    constexpr int half = 8 / Bytes;
    unroll<half>([&](auto i) TRACEA_LAMBDA {
        to[2 * i] = interleave_low<Bytes>(from[i], from[i + half]);
        to[2 * i + 1] = interleave_high<Bytes>(from[i], from[i + half]);
    });
}

// Copies 1 to 16 bytes as two words that overlap.
TRACEA_INLINE void copy_few(void* to, const void* from, int64_t bytes) {
    const auto words = [&](auto word) TRACEA_LAMBDA {
        decltype(word) last;
        __builtin_memcpy(&word, from, sizeof(word));
        __builtin_memcpy(&last, static_cast<const char*>(from) + bytes - sizeof(word), sizeof(word));
        __builtin_memcpy(to, &word, sizeof(word));
        __builtin_memcpy(static_cast<char*>(to) + bytes - sizeof(word), &last, sizeof(word));
    };
    if (bytes >= 8) return words(uint64_t());
    if (bytes >= 4) return words(uint32_t());
    if (bytes >= 2) return words(uint16_t());
    words(uint8_t());
}

template <int Bytes>
TRACEA_INLINE void turn(Sixteen (&block)[16 / Bytes]) {
    Sixteen other[16 / Bytes];
    interleave<Bytes>(block, other);
    interleave<Bytes>(other, block);
    interleave<Bytes>(block, other);
    if constexpr (Bytes == 1)
        interleave<Bytes>(other, block);
    else
        __builtin_memcpy(block, other, sizeof other);
}

// y[i * y_row + j] = x[i + j * x_col] of a block, whole or of `tall` by `wide` elements.
template <bool Whole, class Storage>
TRACEA_INLINE void turn_block(const Storage* x, int64_t x_col, Storage* y, int64_t y_row, int64_t tall, int64_t wide) {
    constexpr int bytes = sizeof(Storage), side = 16 / bytes;
    Sixteen block[side];
    unroll<side>([&](auto j) TRACEA_LAMBDA {
        if constexpr (Whole) {
            __builtin_memcpy(&block[j], x + j * x_col, 16);
        } else {
            block[j] = Sixteen();
            if (j < wide) copy_few(&block[j], x + j * x_col, tall * bytes);
        }
    });
    turn<bytes>(block);
    unroll<side>([&](auto i) TRACEA_LAMBDA {
        if constexpr (Whole) {
            __builtin_memcpy(y + i * y_row, &block[i], 16);
        } else {
            if (i < tall) copy_few(y + i * y_row, &block[i], wide * bytes);
        }
    });
}

// Few rows, as channels that lie in their pixel: sixteen bytes from each column on, of which the later ones are other columns', as long as there are such.
template <int Rows, class Storage>
TRACEA_INLINE void turn_few_rows(int64_t columns, const Storage* x, int64_t x_col, Storage* y, int64_t y_row) {
    constexpr int bytes = sizeof(Storage), side = 16 / bytes;
    int64_t col = 0;
    for (; col + side <= columns && (columns - col - side) * x_col + Rows >= side; col += side) {
        Sixteen block[side];
        unroll<side>([&](auto j) TRACEA_LAMBDA { __builtin_memcpy(&block[j], x + (col + j) * x_col, 16); });
        turn<bytes>(block);
        unroll<Rows>([&](auto i) TRACEA_LAMBDA { __builtin_memcpy(y + i * y_row + col, &block[i], 16); });
    }
    for (; col < columns; ++col) unroll<Rows>([&](auto i) TRACEA_LAMBDA { y[i * y_row + col] = x[i + col * x_col]; });
}

}  // namespace detail

// y[row * y_row + col] = x[row + col * x_col]; what remains at an edge is in a block that overlaps the one before it.
template <class Storage>
TRACEA_INLINE void transpose_narrow(int64_t rows, int64_t columns, const Storage* x, int64_t x_col, Storage* y,
                                    int64_t y_row) {
    static_assert(sizeof(Storage) <= 2, "wider elements are turned as vectors");
    constexpr int64_t side = 16 / sizeof(Storage);
    constexpr int64_t tile = 64;  // of both, whose pages the first table of addresses holds
    if (columns <= 4) return transpose_few_columns(rows, columns, x, x_col, y, y_row);
    if (rows <= 4)
        return detail::for_count(rows, [&](auto count) TRACEA_LAMBDA {
            detail::turn_few_rows<decltype(count)::value>(columns, x, x_col, y, y_row);
        });
    const int64_t tall = rows < side ? rows : side, wide = columns < side ? columns : side;
    for (int64_t top = 0; top < rows; top += tile) {
        const int64_t bottom = top + tile < rows ? top + tile : rows;
        for (int64_t left = 0; left < columns; left += tile) {
            const int64_t right = left + tile < columns ? left + tile : columns;
            for (int64_t row = top; row < bottom; row += side) {
                const int64_t i = row + tall <= rows ? row : rows - tall;
                for (int64_t col = left; col < right; col += side) {
                    const int64_t j = col + wide <= columns ? col : columns - wide;
                    const Storage* from = x + i + j * x_col;
                    Storage* to = y + i * y_row + j;
                    if (TRACEA_LIKELY(tall == side && wide == side))
                        detail::turn_block<true>(from, x_col, to, y_row, side, side);
                    else
                        detail::turn_block<false>(from, x_col, to, y_row, tall, wide);
                }
            }
        }
    }
}

TRACEA_END_NAMESPACE

#endif
