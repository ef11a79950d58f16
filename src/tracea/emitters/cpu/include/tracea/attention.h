// Attention by blocks of keys: scores, their running maxima and sums, and the weighted sum of values, for a block of queries.
//
// Queries are the lanes. A block of scores is S^T = K Q^T, keys by queries, so a row's maximum and sum are vector operations without a shuffle, a weight is
// where the next product reads it, and keys and values are broadcast from where they lie: neither is packed. The sums are O^T, values by queries.
//
//   using Tile = AttentionTile<float, 14, 2, 4>;
//   Tile::start(rows, width, state);                            // no key seen yet
//   Tile::step<8>(queries, keys, state, scores, 0.125F, ...);   // for each block of keys; 8 = width % 14
//   Tile::finish(rows, width, state, out, out_row, out_col);    // weighted mean; zero where no key was visible
//
// Query panels are pack.h's: element (i, x) of panel p at panels[(p * depth + x) * columns + i], zero beyond the last query.
//
// Source: Dao, "FlashAttention-2", 2023, algorithm 1.
#ifndef TRACEA_ATTENTION_H
#define TRACEA_ATTENTION_H

#include <stdint.h>

#include <type_traits>

#include "tracea/config.h"
#include "tracea/gemm.h"
#include "tracea/math.h"
#include "tracea/transpose.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// As far as no query is from a key: a mask that hides nothing on this side.
constexpr int64_t kEveryKey = int64_t{1} << 40;

// A block of queries; `first` is the position of the first one, and query i sees the keys i - behind .. i + ahead. Only those from `begin` to `end`, counted
// from the first, see any.
template <class T>
struct AttentionQueries {
    const T* panels;
    int64_t rows;
    int64_t depth;
    int64_t first;
    int64_t behind;
    int64_t ahead;
    int64_t begin = 0;
    int64_t end = kEveryKey;
};

// A block of keys with their values; `first` is the position of the first one. Rows lie key_row and value_row apart, elements of a row side by side.
template <class T, class Key = T, class Value = T>
struct AttentionKeys {
    const Key* keys;
    int64_t key_row;
    const Value* values;
    int64_t value_row;
    int64_t count;
    int64_t width;
    int64_t first;
};

// What is known of each query after some blocks of keys: the largest score, the sum of weights, and the weighted sums of values, panel after panel.
template <class T>
struct AttentionState {
    T* peaks;
    T* totals;
    T* sums;
};

// Scores as they are.
struct PlainScore {
    template <class V>
    TRACEA_INLINE V operator()(V score, int64_t, int64_t, int64_t) const {
        return score;
    }
};

template <class T, int MR, int NV, int Unroll>
struct AttentionTile {
    using V = Vec<T>;
    static constexpr int columns = NV * V::lanes;
    template <int Rows, class A>
    using Product = GemmTile<T, Rows, NV, Unroll, A, PackedB, GemmPrefetch<0, 0, false>>;

    static TRACEA_NOINLINE void start(int64_t rows, int64_t width, const AttentionState<T>& state) {
        const int64_t padded = (rows + columns - 1) / columns * columns;
        const V none = broadcast<V>(static_cast<T>(-__builtin_inf()));
        for (int64_t i = 0; i < padded; i += V::lanes) {
            store(state.peaks + i, none);
            store(state.totals + i, zero<V>());
        }
        for (int64_t i = 0; i < padded * width; i += V::lanes) store(state.sums + i, zero<V>());
    }

