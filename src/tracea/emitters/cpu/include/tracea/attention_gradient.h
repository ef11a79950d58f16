// Gradients of attention by blocks of keys: weights again from the peaks and totals of a first pass, then the gradients of queries, keys and values at once.
//
// Queries are the lanes, as in attention.h. With the result's gradient G, weights W and slopes D = W * (G V^T - delta) * scale * score', delta = the sum of
// G * result over a row, the gradients are D K of the queries, D^T Q of the keys and W^T G of the values. W and D are keys by queries: as they lie they are
// the left operand of the latter two, whose right operands are rows of queries and of gradients in panels of their elements.
//
//   using Tile = AttentionGradientTile<float, 6, 4, 2>;
//   Tile::start(rows, depth, {peaks, totals, sums});            // attention.h
//   Tile::peak(queries, keys, ...);                             // for each block of keys: the first pass
//   Tile::begin(rows, width, grads, results, totals, deltas);   // totals become their inverses
//   Tile::step<4>(queries, keys, gradients, scores, slopes, 0.125F, ...);  // for each block of keys; 4 = depth % 6
//   Tile::end(rows, depth, sums, out, out_row, out_col);
//
// Source: Dao, "FlashAttention-2", 2023, algorithm 2.
#ifndef TRACEA_ATTENTION_GRADIENT_H
#define TRACEA_ATTENTION_GRADIENT_H

#include <stdint.h>

#include <type_traits>

#include "tracea/attention.h"
#include "tracea/config.h"
#include "tracea/gemm.h"
#include "tracea/math.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// What a block of queries brings to its gradients, in panels of queries: the result's gradients, peaks, inverses of totals, deltas, and the sums of the queries'
// own gradients. Rows of queries and of gradients are in panels of elements, `room` rows apart.
template <class T>
struct AttentionGradients {
    const T* grads;
    const T* query_rows;
    const T* grad_rows;
    int64_t room;
    const T* peaks;
    const T* inverses;
    const T* deltas;
    T* sums;
};

// The sums of the gradients of keys and values, from a block's first key on; rows follow each other.
template <class T>
struct AttentionKeySums {
    T* keys;
    T* values;
};

// The derivative of scores as they are.
struct PlainSlope {
    template <class V>
    TRACEA_INLINE V operator()(V score, int64_t, int64_t, int64_t) const {
        return score;
    }
};

template <class T, int MR, int NV, int Unroll>
struct AttentionGradientTile : AttentionTile<T, MR, NV, Unroll> {
    using Base = AttentionTile<T, MR, NV, Unroll>;
    using V = Vec<T>;
    using Base::columns;

    // Raises peaks and adds to totals, as attention does, of a block of keys.
    template <class Score>
    static TRACEA_INLINE void peak(const AttentionQueries<T>& queries, const T* keys, int64_t key_row, int64_t count,
                                   int64_t first_key, const AttentionState<T>& state, T* scores, T scale,
                                   const Score& score) {
        const AttentionKeys<T> block{keys, key_row, keys, key_row, count, 0, first_key};  // values of no element
        Base::template step<0>(queries, block, state, scores, scale, score);
    }

    static TRACEA_NOINLINE void begin(int64_t rows, int64_t width, const T* grads, const T* results, T* totals,
                                      T* deltas) {
        for (int64_t column = 0; column < rows; column += columns) {
            unroll<NV>([&](auto v) TRACEA_LAMBDA {
                constexpr int lane = v * V::lanes;
                V sum = zero<V>();
                const int64_t first = column * width + lane;
                for (int64_t x = 0; x < width; ++x)
                    sum = fma(load<V>(grads + first + x * columns), load<V>(results + first + x * columns), sum);
                store(deltas + column + lane, sum);
                const V total = load<V>(totals + column + lane);
                const V inverse = div(broadcast<V>(T(1)), total);
                store(totals + column + lane, select(equal(total, zero<V>()), zero<V>(), inverse));
            });
        }
    }

    // Tail = depth % MR. `score` as in attention.h; `slope` is its derivative, a function of the same.
    template <int Tail, class Score, class Slope>
    static TRACEA_NOINLINE void step(const AttentionQueries<T>& queries, const AttentionKeys<T>& keys,
                                     const AttentionGradients<T>& own, const AttentionKeySums<T>& to, T* scores,
                                     T* slopes, T scale, const Score& score, const Slope& slope) {
        for (int64_t column = 0; column < queries.rows; column += columns) {
            const int64_t rows = queries.rows - column < columns ? queries.rows - column : columns;
            const Seen seen = Base::seen_by(queries, column, rows, keys.first, keys.count);
            if (seen.low == seen.high) continue;
            const int64_t count = seen.high - seen.low, depth = queries.depth, width = keys.width;
            const T* k = keys.keys + seen.low * keys.key_row;
            const T* v = keys.values + seen.low * keys.value_row;
            Base::multiply_keys(count, depth, k, keys.key_row, queries.panels + column * depth, scores);
            Base::multiply_keys(count, width, v, keys.value_row, own.grads + column * width, slopes);
            const Lanes lanes{own.peaks + column, own.inverses + column, own.deltas + column, column, rows};
            const bool some = seen.whole_low < seen.whole_high;
            const int64_t whole_low = some ? seen.whole_low : seen.high;
            const int64_t whole_high = some ? seen.whole_high : seen.high;
            weigh<true>(seen.low, whole_low, scores, slopes, seen, scale, lanes, score, slope);
            weigh<false>(whole_low, whole_high, scores, slopes, seen, scale, lanes, score, slope);
            weigh<true>(whole_high, seen.high, scores, slopes, seen, scale, lanes, score, slope);
            Base::template multiply_values<Tail>(count, depth, k, keys.key_row, slopes, own.sums + column * depth);
            const int64_t panel = own.room * columns;  // from one panel of elements to the next
            add_rows(count, rows, scores, own.grad_rows + column * columns, panel, to.values + seen.low * width, width);
            add_rows(count, rows, slopes, own.query_rows + column * columns, panel, to.keys + seen.low * depth, depth);
        }
    }

