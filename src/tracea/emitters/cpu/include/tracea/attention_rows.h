// Attention of a few queries over many keys, where reading the keys and values once is the work: lanes are keys for scores, elements for values.
//
//   using Rows = AttentionRows<float>;
//   Rows::start(rows, width, state);
//   Rows::step(queries, keys, state, scores, scale, score);     // for each block of keys of a part
//   Rows::combine(parts, rows, width, state, out, out_row, out_col);
//
// Queries are rows, depth apart, of at most 1024 elements; the scores of one query at a time go through `scores`, where there is room for the keys of a block,
// to a whole vector. Sums of query i are at sums[i * width + x]. The states of the parts lie one after the other, each rows (peaks, totals) or rows * width
// (sums) long. Peaks are scaled scores, what the score function gives.
#ifndef TRACEA_ATTENTION_ROWS_H
#define TRACEA_ATTENTION_ROWS_H

#include <stdint.h>

#include "tracea/attention.h"
#include "tracea/attention_several.h"
#include "tracea/config.h"
#include "tracea/math.h"
#include "tracea/transpose.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// Each stream of keys and values is asked for `AheadBytes` ahead, at least a row; 0: not at all.
template <class T, int AheadBytes = 512>
struct AttentionRows : private AttentionSeveral<T> {
    using V = Vec<T>;
    static constexpr int columns = 1;

    static TRACEA_NOINLINE void start(int64_t rows, int64_t width, const AttentionState<T>& state) {
        for (int64_t i = 0; i < rows; ++i) {
            state.peaks[i] = -infinity;
            state.totals[i] = T(0);
        }
        for (int64_t x = 0; x < rows * width; x += V::lanes) store_partial(state.sums + x, zero<V>(), rows * width - x);
    }

    // `score(x, query, key, lanes)` is applied to scaled scores; query and key count from the block's first.
    template <class Key, class Value, class Score>
    static TRACEA_NOINLINE void step(const AttentionQueries<T>& queries, const AttentionKeys<T, Key, Value>& keys,
                                     const AttentionState<T>& state, T* scores, T scale, const Score& score) {
        const int64_t distance = queries.first - keys.first;  // of the first query to the first key
        // Keys that all queries see are taken by all of them side by side, those that a mask hides from some by one after the other.
        const int64_t all_low = clamp(distance + queries.rows - 1 - queries.behind, 0, keys.count);
        const int64_t all_high = clamp(distance + queries.ahead + 1, all_low, keys.count);
        const bool shared = queries.rows > 1 && all_low < all_high;
        if (shared) Several::side_by_side(queries, keys, all_low, all_high, state, scale, score);
        for (int64_t i = 0; i < queries.rows; ++i) {
            const int64_t low = clamp(distance + i - queries.behind, 0, keys.count);
            const int64_t high = clamp(distance + i + queries.ahead + 1, low, keys.count);
            const auto alone = [&](int64_t from, int64_t to) {
                if (from >= to) return;
                const T peak = multiply_keys(queries.panels + i * queries.depth, queries.depth, keys, from, to, scores,
                                             scale, i, score);
                const V fade = weigh(i, peak, scores, to - from, state);
                multiply_values(keys, from, to, scores, fade, state.sums + i * keys.width, i == 0);
            };
            alone(low, shared ? all_low : high);
            if (shared) alone(all_high, high);
        }
    }

    // out[i][x]: the sums of all parts over their totals, each brought to the largest peak; zero where no part has a key.
    template <class Storage>
    static TRACEA_NOINLINE void combine(int64_t parts, int64_t rows, int64_t width, const AttentionState<T>& state,
                                        Storage* out, int64_t out_row, int64_t out_column) {
        for (int64_t i = 0; i < rows; ++i) {
            T peak = -infinity;
            for (int64_t p = 0; p < parts; ++p) {
                const T other = state.peaks[p * rows + i];
                peak = other > peak || other != other ? other : peak;
            }
            const T top = peak == -infinity ? T(0) : peak;
            T total = T(0);
            for (int64_t p = 0; p < parts; ++p) total += share(state, p, rows, i, top) * state.totals[p * rows + i];
            const T factor = total == T(0) ? T(0) : T(1) / total;
            for (int64_t x = 0; x < width; x += V::lanes) {
                const int64_t n = width - x < V::lanes ? width - x : V::lanes;
                V sum = zero<V>();
                for (int64_t p = 0; p < parts; ++p) {
                    const V part = load_partial<V>(state.sums + (p * rows + i) * width + x, n);
                    sum = fma(part, broadcast<V>(share(state, p, rows, i, top) * factor), sum);
                }
                Storage* target = out + i * out_row + x * out_column;
                if (out_column == 1) {
                    store_partial(target, sum, n);
                } else {
                    store_strided(target, out_column, sum, n);
                }
            }
        }
    }

private:
    using Several = AttentionSeveral<T>;
    using Several::clamp;
    using Several::infinity;
    using Several::log2_e;
    using Several::side;
    using Several::weigh;
    // Rows of each stream that are summed before their sum is added to what is there: of equal ones, added to all before them, each would be rounded the
    // same way.
    static constexpr int64_t most_summed = 64;

