// Gradients of attention on matrix tiles, from operands that are packed as sums of bf16 terms: attention_gradient.h by panels of 32 queries.
//
//   using Tile = AttentionGradientAmx;
//   Tile::start(rows, depth, {peaks, totals, sums});
//   Tile::peak<3>(queries, keys, state, scores, room, 0.125F, PlainScore{});   // for each block of keys: the first pass
//   Tile::begin(rows, width, grads, results, totals, deltas);                  // attention_gradient.h, of panels of floats
//   Tile::step<3>(queries, keys, room, 0.125F, PlainScore{}, PlainSlope{});    // for each block of keys
//   Tile::end(rows, depth, sums, out, out_row, out_col);
//
// With weights W and slopes D, keys by queries: S = K Q^T, W's gradients V G^T, the queries' K^T D (columns by queries), the keys' D Q and the values' W G.
// The last two sum over queries: weights and slopes of all panels are kept, as first factors, and multiplied when a block of keys has met them all. So S,
// V G^T and K^T D are multiplied with the weights and slopes of another panel underneath, as attention_amx.h does it, and D is split both ways.
//
// A slope is unsafe where it is beyond what terms hold, or where it is lost below them though its weight is not: 0 < |D| < 2^-90 and |D| < 2^-24 W. Smaller
// weights are no normal numbers and may be zero, and what their slopes lose is less than that (attention_gradient_meaning.py).
//
// Source: Dao, "FlashAttention-2", 2023, algorithm 2. Measured: benchmarks/NOTES.md, 2026-11-30.
#ifndef TRACEA_ATTENTION_GRADIENT_AMX_H
#define TRACEA_ATTENTION_GRADIENT_AMX_H

#include <stdint.h>

#include <type_traits>

#include "tracea/amx.h"
#include "tracea/amx_granule.h"
#include "tracea/amx_products.h"
#include "tracea/attention.h"
#include "tracea/attention_amx.h"
#include "tracea/attention_gradient.h"
#include "tracea/config.h"
#include "tracea/math.h"
#include "tracea/pack_terms.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// Panels of terms that lie so many elements apart.
struct AmxPanels {
    const bf16* panels;
    int64_t pitch;
};

// A block of queries: first factors are Q^T and G^T, second ones Q and G by their columns; peaks, totals' inverses and deltas are floats, a panel after the other.
struct AmxGradientQueries {
    AmxPanels queries;
    AmxPanels grads;
    AmxPanels query_columns;
    AmxPanels grad_columns;
    const float* peaks;
    const float* inverses;
    const float* deltas;
    float* sums;
    int64_t rows;
    int64_t depth;
    int64_t width;
    int64_t first;
    int64_t behind;
    int64_t ahead;
};

// A block of keys: K and V by rows, K^T by columns, and the sums of their gradients, rows that follow each other.
struct AmxGradientKeys {
    AmxPanels keys;
    AmxPanels values;
    AmxPanels key_columns;
    float* key_sums;
    float* value_sums;
    int64_t count;
    int64_t first;
};

// Room for `keys` keys, a multiple of 32: scores and slopes of two panels, 2 * keys * 32 floats each, weights and slopes of all panels and turned slopes of two
// as granules, keys / 32 a panel.
struct AmxGradientRoom {
    float* scores;
    float* slopes;
    bf16* weights;
    bf16* kept_slopes;
    bf16* turned_slopes;
    int64_t keys;
};

class AttentionGradientAmx : public AttentionAmx {
    using Rows = AttentionGradientTile<float, 1, vectors, 1>;

    // A panel on its way, and what its weights are relative to.
    struct Sloped {
        float* scores;
        float* slopes;
        bf16* weights;
        bf16* kept;
        bf16* turned;
        int64_t column;
        int64_t rows;
        int64_t low;
        int64_t high;
        Seen seen;
        alignas(64) float top[kAmxTile];
        alignas(64) float inverse[kAmxTile];
        alignas(64) float delta[kAmxTile];
    };

    // The weights and slopes of a panel: keys r and r + 16 of a tile at a time.
    template <int Terms, class Score, class Slope>
    struct Sloping {
        static constexpr int terms = Terms;
        static constexpr int64_t parts = 3;
        static constexpr bool reads_once = true;
        Sloped* panel;
        float scale;
        const Score& score;
        const Slope& slope;
        detail::SafeTerms range;

