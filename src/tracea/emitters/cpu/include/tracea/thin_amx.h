// The first product of a thin factor on matrix tiles, many steps into few columns; the second, few steps into many columns, is amx_block's.
//
//   amx_rows<3>(rows, columns, depth, a, a_stride, b, b_pitch, amx_sink(...));        // A is read where it lies
//
// It splits a granule of A into its terms under the products of the granule two before, which leave the vector units idle (the tiles' loads would wait
// for the stores of the one before). A granule of A is read by as many tiles as there are blocks of 32 columns, and split again for each of them: that hides as
// well as the first time, and needs no panel that would leave the first-level cache. Panels of B are those of gemm_amx.h; rows of A are contiguous.
#ifndef TRACEA_THIN_AMX_H
#define TRACEA_THIN_AMX_H

#include <stdint.h>
#include <string.h>

#include "tracea/amx.h"
#include "tracea/config.h"
#include "tracea/gemm_amx.h"
#include "tracea/pack_terms.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// The product of a granule with one of 16 columns: two tiles of sums, of rows. The terms are those of multiply_granule, in its order.
template <int Terms, class Errand>
TRACEA_INLINE void multiply_half_granule(TileRegisters& tiles, const bf16* a, const bf16* b, const Errand& errand) {
    static_assert(Terms == 3, "three terms");
    constexpr int64_t next = 2 * kTileElements;  // from a term to the one after it
    tiles.load<4>(a + 2 * next);
    tiles.load<1>(b);
    tiles.dot<0, 4, 1>();
    errand(constant<0>{});
    tiles.load<5>(a + 2 * next + kTileElements);
    tiles.dot<2, 5, 1>();
    errand(constant<1>{});
    tiles.load<6>(a + next);
    tiles.dot<0, 6, 1>();
    errand(constant<2>{});
    tiles.load<7>(a + next + kTileElements);
    tiles.dot<2, 7, 1>();
    errand(constant<3>{});
    tiles.load<3>(b + next);
    tiles.dot<0, 6, 3>();
    errand(constant<4>{});
    tiles.dot<2, 7, 3>();
    errand(constant<5>{});
    tiles.load<4>(a);
    tiles.dot<0, 4, 3>();
    errand(constant<6>{});
    tiles.load<5>(a + kTileElements);
    tiles.dot<2, 5, 3>();
    errand(constant<7>{});
    tiles.load<6>(b + 2 * next);
    tiles.dot<0, 4, 6>();
    errand(constant<8>{});
    tiles.dot<2, 5, 6>();
    errand(constant<9>{});
    tiles.dot<0, 4, 1>();
    errand(constant<10>{});
    tiles.dot<2, 5, 1>();
    errand(constant<11>{});
}

}  // namespace detail

template <int Terms, class Sink>
TRACEA_NOINLINE void amx_rows(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_stride,
                              const bf16* b, int64_t b_pitch, const Sink& sink) {
    if (rows <= 0 || columns <= 0) return;
    alignas(64) bf16 split[3][granule_elements<Terms>];
    alignas(64) float sums[kAmxTile * kAmxTile];
    alignas(64) float apart[kAmxTile * kAmxTile];
    alignas(64) float unread[kTileRows * kTileColumns];
    const int64_t granules = (depth + kGranule - 1) / kGranule;

    TileRegisters tiles;
    for (int64_t i = 0; i < rows; i += kAmxTile) {
        const int64_t height = rows - i < kAmxTile ? rows - i : kAmxTile;
        const float* const strip = a + i * a_stride;
        for (int64_t j = 0; j < columns; j += kAmxTile) {
            const bf16* b_granule = b + j / kAmxTile * b_pitch;
            const bool narrow = columns - j <= kTileColumns;
            const float* const after = j + kAmxTile < columns ? strip : strip + kAmxTile * a_stride;
            const auto pack = [&](int64_t g, bf16* granule) TRACEA_LAMBDA {
                const int64_t steps = depth - g * kGranule;
                if (steps <= 0) return;
                const float* source = strip + g * kGranule;
                detail::pack_granule<Terms, false>(source, a_stride, 1, height, steps < kGranule ? steps : kGranule,
                                                   granule, source + kGranule);
            };
            detail::clear_sums(tiles);
            bool some_apart = false;
            bf16* current = split[0];
            bf16* next = split[1];
            bf16* later = split[2];
            pack(0, current);
            pack(1, next);
            for (int64_t g = 0; g < granules; ++g, b_granule += granule_elements<Terms>) {
                const bool safe = !is_unsafe(current) && !is_unsafe(b_granule);
                if (TRACEA_LIKELY(safe && height == kAmxTile && depth >= (g + 3) * kGranule)) {
                    const float* const source = strip + (g + 2) * kGranule;
                    // Rows lie in as many pages, which no hardware prefetcher follows; so do those of the next strip.
                    const float* const ahead =
                        g + 3 < granules ? source + kGranule : after + (g + 3 - granules) * kGranule;
                    detail::SafeTerms seen;
                    // Slot by slot of so many, the rows of a granule.
                    const auto split_rows = [&](auto slot, auto slots) TRACEA_LAMBDA {
                        constexpr int first = slot * kGranule / slots;
                        constexpr int end = (slot + 1) * kGranule / slots;
                        unroll<end - first>([&](auto n) TRACEA_LAMBDA {
                            const float* const x = source + (first + n) * a_stride;
                            prefetch_l2(ahead + (first + n) * a_stride);
                            prefetch_l2(ahead + (first + n) * a_stride + kTileColumns);
                            detail::split<Terms>(x, x + kTileColumns, later + (first + n) * kTileWords, seen);
                        });
                    };
                    if (narrow) {
                        detail::multiply_half_granule<Terms>(tiles, current, b_granule, [&](auto slot) TRACEA_LAMBDA {
                            split_rows(slot, constant<12>{});
                        });
                    } else {
                        detail::multiply_granule<Terms>(tiles, current, b_granule, [&](auto slot) TRACEA_LAMBDA {
                            split_rows(slot, constant<24>{});
                        });
                    }
                    if (TRACEA_UNLIKELY(!seen.holds())) detail::keep_values(source, a_stride, later);
                } else {
                    const auto nothing = [](auto) TRACEA_LAMBDA {};
                    if (safe && narrow) {
                        detail::multiply_half_granule<Terms>(tiles, current, b_granule, nothing);
                    } else if (safe) {
                        detail::multiply_granule<Terms>(tiles, current, b_granule, nothing);
                    } else {
                        if (!some_apart) memset(apart, 0, sizeof apart);
                        some_apart = true;
                        detail::multiply_values<Terms>(current, b_granule, apart);
                    }
                    pack(g + 2, later);
                }
                bf16* const free = current;
                current = next;
                next = later;
                later = free;
                if (g % kAwakeGranules == kAwakeGranules - 1) tiles.store<7>(unread, kTileColumns);
            }
            detail::take_sums(tiles, some_apart, apart, sums);
            const int64_t width = columns - j < kAmxTile ? columns - j : kAmxTile;
            if (height == kAmxTile && width == kAmxTile) {
                sink.whole(sums, i, j, 0, kAmxTile * kAmxTile / VecF::lanes);
            } else {
                sink.part(sums, i, j, height, width);
            }
        }
    }
}

TRACEA_END_NAMESPACE

#endif