    // out[i][x] = sums, with any strides and storage.
    template <class Storage>
    static TRACEA_NOINLINE void end(int64_t rows, int64_t depth, const T* sums, Storage* out, int64_t out_row,
                                    int64_t out_column) {
        Base::template store_rows<false>(rows, depth, {nullptr, nullptr, const_cast<T*>(sums)}, out, out_row,
                                         out_column);
    }

private:
    using Seen = typename Base::Seen;
    struct Lanes {
        const T* peaks;
        const T* inverses;
        const T* deltas;
        int64_t column;
        int64_t rows;
    };

    // Scores become weights, and what the weights' gradients are becomes the slopes of the products, for keys from .. to - 1.
    template <bool Hides, class Score, class Slope>
    static TRACEA_NOINLINE void weigh(int64_t from, int64_t to, T* scores, T* slopes, const Seen& seen, T scale,
                                      const Lanes& lanes, const Score& score, const Slope& slope) {
        constexpr bool plain = std::is_same_v<Score, PlainScore>;
        const V factor = broadcast<V>((plain ? scale : T(1)) * static_cast<T>(1.44269504088896340736));
        const V least = div(broadcast<V>(T(-126)), factor);
        const V scaling = broadcast<V>(scale);
        V top[NV];
        V inverse[NV];
        V delta[NV];
        unroll<NV>([&](auto v) TRACEA_LAMBDA {
            const V peak = load<V>(lanes.peaks + v * V::lanes);
            top[v] = select(equal(peak, broadcast<V>(-Base::infinity)), zero<V>(), peak);
            inverse[v] = load<V>(lanes.inverses + v * V::lanes);
            delta[v] = load<V>(lanes.deltas + v * V::lanes);
        });
        for (int64_t j = from; j < to; ++j) {
            T* line = scores + (j - seen.low) * columns;
            T* sloped = slopes + (j - seen.low) * columns;
            const int64_t first_seen = j - seen.high_of_first > seen.begin ? j - seen.high_of_first : seen.begin;
            const int64_t last_seen = j - seen.low_of_first + 1 < seen.end ? j - seen.low_of_first + 1 : seen.end;
            unroll<NV>([&](auto v) TRACEA_LAMBDA {
                constexpr int lane = v * V::lanes;
                const int64_t n = Base::clamp(lanes.rows - lane, 0, V::lanes);
                const V raw = load<V>(line + lane);
                V x = raw;
                if constexpr (!plain) x = score(mul(raw, scaling), j, lanes.column + lane, n);
                V weight = mul(exp2_scaled_or_zero(sub(x, top[v]), factor, least), inverse[v]);
                V change = mul(mul(weight, sub(load<V>(sloped + lane), delta[v])), scaling);
                if constexpr (!std::is_same_v<Slope, PlainSlope>)
                    change = mul(change, slope(mul(raw, scaling), j, lanes.column + lane, n));
                if constexpr (Hides) {
                    const Mask<V> shown =
                        mask_and(lane_mask<V>(last_seen - lane), mask_not(lane_mask<V>(first_seen - lane)));
                    weight = select(shown, weight, zero<V>());
                    change = select(shown, change, zero<V>());
                }
                store(line + lane, weight);
                store(sloped + lane, change);
            });
        }
    }

    template <int Rows>
    static TRACEA_INLINE void add_tile(int64_t j, int64_t queries, const T* weights, const T* b, int64_t n, T* to,
                                       int64_t to_row) {
        using Tile = typename Base::template Product<Rows, RowsA>;
        if (n == columns) {
            Tile::template compute<true>(Rows, n, queries, weights + j * columns, columns, b, columns, to + j * to_row,
                                         to_row, true, {});
        } else {
            Tile::template compute<false>(Rows, n, queries, weights + j * columns, columns, b, columns, to + j * to_row,
                                          to_row, true, {});
        }
    }
    template <int Rows>
    static TRACEA_INLINE void add_rest(int64_t j, int64_t count, int64_t queries, const T* weights, const T* b,
                                       int64_t n, T* to, int64_t to_row) {
        if constexpr (Rows > 0) {
            if ((count & Rows) != 0) {
                add_tile<Rows>(j, queries, weights, b, n, to, to_row);
                j += Rows;
            }
            add_rest<Rows / 2>(j, count, queries, weights, b, n, to, to_row);
        }
    }

    // to[j][x] += the sum over the panel's queries of weights[j][i] * rows[i][x].
    static TRACEA_NOINLINE void add_rows(int64_t count, int64_t queries, const T* weights, const T* panels,
                                         int64_t panel_stride, T* to, int64_t width) {
        for (int64_t x = 0; x < width; x += columns, panels += panel_stride) {
            const int64_t n = width - x < columns ? width - x : columns;
            int64_t j = 0;
            for (; j + MR <= count; j += MR) add_tile<MR>(j, queries, weights, panels, n, to + x, width);
            add_rest<Base::below(MR)>(j, count - j, queries, weights, panels, n, to + x, width);
        }
    }
};

TRACEA_END_NAMESPACE

#endif
