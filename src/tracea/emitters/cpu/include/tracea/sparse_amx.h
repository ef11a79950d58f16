// A block of C = A B on matrix tiles where of B only listed blocks exist: every tile sums the blocks of its line, one after the other.
//
//   amx_lines<3>(rows, columns, StepLines{first, step, lines, 64, k, 0}, a, a_pitch, b, b_pitch, b_block, amx_sink(...));
//
// All lines of a block of rows are one call, because a line may have few granules: the vectors of a tile leave for C under the products of the next
// tile, whichever line that is in, and what the next panel reads of B is asked for a share with each granule. A line that is a call of its own waits
// for its first panel and for its last tile (benchmarks/NOTES.md).
//
// Panels of B hold one block after the other, b_block elements apart, and in a block one panel of 32 columns after the other, b_pitch apart.
#ifndef TRACEA_SPARSE_AMX_H
#define TRACEA_SPARSE_AMX_H

#include <stdint.h>
#include <string.h>

#include "tracea/amx.h"
#include "tracea/config.h"
#include "tracea/gemm_amx.h"
#include "tracea/pack_terms.h"
#include "tracea/step_blocks.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// The granules of one panel in the order of its blocks: where they lie in a panel of A and in the panels of B.
template <int Terms>
class RunCursor {
public:
    TRACEA_INLINE RunCursor(const StepBlocks& blocks, int64_t b_block)
        : blocks_(blocks), each_(blocks.size / kGranule), b_block_(b_block) {
        if (blocks.count > 0) enter();
    }
    TRACEA_INLINE int64_t a() const { return a_; }
    TRACEA_INLINE int64_t b() const { return b_; }
    TRACEA_INLINE void next() {
        a_ += granule_elements<Terms>;
        b_ += granule_elements<Terms>;
        if (++within_ < each_ || ++block_ == blocks_.count) return;
        enter();
    }

private:
    TRACEA_INLINE void enter() {
        within_ = 0;
        a_ = blocks_.first(block_) / kGranule * granule_elements<Terms>;
        b_ = block_ * b_block_;
    }
    const StepBlocks blocks_;
    const int64_t each_;
    const int64_t b_block_;
    int64_t block_ = 0;
    int64_t within_ = 0;
    int64_t a_ = 0;
    int64_t b_ = 0;
};

TRACEA_INLINE int64_t granules_of(const StepBlocks& blocks) {
    if (blocks.count == 0) return 0;
    const int64_t last = (blocks.steps(blocks.count - 1) + kGranule - 1) / kGranule;
    return (blocks.count - 1) * (blocks.size / kGranule) + last;
}

// The numbers that divide another one, up to a most.
struct Divisors {
    int64_t of[8] = {};
    int count = 0;
};
constexpr Divisors divisors(int64_t number, int64_t most) {
    Divisors found;
    for (int64_t divisor = 1; divisor <= most; ++divisor)
        if (number % divisor == 0) found.of[found.count++] = divisor;
    return found;
}

// Between the products of a granule there is time to ask for so many lines of B, and as many of C.
template <int Terms>
constexpr int64_t asked_lines = Terms == 2 ? 16 : 12;

// The lines of a panel of B in the order of its blocks, a few to each granule of the panel before.
template <int Terms>
class NextPanel {
public:
    // `turns`: how often lines are asked for until the panel is read.
    TRACEA_INLINE NextPanel(const bf16* panel, int64_t granules, int64_t each, int64_t b_block, int64_t turns)
        : at_(panel), left_(granules * granule_lines), each_lines_(each * granule_lines), b_block_(b_block) {
        const int64_t wanted = (left_ + turns - 1) / turns;
        constexpr Divisors shares = divisors(granule_lines, asked_lines<Terms>);
        for (int i = 0; i < shares.count; ++i) {
            share_ = shares.of[i];
            if (share_ >= wanted) break;
        }
    }
    // How many lines this granule asks for, and the n-th of them.
    TRACEA_INLINE int64_t count() const { return left_ > 0 ? share_ : 0; }
    TRACEA_INLINE const bf16* line(int64_t n) const { return at_ + n * line_elements; }
    TRACEA_INLINE void next() {
        at_ += share_ * line_elements;
        left_ -= share_;
        within_ += share_;
        if (within_ < each_lines_) return;
        within_ = 0;
        at_ += b_block_ - each_lines_ * line_elements;
    }

private:
    static constexpr int64_t line_elements = 32;
    static constexpr int64_t granule_lines = granule_elements<Terms> / line_elements;
    const bf16* at_;
    int64_t left_;
    int64_t share_ = 1;
    int64_t within_ = 0;
    int64_t each_lines_;
    int64_t b_block_;
};

}  // namespace detail

