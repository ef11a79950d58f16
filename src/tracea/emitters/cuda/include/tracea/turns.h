// The walk of a persistent block over its tiles.
#ifndef TRACEA_TURNS_H
#define TRACEA_TURNS_H

#include "tracea/primitives.h"

namespace tracea {

// The whole tiles of one persistent worker, of its turns one share; uses run on over turns (semantic.nodes_async.TileLoop).
struct Turns {
    int64_t worker, workers, tiles, steps, shares, following;
    int32_t tile = 0, turn = 0, first = 0;

    TRACEA_DEVICE Turns(int64_t worker_number, int64_t worker_count, int64_t tile_count, int64_t tile_steps,
                        int64_t share, int64_t share_count)
        : worker(worker_number),
          workers(worker_count),
          tiles(tile_count),
          steps(tile_steps),
          shares(share_count),
          following(share) {}

    TRACEA_DEVICE bool next() {
        const int64_t place = worker + following * workers;
        if (place >= tiles) return false;
        tile = static_cast<int32_t>(place);
        turn = static_cast<int32_t>(following);
        const int64_t step = following * steps;  // a launch keeps tiles * steps within 31 bits
        first = static_cast<int32_t>(step);
        following += shares;
        return true;
    }
};

}  // namespace tracea

#endif
