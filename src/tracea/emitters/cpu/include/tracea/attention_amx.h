// Attention on matrix tiles, from operands that are packed as sums of bf16 terms (pack_terms.h): the tile of attention.h with 32 queries.
//
//   using Tile = AttentionAmx;
//   Tile::start(rows, width, state);
//   Tile::step<3>(queries, keys, state, scores, weights, room, 0.125F, PlainScore{});   // for each block of at most `room` keys, a multiple of 32
//   Tile::finish(rows, width, state, out, out_row, out_col);
//
// Scores are keys by queries, S^T = K Q^T, and sums columns of values by queries, O^T = V^T P^T: keys and values are packed as first factors (V^T by its
// columns), queries and weights as second ones. The tiles multiply beside the vectors, which attention needs for its weights, so three panels of queries
// are on their way at a time: while the scores of one and the sums of the one two before it are multiplied, the weights of the one between are made, two rows of 32
// for a few products. Both products take 32 x 32 x 32 granules (amx_granule.h); a granule of keys, queries or values that the tiles cannot multiply is multiplied in
// float. Weights are 0 to 1 and never such: what a term of one below 2^-109 loses is less than its own rounding.
//
// Source: Dao, "FlashAttention-2", 2023, algorithm 1. Measured: benchmarks/NOTES.md, 2026-11-30.
#ifndef TRACEA_ATTENTION_AMX_H
#define TRACEA_ATTENTION_AMX_H

#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "tracea/amx.h"
#include "tracea/amx_granule.h"
#include "tracea/amx_products.h"
#include "tracea/attention.h"
#include "tracea/attention_amx_operands.h"
#include "tracea/config.h"
#include "tracea/pack_terms.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

class AttentionAmx : public AttentionTile<float, 1, kAmxTile / VecF::lanes, 1> {
protected:
    static constexpr int vectors = kAmxTile / VecF::lanes;
    using Base = AttentionTile<float, 1, vectors, 1>;
    using V = VecF;
    using State = AttentionState<float>;
    static constexpr int64_t tile = kAmxTile;
    static constexpr int64_t granule = granule_elements<3>;

    // A panel of queries on its way: they see keys from `first_key` to `last_key` - 1, those of the tiles from `low` to `high` - 1. Its scratch begins with tile
    // `low`, whichever that is, so that a window's stays in the nearest cache.
    struct Panel {
        float* scores;
        bf16* weights;
        int64_t column;
        int64_t rows;
        int64_t first_key;
        int64_t last_key;
        int64_t low;
        int64_t high;
        bool is_first;  // no key was seen before: the sums are not there yet
        alignas(64) float top[kAmxTile];
        alignas(64) float total[kAmxTile];  // of this block's weights
        alignas(64) float fade[kAmxTile];   // what the sums so far are worth

        TRACEA_INLINE float* scores_of(int64_t t) const { return scores + (t - low) * tile * tile; }
        TRACEA_INLINE bf16* weights_of(int64_t t) const { return weights + (t - low) * granule; }
    };

    // The weights of a panel, or only their totals: rows r and r + 16 of a tile at a time, whose terms are words of one row.
    template <int Terms, bool Keeps>
    struct Weighing {
        static constexpr int terms = Terms;
        static constexpr bool reads_once = false;  // windows of neighbouring panels overlap
        Panel* panel;
        float factor;
        float least;
        AmxAsking asking;

