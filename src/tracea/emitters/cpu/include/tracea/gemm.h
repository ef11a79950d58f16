// The GEMM micro-kernel: one MR x (NV vectors) tile of C = A B, accumulators in registers.
//
// A step of the reduction loads NV vectors of B, broadcasts MR elements of A and issues exactly MR * NV fused multiply-adds; the hot loop touches no
// stack. Unroll is kept small on purpose: a loop body that fits the core's loop buffer (about 140 micro-operations) draws less power, and power decides
// the clock of wide vectors (benchmarks/NOTES.md).
//
//   using Tile = GemmTile<float, 14, 2, 2, PackedA, PackedB>;
//   Tile::run<14, 8>(rows, columns, k, a, a_stride, b, b_stride, c, c_stride, accumulate);
//   Tile::run<14, 8>(..., accumulate, upcoming_panel<Tile>(b, k, ir, mc));      // with GemmPrefetch<0, 0, true, true>
//   Tile::run<14, 8>(..., accumulate, {raw_b, lines, raw_stride});              // with GemmPrefetch<0, 0, true, true, true>
//
// Where the operands lie:
//   PackedA   panel of a_stride rows: element (i, k) at a[k * a_stride + i]      (a_stride is the panel height, MR of the full tile)
//   RowsA     element (i, k) at a[i * a_stride + k]
//   PackedB   panel of NV * lanes columns: element (k, j) at b[k * NV * lanes + j], 64-byte aligned, zero where columns are missing
//   RowsB     element (k, j) at b[k * b_stride + j]; only the valid columns are touched
// C has unit column stride: sums are written to c[i * c_stride + j], or added to what is there if `accumulate`. Only valid rows and columns are touched.
// Other layouts of C, 16-bit results and epilogues go through a tile buffer and gemm_store.h.
#ifndef TRACEA_GEMM_H
#define TRACEA_GEMM_H

#include <stdint.h>

#include <type_traits>

#include "tracea/config.h"
#include "tracea/step_blocks.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

struct PackedA {
    template <int Row>
    static TRACEA_INLINE int64_t offset(int64_t) {
        return Row;
    }
    static TRACEA_INLINE int64_t step(int64_t stride) { return stride; }
};
struct RowsA {
    template <int Row>
    static TRACEA_INLINE int64_t offset(int64_t stride) {
        return Row * stride;
    }
    static TRACEA_INLINE int64_t step(int64_t) { return 1; }
};
// A packed panel whose height is known, so that the loop needs no multiplication: the usual form.
template <int Height>
struct PanelA {
    template <int Row>
    static TRACEA_INLINE int64_t offset(int64_t) {
        return Row;
    }
    static constexpr int64_t step(int64_t) { return Height; }
};
struct PackedB {
    static constexpr bool masked = false;
    template <int Columns>
    static constexpr int64_t step(int64_t) {
        return Columns;
    }
};
struct RowsB {
    static constexpr bool masked = true;
    template <int Columns>
    static TRACEA_INLINE int64_t step(int64_t stride) {
        return stride;
    }
};

// Prefetch distances in reduction steps; 0 leaves it to the hardware. Over listed blocks any for A asks for its next block. CLines: the tile of C, for
// writing. UpcomingLines: the lines of an Upcoming, into the second-level cache; with UpcomingRows they are rows as wide as the tile, such as those of a
// matrix that the next panel is packed from. BesideLines, with CLines: a tile of another matrix beside that of C, such as a residual.
template <int ADistance = 0, int BDistance = 0, bool CLines = true, bool UpcomingLines = false,
          bool UpcomingRows = false, bool BesideLines = false>
struct GemmPrefetch {
    static constexpr int a = ADistance;
    static constexpr int b = BDistance;
    static constexpr bool c = CLines;
    static constexpr bool upcoming = UpcomingLines;
    static constexpr bool upcoming_rows = UpcomingRows;
    static constexpr bool beside = BesideLines;
};