        // A tile has kTileRows * parts pieces: so short that no product waits for the vectors.
        TRACEA_NOINLINE void piece(int64_t index) {
            const int64_t t = index / (kTileRows * parts);
            const int64_t r = index / parts % kTileRows;
            const int64_t place = (t - panel->low) * tile * tile + r * tile;
            float* x = panel->scores + place;
            float* y = panel->slopes + place;
            const int64_t first = (t - panel->low) * granule + r * kTileWords;
            detail::SafeTerms unasked;
            switch (index % parts) {
                case 0:
                    if (r == 0) range = detail::SafeTerms();
                    weigh_both(t * tile + r, x, y);
                    break;
                case 1:
                    split_rows(x, panel->weights + first, unasked);
                    break;
                default:
                    split_rows(y, panel->kept + first, range);
                    detail::turn_words<terms>(panel->kept + first, panel->turned + first);
                    if (r + 1 == kTileRows && TRACEA_UNLIKELY(!range.holds())) keep(t);
            }
        }

        // Rows r and r + 16 as those of a first factor.
        static TRACEA_INLINE void split_rows(const float* row, bf16* to, detail::SafeTerms& seen) {
            detail::split<terms>(row, row + kTileColumns, to, seen);
            row += kTileRows * tile;
            detail::split<terms>(row, row + kTileColumns, to + kTileElements, seen);
        }

        TRACEA_INLINE void weigh_both(int64_t key, float* x, float* y) {
            const Seen& seen = panel->seen;
            if (key >= seen.whole_low && key + kTileRows < seen.whole_high) {
                weigh<false>(key, x, y);
                weigh<false>(key + kTileRows, x + kTileRows * tile, y + kTileRows * tile);
            } else {
                weigh<true>(key, x, y);
                weigh<true>(key + kTileRows, x + kTileRows * tile, y + kTileRows * tile);
            }
        }

        // A granule whose slopes terms may not hold.
        TRACEA_NOINLINE void keep(int64_t t) {
            const float* weights = panel->scores + (t - panel->low) * tile * tile;
            const float* slopes = panel->slopes + (t - panel->low) * tile * tile;
            const V none = zero<V>();
            bool lost = false;
            for (int64_t i = 0; i < tile * tile; i += V::lanes) {
                const V d = abs(load<V>(slopes + i));
                const V w = load<V>(weights + i);
                const Mask<V> small = mask_and(mask_and(less(none, d), less(d, broadcast<V>(0x1p-90F))),
                                               less(d, mul(w, broadcast<V>(0x1p-24F))));
                lost = lost || any(mask_or(small, not_less(d, broadcast<V>(0x1p60F))));
            }
            if (!lost) return;
            const int64_t first = (t - panel->low) * granule;
            detail::keep_values(weights, tile, panel->weights + first);
            detail::keep_values(slopes, tile, panel->kept + first);
            detail::keep_values(slopes, tile, panel->turned + first);
        }

        template <bool Hides>
        TRACEA_INLINE void weigh(int64_t key, float* x, float* y) {
            constexpr bool plain = std::is_same_v<Score, PlainScore>;
            const Seen& seen = panel->seen;
            int64_t first_seen = 0, last_seen = tile;
            if constexpr (Hides) {
                const bool met = key >= seen.low && key < seen.high;
                first_seen = key - seen.high_of_first;
                last_seen = met ? key - seen.low_of_first + 1 : 0;
                if (last_seen > panel->rows) last_seen = panel->rows;
                if (last_seen <= 0 || last_seen <= first_seen) {
                    unroll<vectors>([&](auto v) TRACEA_LAMBDA {
                        store(x + v * V::lanes, zero<V>());
                        store(y + v * V::lanes, zero<V>());
                    });
                    return;
                }
            }
            const float scaled = (plain ? scale : 1.0F) * 1.44269504088896340736F;
            const V factor = broadcast<V>(scaled);
            const V least = broadcast<V>(-126.0F / scaled);
            const V scaling = broadcast<V>(scale);
            unroll<vectors>([&](auto v) TRACEA_LAMBDA {
                constexpr int lane = v * V::lanes;
                const int64_t n = Base::clamp(panel->rows - lane, 0, V::lanes);
                const V raw = load<V>(x + lane);
                V scored = raw;
                if constexpr (!plain) scored = score(mul(raw, scaling), key, panel->column + lane, n);
                V weight = mul(exp2_scaled_or_zero(sub(scored, load<V>(panel->top + lane)), factor, least),
                               load<V>(panel->inverse + lane));
                V change = mul(mul(weight, sub(load<V>(y + lane), load<V>(panel->delta + lane))), scaling);
                if constexpr (!std::is_same_v<Slope, PlainSlope>)
                    change = mul(change, slope(mul(raw, scaling), key, panel->column + lane, n));
                if constexpr (Hides) {
                    const Mask<V> shown =
                        mask_and(lane_mask<V>(last_seen - lane), mask_not(lane_mask<V>(first_seen - lane)));
                    weight = select(shown, weight, zero<V>());
                    change = select(shown, change, zero<V>());
                }
                store(x + lane, weight);
                store(y + lane, change);
            });
        }
    };

public:
    // The first pass, of a block of keys: raises peaks and adds to totals. Terms as in attention_amx.h.
    template <int Terms, class Score>
    static TRACEA_NOINLINE void peak(const AmxQueries& queries, const AmxKeys& keys, const AttentionState<float>& state,
                                     float* scores, int64_t room, float scale, const Score& score) {
        take_keys<Terms, false>(queries, keys, state, scores, nullptr, room, scale, score);
    }