        TRACEA_NOINLINE void piece(int64_t index) {
            if constexpr (Keeps) {
                for (int i = 0; i < 4; ++i) asking.ask();
            }
            const int64_t t = index / kTileRows;
            const int64_t r = index % kTileRows;
            const float* x = panel->scores_of(t) + r * tile;
            const float* y = x + kTileRows * tile;
            alignas(64) float x_weights[kAmxTile];  // registers: nothing else reads them
            alignas(64) float y_weights[kAmxTile];
            const V f = broadcast<V>(factor);
            const V l = broadcast<V>(least);
            unroll<vectors>([&](auto v) TRACEA_LAMBDA {
                constexpr int lane = v * V::lanes;
                const V peak = load<V>(panel->top + lane);
                const V a = exp2_scaled_or_zero(sub(load<V>(x + lane), peak), f, l);
                const V b = exp2_scaled_or_zero(sub(load<V>(y + lane), peak), f, l);
                store(panel->total + lane, add(load<V>(panel->total + lane), add(a, b)));
                if constexpr (Keeps) {
                    // A NaN has reached the total, and so the result: as a weight it would reach other queries too, by the mark of an unsafe granule.
                    store(x_weights + lane, max_second(a, zero<V>()));
                    store(y_weights + lane, max_second(b, zero<V>()));
                }
            });
            if constexpr (Keeps) {
                bf16* to = panel->weights_of(t) + r * kTileWords;
                detail::SafeTerms seen;  // nobody asks
                detail::split<terms>(x_weights, y_weights, to, seen);
                detail::split<terms>(x_weights + kTileColumns, y_weights + kTileColumns, to + kTileElements, seen);
            }
        }
    };
    template <int Terms, bool Keeps>
    using Products = AmxProducts<Weighing<Terms, Keeps>>;

public:
    // Sums are there from the first keys on.
    static TRACEA_NOINLINE void start(int64_t rows, int64_t, const State& state) {
        for (int64_t i = 0; i < (rows + tile - 1) / tile * tile; i += V::lanes) {
            store(state.peaks + i, broadcast<V>(-__builtin_inff()));
            store(state.totals + i, zero<V>());
        }
    }

    // Terms: of queries, keys and values, fewer than 3 where the others are zero: a bf16 has 1, a f16 2. `score` is that of AttentionTile. Scratch: two panels' scores, 2 * room * 32 floats, and weights, 2 * room / 32 granules.
    template <int Terms, class Score>
    static TRACEA_NOINLINE void step(const AmxQueries& queries, const AmxKeys& keys, const State& state, float* scores,
                                     bf16* weights, int64_t room, float scale, const Score& score) {
        take_keys<Terms, true>(queries, keys, state, scores, weights, room, scale, score);
    }

    template <class Storage>
    static TRACEA_NOINLINE void finish(int64_t rows, int64_t width, const State& state, Storage* out, int64_t out_row,
                                       int64_t out_column) {
        for (int64_t first = 0; first < rows; first += tile) {
            bool some = false;
            unroll<vectors>([&](auto v) TRACEA_LAMBDA {
                some = some ||
                       any(not_equal(load<V>(state.peaks + first + v * V::lanes), broadcast<V>(-__builtin_inff())));
            });
            float* sums = state.sums + first * width;
            if (!some) memset(sums, 0, static_cast<size_t>(tile * width) * sizeof(float));
        }
        Base::template store_rows<true>(rows, width, state, out, out_row, out_column);
    }

protected:
    // Raises peaks and adds to totals of a block of keys; Keeps: takes their values too.
    template <int Terms, bool Keeps, class Score>
    static TRACEA_INLINE void take_keys(const AmxQueries& queries, const AmxKeys& keys, const State& state,
                                        float* scores, bf16* weights, int64_t room, float scale, const Score& score) {
        const int64_t panels = (queries.rows + tile - 1) / tile;
        const int64_t width_tiles = Keeps ? (keys.width + tile - 1) / tile : 0;
        const AttentionQueries<float> places{nullptr,       queries.rows,  0,          queries.first, queries.behind,
                                             queries.ahead, queries.begin, queries.end};
        Panel on_way[3];
        const float factor = (std::is_same_v<Score, PlainScore> ? scale : 1.0F) * 1.44269504088896340736F;
        Products<Terms, Keeps> products({nullptr, factor, -126.0F / factor, AmxAsking(queries, keys)});
        for (int64_t p = 0; p < panels + 2; ++p) {
            Panel& scored = on_way[p % 3];
            Panel& weighed = on_way[(p + 2) % 3];  // the one before
            Panel& summed = on_way[(p + 1) % 3];   // and the one before that
            typename Base::Seen seen{};
            int64_t granules = 0;
            Scoring<Score> scoring(scored, seen, scale, score);
            const auto score_tile = [&]() TRACEA_LAMBDA { scoring.next(); };
            const bool scores_one = p < panels;
            if (scores_one) {
                scored.column = p * tile;
                scored.rows = queries.rows - scored.column < tile ? queries.rows - scored.column : tile;
                seen = Base::seen_by(places, scored.column, scored.rows, keys.first, keys.count);
                scored.first_key = seen.low;
                scored.last_key = seen.high;
                scored.low = first_tile(seen);
                scored.high = end_tile(seen);
                scored.scores = scores + p % 2 * room * tile;
                scored.weights = weights + p % 2 * (room / tile) * granule;
                scoring.begin(state);
                granules += (scored.high - scored.low) * queries.granules;
            }
            const bool weighs_one = p >= 1 && p <= panels && weighed.low < weighed.high;
            const bool sums_one = Keeps && p >= 2 && summed.low < summed.high;
            if (sums_one) granules += (summed.high - summed.low) * width_tiles;
            if (weighs_one) {
                products.work.panel = &weighed;
                products.give(weighed.low * kTileRows, weighed.high * kTileRows, granules);
            }
            if (scores_one) {
                multiply_rows<Terms>(products, scored.low, scored.high, seen, keys.keys, keys.key_pitch,
                                     queries.panels + p * queries.pitch, queries.granules, scored.scores, score_tile);
            }
            if constexpr (Keeps) {
                if (sums_one) multiply_values(products, summed, keys, width_tiles, state, score_tile);
            }
            products.finish();
            scoring.finish();
            if (weighs_one) {
                unroll<vectors>([&](auto v) TRACEA_LAMBDA {
                    float* total = state.totals + weighed.column + v * V::lanes;
                    store(total, add(load<V>(total), load<V>(weighed.total + v * V::lanes)));
                });
            }
            if (scores_one && scored.low < scored.high) settle(scored, state, products.work);
        }
    }