// A tile's share of what is needed next, usually of the next packed panel of B: `lines` cache lines, fetched one every Unroll steps (two at a time were
// measurably worse).
template <class T>
struct Upcoming {
    const T* first = nullptr;
    int64_t lines = 0;
    int64_t row_stride = 0;  // of rows
    const T* beside = nullptr;
    int64_t beside_stride = 0;
};

// The same where the next panel's blocks do not lie one after the other: `column` lines of the first block are another tile's.
template <class T>
struct UpcomingBlocks {
    const T* first = nullptr;
    int64_t lines = 0;
    int64_t column = 0;
    int64_t block_lines = 0;
    int64_t next_block = 0;  // from a block's last line on
    int64_t next_panel = 0;  // from a panel of A to that of the next tile
};

// With `Streaming` the tiles of listed blocks store sums past the caches where C is aligned to the vector and nothing is added to what is there; a
// streaming_fence() comes before others may read them. What is written whole need not be read first, and leaves the caches to A and B.
template <class T, int MR, int NV, int Unroll, class A, class B, class Prefetch = GemmPrefetch<>,
          bool Streaming = false>
struct GemmTile {
    using V = Vec<T>;
    static constexpr int rows = MR;
    static constexpr int columns = NV * V::lanes;
    static constexpr int line_elements = 64 / static_cast<int>(sizeof(T));
    static constexpr int row_lines = (columns + line_elements - 1) / line_elements;
    static_assert(MR >= 1 && NV >= 1 && Unroll >= 1, "a tile has rows, vectors and steps");
#if defined(TRACEA_ISA_AVX512) || defined(TRACEA_ISA_NEON)
    static_assert(MR * NV + NV + 1 <= 32, "accumulators, NV vectors of B and one broadcast must fit in 32 registers");
#elif defined(TRACEA_ISA_AVX2)
    static_assert(MR * NV + NV + 1 <= 16, "accumulators, NV vectors of B and one broadcast must fit in 16 registers");
#endif

    // The cache lines of a tile, row by row.
    struct Lines {
        const T* line;
        int64_t stride;
        int64_t column = 0;
        TRACEA_INLINE void next() {
            ++column;
            const bool wrap = column == row_lines;
            line += wrap ? stride - (row_lines - 1) * line_elements : line_elements;
            column = wrap ? 0 : column;
        }
    };

    // Runs the smallest instantiation of Rows... (descending, the first is MR) that holds `rows_valid`. RowsA reads exactly the rows of the
    // instantiation, so there each possible rows_valid must be listed.
    template <int First, int... Rest>
    static TRACEA_INLINE void run(int64_t rows_valid, int64_t columns_valid, int64_t k, const T* a, int64_t a_stride,
                                  const T* b, int64_t b_stride, T* c, int64_t c_stride, bool accumulate,
                                  Upcoming<T> upcoming = {}) {
        if constexpr (sizeof...(Rest) > 0) {
            constexpr int next[] = {Rest...};
            static_assert(next[0] < First, "row counts in descending order");
            if (rows_valid <= next[0]) {
                run<Rest...>(rows_valid, columns_valid, k, a, a_stride, b, b_stride, c, c_stride, accumulate, upcoming);
                return;
            }
        }
        using Part = GemmTile<T, First, NV, Unroll, A, B, Prefetch, Streaming>;
        if (TRACEA_LIKELY(columns_valid >= columns && rows_valid == First)) {
            Part::template compute<true>(rows_valid, columns_valid, k, a, a_stride, b, b_stride, c, c_stride,
                                         accumulate, upcoming);
        } else {
            Part::template compute<false>(rows_valid, columns_valid, k, a, a_stride, b, b_stride, c, c_stride,
                                          accumulate, upcoming);
        }
    }

