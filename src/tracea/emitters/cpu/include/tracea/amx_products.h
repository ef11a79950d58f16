// Sums of granules on matrix tiles (amx_granule.h) with other work underneath: the tiles multiply beside the vectors, which meanwhile make what the tiles need next.
// Work::reads_once: A is not read again soon, and leaves the first-level cache to the rest. Work::terms: of an element, 3, or fewer where the others are zero
// or too little to count.
//
//   AmxProducts<Work> products{work};
//   products.give(0, pieces, granules);       // work.piece(0) .. work.piece(pieces - 1) during the next so many granules
//   products.begin();                         // or resume(sums, stride)
//   products.add_granule(a, b, is_safe, 0, kGranule);
//   products.take(sums);                      // or leave(sums, stride)
//   products.finish();                        // what is left of the work
//
// A granule that the tiles cannot multiply is multiplied in float, into sums of its own.
#ifndef TRACEA_AMX_PRODUCTS_H
#define TRACEA_AMX_PRODUCTS_H

#include <stdint.h>
#include <string.h>

#include "tracea/amx.h"
#include "tracea/amx_granule.h"
#include "tracea/config.h"
#include "tracea/pack_terms.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

template <class Work>
class AmxProducts {
    using V = VecF;
    static constexpr int terms = Work::terms;
    static constexpr int every = terms;  // products from one piece of work to the next

public:
    Work work;

    TRACEA_INLINE explicit AmxProducts(const Work& first) : work(first) {}

    TRACEA_INLINE void give(int64_t first, int64_t last, int64_t granules) {
        next_ = first;
        last_ = last;
        share_ = granules > 0 ? (last - first + granules - 1) / granules : 0;
    }
    TRACEA_INLINE void finish() {
        while (next_ < last_) work.piece(next_++);
    }

    TRACEA_INLINE void begin() {
        detail::clear_sums(tiles_);
        some_apart_ = false;
    }
    // Goes on from sums that lie so many floats apart.
    TRACEA_INLINE void resume(const float* sums, int64_t stride) {
        tiles_.load<0>(sums, stride);
        tiles_.load<1>(sums + kTileColumns, stride);
        tiles_.load<2>(sums + kTileRows * stride, stride);
        tiles_.load<3>(sums + kTileRows * stride + kTileColumns, stride);
        some_apart_ = false;
    }
    // Of a granule that is multiplied in float the steps from `from` to `to` - 1 count. `hidden`: sums that nobody will read (amx_granule.h).
    TRACEA_INLINE void add_granule(const bf16* a, const bf16* b, bool is_safe, int64_t from, int64_t to,
                                   int hidden = detail::kNoTile) {
        const auto between = [&](auto slot) TRACEA_LAMBDA { errand<slot>(); };
        if (TRACEA_LIKELY(is_safe)) {
            detail::multiply_granule<terms, Work::reads_once>(tiles_, a, b, between, 2 * kTileElements, hidden);
        } else {
            if (!some_apart_) memset(apart_, 0, sizeof apart_);
            some_apart_ = true;
            add_steps(a, b, from, to, apart_);
        }
        if (++since_store_ % kAwakeGranules == 0) tiles_.store<7>(unread_, kTileColumns);
    }
    TRACEA_INLINE void take(float* sums) { detail::take_sums(tiles_, some_apart_, apart_, sums); }
    TRACEA_INLINE void leave(float* sums, int64_t stride) {
        detail::store_sums(tiles_, sums, stride);
        if (TRACEA_LIKELY(!some_apart_)) return;
        for (int i = 0; i < kAmxTile; ++i) {
            float* row = sums + i * stride;
            for (int j = 0; j < kAmxTile; j += V::lanes)
                store(row + j, add(load<V>(row + j), load<V>(apart_ + i * kAmxTile + j)));
        }
    }

private:
    template <int Slot>
    TRACEA_INLINE void errand() {
        if constexpr (Slot % every == every - 1) {
            if (Slot / every < share_ && next_ < last_) work.piece(next_++);
        }
    }
    static TRACEA_NOINLINE void add_steps(const bf16* a, const bf16* b, int64_t from, int64_t to, float* sums) {
        alignas(64) float a_values[kGranule * kGranule];
        alignas(64) float b_values[kGranule * kGranule];
        const float* x = detail::granule_values<3, false, terms>(a, a_values);
        const float* y = detail::granule_values<3, true, terms>(b, b_values);
        for (int i = 0; i < kAmxTile; ++i) {
            for (int j = 0; j < kAmxTile; j += V::lanes) {
                V sum = load<V>(sums + i * kAmxTile + j);
                for (int64_t k = from; k < to; ++k)
                    sum = fma(broadcast<V>(x[i * kGranule + k]), load<V>(y + k * kGranule + j), sum);
                store(sums + i * kAmxTile + j, sum);
            }
        }
    }

    TileRegisters tiles_;
    int64_t next_ = 0;
    int64_t last_ = 0;
    int64_t share_ = 0;  // of a granule
    int64_t since_store_ = 0;
    bool some_apart_ = false;
    alignas(64) float apart_[kAmxTile * kAmxTile];
    alignas(64) float unread_[kTileRows * kTileColumns];
};

TRACEA_END_NAMESPACE

#endif
