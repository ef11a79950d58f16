// A block of C = A B on matrix tiles, from operands that are packed as sums of bf16 terms (pack_terms.h).
//
// A tile of C is 32 x 32 in four tile registers. With three terms a granule of 32 steps is six products of terms, 24 instructions: the products l*h, m*h, m*m,
// h*m, h*l, h*h, each step changing one operand, and the largest last, so that the sums of a first granule are rounded once at their own size. m*l,
// l*m and l*l are left out: |m| <= 2^-8 |x| and |l| <= 2^-17 |x|, so that they are at most 2^-24 (1 + 2^-10) |a| |b| together, half an eps of float.
//
//   amx_block<3>(rows, columns, depth, a, a_pitch, b, b_pitch, amx_sink(c, c_stride, accumulate, finish, out, row_step, column_step, epilogue));
//
// Sums start from zero in the tiles; what C held is added when they leave. While the tiles multiply, which leaves the vector units idle, the vectors of the
// tile before go through the epilogue into C: a few for every granule. Where sums are results as they are, of few steps, the tiles store them into C.
//
// A granule that holds unsafe values is multiplied by float fused multiply-adds into sums of its own: infinities, NaN and denormals give what float arithmetic
// gives.
#ifndef TRACEA_GEMM_AMX_H
#define TRACEA_GEMM_AMX_H

#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "tracea/amx.h"
#include "tracea/config.h"
#include "tracea/gemm_store.h"
#include "tracea/pack_terms.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

constexpr int kAmxTile = 32;  // rows and columns of C in four registers

// Storing a tile after a pause of four granules, 600 ns, costs 250 ns, as if its path slept; one store within every two keeps it awake and costs nothing
// itself (benchmarks/NOTES.md).
constexpr int64_t kAwakeGranules = 2;

// Up to so many granules sums that are results as they are go from the tiles to C: a tile has too few to hide a way through vectors under.
constexpr int64_t kShallowGranules = 12;

// Where finished vectors go: sums in `c`, to which the tile's are added if `accumulate`; at the finish through the epilogue into `out`.
template <class Storage, class Epilogue>
struct AmxSink {
    float* c;
    int64_t c_stride;
    bool accumulate;
    bool finish;
    Storage* out;
    int64_t row_step;
    int64_t column_step;
    Epilogue epilogue;

    // Whether a tile's sums are what C shall hold, as they are.
    TRACEA_INLINE bool stores_sums() const {
        return !accumulate && (!finish || (std::is_same_v<Epilogue, IdentityEpilogue> && out_is_c()));
    }
    TRACEA_INLINE bool out_is_c() const {
        return static_cast<const void*>(out) == static_cast<const void*>(c) && std::is_same_v<Storage, float>;
    }
    TRACEA_INLINE float* place(int64_t row, int64_t column) const { return c + row * c_stride + column; }

    // Asks for what one row of a whole tile will touch: the epilogue's operands and, if `sums` says so, C. C is worth it where it has sums already, or where a
    // tile has few granules, so that its stores wait; else stores wait by themselves, and asking cost a tenth.
    TRACEA_INLINE void ask(int64_t row, int64_t column, bool sums) const {
        if (sums) {
            prefetch_l2(c + row * c_stride + column);
            prefetch_l2(c + row * c_stride + column + kAmxTile - 1);
        }
        if (finish) epilogue.prefetch(row, column);
    }

    // `count` vectors of a whole tile at (row, column) of the block, from vector `first` on.
    TRACEA_NOINLINE void whole(const float* sums, int64_t row, int64_t column, int64_t first, int64_t count) const {
        constexpr int per_row = kAmxTile / VecF::lanes;
        for (int64_t v = first; v < first + count; ++v) {
            const int64_t i = row + v / per_row;
            const int64_t j = column + v % per_row * VecF::lanes;
            VecF x = load<VecF>(sums + v * VecF::lanes);
            if (accumulate) x = add(load<VecF>(c + i * c_stride + j), x);
            if (!finish) {
                store(c + i * c_stride + j, x);
            } else if (column_step == 1) {
                store(out + i * row_step + j, epilogue(x, i, j, VecF::lanes));
            } else {
                store_strided(out + i * row_step + j * column_step, column_step, epilogue(x, i, j, VecF::lanes),
                              VecF::lanes);
            }
        }
    }