template <int Terms, class Sink>
TRACEA_NOINLINE void amx_lines(int64_t rows, int64_t columns, const StepLines& lines, const bf16* a, int64_t a_pitch,
                               const bf16* b, int64_t b_pitch, int64_t b_block, const Sink& sink) {
    constexpr int64_t vectors = kAmxTile * kAmxTile / VecF::lanes;
    if (rows <= 0 || columns <= 0) return;
    alignas(64) float sums[2][kAmxTile * kAmxTile];
    alignas(64) float apart[kAmxTile * kAmxTile];
    alignas(64) float unread[kTileRows * kTileColumns];
    const int64_t size = lines.size;
    const int64_t each = size / kGranule;
    const int64_t row_tiles = (rows + kAmxTile - 1) / kAmxTile;
    int current = 0;
    int64_t awake = 0;  // granules since the last store of a tile
    int64_t left = 0, left_row = 0,
            left_column = 0;  // vectors of the tile before that have not left yet, and its place

    TileRegisters tiles;
    for (int64_t line = 0; line < lines.count; ++line) {
        const StepBlocks blocks = lines.blocks(line);
        const int64_t granules = detail::granules_of(blocks);
        const int64_t begin = line * size;
        const int64_t end = columns - begin < size ? columns : begin + size;
        if (granules == 0) {
            if (sink.accumulate && !sink.finish) continue;
            memset(apart, 0, sizeof apart);
            for (int64_t i = 0; i < rows; i += kAmxTile) {
                for (int64_t j = begin; j < end; j += kAmxTile)
                    sink.part(apart, i, j, rows - i < kAmxTile ? rows - i : kAmxTile,
                              end - j < kAmxTile ? end - j : kAmxTile);
            }
            continue;
        }
        const bool straight = granules <= kShallowGranules && sink.stores_sums();
        const int64_t share = (vectors + granules - 1) / granules;
        const int64_t rows_share = (kAmxTile + granules - 1) / granules;
        const bf16* const run = b + lines.number(line) * b_block;
        for (int64_t j = begin, panel = 0; j < end; j += kAmxTile, ++panel) {
            const bool last = j + kAmxTile >= end;
            const bool none = last && line + 1 == lines.count;
            const bf16* const upcoming = last ? b + lines.number(line + 1) * b_block : run + (panel + 1) * b_pitch;
            const int64_t asked_granules = none ? 0 : last ? detail::granules_of(lines.blocks(line + 1)) : granules;
            detail::NextPanel<Terms> next(upcoming, asked_granules, each, b_block, row_tiles * granules);
            const bf16* const b_panel = run + panel * b_pitch;
            const bf16* a_panel = a;
            for (int64_t i = 0; i < rows; i += kAmxTile, a_panel += a_pitch) {
                detail::clear_sums(tiles);
                bool some_apart = false;
                detail::RunCursor<Terms> at(blocks, b_block);
                for (int64_t g = 0; g < granules; ++g, at.next(), next.next()) {
                    const bf16* a_granule = a_panel + at.a();
                    const bf16* b_granule = b_panel + at.b();
                    // Lines are asked for one at a time: in bursts they would hold every line-fill buffer, which the tiles' loads need.
                    const int64_t asked = i + g * rows_share;
                    const int64_t tile_end = rows - i < kAmxTile ? rows : i + kAmxTile;
                    const int64_t asked_end = asked + rows_share < tile_end ? asked + rows_share : tile_end;
                    const int64_t ahead = next.count();
                    const auto errand = [&](auto slot) TRACEA_LAMBDA {
                        constexpr int count = 2 * detail::asked_lines<Terms> / granule_products<Terms>;
                        constexpr int first = slot / 2 * count;
                        if constexpr (slot % 2 == 0) {
                            unroll<count>([&](auto n) TRACEA_LAMBDA {
                                if (first + n < ahead) prefetch_l2(next.line(first + n));
                            });
                        } else {
                            unroll<count>([&](auto n) TRACEA_LAMBDA {
                                if (asked + first + n < asked_end) sink.ask(asked + first + n, j, true);
                            });
                        }
                    };
                    if (TRACEA_LIKELY(!is_unsafe<Terms>(a_granule) && !is_unsafe<Terms>(b_granule))) {
                        detail::multiply_granule<Terms>(tiles, a_granule, b_granule, errand);
                    } else {
                        if (!some_apart) memset(apart, 0, sizeof apart);
                        some_apart = true;
                        detail::multiply_values<Terms>(a_granule, b_granule, apart);
                    }
                    if (++awake == awake_granules<Terms>) {
                        tiles.store<7>(unread, kTileColumns);
                        awake = 0;
                    }
                    if (left > 0) {
                        const int64_t count = left < share ? left : share;
                        sink.whole(sums[1 - current], left_row, left_column, vectors - left, count);
                        left -= count;
                    }
                }
                awake = 0;
                const bool whole = rows - i >= kAmxTile && end - j >= kAmxTile;
                if (straight && whole && !some_apart) {
                    detail::store_sums(tiles, sink.place(i, j), sink.c_stride);
                    continue;
                }
                float* done = sums[current];
                detail::take_sums(tiles, some_apart, apart, done);
                if (whole) {
                    left = vectors;
                    left_row = i;
                    left_column = j;
                    current = 1 - current;
                } else {
                    sink.part(done, i, j, rows - i < kAmxTile ? rows - i : kAmxTile,
                              end - j < kAmxTile ? end - j : kAmxTile);
                }
            }
        }
    }
    if (left > 0) sink.whole(sums[1 - current], left_row, left_column, vectors - left, left);
}

TRACEA_END_NAMESPACE

#endif
