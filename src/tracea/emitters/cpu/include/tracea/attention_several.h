// Attention of several queries over the keys that all of them see: keys and values are read from memory once and meet all queries side by side.
//
//   AttentionSeveral<float>::side_by_side(queries, keys, low, high, state, scale, score);    // keys low .. high - 1 of a block
//
// The rows are streams, as attention_rows.h reads them for one query; what the streams reach next is asked for while the products of what is there go on, and
// at the same pace. Scores and weights of a vector of keys of each stream never leave the first cache.
#ifndef TRACEA_ATTENTION_SEVERAL_H
#define TRACEA_ATTENTION_SEVERAL_H

#include <stdint.h>

#include "tracea/attention.h"
#include "tracea/config.h"
#include "tracea/math.h"
#include "tracea/transpose.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

template <class T>
struct AttentionSeveral {
    using V = Vec<T>;
    static constexpr T infinity = static_cast<T>(__builtin_inf());
    static constexpr T log2_e = static_cast<T>(1.44269504088896340736);

    static constexpr int side = V::lanes < 4 ? V::lanes : 4;  // streams of keys, or vectors of a value, side by side
    // Queries side by side, for as many registers, and elements of each at most.
    static constexpr int most = V::lanes * sizeof(T) == 64 ? 8 : (V::lanes < 4 ? V::lanes : 4);
    static constexpr int64_t most_depth = 1024;
    static constexpr int asked_elements = V::lanes < 8 ? V::lanes : 8;  // between two requests

    static TRACEA_INLINE int64_t clamp(int64_t x, int64_t low, int64_t high) {
        return x < low ? low : (x > high ? high : x);
    }

    // Scores of query i become weights relative to its new peak; returns what its sums before them count for.
    static TRACEA_INLINE V weigh(int64_t i, T peak, T* scores, int64_t count, const AttentionState<T>& state) {
        const T before = state.peaks[i];
        const T top = peak > before || peak != peak ? peak : before;
        const V shift = broadcast<V>(top == -infinity ? T(0) : top);
        const V factor = broadcast<V>(log2_e);
        const V least = broadcast<V>(T(-126) / log2_e);
        const V fade = exp2_scaled_or_zero(sub(broadcast<V>(before), shift), factor, least);
        V total = zero<V>();
        for (int64_t j = 0; j < count; j += V::lanes) {
            const int64_t n = count - j < V::lanes ? count - j : V::lanes;
            const V weight = exp2_scaled_or_zero(sub(load<V>(scores + j), shift), factor, least);
            const V kept = n < V::lanes ? select(lane_mask<V>(n), weight, zero<V>()) : weight;
            store(scores + j, kept);
            total = add(total, kept);
        }
        T lanes[V::lanes];
        store(lanes, fade);
        state.peaks[i] = top;
        state.totals[i] = state.totals[i] * lanes[0] + reduce_add(total);
        return fade;
    }

    // The keys low .. high - 1, all of which all queries see, for as many queries at a time as have registers.
    template <class Key, class Value, class Score>
    static TRACEA_INLINE void side_by_side(const AttentionQueries<T>& queries, const AttentionKeys<T, Key, Value>& keys,
                                           int64_t low, int64_t high, const AttentionState<T>& state, T scale,
                                           const Score& score) {
        for (int64_t i = 0; i < queries.rows; i += most) {
            const int64_t rows = queries.rows - i < most ? queries.rows - i : most;
            take_keys<most>(i, rows, queries, keys, low, high, state, scale, score);
        }
    }

private:
    // The rows that the streams reach next, asked for into the second cache a line of each stream at a time: in any other order, or all at once, they arrive
    // later (benchmarks/NOTES.md).
    template <class Storage>
    struct Upcoming {
        const Storage* row;  // of the first stream
        int64_t row_step;
        int64_t apart;  // elements between two streams
        int64_t elements;
        int64_t rows;
        int64_t x = 0;

