// Attention of a few queries over many keys, where reading the keys and values once is the work: lanes are keys for scores, elements for values.
//
//   using Rows = AttentionRows<float>;
//   Rows::start(rows, width, state);
//   Rows::step(queries, keys, state, scores, scale, score);     // for each block of keys of a part
//   Rows::combine(parts, rows, width, state, out, out_row, out_col);
//
// Queries are rows, depth apart; scores of one query at a time go through scores[0 .. count). Sums of query i are at sums[i * width + x]. The states of the
// parts lie one after the other, each rows (peaks, totals) or rows * width (sums) long. Peaks are scaled scores, what the score function gives.
#ifndef TRACEA_ATTENTION_ROWS_H
#define TRACEA_ATTENTION_ROWS_H

#include <stdint.h>

#include "tracea/attention.h"
#include "tracea/config.h"
#include "tracea/math.h"
#include "tracea/transpose.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

template <class T>
struct AttentionRows {
    using V = Vec<T>;
    static constexpr int columns = 1;
    static constexpr T infinity = static_cast<T>(__builtin_inf());
    static constexpr T log2_e = static_cast<T>(1.44269504088896340736);

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
        for (int64_t i = 0; i < queries.rows; ++i) {
            const int64_t distance = queries.first + i - keys.first;
            const int64_t low = clamp(distance - queries.behind, 0, keys.count);
            const int64_t high = clamp(distance + queries.ahead + 1, low, keys.count);
            if (low == high) continue;
            const T peak = multiply_keys(queries.panels + i * queries.depth, queries.depth, keys, low, high, scores,
                                         scale, i, score);
            const T before = state.peaks[i];
            const T top = peak > before || peak != peak ? peak : before;
            const V shift = broadcast<V>(top == -infinity ? T(0) : top);
            const V factor = broadcast<V>(log2_e);
            const V least = broadcast<V>(T(-125.5) / log2_e);
            const V fade = exp2_scaled_or_zero(sub(broadcast<V>(before), shift), factor, least);
            V total = zero<V>();
            for (int64_t j = low; j < high; j += V::lanes) {
                const int64_t n = high - j < V::lanes ? high - j : V::lanes;
                const V weight = exp2_scaled_or_zero(sub(load<V>(scores + j - low), shift), factor, least);
                const V kept = n < V::lanes ? select(lane_mask<V>(n), weight, zero<V>()) : weight;
                store(scores + j - low, kept);
                total = add(total, kept);
            }
            T lanes[V::lanes];
            store(lanes, fade);
            state.peaks[i] = top;
            state.totals[i] = state.totals[i] * lanes[0] + reduce_add(total);
            multiply_values(keys, low, high, scores, fade, state.sums + i * keys.width, i == 0);
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
    static constexpr int side = V::lanes < 4 ? V::lanes : 4;  // keys, or vectors of a value, side by side

    static TRACEA_INLINE int64_t clamp(int64_t x, int64_t low, int64_t high) {
        return x < low ? low : (x > high ? high : x);
    }

    // What the weights of a part count for relative to the largest peak of all.
    static TRACEA_INLINE T share(const AttentionState<T>& state, int64_t part, int64_t rows, int64_t i, T top) {
        T lanes[V::lanes];
        store(lanes, exp2_scaled_or_zero(broadcast<V>(state.peaks[part * rows + i] - top), broadcast<V>(log2_e),
                                         broadcast<V>(T(-125.5) / log2_e)));
        return lanes[0];
    }

    // Four dot products of a query with keys that lie next to each other; of the last `n` < 4 the others are zero.
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

    // scores[j - low] for the keys low .. high - 1, a vector of keys at a time; returns the largest, NaN where one is.
    template <class Key, class Value, class Score>
    static TRACEA_INLINE T multiply_keys(const T* query, int64_t depth, const AttentionKeys<T, Key, Value>& keys,
                                         int64_t low, int64_t high, T* scores, T scale, int64_t row,
                                         const Score& score) {
        constexpr int L = V::lanes;
        // The keys a block ahead, asked for once: past the last key nothing is read, and a prefetch does not fault.
        const int64_t ahead = row == 0 ? keys.count * keys.key_row : 0;
        V peak = broadcast<V>(-infinity);
        for (int64_t j = low; j < high; j += L) {
            const int64_t n = high - j < L ? high - j : L;
            const Key* k = keys.keys + j * keys.key_row;
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
            transpose(block);
            for (int half = L / 2; half > 0; half /= 2)
                for (int line = 0; line < half; ++line) block[line] = add(block[line], block[line + half]);
            const V x = score(mul(block[0], broadcast<V>(scale)), row, j, n);
            store(scores + j - low, x);
            peak = maximum(peak, n < L ? select(lane_mask<V>(n), x, broadcast<V>(-infinity)) : x);
        }
        return reduce_max(peak);
    }

    // sums = sums * fade + weights * values.
    template <class Key, class Value>
    static TRACEA_INLINE void multiply_values(const AttentionKeys<T, Key, Value>& keys, int64_t low, int64_t high,
                                              const T* weights, V fade, T* sums, bool first) {
        constexpr int L = V::lanes;
        for (int64_t x = 0; x < keys.width; x += side * L) {
            V sum[side];
            int64_t n[side];
            unroll<side>([&](auto s) TRACEA_LAMBDA {
                n[s] = clamp(keys.width - x - s * L, 0, L);
                sum[s] = mul(load_partial<V>(sums + x + s * L, n[s]), fade);
            });
            const Value* v = keys.values + low * keys.value_row + x;
            const int64_t ahead = first ? keys.count * keys.value_row : 0;
            if (keys.width - x >= side * L) {
                for (int64_t j = low; j < high; ++j, v += keys.value_row) {
                    const V weight = load_broadcast<V>(weights + j - low);
                    unroll<side>([&](auto s) TRACEA_LAMBDA {
                        if (ahead != 0) prefetch_l1(v + ahead + s * L);
                        fma_into(sum[s], weight, load<V>(v + s * L));
                    });
                }
            } else {
                for (int64_t j = low; j < high; ++j, v += keys.value_row) {
                    const V weight = load_broadcast<V>(weights + j - low);
                    unroll<side>([&](auto s) TRACEA_LAMBDA {
                        if (n[s] > 0) fma_into(sum[s], weight, load_partial<V>(v + s * L, n[s]));
                    });
                }
            }
            unroll<side>([&](auto s) TRACEA_LAMBDA { store_partial(sums + x + s * L, sum[s], n[s]); });
        }
    }
};

TRACEA_END_NAMESPACE

#endif