    // Tail = width % MR. `score(x, key, query, lanes)` is applied to scaled scores; key and query count from the block's first.
    template <int Tail, class Score>
    static TRACEA_NOINLINE void step(const AttentionQueries<T>& queries, const AttentionKeys<T>& keys,
                                     const AttentionState<T>& state, T* scores, T scale, const Score& score) {
        for (int64_t column = 0; column < queries.rows; column += columns) {
            const int64_t rows = queries.rows - column < columns ? queries.rows - column : columns;
            const Seen seen = seen_by(queries, column, rows, keys.first, keys.count);
            if (seen.low == seen.high) continue;
            const int64_t count = seen.high - seen.low;
            const T* panel = queries.panels + column * queries.depth;
            if (queries.behind != kEveryKey) ask_ahead(column, rows, queries.depth, keys);
            multiply_keys(count, queries.depth, keys.keys + seen.low * keys.key_row, keys.key_row, panel, scores);
            T* sums = state.sums + column * keys.width;
            const State at{state.peaks + column, state.totals + column, sums};
            weigh(scores, seen, at, keys.width, scale, Place{column, rows}, score);
            multiply_values<Tail>(count, keys.width, keys.values + seen.low * keys.value_row, keys.value_row, scores,
                                  sums);
        }
    }

    // out[i][x] = sums / total, with any strides and storage.
    template <class Storage>
    static TRACEA_NOINLINE void finish(int64_t rows, int64_t width, const AttentionState<T>& state, Storage* out,
                                       int64_t out_row, int64_t out_column) {
        store_rows<true>(rows, width, state, out, out_row, out_column);
        if (out_column != 1) return;
        constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(Storage));
        for (int64_t i = rows; i < 2 * rows; ++i)  // where the next block of queries leaves its results
            for (int64_t x = 0; x < width; x += line) prefetch_l1_write(out + i * out_row + x);
    }