    // The tiles of 32 keys that a panel of queries meets.
    static TRACEA_INLINE int64_t first_tile(const typename Base::Seen& seen) { return seen.low / tile; }
    static TRACEA_INLINE int64_t end_tile(const typename Base::Seen& seen) {
        return seen.low < seen.high ? (seen.high + tile - 1) / tile : first_tile(seen);
    }

    // Tiles of products, from tile `low` on: rows of panels that lie `pitch` apart by one panel of queries. Where a mask's edge leaves no query of a half any key
    // of a half, their quarter of the tile stays zero. `beneath` is called under the products of each tile but the first.
    template <int Terms, class Work, class Beneath>
    static TRACEA_INLINE void multiply_rows(AmxProducts<Work>& products, int64_t low, int64_t high,
                                            const typename Base::Seen& seen, const bf16* rows, int64_t pitch,
                                            const bf16* queries, int64_t granules, float* to, const Beneath& beneath) {
        for (int64_t t = low; t < high; ++t, to += tile * tile) {
            const bf16* a = rows + t * pitch;
            const int hidden =
                t * tile <= seen.low_of_first ? 1 : (t * tile >= seen.high_of_first ? 2 : detail::kNoTile);
            products.begin();
            for (int64_t g = 0; g < granules; ++g) {
                const bf16* b = queries + g * granule;
                const bool is_safe = !is_unsafe(a + g * granule) && !is_unsafe(b);
                products.add_granule(a + g * granule, b, is_safe, 0, kGranule, hidden);
                if (g == 0 && t > low) beneath();
            }
            products.take(to);
        }
    }

    template <int Terms, class Beneath>
    static TRACEA_INLINE void multiply_values(Products<Terms, true>& products, const Panel& panel, const AmxKeys& keys,
                                              int64_t width_tiles, const State& state, const Beneath& beneath) {
        alignas(64) float sums[kAmxTile * kAmxTile];
        for (int64_t x = 0; x < width_tiles; ++x) {
            const bf16* a = keys.values + x * keys.value_pitch;
            products.begin();
            for (int64_t t = panel.low; t < panel.high; ++t) {
                const int64_t from = Base::clamp(panel.first_key - t * tile, 0, tile);
                const int64_t to = Base::clamp(panel.last_key - t * tile, 0, tile);
                products.add_granule(a + t * granule, panel.weights_of(t), !is_unsafe(a + t * granule), from, to);
                if (x == 0 && t == panel.low) beneath();
            }
            products.take(sums);
            const int64_t rows = keys.width - x * tile < tile ? keys.width - x * tile : tile;
            add_sums(sums, rows, panel, state.sums + panel.column * keys.width + x * tile * tile);
        }
    }

    static TRACEA_NOINLINE void add_sums(const float* sums, int64_t rows, const Panel& panel, float* target) {
        if (panel.is_first) {
            memcpy(target, sums, static_cast<size_t>(rows * tile) * sizeof(float));
            return;
        }
        unroll<vectors>([&](auto v) TRACEA_LAMBDA {
            const V worth = load<V>(panel.fade + v * V::lanes);
            for (int64_t i = v * V::lanes; i < rows * tile; i += tile)
                store(target + i, fma(load<V>(target + i), worth, load<V>(sums + i)));
        });
    }