    static TRACEA_INLINE void start(int64_t rows, int64_t depth, const AttentionState<float>& state) {
        Rows::start(rows, depth, state);
    }
    static TRACEA_INLINE void begin(int64_t rows, int64_t width, const float* grads, const float* results,
                                    float* totals, float* deltas) {
        Rows::begin(rows, width, grads, results, totals, deltas);
    }
    template <class Storage>
    static TRACEA_INLINE void end(int64_t rows, int64_t depth, const float* sums, Storage* out, int64_t out_row,
                                  int64_t out_column) {
        Rows::end(rows, depth, sums, out, out_row, out_column);
    }

    // `score` as in attention.h; `slope` is its derivative, a function of the same.
    template <int Terms, class Score, class Slope>
    static TRACEA_NOINLINE void step(const AmxGradientQueries& queries, const AmxGradientKeys& keys,
                                     const AmxGradientRoom& room, float scale, const Score& score, const Slope& slope) {
        constexpr int64_t pieces = kTileRows * Sloping<Terms, Score, Slope>::parts;
        const int64_t panels = (queries.rows + tile - 1) / tile;
        const int64_t depth_tiles = (queries.depth + tile - 1) / tile;
        const int64_t width_tiles = (queries.width + tile - 1) / tile;
        Sloped on_way[3];
        AmxProducts<Sloping<Terms, Score, Slope>> products({nullptr, scale, score, slope, {}});
        for (int64_t p = 0; p < panels + 2; ++p) {
            Sloped& scored = on_way[p % 3];
            Sloped& sloped = on_way[(p + 2) % 3];  // the one before
            Sloped& summed = on_way[(p + 1) % 3];  // and the one before that
            const bool scores_one = p < panels;
            const bool slopes_one = p >= 1 && p <= panels && sloped.low < sloped.high;
            const bool sums_one = p >= 2 && summed.low < summed.high;
            int64_t granules = sums_one ? (summed.high - summed.low) * depth_tiles : 0;
            if (scores_one) {
                place(scored, p, queries, keys, room);
                granules += (scored.high - scored.low) * (depth_tiles + width_tiles);
            }
            if (slopes_one) {
                products.work.panel = &sloped;
                products.give(sloped.low * pieces, sloped.high * pieces, granules);
            }
            if (scores_one) {
                const auto nothing = [] {};
                multiply_rows<Terms>(products, scored.low, scored.high, scored.seen, keys.keys.panels, keys.keys.pitch,
                                     queries.queries.panels + p * queries.queries.pitch, depth_tiles, scored.scores,
                                     nothing);
                multiply_rows<Terms>(products, scored.low, scored.high, scored.seen, keys.values.panels,
                                     keys.values.pitch, queries.grads.panels + p * queries.grads.pitch, width_tiles,
                                     scored.slopes, nothing);
            }
            if (sums_one) add_to_queries<Terms>(products, summed, queries, keys, depth_tiles);
            products.finish();
        }
        for (int64_t t = 0; t * tile < keys.count; ++t) {
            add_to_keys<Terms>(products, t, queries, keys, room, room.weights, queries.grad_columns, keys.value_sums,
                               queries.width);
            add_to_keys<Terms>(products, t, queries, keys, room, room.kept_slopes, queries.query_columns, keys.key_sums,
                               queries.depth);
        }
    }

private:
    static TRACEA_INLINE Seen seen_by_panel(int64_t p, const AmxGradientQueries& queries, const AmxGradientKeys& keys) {
        const int64_t column = p * tile;
        const int64_t rows = queries.rows - column < tile ? queries.rows - column : tile;
        const AttentionQueries<float> places{nullptr,        queries.rows,  0, queries.first,
                                             queries.behind, queries.ahead, 0, queries.rows};
        return Base::seen_by(places, column, rows, keys.first, keys.count);
    }

