// The matrix tiles of AMX: eight registers of 16 rows by 64 bytes, and the one product that kernels use, bf16 pairs summed in float.
//
//   TileRegisters tiles;                    // from here to the end of the scope the tiles are configured; nothing of it leaks to the caller
//   tiles.zero<0>();
//   tiles.load<4>(a);  tiles.load<6>(b);    // 16 rows of 64 bytes, one after the other
//   tiles.load_once<5>(a);                  // what is read again much later at most: it leaves the first-level cache to others
//   tiles.dot<0, 4, 6>();                   // tile 0 += tile 4 * tile 6
//   tiles.store<0>(sums, 32);               // 16 rows of 16 floats, 32 floats apart
//   tiles.load<0>(sums, 32);                // and back
//
// dot<C, A, B>: C[i][j] += sum over p < 16 and e < 2 of A[i][2p + e] * B[p][2j + e], as TDPBF16PS does it (Intel SDM, volume 2): the products of e = 0 and of
// e = 1 are summed apart from zero in the order of p, each step one fused multiply-add, the two sums are added, and that is added to C. Every rounding is to
// nearest even; denormal inputs count as zero and denormal results become zero. A caller who needs denormals keeps them away (pack_terms.h).
//
// The operating system has to have granted the tiles to the process before the first use (the launcher's supports("amx")); without that, the first
// instruction is illegal. Builds without AMX perform the same meaning on arrays.
#ifndef TRACEA_AMX_H
#define TRACEA_AMX_H

#include <stdint.h>
#include <string.h>

#include "tracea/config.h"
#include "tracea/storage.h"

TRACEA_BEGIN_NAMESPACE

constexpr int kTileRows = 16;
constexpr int kTileWords = 32;                         // 16-bit words of a row
constexpr int kTileElements = kTileRows * kTileWords;  // of bf16
constexpr int kTileColumns = 16;                       // floats of a row

#if defined(TRACEA_AMX)

// Inline assembly, because the intrinsics of one of the compilers are macros over literal register numbers. The clobbers keep the order of stores to
// memory and loads into tiles.
class TileRegisters {
public:
    TRACEA_INLINE TileRegisters() {
        struct alignas(64) Configuration {
            uint8_t palette;
            uint8_t start_row;
            uint8_t reserved[14];
            uint16_t row_bytes[16];
            uint8_t rows[16];
        } configuration;
        memset(&configuration, 0, sizeof configuration);
        configuration.palette = 1;
        for (int tile = 0; tile < 8; ++tile) {
            configuration.row_bytes[tile] = 2 * kTileWords;
            configuration.rows[tile] = kTileRows;
        }
        __asm__ volatile("ldtilecfg %0" : : "m"(configuration));
    }
    TRACEA_INLINE ~TileRegisters() { __asm__ volatile("tilerelease"); }
    TileRegisters(const TileRegisters&) = delete;
    TileRegisters& operator=(const TileRegisters&) = delete;

    template <int Tile>
    TRACEA_INLINE void zero() {
        __asm__ volatile("tilezero %%tmm%c0" : : "i"(Tile));
    }
    template <int Tile>
    TRACEA_INLINE void load(const bf16* rows) {
        __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(Tile), "r"(rows), "r"(int64_t{64}) : "memory");
    }
    template <int Tile>
    TRACEA_INLINE void load_once(const bf16* rows) {
        __asm__ volatile("tileloaddt1 (%1,%2,1), %%tmm%c0" : : "i"(Tile), "r"(rows), "r"(int64_t{64}) : "memory");
    }
    template <int Tile>
    TRACEA_INLINE void load(const float* rows, int64_t stride) {
        __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(Tile), "r"(rows), "r"(4 * stride) : "memory");
    }
    template <int Tile>
    TRACEA_INLINE void store(float* rows, int64_t stride) {
        __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(Tile), "r"(rows), "r"(4 * stride) : "memory");
    }
    template <int C, int A, int B>
    TRACEA_INLINE void dot() {
        __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
    }
};

#else

class TileRegisters {
public:
    template <int Tile>
    void zero() {
        memset(tile_[Tile], 0, sizeof tile_[Tile]);
    }
    template <int Tile>
    void load(const bf16* rows) {
        memcpy(tile_[Tile], rows, sizeof tile_[Tile]);
    }
    template <int Tile>
    void load_once(const bf16* rows) {
        load<Tile>(rows);
    }
    template <int Tile>
    void load(const float* rows, int64_t stride) {
        for (int i = 0; i < kTileRows; ++i) memcpy(tile_[Tile] + 64 * i, rows + i * stride, 64);
    }
    template <int Tile>
    void store(float* rows, int64_t stride) {
        for (int i = 0; i < kTileRows; ++i) memcpy(rows + i * stride, tile_[Tile] + 64 * i, 64);
    }
    template <int C, int A, int B>
    void dot() {
        for (int i = 0; i < kTileRows; ++i) {
            for (int j = 0; j < kTileColumns; ++j) {
                float even = 0.0F, odd = 0.0F;
                for (int p = 0; p < kTileRows; ++p) {
                    even = flushed(__builtin_fmaf(word(A, i, 2 * p), word(B, p, 2 * j), even));
                    odd = flushed(__builtin_fmaf(word(A, i, 2 * p + 1), word(B, p, 2 * j + 1), odd));
                }
                float sum;
                memcpy(&sum, tile_[C] + 64 * i + 4 * j, sizeof sum);
                sum = flushed(flushed(sum) + flushed(even + odd));
                memcpy(tile_[C] + 64 * i + 4 * j, &sum, sizeof sum);
            }
        }
    }

private:
    // A denormal as the zero of its sign.
    static float flushed(float x) { return (bits_of(x) & 0x7f800000U) != 0 ? x : float_of(bits_of(x) & 0x80000000U); }
    float word(int tile, int row, int column) const {
        bf16 x;
        memcpy(&x, tile_[tile] + 64 * row + 2 * column, sizeof x);
        return flushed(to_float(x));
    }
    uint8_t tile_[8][64 * kTileRows] = {};
};

#endif

TRACEA_END_NAMESPACE

#endif