protected:
    // Keys low .. high - 1 of a block; all queries of the panel see whole_low .. whole_high - 1. Query i sees the keys low_of_first + i ..
    // high_of_first + i, those from `begin` to `end` do.
    struct Seen {
        int64_t low;
        int64_t high;
        int64_t whole_low;
        int64_t whole_high;
        int64_t low_of_first;
        int64_t high_of_first;
        int64_t begin;
        int64_t end;
    };
    using State = AttentionState<T>;
    // The panel's first query in its block, and how many it has.
    struct Place {
        int64_t column;
        int64_t rows;
    };

    static TRACEA_INLINE int64_t clamp(int64_t x, int64_t low, int64_t high) {
        return x < low ? low : (x > high ? high : x);
    }

    // out[i][x] = sums, divided by totals if Means.
    template <bool Means, class Storage>
    static TRACEA_INLINE void store_rows(int64_t rows, int64_t width, const AttentionState<T>& state, Storage* out,
                                         int64_t out_row, int64_t out_column) {
        constexpr int L = V::lanes;
        for (int64_t first = 0; first < rows; first += L) {
            const int64_t panel = first / columns * columns;
            const T* sums = state.sums + panel * width + (first - panel);
            const V empty = zero<V>();
            V factor = broadcast<V>(T(1));
            if constexpr (Means) {
                const V total = load<V>(state.totals + first);
                factor = select(equal(total, empty), empty, div(factor, total));
            }
            const int64_t lines = rows - first < L ? rows - first : L;
            for (int64_t x = 0; x < width; x += L) {
                const int64_t n = width - x < L ? width - x : L;
                V block[L];
                for (int i = 0; i < L; ++i) block[i] = i < n ? mul(load<V>(sums + (x + i) * columns), factor) : empty;
                transpose(block);
                for (int i = 0; i < lines; ++i) {
                    Storage* target = out + (first + i) * out_row + x * out_column;
                    if (out_column == 1) {
                        store_partial(target, block[i], n);
                    } else {
                        store_strided(target, out_column, block[i], n);
                    }
                }
            }
        }
    }

    // What a panel's queries see of `count` keys from position `first_key` on; nothing where low == high.
    static TRACEA_INLINE Seen seen_by(const AttentionQueries<T>& queries, int64_t column, int64_t rows,
                                      int64_t first_key, int64_t count) {
        const int64_t distance = queries.first + column - first_key;  // of the panel's first query to the first key
        const int64_t begin = clamp(queries.begin - column, 0, rows);
        const int64_t end = clamp(queries.end - column, begin, rows);
        const int64_t low = clamp(distance + begin - queries.behind, 0, count);
        const int64_t high = begin == end ? low : clamp(distance + end + queries.ahead, low, count);
        const bool whole = begin == 0 && end == rows;  // else no key is seen by all queries
        return {low,
                high,
                whole ? clamp(distance + rows - 1 - queries.behind, low, high) : high,
                whole ? clamp(distance + queries.ahead + 1, low, high) : high,
                distance - queries.behind,
                distance + queries.ahead,
                begin,
                end};
    }

    // A window moves on by as many rows as a block has queries. Those of its next place, behind this block of keys, are asked for while this one is worked on: it
    // meets each row too rarely to wait for it (benchmarks/NOTES.md). Past the last key nothing is read, and a prefetch does not fault. Inline, for a call that
    // does nothing but prefetch counts as one without effects, and is left out.
    static TRACEA_INLINE void ask_ahead(int64_t column, int64_t rows, int64_t depth, const AttentionKeys<T>& keys) {
        constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(T));
        const T* k = keys.keys + (keys.count + column) * keys.key_row;
        const T* v = keys.values + (keys.count + column) * keys.value_row;
        for (int64_t i = 0; i < rows; ++i, k += keys.key_row, v += keys.value_row) {
            for (int64_t x = 0; x < depth; x += line) prefetch_l2(k + x);
            for (int64_t x = 0; x < keys.width; x += line) prefetch_l2(v + x);
        }
    }

    template <int Rows>
    static TRACEA_INLINE void keys_tile(int64_t j, int64_t depth, const T* k, int64_t k_row, const T* panel,
                                        T* scores) {
        Product<Rows, RowsA>::template compute<true>(Rows, columns, depth, k + j * k_row, k_row, panel, columns,
                                                     scores + j * columns, columns, false, {});
    }
    template <int Rows>
    static TRACEA_INLINE void keys_rest(int64_t j, int64_t count, int64_t depth, const T* k, int64_t k_row,
                                        const T* panel, T* scores) {
        if constexpr (Rows > 0) {
            if ((count & Rows) != 0) {
                keys_tile<Rows>(j, depth, k, k_row, panel, scores);
                j += Rows;
            }
            keys_rest<Rows / 2>(j, count, depth, k, k_row, panel, scores);
        }
    }
    static constexpr int below(int rows) {
        int power = 1;
        while (2 * power < rows) power *= 2;
        return rows > 1 ? power : 0;
    }

    // The last tile overlaps the one before: what both compute is the same, and no row beyond the last key is read.
    static TRACEA_INLINE void multiply_keys(int64_t count, int64_t depth, const T* k, int64_t k_row, const T* panel,
                                            T* scores) {
        int64_t j = 0;
        for (; j + MR <= count; j += MR) keys_tile<MR>(j, depth, k, k_row, panel, scores);
        if (j == count) return;
        if (count >= MR) {
            keys_tile<MR>(count - MR, depth, k, k_row, panel, scores);
        } else {
            keys_rest<below(MR)>(0, count, depth, k, k_row, panel, scores);
        }
    }

    template <int Tail>
    static TRACEA_INLINE void multiply_values(int64_t count, int64_t width, const T* v, int64_t v_row, const T* weights,
                                              T* sums) {
        int64_t x = 0;
        for (; x + MR <= width; x += MR) {
            Product<MR, PackedA>::template compute<true>(MR, columns, count, v + x, v_row, weights, columns,
                                                         sums + x * columns, columns, true, {});
        }
        if constexpr (Tail > 0) {
            Product<Tail, PackedA>::template compute<true>(Tail, columns, count, v + x, v_row, weights, columns,
                                                           sums + x * columns, columns, true, {});
        }
    }

    static constexpr T infinity = static_cast<T>(__builtin_inf());

    // Applies the score function and hides what is not seen, for keys from .. to - 1; `peak` is raised to the largest.
    template <bool Hides, class Score>
    static TRACEA_INLINE void score_keys(int64_t from, int64_t to, T* scores, const Seen& seen, T scale,
                                         const Place& place, const Score& score, V (&peak)[NV]) {
        constexpr bool plain = std::is_same_v<Score, PlainScore>;
        for (int64_t j = from; j < to; ++j) {
            T* line = scores + (j - seen.low) * columns;
            // Of the panel's queries those from first_seen to last_seen - 1 see key j.
            const int64_t first_seen = j - seen.high_of_first > seen.begin ? j - seen.high_of_first : seen.begin;
            const int64_t last_seen = j - seen.low_of_first + 1 < seen.end ? j - seen.low_of_first + 1 : seen.end;
            unroll<NV>([&](auto v) TRACEA_LAMBDA {
                constexpr int lane = v * V::lanes;
                V x = load<V>(line + lane);
                if constexpr (!plain)
                    x = score(mul(x, broadcast<V>(scale)), j, place.column + lane,
                              clamp(place.rows - lane, 0, V::lanes));
                if constexpr (Hides) {
                    const Mask<V> reached = lane_mask<V>(last_seen - lane);
                    const Mask<V> ahead = lane_mask<V>(first_seen - lane);
                    x = select(mask_and(reached, mask_not(ahead)), x, broadcast<V>(-infinity));
                }
                if constexpr (!plain || Hides) store(line + lane, x);
                peak[v] = max_second(x, peak[v]);
            });
        }
    }

    // Scores become weights relative to the new maximum; what was summed before is brought to it too.
    template <class Score>
    static TRACEA_NOINLINE void weigh(T* scores, const Seen& seen, const State& state, int64_t width, T scale,
                                      const Place& place, const Score& score) {
        V peak[NV];
        unroll<NV>([&](auto v) TRACEA_LAMBDA { peak[v] = load<V>(state.peaks + v * V::lanes); });
        const bool some = seen.whole_low < seen.whole_high;
        const int64_t whole_low = some ? seen.whole_low : seen.high;
        const int64_t whole_high = some ? seen.whole_high : seen.high;
        score_keys<true>(seen.low, whole_low, scores, seen, scale, place, score, peak);
        score_keys<false>(whole_low, whole_high, scores, seen, scale, place, score, peak);
        score_keys<true>(whole_high, seen.high, scores, seen, scale, place, score, peak);

        const T scaled = std::is_same_v<Score, PlainScore> ? scale : T(1);
        const V factor = broadcast<V>(scaled * static_cast<T>(1.44269504088896340736));
        const V least = div(broadcast<V>(T(-126)), factor);
        V top[NV];
        V total[NV];
        V fade[NV];
        bool moved = false;
        unroll<NV>([&](auto v) TRACEA_LAMBDA {
            constexpr int lane = v * V::lanes;
            top[v] =
                select(equal(peak[v], broadcast<V>(-infinity)), zero<V>(), peak[v]);  // of no key: -inf - -inf is NaN
            fade[v] = exp2_scaled_or_zero(sub(load<V>(state.peaks + lane), top[v]), factor, least);
            store(state.totals + lane, mul(load<V>(state.totals + lane), fade[v]));
            total[v] = zero<V>();
            moved = moved || any(not_equal(fade[v], broadcast<V>(T(1))));
            store(state.peaks + lane, peak[v]);
        });
        if (moved) {
            T* line = state.sums;
            for (int64_t x = 0; x < width; ++x, line += columns) {
                unroll<NV>([&](auto v) TRACEA_LAMBDA {
                    store(line + v * V::lanes, mul(load<V>(line + v * V::lanes), fade[v]));
                });
            }
        }
        T* line = scores;
        for (int64_t j = seen.low; j < seen.high; ++j, line += columns) {
            unroll<NV>([&](auto v) TRACEA_LAMBDA {
                constexpr int lane = v * V::lanes;
                const V weight = exp2_scaled_or_zero(sub(load<V>(line + lane), top[v]), factor, least);
                store(line + lane, weight);
                total[v] = add(total[v], weight);
            });
        }
        // A block's weights are added up first: of equal ones, added to all before them, each would be rounded the same way.
        unroll<NV>([&](auto v) TRACEA_LAMBDA {
            constexpr int lane = v * V::lanes;
            store(state.totals + lane, add(load<V>(state.totals + lane), total[v]));
        });
    }
};

TRACEA_END_NAMESPACE

#endif