    // The same over blocks of the depth: b holds one block after the other, b_pitch apart.
    template <int First, int... Rest>
    static TRACEA_INLINE void run_blocks(int64_t rows_valid, int64_t columns_valid, const StepBlocks& blocks,
                                         const T* a, int64_t a_stride, const T* b, int64_t b_pitch, T* c,
                                         int64_t c_stride, bool accumulate, UpcomingBlocks<T> upcoming = {}) {
        if (accumulate && blocks.count == 0) return;
        if constexpr (sizeof...(Rest) > 0) {
            constexpr int next[] = {Rest...};
            static_assert(next[0] < First, "row counts in descending order");
            if (rows_valid <= next[0]) {
                run_blocks<Rest...>(rows_valid, columns_valid, blocks, a, a_stride, b, b_pitch, c, c_stride, accumulate,
                                    upcoming);
                return;
            }
        }
        static_assert(!B::masked, "blocks of b lie in panels");
        using Part = GemmTile<T, First, NV, Unroll, A, B, Prefetch, Streaming>;
        if (TRACEA_LIKELY(columns_valid >= columns && rows_valid == First)) {
            Part::template compute<true>(rows_valid, columns_valid, blocks, a, a_stride, b, b_pitch, c, c_stride,
                                         accumulate, upcoming);
        } else {
            Part::template compute<false>(rows_valid, columns_valid, blocks, a, a_stride, b, b_pitch, c, c_stride,
                                          accumulate, upcoming);
        }
    }