        TRACEA_INLINE void ask() {
            if (rows == 0) return;
            constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(Storage));
            const Storage* p = row + x;
            unroll<side>([&](auto s) TRACEA_LAMBDA { prefetch_l2(p + s * apart); });
            unroll<side>([&](auto s) TRACEA_LAMBDA { prefetch_l2(p + s * apart + line); });
            x += 2 * line;
            if (x < elements) return;
            x = 0;
            row += row_step;
            --rows;
        }
    };
    template <class Key, class Value>
    struct Ahead {
        Upcoming<Key> keys;
        Upcoming<Value> values;
        bool turn = false;

        TRACEA_INLINE void ask() {
            turn = !turn;
            if (turn) {
                keys.ask();
            } else {
                values.ask();
            }
        }
    };

    // Queries side by side: the first, how many, and their vectors as turn_queries leaves them.
    struct Group {
        int64_t first;
        int64_t rows;
        int64_t depth;
        const T* turned;
    };

    // A vector of keys of each stream: key first + s * apart + lane of the block; the last tile has `last` keys, the others all.
    struct Tiles {
        int64_t first;
        int64_t apart;
        int64_t count;
        int64_t last;
    };

    // The same for `rows` queries from the i-th on, in registers for the least power of two that holds them: the others are zero.
    template <int Rows, class Key, class Value, class Score>
    static TRACEA_INLINE void take_keys(int64_t i, int64_t rows, const AttentionQueries<T>& queries,
                                        const AttentionKeys<T, Key, Value>& keys, int64_t low, int64_t high,
                                        const AttentionState<T>& state, T scale, const Score& score) {
        if constexpr (Rows > 1) {
            if (2 * rows <= Rows) {
                take_keys<Rows / 2>(i, rows, queries, keys, low, high, state, scale, score);
                return;
            }
        }
        constexpr int L = V::lanes;
        alignas(64) T turned[Rows * most_depth + L * L];
        turn_queries<Rows>(rows, queries.panels + i * queries.depth, queries.depth, turned);
        const Group group{i, rows, queries.depth, turned};
        const int64_t part = (high - low) / (side * L) * L;
        for (int64_t j = low; j < low + part; j += L) {
            // Behind the last tiles lie the first of the next block, if it is as long.
            const int64_t next = j + L < low + part ? j + L : high;
            Ahead<Key, Value> ahead{
                {keys.keys + next * keys.key_row, keys.key_row, part * keys.key_row, queries.depth, L},
                {keys.values + next * keys.value_row, keys.value_row, part * keys.value_row, keys.width, L}};
            take_tiles<Rows>(group, keys, Tiles{j, part, side, L}, state, scale, score, ahead);
        }
        const int64_t rest = high - low - side * part;
        if (rest == 0) return;
        const int64_t tiles = (rest + L - 1) / L;
        Ahead<Key, Value> nothing{};
        take_tiles<Rows>(group, keys, Tiles{low + side * part, L, tiles, rest - (tiles - 1) * L}, state, scale, score,
                         nothing);
    }

    // Vectors that hold of each of `Rows` queries L / Rows elements; behind them those elements that are left, one a vector.
    template <int Rows>
    static TRACEA_NOINLINE void turn_queries(int64_t rows, const T* panel, int64_t depth, T* turned) {
        constexpr int each = V::lanes / Rows;
        int64_t x = 0;
        const auto turn = [&](int count) TRACEA_LAMBDA {
            for (int r = 0; r < Rows; ++r)
                for (int e = 0; e < each; ++e) *turned++ = r < rows && e < count ? panel[r * depth + x + e] : T(0);
            x += count;
        };
        while (x + each <= depth) turn(each);
        while (x < depth) turn(1);
    }

    template <int Rows, class Key, class Value, class Score>
    static TRACEA_INLINE void take_tiles(const Group& group, const AttentionKeys<T, Key, Value>& keys,
                                         const Tiles& tiles, const AttentionState<T>& state, T scale,
                                         const Score& score, Ahead<Key, Value>& ahead) {
        constexpr int L = V::lanes;
        alignas(64) T weights[Rows][side * L];
        V peak[Rows];
        unroll<Rows>([&](auto r) TRACEA_LAMBDA { peak[r] = broadcast<V>(-infinity); });
        for (int64_t tile = 0; tile < tiles.count; ++tile) {
            const int64_t j = tiles.first + tile * tiles.apart;
            const int64_t n = tile + 1 < tiles.count ? L : tiles.last;
            const Key* k = keys.keys + j * keys.key_row;
            V sum[Rows];
            if (TRACEA_LIKELY(n == L)) {
                multiply_tile<Rows, true>(group, k, keys.key_row, n, ahead, sum);
            } else {
                multiply_tile<Rows, false>(group, k, keys.key_row, n, ahead, sum);
            }
            unroll<Rows>([&](auto r) TRACEA_LAMBDA {
                if (r >= group.rows) return;
                const V scaled = score(mul(sum[r], broadcast<V>(scale)), group.first + r, j, n);
                store(weights[r] + tile * L, scaled);
                const V seen = n == L ? scaled : select(lane_mask<V>(n), scaled, broadcast<V>(-infinity));
                peak[r] = maximum(peak[r], seen);
            });
        }
        const int64_t count = (tiles.count - 1) * L + tiles.last;
        V fade[Rows];
        for (int r = 0; r < Rows; ++r) {
            fade[r] = zero<V>();
            if (r < group.rows) {
                ahead.ask();
                fade[r] = weigh(group.first + r, reduce_max(peak[r]), weights[r], count, state);
            } else {
                for (int64_t j = 0; j < side * L; j += L) store(weights[r] + j, zero<V>());
            }
        }
        multiply_tiles<Rows>(group, keys, tiles, weights, fade, state.sums + group.first * keys.width, ahead);
    }

    // Count elements of a key for each query's `Each` lanes: lanes without one are zero, as the query's are, or an infinity would make a NaN there.
    template <int Each, int Count>
    static TRACEA_INLINE V elements_of(const T* p) {
        if constexpr (Count == Each) {
            return load_repeated<V, Count>(p);
        } else {
            T padded[Each] = {};
            for (int e = 0; e < Count; ++e) padded[e] = p[e];
            return load_repeated<V, Each>(padded);
        }
    }

    // Dot products of `Rows` queries with a vector of keys. An element of a vector of queries meets the key's that repeat over the lanes; what belongs to one
    // query is added when all is turned.
    template <int Rows, bool Whole, class Key, class Value>
    static TRACEA_NOINLINE void multiply_tile(const Group& group, const Key* k, int64_t key_row, int64_t n,
                                              Ahead<Key, Value>& ahead, V (&sum)[Rows]) {
        constexpr int L = V::lanes;
        const int64_t depth = group.depth;
        const T* turned = group.turned;
        constexpr int each = L / Rows;
        constexpr bool widened = sizeof(Key) != sizeof(T);
        V block[L];
        unroll<L>([&](auto line) TRACEA_LAMBDA { block[line] = zero<V>(); });
        T wide[widened ? L : 1][L];
        for (int64_t begin = 0; begin < depth; begin += L) {
            const int64_t elements = depth - begin < L ? depth - begin : L;
            const T* rows;
            int64_t row = key_row;
            if constexpr (widened) {
                for (int line = 0; line < L; ++line)
                    store(wide[line], load_partial<V>(k + (line < n ? line : 0) * key_row + begin, elements));
                rows = wide[0];
                row = L;
            } else {
                rows = k + begin;
            }
            // `steps` vectors of queries, of which each meets `count` elements.
            const auto take = [&](auto steps, auto count, int64_t x) TRACEA_LAMBDA {
                V query[decltype(steps)::value];
                unroll<decltype(steps)::value>([&](auto step)
                                                   TRACEA_LAMBDA { query[step] = load<V>(turned + step * L); });
                turned += steps * L;
                const T* p = rows + x;
                unroll<L>([&](auto line) TRACEA_LAMBDA {
                    unroll<decltype(steps)::value>([&](auto step) TRACEA_LAMBDA {
                        fma_into(block[line], query[step], elements_of<each, decltype(count)::value>(p + step * count));
                    });
                    if (Whole || widened || line + 1 < n) p += row;
                });
            };
            constexpr int steps = each < asked_elements ? asked_elements / each : 1;
            int64_t x = 0;
            for (; x + steps * each <= elements; x += steps * each) {
                ahead.ask();
                take(constant<steps>{}, constant<each>{}, x);
            }
            for (; x + each <= elements; x += each) take(constant<1>{}, constant<each>{}, x);
            for (; x < elements; ++x) take(constant<1>{}, constant<1>{}, x);
        }
        transpose(block);
        unroll<Rows>([&](auto r) TRACEA_LAMBDA {
            sum[r] = block[r * each];
            unroll<each - 1>([&](auto e) TRACEA_LAMBDA { sum[r] = add(sum[r], block[r * each + e + 1]); });
        });
    }

    // sums = sums * fade + weights * values, for queries side by side.
    template <int Rows, class Key, class Value>
    static TRACEA_NOINLINE void multiply_tiles(const Group& group, const AttentionKeys<T, Key, Value>& keys,
                                               const Tiles& tiles, const T (&weights)[Rows][side * V::lanes],
                                               const V (&fade)[Rows], T* sums, Ahead<Key, Value>& ahead) {
        constexpr int L = V::lanes;
        constexpr int vectors = 2;
        const auto take = [&](int64_t x, int64_t first_left, int64_t second_left) TRACEA_LAMBDA {
            const int64_t left[vectors] = {first_left, second_left};
            V sum[Rows][vectors];
            unroll<Rows>([&](auto r)
                             TRACEA_LAMBDA { unroll<vectors>([&](auto v) TRACEA_LAMBDA { sum[r][v] = zero<V>(); }); });
            for (int64_t tile = 0; tile < tiles.count; ++tile) {
                const Value* value = keys.values + (tiles.first + tile * tiles.apart) * keys.value_row + x;
                const int64_t end = tile * L + (tile + 1 < tiles.count ? L : tiles.last);
                for (int64_t j = tile * L; j < end; ++j, value += keys.value_row) {
                    if (j % 4 == 0) ahead.ask();
                    const V near[vectors] = {load_partial<V>(value, left[0]), load_partial<V>(value + L, left[1])};
                    unroll<Rows>([&](auto r) TRACEA_LAMBDA {
                        const V by = load_broadcast<V>(weights[r] + j);
                        unroll<vectors>([&](auto v) TRACEA_LAMBDA { fma_into(sum[r][v], by, near[v]); });
                    });
                }
            }
            unroll<Rows>([&](auto r) TRACEA_LAMBDA {
                if (r >= group.rows) return;
                unroll<vectors>([&](auto v) TRACEA_LAMBDA {
                    T* to = sums + r * keys.width + x + v * L;
                    store_partial(to, fma(load_partial<V>(to, left[v]), fade[r], sum[r][v]), left[v]);
                });
            });
        };
        int64_t x = 0;
        for (; x + vectors * L <= keys.width; x += vectors * L) take(x, L, L);
        if (x < keys.width) take(x, clamp(keys.width - x, 0, L), clamp(keys.width - x - L, 0, L));
    }
};

TRACEA_END_NAMESPACE

#endif
