// Happens-before: who knows of whose events.
//
// Every thread counts its own epochs. An event is (agent, epoch); a later event is ordered after it if the thread that
// performs it knows of that epoch. Agents of a block are its threads, its mbarriers (whose phases stand for tile
// copies) and its warpgroups (whose groups stand for reads by the tensor cores). A barrier of the whole block is one
// number: all epochs up to `Block::synced` are known to all.
#pragma once
#include <stdint.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

namespace tracea::emulator {

using Clock = uint32_t;

// What a message from another block says of that block.
struct Snapshot {
    Clock synced = 0;
    std::vector<Clock> known;

    bool covers(uint32_t agent, Clock clock) const {
        return clock <= synced || (agent < known.size() && clock <= known[agent]);
    }
};

// Knowledge of other blocks; shared, and never changed once made.
struct Foreign {
    std::map<uint32_t, Snapshot> blocks;
};
using ForeignRef = std::shared_ptr<const Foreign>;

inline void raise(std::vector<Clock>& to, const std::vector<Clock>& from) {
    if (to.size() < from.size()) to.resize(from.size(), 0);
    Clock* __restrict target = to.data();
    const Clock* __restrict source = from.data();
    for (size_t i = 0, n = from.size(); i < n; ++i) target[i] = target[i] < source[i] ? source[i] : target[i];
}

inline ForeignRef join(const ForeignRef& a, const ForeignRef& b) {
    if (!b || a == b) return a;
    if (!a) return b;
    auto joined = std::make_shared<Foreign>(*a);
    for (const auto& [block, snapshot] : b->blocks) {
        Snapshot& mine = joined->blocks[block];
        mine.synced = std::max(mine.synced, snapshot.synced);
        raise(mine.known, snapshot.known);
    }
    return joined;
}

// What a synchronisation object carries from those who arrive to those who wait.
struct Message {
    std::vector<Clock> known;
    ForeignRef foreign;

    void clear() {
        known.clear();
        foreign.reset();
    }
};

}  // namespace tracea::emulator