    // Depth: a number of steps, or the blocks of it that are summed; b_stride is then from one block of b to the next.
    //
    // Structures come by reference: a copy for the call is read in one piece right behind its parts' stores, which waits until those, and with them the
    // stores to C of the tile before, have left for the cache.
    template <bool Full, class Depth, class Ahead = Upcoming<T>>
    static TRACEA_NOINLINE void compute(int64_t rows_valid, int64_t columns_valid, const Depth& depth, const T* a,
                                        int64_t a_stride, const T* b, int64_t b_stride, T* c, int64_t c_stride,
                                        bool accumulate, const Ahead& ahead) {
        Ahead upcoming = ahead;
        (void)upcoming;
        constexpr uintptr_t within_vector = V::lanes * sizeof(T) - 1;
        const bool past =
            Streaming && Full && !accumulate &&
            ((reinterpret_cast<uintptr_t>(c) | static_cast<uintptr_t>(c_stride) * sizeof(T)) & within_vector) == 0;
        V acc[MR][NV];
        unroll<MR>([&](auto i) TRACEA_LAMBDA { unroll<NV>([&](auto j) TRACEA_LAMBDA { acc[i][j] = zero<V>(); }); });
        Mask<V> valid[NV];
        if constexpr (!Full) {
            unroll<NV>([&](auto j) TRACEA_LAMBDA { valid[j] = lane_mask<V>(columns_valid - j * V::lanes); });
        }
        const int64_t a_step = A::step(a_stride);
        const int64_t b_step = B::template step<columns>(b_stride);

        const auto step = [&](const T* a_k, const T* b_k) TRACEA_LAMBDA {
            V b_vector[NV];
            unroll<NV>([&](auto j) TRACEA_LAMBDA {
                if constexpr (B::masked && !Full) {
                    b_vector[j] = load_masked<V>(b_k + j * V::lanes, valid[j]);
                } else {
                    b_vector[j] = load<V>(b_k + j * V::lanes);
                }
            });
            if constexpr (Prefetch::b > 0) {
                unroll<NV>([&](auto j) TRACEA_LAMBDA { prefetch_l1(b_k + Prefetch::b * b_step + j * V::lanes); });
            }
            if constexpr (whole_depth<Depth> && Prefetch::a > 0) prefetch_l1(a_k + Prefetch::a * a_step);
            unroll<MR>([&](auto i) TRACEA_LAMBDA {
                const V a_vector = load_broadcast<V>(a_k + A::template offset<i>(a_stride));
                unroll<NV>([&](auto j) TRACEA_LAMBDA { fma_into(acc[i][j], a_vector, b_vector[j]); });
            });
        };
        // Blocks of A lie apart, where the hardware's prefetching begins anew: each asks for the one after it, line by line.
        [[maybe_unused]] int64_t to_next = 0;
        const auto steps = [&]() TRACEA_LAMBDA {
            if constexpr (!whole_depth<Depth> && Prefetch::a > 0) prefetch_l1(a + to_next);
            unroll<Unroll>([&](auto u) TRACEA_LAMBDA { step(a + u * a_step, b + u * b_step); });
            a += Unroll * a_step;
            b += Unroll * b_step;
        };

        // Plain loops, no lambda around them: one that refers to the accumulators from further out moves them to the stack.
        if constexpr (whole_depth<Depth>) {
            int64_t remaining = depth;
            // One line an iteration: in bursts they would hold every line-fill buffer for a memory latency, and the stream of A out of the second-level
            // cache would stand still. Plain loops one after the other, because a nest of short loops never settles in the loop buffer.
            if constexpr (Prefetch::c) {
                Lines asked{c, c_stride};
                for (int64_t l = rows_valid * row_lines; l > 0 && remaining >= Unroll; --l, remaining -= Unroll) {
                    prefetch_l1_write(asked.line);
                    asked.next();
                    steps();
                }
            }
            // After those of C, not beside them: sixteen requests at once took 1.5 % of a product of 512x3072x768.
            if constexpr (Prefetch::beside) {
                Lines asked{upcoming.beside, upcoming.beside_stride};
                for (int64_t l = rows_valid * row_lines; l > 0 && remaining >= Unroll; --l, remaining -= Unroll) {
                    prefetch_l2(asked.line);
                    asked.next();
                    steps();
                }
            }
            if constexpr (Prefetch::upcoming_rows) {
                Lines asked{upcoming.first, upcoming.row_stride};
                for (int64_t l = upcoming.lines; l > 0 && remaining >= Unroll; --l, remaining -= Unroll) {
                    prefetch_l2(asked.line);
                    asked.next();
                    steps();
                }
            } else if constexpr (Prefetch::upcoming) {
                for (int64_t line = 0; line < upcoming.lines && remaining >= Unroll; ++line, remaining -= Unroll) {
                    prefetch_l2(upcoming.first);
                    upcoming.first += line_elements;
                    steps();
                }
            }
            for (; remaining >= Unroll; remaining -= Unroll) steps();
            for (; remaining > 0; --remaining) {
                step(a, b);
                a += a_step;
                b += b_step;
            }
        } else {
            const T* const a_panel = a;
            const T* b_block = b;
            Lines asked{c, c_stride};
            int64_t lines = past ? 0 : rows_valid * row_lines;
            for (int64_t block = 0; block < depth.count; ++block, b_block += b_stride) {
                a = a_panel + depth.first(block) * a_step;
                b = b_block;
                int64_t remaining = depth.steps(block);
                if constexpr (Prefetch::a > 0) {
                    const int64_t next = block + 1 < depth.count ? depth.first(block + 1) : depth.first(0);
                    to_next =
                        (next - depth.first(block)) * a_step + (block + 1 < depth.count ? 0 : upcoming.next_panel);
                }
                if constexpr (Prefetch::c) {
                    for (; lines > 0 && remaining >= Unroll; --lines, remaining -= Unroll) {
                        prefetch_l1_write(asked.line);
                        asked.next();
                        steps();
                    }
                }
                if constexpr (Prefetch::upcoming) {
                    for (; upcoming.lines > 0 && remaining >= Unroll; --upcoming.lines, remaining -= Unroll) {
                        prefetch_l2(upcoming.first);
                        ++upcoming.column;
                        const bool wrap = upcoming.column == upcoming.block_lines;
                        upcoming.first += wrap ? upcoming.next_block : line_elements;
                        upcoming.column = wrap ? 0 : upcoming.column;
                        steps();
                    }
                }
                for (; remaining >= Unroll; remaining -= Unroll) steps();
                for (; remaining > 0; --remaining) {
                    step(a, b);
                    a += a_step;
                    b += b_step;
                }
            }
        }

        // All of C is read before the first is written: its rows are often whole pages apart, and what is read from the same place of a page as a store
        // that has not reached the cache waits for it.
        const auto write = [&](auto add_old) TRACEA_LAMBDA {
            if constexpr (add_old) {
                unroll<MR>([&](auto i) TRACEA_LAMBDA {
                    if (!Full && i >= rows_valid) return;
                    unroll<NV>([&](auto j) TRACEA_LAMBDA {
                        const T* p = c + i * c_stride + j * V::lanes;
                        if constexpr (Full) {
                            acc[i][j] = add(acc[i][j], load<V>(p));
                        } else {
                            acc[i][j] = add(acc[i][j], load_masked<V>(p, valid[j]));
                        }
                    });
                });
            }
            unroll<MR>([&](auto i) TRACEA_LAMBDA {
                if (!Full && i >= rows_valid) return;
                unroll<NV>([&](auto j) TRACEA_LAMBDA {
                    T* p = c + i * c_stride + j * V::lanes;
                    if constexpr (Full) {
                        store(p, acc[i][j]);
                    } else {
                        store_masked(p, acc[i][j], valid[j]);
                    }
                });
            });
        };
        if (accumulate) {
            write(std::true_type{});
        } else if (past) {
            if constexpr (Streaming && Full) {
                unroll<MR>([&](auto i) TRACEA_LAMBDA {
                    unroll<NV>([&](auto j)
                                   TRACEA_LAMBDA { store_streaming(c + i * c_stride + j * V::lanes, acc[i][j]); });
                });
            }
        } else {
            write(std::false_type{});
        }
    }
};