    // What the weights of a part count for relative to the largest peak of all.
    static TRACEA_INLINE T share(const AttentionState<T>& state, int64_t part, int64_t rows, int64_t i, T top) {
        T lanes[V::lanes];
        store(lanes, exp2_scaled_or_zero(broadcast<V>(state.peaks[part * rows + i] - top), broadcast<V>(log2_e),
                                         broadcast<V>(T(-126) / log2_e)));
        return lanes[0];
    }

    // As many rows ahead as a stream is asked for: past the last key nothing is read, and a prefetch does not fault.
    template <class Storage>
    static TRACEA_INLINE int64_t rows_ahead(int64_t elements) {
        const int64_t bytes = elements * static_cast<int64_t>(sizeof(Storage));
        return bytes < AheadBytes ? AheadBytes / (bytes > 0 ? bytes : 1) : 1;
    }

    // Dot products of a query with `side` keys that lie key_row apart; of the last `n` < side the others are zero.
    template <bool Whole, class Key>
    static TRACEA_INLINE void dot(const T* query, int64_t depth, const Key* k, int64_t key_row, int64_t n,
                                  int64_t ahead, V (&sum)[side]) {
        unroll<side>([&](auto s) TRACEA_LAMBDA { sum[s] = zero<V>(); });
        int64_t x = 0;
        for (; x + V::lanes <= depth; x += V::lanes) {
            const V q = load<V>(query + x);
            unroll<side>([&](auto s) TRACEA_LAMBDA {
                if (!Whole && s >= n) return;
                if (ahead != 0) prefetch_l1(k + s * key_row + x + ahead);
                fma_into(sum[s], q, load<V>(k + s * key_row + x));
            });
        }
        if (x == depth) return;
        const V q = load_partial<V>(query + x, depth - x);
        unroll<side>([&](auto s) TRACEA_LAMBDA {
            if (Whole || s < n) fma_into(sum[s], q, load_partial<V>(k + s * key_row + x, depth - x));
        });
    }

    // The sum of each vector of a block, in the lane of its number.
    static TRACEA_INLINE V sum_each(V (&block)[V::lanes]) {
        transpose(block);
        for (int half = V::lanes / 2; half > 0; half /= 2)
            for (int line = 0; line < half; ++line) block[line] = add(block[line], block[line + half]);
        return block[0];
    }