    static TRACEA_INLINE void hide(float* scores, int64_t from, int64_t to) {
        for (int64_t i = from * tile; i < to * tile; i += V::lanes) store(scores + i, broadcast<V>(-__builtin_inff()));
    }

    // The scores of a panel as they count, and their peaks, a tile at a time.
    template <class Score>
    class Scoring {
    public:
        TRACEA_INLINE Scoring(Panel& panel, const typename Base::Seen& seen, float scale, const Score& score)
            : panel_(panel), seen_(seen), scale_(scale), score_(score) {}

        TRACEA_INLINE void begin(const State& state) {
            next_ = panel_.low;
            end_ = panel_.high;
            for (int64_t i = 0; i < tile; i += V::lanes)
                store(panel_.top + i, load<V>(state.peaks + panel_.column + i));
        }
        TRACEA_INLINE void next() {
            if (next_ < end_) piece();
        }
        TRACEA_INLINE void finish() {
            while (next_ < end_) piece();
        }

    private:
        TRACEA_NOINLINE void piece() {
            const int64_t first = next_++ * tile;
            const int64_t end = first + tile;
            float* scores = panel_.scores + (first - panel_.low * tile) * tile;
            typename Base::Seen seen = seen_;
            seen.low = first;  // the first row of scores
            const typename Base::Place place{panel_.column, panel_.rows};
            V peak[vectors];
            unroll<vectors>([&](auto v) TRACEA_LAMBDA { peak[v] = load<V>(panel_.top + v * V::lanes); });
            if (TRACEA_LIKELY(first >= seen.whole_low && end <= seen.whole_high)) {
                Base::template score_keys<false>(first, end, scores, seen, scale_, place, score_, peak);
            } else {
                const auto within = [&](int64_t key) TRACEA_LAMBDA { return Base::clamp(key, first, end); };
                const bool some = seen.whole_low < seen.whole_high;
                const int64_t low = within(seen_.low), high = within(seen.high);
                const int64_t whole_low = some ? within(seen.whole_low) : high;
                const int64_t whole_high = some ? within(seen.whole_high) : high;
                hide(scores, 0, low - first);
                Base::template score_keys<true>(low, whole_low, scores, seen, scale_, place, score_, peak);
                Base::template score_keys<false>(whole_low, whole_high, scores, seen, scale_, place, score_, peak);
                Base::template score_keys<true>(whole_high, high, scores, seen, scale_, place, score_, peak);
                hide(scores, high - first, tile);
            }
            unroll<vectors>([&](auto v) TRACEA_LAMBDA { store(panel_.top + v * V::lanes, peak[v]); });
        }
        Panel& panel_;
        const typename Base::Seen& seen_;
        float scale_;
        const Score& score_;
        int64_t next_ = 0;
        int64_t end_ = 0;
    };

    // What a panel's weights will be relative to.
    template <class Weighing>
    static TRACEA_NOINLINE void settle(Panel& panel, const State& state, const Weighing& weighing) {
        float* peaks = state.peaks + panel.column;
        V peak[vectors];
        unroll<vectors>([&](auto v) TRACEA_LAMBDA { peak[v] = load<V>(panel.top + v * V::lanes); });
        const V factor = broadcast<V>(weighing.factor);
        const V least = broadcast<V>(weighing.least);
        panel.is_first = true;
        unroll<vectors>([&](auto v) TRACEA_LAMBDA {
            constexpr int lane = v * V::lanes;
            panel.is_first = panel.is_first && !any(not_equal(load<V>(peaks + lane), broadcast<V>(-__builtin_inff())));
            const V top = select(equal(peak[v], broadcast<V>(-__builtin_inff())), zero<V>(), peak[v]);  // of no key
            const V fade = exp2_scaled_or_zero(sub(load<V>(peaks + lane), top), factor, least);
            store(panel.top + lane, top);
            store(panel.fade + lane, fade);
            float* total = state.totals + panel.column + lane;
            store(total, mul(load<V>(total), fade));
            store(panel.total + lane, zero<V>());
            store(peaks + lane, peak[v]);
        });
    }
};

TRACEA_END_NAMESPACE

#endif