    TRACEA_NOINLINE void part(const float* sums, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t i = row + r;
            for (int64_t first = 0; first < columns; first += VecF::lanes) {
                const int64_t n = columns - first < VecF::lanes ? columns - first : VecF::lanes;
                const int64_t j = column + first;
                VecF x = load<VecF>(sums + r * kAmxTile + first);
                if (accumulate) x = add(load_partial<VecF>(c + i * c_stride + j, n), x);
                if (!finish) {
                    store_partial(c + i * c_stride + j, x, n);
                } else if (column_step == 1) {
                    store_partial(out + i * row_step + j, epilogue(x, i, j, n), n);
                } else {
                    store_strided(out + i * row_step + j * column_step, column_step, epilogue(x, i, j, n), n);
                }
            }
        }
    }
};

template <class Storage, class Epilogue>
TRACEA_INLINE AmxSink<Storage, Epilogue> amx_sink(float* c, int64_t c_stride, bool accumulate, bool finish,
                                                  Storage* out, int64_t row_step, int64_t column_step,
                                                  const Epilogue& epilogue) {
    return {c, c_stride, accumulate, finish, out, row_step, column_step, epilogue};
}

namespace detail {

// One product of terms, or rather its four tiles, behind the loads of what is not in its registers yet: products hide loads in either order, but where another
// program uses the core's other hardware thread, which hides nothing, loads between products cost a tenth more (benchmarks/NOTES.md). `errand(slot)` is called
// after each product: slots count from First on.
enum class Loads { kBoth, kA, kB };

template <Loads What, int First, bool Once, class Errand>
TRACEA_INLINE void multiply_terms(TileRegisters& tiles, const bf16* a, const bf16* b, const Errand& errand) {
    if constexpr (What == Loads::kB) {
        tiles.load<6>(b);
        tiles.load<7>(b + kTileElements);
        tiles.dot<0, 4, 6>();
        errand(constant<First>{});
        tiles.dot<2, 5, 6>();
        errand(constant<First + 1>{});
        tiles.dot<1, 4, 7>();
        errand(constant<First + 2>{});
        tiles.dot<3, 5, 7>();
        errand(constant<First + 3>{});
    } else {
        if constexpr (Once) {
            tiles.load_once<4>(a);
            tiles.load_once<5>(a + kTileElements);
        } else {
            tiles.load<4>(a);
            tiles.load<5>(a + kTileElements);
        }
        if constexpr (What == Loads::kBoth) {
            tiles.load<6>(b);
            tiles.load<7>(b + kTileElements);
        }
        tiles.dot<0, 4, 6>();
        errand(constant<First>{});
        tiles.dot<1, 4, 7>();
        errand(constant<First + 1>{});
        tiles.dot<2, 5, 6>();
        errand(constant<First + 2>{});
        tiles.dot<3, 5, 7>();
        errand(constant<First + 3>{});
    }
}

// The terms of A lie a_term elements apart. Once: nothing else will read them before the first-level cache has seen all of B.
template <int Terms, bool Once = false, class Errand>
TRACEA_INLINE void multiply_granule(TileRegisters& tiles, const bf16* a, const bf16* b, const Errand& errand,
                                    int64_t a_term = 2 * kTileElements) {
    static_assert(Terms == 1 || Terms == 3, "one term or three");
    constexpr int64_t next = 2 * kTileElements;  // from a term to the one after it
    if constexpr (Terms == 3) {
        multiply_terms<Loads::kBoth, 0, Once>(tiles, a + 2 * a_term, b, errand);
        multiply_terms<Loads::kA, 4, Once>(tiles, a + a_term, b, errand);
        multiply_terms<Loads::kB, 8, Once>(tiles, a, b + next, errand);
        multiply_terms<Loads::kA, 12, Once>(tiles, a, b, errand);
        multiply_terms<Loads::kB, 16, Once>(tiles, a, b + 2 * next, errand);
        multiply_terms<Loads::kB, 20, Once>(tiles, a, b, errand);
    } else {
        multiply_terms<Loads::kBoth, 0, Once>(tiles, a, b, errand);
    }
}

// The same for the first 16 rows of A, or 16 columns of B, alone (Rows, Columns: 1), for edges of C that have no more: half of the products, or a quarter.
template <int Terms, int Rows, int Columns>
TRACEA_INLINE void multiply_edge(TileRegisters& tiles, const bf16* a, const bf16* b,
                                 int64_t a_term = 2 * kTileElements) {
    static_assert(Terms == 1 || Terms == 3, "one term or three");
    constexpr int64_t next = 2 * kTileElements;
    const auto load_a = [&](int64_t term) TRACEA_LAMBDA {
        tiles.load<4>(a + term * a_term);
        if constexpr (Rows == 2) tiles.load<5>(a + term * a_term + kTileElements);
    };
    const auto load_b = [&](int64_t term) TRACEA_LAMBDA {
        tiles.load<6>(b + term * next);
        if constexpr (Columns == 2) tiles.load<7>(b + term * next + kTileElements);
    };
    const auto multiply = [&]() TRACEA_LAMBDA {
        tiles.dot<0, 4, 6>();
        if constexpr (Columns == 2) tiles.dot<1, 4, 7>();
        if constexpr (Rows == 2) tiles.dot<2, 5, 6>();
        if constexpr (Rows == 2 && Columns == 2) tiles.dot<3, 5, 7>();
    };
    load_b(0);
    if constexpr (Terms == 3) {
        load_a(2);
        multiply();
        load_a(1);
        multiply();
        load_b(1);
        multiply();
        load_a(0);
        multiply();
        load_b(2);
        multiply();
        load_b(0);
    } else {
        load_a(0);
    }
    multiply();
}

template <int Terms>
TRACEA_NOINLINE void multiply_edge(TileRegisters& tiles, const bf16* a, const bf16* b, int64_t rows, int64_t columns) {
    if (rows > kTileRows) {
        multiply_edge<Terms, 2, 1>(tiles, a, b);
    } else if (columns > kTileColumns) {
        multiply_edge<Terms, 1, 2>(tiles, a, b);
    } else {
        multiply_edge<Terms, 1, 1>(tiles, a, b);
    }
}

TRACEA_INLINE void clear_sums(TileRegisters& tiles) {
    tiles.zero<0>();
    tiles.zero<1>();
    tiles.zero<2>();
    tiles.zero<3>();
}

TRACEA_INLINE void store_sums(TileRegisters& tiles, float* sums, int64_t stride) {
    tiles.store<0>(sums, stride);
    tiles.store<1>(sums + kTileColumns, stride);
    tiles.store<2>(sums + kTileRows * stride, stride);
    tiles.store<3>(sums + kTileRows * stride + kTileColumns, stride);
}

// The sums of a tile of C, and to them what was summed apart, if anything was.
TRACEA_INLINE void take_sums(TileRegisters& tiles, bool some_apart, const float* apart, float* sums) {
    store_sums(tiles, sums, kAmxTile);
    if (!some_apart) return;
    for (int64_t v = 0; v < kAmxTile * kAmxTile; v += VecF::lanes)
        store(sums + v, add(load<VecF>(sums + v), load<VecF>(apart + v)));
}

// The values of a granule as they were before they were split: row i and step k of A at 32 * i + k, step k and column j of B at 32 * k + j.
template <int Terms, bool DepthIsRows>
inline const float* granule_values(const bf16* granule, float* values) {
    if (is_unsafe(granule)) return unsafe_values(granule);
    for (int row = 0; row < kGranule; ++row) {
        for (int lane = 0; lane < kGranule; ++lane) {
            const int half = DepthIsRows ? lane / 16 : row / 16;
            const int word = DepthIsRows ? 2 * (lane % 16) + row / 16 : 2 * (lane % 16) + lane / 16;
            const bf16* term = granule + half * kTileElements + row % 16 * kTileWords + word;
            float x = 0.0F;
            for (int t = Terms - 1; t >= 0; --t) x += to_float(term[t * 2 * kTileElements]);
            values[row * kGranule + lane] = x;
        }
    }
    return values;
}

// sums += x * y of a granule's values, step after step.
TRACEA_INLINE void multiply_rows(const float* x, const float* y, float* sums) {
    for (int i = 0; i < kAmxTile; ++i) {
        for (int j = 0; j < kAmxTile; j += VecF::lanes) {
            VecF sum = load<VecF>(sums + i * kAmxTile + j);
            for (int k = 0; k < kGranule; ++k)
                sum = fma(broadcast<VecF>(x[i * kGranule + k]), load<VecF>(y + k * kGranule + j), sum);
            store(sums + i * kAmxTile + j, sum);
        }
    }
}

// sums += a * b of one granule in float arithmetic, step after step.
template <int Terms>
TRACEA_NOINLINE void multiply_values(const bf16* a, const bf16* b, float* sums) {
    alignas(64) float a_values[kGranule * kGranule];
    alignas(64) float b_values[kGranule * kGranule];
    multiply_rows(granule_values<Terms, false>(a, a_values), granule_values<Terms, true>(b, b_values), sums);
}

}  // namespace detail