    // scores[j - low] for the keys low .. high - 1; returns the largest, NaN where one is. The keys are `side` streams, each a part of them from its first to
    // its last: neighbours side by side are one stream to the processor, and one alone is read slower (benchmarks/NOTES.md).
    template <class Key, class Value, class Score>
    static TRACEA_INLINE T multiply_keys(const T* query, int64_t depth, const AttentionKeys<T, Key, Value>& keys,
                                         int64_t low, int64_t high, T* scores, T scale, int64_t row,
                                         const Score& score) {
        constexpr int L = V::lanes;
        const int64_t ahead =
            AheadBytes > 0 && row == 0 ? rows_ahead<Key>(depth) * keys.key_row : 0;  // once for all queries
        const int64_t part = (high - low) / (side * L) * L;
        V peak = broadcast<V>(-infinity);
        const Key* k = keys.keys + low * keys.key_row;
        for (int64_t j = 0; j < part; j += L) {
            V block[side][L];
            for (int line = 0; line < L; ++line, k += keys.key_row) {
                V sum[side];
                dot<true>(query, depth, k, part * keys.key_row, side, ahead, sum);
                unroll<side>([&](auto s) TRACEA_LAMBDA { block[s][line] = sum[s]; });
            }
            for (int s = 0; s < side; ++s) {
                const V x = score(mul(sum_each(block[s]), broadcast<V>(scale)), row, low + s * part + j, L);
                store(scores + s * part + j, x);
                peak = maximum(peak, x);
            }
        }
        for (int64_t j = low + side * part; j < high; j += L) {
            const int64_t n = high - j < L ? high - j : L;
            k = keys.keys + j * keys.key_row;
            V block[L];
            for (int line = 0; line < L; line += side, k += side * keys.key_row) {
                V sum[side];
                if (TRACEA_LIKELY(n - line >= side)) {
                    dot<true>(query, depth, k, keys.key_row, side, ahead, sum);
                } else {
                    dot<false>(query, depth, k, keys.key_row, n - line, ahead, sum);
                }
                unroll<side>([&](auto s) TRACEA_LAMBDA { block[line + s] = sum[s]; });
            }
            const V x = score(mul(sum_each(block), broadcast<V>(scale)), row, j, n);
            store(scores + j - low, x);
            peak = maximum(peak, n < L ? select(lane_mask<V>(n), x, broadcast<V>(-infinity)) : x);
        }
        return reduce_max(peak);
    }

    // sums = sums * fade + weights * values, which are streams as the keys are.
    template <class Key, class Value>
    static TRACEA_INLINE void multiply_values(const AttentionKeys<T, Key, Value>& keys, int64_t low, int64_t high,
                                              const T* weights, V fade, T* sums, bool first) {
        constexpr int wide = 2 * side;
        const int64_t ahead = AheadBytes > 0 && first ? rows_ahead<Value>(keys.width) * keys.value_row : 0;
        int64_t x = 0;
        for (; x + wide * V::lanes <= keys.width; x += wide * V::lanes)
            weigh_vectors<wide, true>(keys, x, low, high, weights, fade, sums, ahead);
        for (; x + side * V::lanes <= keys.width; x += side * V::lanes)
            weigh_vectors<side, true>(keys, x, low, high, weights, fade, sums, ahead);
        if (x < keys.width) weigh_vectors<side, false>(keys, x, low, high, weights, fade, sums, ahead);
    }

    template <int Vectors, bool Whole, class Key, class Value>
    static TRACEA_INLINE void weigh_vectors(const AttentionKeys<T, Key, Value>& keys, int64_t x, int64_t low,
                                            int64_t high, const T* weights, V fade, T* sums, int64_t ahead) {
        constexpr int L = V::lanes;
        const auto left = [&](int v) TRACEA_LAMBDA { return Whole ? L : clamp(keys.width - x - v * L, 0, L); };
        V sum[Vectors];
        V worth = fade;
        const auto begin = [&]() TRACEA_LAMBDA { unroll<Vectors>([&](auto v) TRACEA_LAMBDA { sum[v] = zero<V>(); }); };
        const auto leave = [&]() TRACEA_LAMBDA {
            unroll<Vectors>([&](auto v) TRACEA_LAMBDA {
                T* to = sums + x + v * L;
                store_partial(to, fma(load_partial<V>(to, left(v)), worth, sum[v]), left(v));
            });
            worth = broadcast<V>(T(1));
        };
        const auto take = [&](const Value* value, T by) TRACEA_LAMBDA {
            const V weight = broadcast<V>(by);
            unroll<Vectors>([&](auto v) TRACEA_LAMBDA {
                if (!Whole && left(v) == 0) return;
                if (ahead != 0) prefetch_l1(value + v * L + ahead);
                fma_into(sum[v], weight, load_partial<V>(value + v * L, left(v)));
            });
        };
        const int64_t part = (high - low) / (side * L) * L;
        const Value* value = keys.values + low * keys.value_row + x;
        for (int64_t j = 0; j < part;) {
            const int64_t end = part - j < most_summed ? part : j + most_summed;
            begin();
            for (; j < end; ++j)
                unroll<side>([&](auto s) TRACEA_LAMBDA {
                    take(value + (s * part + j) * keys.value_row, weights[s * part + j]);
                });
            leave();
        }
        if (side * part == high - low) return;
        begin();
        for (int64_t j = side * part; j < high - low; ++j) take(value + j * keys.value_row, weights[j]);
        leave();
    }
};

TRACEA_END_NAMESPACE

#endif