// The share that the tile at `row` of a block of `rows` has in fetching the panel after `panel`, where packed panels of k steps lie one after the other.
// Past the last panel it names memory that is never read: a prefetch does not fault.
template <class Tile, class T>
TRACEA_INLINE Upcoming<T> upcoming_panel(const T* panel, int64_t k, int64_t row, int64_t rows) {
    const int64_t tiles = (rows + Tile::rows - 1) / Tile::rows;
    const int64_t lines = (k * Tile::row_lines + tiles - 1) / tiles;
    return {panel + k * Tile::columns + row / Tile::rows * lines * Tile::line_elements, lines};
}

// The share that tile number `tile` of `tiles` has in fetching what the tiles after its panel read: the blocks of the run in the line's next panel, or those
// of the next run in its first. first[run] is the number of a run's first block; blocks of `size` steps lie `pitch` apart at `b`.
template <class Tile, class T>
TRACEA_INLINE UpcomingBlocks<T> upcoming_blocks(const int32_t* first, int64_t run, int64_t runs, int64_t panel,
                                                int64_t panels, int64_t size, const T* b, int64_t pitch, int64_t tile,
                                                int64_t tiles, int64_t next_panel) {
    const bool same_line = panel + 1 < panels;
    const int64_t next = same_line ? run : run + 1;
    if (next >= runs) return {nullptr, 0, 0, 0, 0, next_panel};
    const int64_t block_lines = size * Tile::row_lines;
    const int64_t all = (first[next + 1] - first[next]) * block_lines;
    const int64_t share = (all + tiles - 1) / tiles;
    const int64_t begin = tile * share;
    const int64_t left = all - begin;
    const int64_t column = begin % block_lines;
    const T* const block = b + (first[next] + begin / block_lines) * pitch;
    return {block + (same_line ? panel + 1 : 0) * size * Tile::columns + column * Tile::line_elements,
            left < share ? left : share,
            column,
            block_lines,
            pitch - (block_lines - 1) * Tile::line_elements,
            next_panel};
}

TRACEA_END_NAMESPACE

#endif