// rows x columns of C from panels that lie a_pitch and b_pitch elements apart, over `depth` steps.
template <int Terms, class Sink>
TRACEA_NOINLINE void amx_block(int64_t rows, int64_t columns, int64_t depth, const bf16* a, int64_t a_pitch,
                               const bf16* b, int64_t b_pitch, const Sink& sink) {
    constexpr int64_t vectors = kAmxTile * kAmxTile / VecF::lanes;
    constexpr int64_t granule_lines = Terms * 2 * kTileElements * 2 / 64;
    if (rows <= 0 || columns <= 0) return;
    alignas(64) float sums[2][kAmxTile * kAmxTile];
    alignas(64) float apart[kAmxTile * kAmxTile];
    alignas(64) float unread[kTileRows * kTileColumns];
    const int64_t granules = (depth + kGranule - 1) / kGranule;
    if (granules == 0) {
        if (sink.accumulate && !sink.finish) return;
        memset(sums, 0, sizeof sums);
        for (int64_t i = 0; i < rows; i += kAmxTile) {
            for (int64_t j = 0; j < columns; j += kAmxTile)
                sink.part(sums[0], i, j, rows - i < kAmxTile ? rows - i : kAmxTile,
                          columns - j < kAmxTile ? columns - j : kAmxTile);
        }
        return;
    }
    const bool straight = granules <= kShallowGranules && sink.stores_sums();
    const bool touches_sums = straight || sink.accumulate;
    const int64_t share = (vectors + granules - 1) / granules;
    const int64_t rows_share = (kAmxTile + granules - 1) / granules;
    const int64_t row_tiles = (rows + kAmxTile - 1) / kAmxTile;
    const int64_t lines_apart = (granule_lines + row_tiles - 1) / row_tiles;
    int current = 0;
    int64_t left = 0, left_row = 0,
            left_column = 0;  // vectors of the tile before that have not left yet, and its place

    TileRegisters tiles;
    for (int64_t j = 0; j < columns; j += kAmxTile, b += b_pitch) {
        const bf16* a_panel = a;
        const bf16* next_b = b + (j + kAmxTile < columns ? b_pitch : 0);
        const int64_t width = columns - j < kAmxTile ? columns - j : kAmxTile;
        for (int64_t i = 0; i < rows; i += kAmxTile, a_panel += a_pitch) {
            const int64_t height = rows - i < kAmxTile ? rows - i : kAmxTile;
            const bool edge = height <= kTileRows || width <= kTileColumns;
            detail::clear_sums(tiles);
            bool some_apart = false;
            const bf16* upcoming = next_b + i / kAmxTile * lines_apart * 32;
            for (int64_t g = 0; g < granules; ++g) {
                const bf16* a_granule = a_panel + g * granule_elements<Terms>;
                const bf16* b_granule = b + g * granule_elements<Terms>;
                // Lines are asked for one at a time: in bursts they would hold every line-fill buffer, which the tiles' loads need.
                const int64_t asked = i + g * rows_share;
                const int64_t asked_end = asked + rows_share < rows ? asked + rows_share : rows;
                const bf16* lines = upcoming + g * granule_elements<Terms>;
                const auto errand = [&](auto slot) TRACEA_LAMBDA {
                    if constexpr (slot % 2 == 0) {
                        prefetch_l2(lines + slot / 2 * 32);
                    } else if (asked + slot / 2 < asked_end) {
                        bool sums_too = touches_sums;
                        __asm__ volatile("" : "+r"(sums_too));  // else the loop is there twice, once for each answer
                        sink.ask(asked + slot / 2, j, sums_too);
                    }
                };
                const bool safe = !is_unsafe(a_granule) && !is_unsafe(b_granule);
                if (TRACEA_LIKELY(safe && !edge)) {
                    detail::multiply_granule<Terms>(tiles, a_granule, b_granule, errand);
                } else if (safe) {
                    detail::multiply_edge<Terms>(tiles, a_granule, b_granule, height, width);
                } else {
                    if (!some_apart) memset(apart, 0, sizeof apart);
                    some_apart = true;
                    detail::multiply_values<Terms>(a_granule, b_granule, apart);
                }
                if (g % kAwakeGranules == kAwakeGranules - 1) tiles.store<7>(unread, kTileColumns);
                if (left > 0) {
                    const int64_t count = left < share ? left : share;
                    sink.whole(sums[1 - current], left_row, left_column, vectors - left, count);
                    left -= count;
                }
            }
            const bool whole = height == kAmxTile && width == kAmxTile;
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
                sink.part(done, i, j, height, width);
            }
        }
    }
    if (left > 0) sink.whole(sums[1 - current], left_row, left_column, vectors - left, left);
}

TRACEA_END_NAMESPACE

#endif
