// Packing of filters of few channels for halo_windows.h: rows of taps, taps and channels are the steps of one granule (pack_terms.h).
//
//   pack_windows<3>(w, MergedSteps{{rows, columns, channels}, {row, column, channel}}, filter_stride, filters, granule);
#ifndef TRACEA_PACK_WINDOWS_H
#define TRACEA_PACK_WINDOWS_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/pack_terms.h"
#include "tracea/storage.h"

TRACEA_BEGIN_NAMESPACE

// Three axes that are one, the last the fastest: their extents, and how far apart their elements are.
struct MergedSteps {
    int64_t sizes[3];
    int64_t strides[3];
};

// At most 32 steps of at most 32 filters; the rest of the granule is zero.
template <int Terms, class Storage>
TRACEA_NOINLINE void pack_windows(const Storage* w, const MergedSteps& steps, int64_t filter_stride, int64_t filters,
                                  bf16* granule) {
    alignas(64) float values[kGranule * kGranule] = {};
    float* row = values;
    for (int64_t r = 0; r < steps.sizes[0]; ++r) {
        for (int64_t s = 0; s < steps.sizes[1]; ++s) {
            for (int64_t c = 0; c < steps.sizes[2]; ++c, row += kGranule) {
                const Storage* source = w + r * steps.strides[0] + s * steps.strides[1] + c * steps.strides[2];
                for (int64_t f = 0; f < filters; ++f) row[f] = to_float(source[f * filter_stride]);
            }
        }
    }
    const bool is_safe = detail::split_granule<Terms, true>(values, kGranule, granule, values);
    detail::settle_granule<Terms, true>(is_safe, values, kGranule, granule);
}

TRACEA_END_NAMESPACE

#endif