    static TRACEA_NOINLINE void place(Sloped& panel, int64_t p, const AmxGradientQueries& queries,
                                      const AmxGradientKeys& keys, const AmxGradientRoom& room) {
        panel.seen = seen_by_panel(p, queries, keys);
        panel.column = p * tile;
        panel.rows = queries.rows - panel.column < tile ? queries.rows - panel.column : tile;
        panel.low = first_tile(panel.seen);
        panel.high = end_tile(panel.seen);
        if (panel.rows < tile) panel.seen.whole_low = panel.seen.whole_high = panel.seen.high;
        const int64_t granules = room.keys / tile * granule;
        panel.scores = room.scores + p % 2 * room.keys * tile;
        panel.slopes = room.slopes + p % 2 * room.keys * tile;
        panel.turned = room.turned_slopes + p % 2 * granules;
        panel.weights = room.weights + p * granules + panel.low * granule;
        panel.kept = room.kept_slopes + p * granules + panel.low * granule;
        unroll<vectors>([&](auto v) TRACEA_LAMBDA {
            constexpr int lane = v * V::lanes;
            const V peak = load<V>(queries.peaks + panel.column + lane);
            store(panel.top + lane, select(equal(peak, broadcast<V>(-__builtin_inff())), zero<V>(), peak));
            store(panel.inverse + lane, load<V>(queries.inverses + panel.column + lane));
            store(panel.delta + lane, load<V>(queries.deltas + panel.column + lane));
        });
    }

    // sums[d][i] += the sum over keys j of K[j][d] * D[j][i].
    template <int Terms, class Work>
    static TRACEA_INLINE void add_to_queries(AmxProducts<Work>& products, const Sloped& panel,
                                             const AmxGradientQueries& queries, const AmxGradientKeys& keys,
                                             int64_t depth_tiles) {
        alignas(64) float rest[kAmxTile * kAmxTile];
        for (int64_t x = 0; x < depth_tiles; ++x) {
            const bf16* a = keys.key_columns.panels + x * keys.key_columns.pitch;
            float* sums = queries.sums + panel.column * queries.depth + x * tile * tile;
            const int64_t rows = queries.depth - x * tile < tile ? queries.depth - x * tile : tile;
            if (rows == tile) {
                products.resume(sums, tile);
            } else {
                products.begin();
            }
            for (int64_t t = panel.low; t < panel.high; ++t) {
                const int64_t from = Base::clamp(panel.seen.low - t * tile, 0, tile);
                const int64_t to = Base::clamp(panel.seen.high - t * tile, 0, tile);
                const bf16* b = panel.turned + (t - panel.low) * granule;
                products.add_granule(a + t * granule, b, !is_unsafe(a + t * granule) && !is_unsafe(b), from, to);
            }
            if (rows == tile) {
                products.leave(sums, tile);
            } else {
                products.take(rest);
                for (int64_t i = 0; i < rows * tile; i += V::lanes)
                    store(sums + i, add(load<V>(sums + i), load<V>(rest + i)));
            }
        }
    }

    // sums[j][x] += the sum over queries i of W[j][i] * columns[i][x], of the keys of tile t.
    template <int Terms, class Work>
    static TRACEA_INLINE void add_to_keys(AmxProducts<Work>& products, int64_t t, const AmxGradientQueries& queries,
                                          const AmxGradientKeys& keys, const AmxGradientRoom& room, const bf16* factors,
                                          const AmxPanels& columns, float* sums, int64_t width) {
        alignas(64) float rest[kAmxTile * kAmxTile];
        const int64_t panels = (queries.rows + tile - 1) / tile;
        const int64_t rows = keys.count - t * tile < tile ? keys.count - t * tile : tile;
        for (int64_t x = 0; x * tile < width; ++x) {
            const int64_t lanes = width - x * tile < tile ? width - x * tile : tile;
            float* to = sums + t * tile * width + x * tile;
            const bool whole = rows == tile && lanes == tile;
            if (whole) {
                products.resume(to, width);
            } else {
                products.begin();
            }
            for (int64_t p = 0; p < panels; ++p) {
                const Seen seen = seen_by_panel(p, queries, keys);
                if (t < first_tile(seen) || t >= end_tile(seen)) continue;
                const bf16* a = factors + (p * (room.keys / tile) + t) * granule;
                const bf16* b = columns.panels + x * columns.pitch + p * granule;
                const int64_t last = queries.rows - p * tile < tile ? queries.rows - p * tile : tile;
                products.add_granule(a, b, !is_unsafe(a) && !is_unsafe(b), 0, last);
            }
            if (whole) {
                products.leave(to, width);
                continue;
            }
            products.take(rest);
            for (int64_t i = 0; i < rows; ++i)
                for (int64_t j = 0; j < lanes; ++j) to[i * width + j] += rest[i * tile + j];
        }
    }
};

TRACEA_END_NAMESPACE

#endif
