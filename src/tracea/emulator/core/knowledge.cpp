// Who knows of whose epochs, and how barriers, messages and flags pass that on (clock.h says what it means).
#include <algorithm>

#include "machine.h"

namespace tracea::emulator {

bool Machine::knows(const Lane& lane, uint32_t block, uint32_t agent, Clock clock) const {
    if (block != lane.block) {
        if (!lane.foreign) return false;
        const auto found = lane.foreign->blocks.find(block);
        return found != lane.foreign->blocks.end() && found->second.covers(agent, clock);
    }
    if (agent == lane.thread) return clock <= lane.clock;
    const Block& own = *lane.owner;
    const uint32_t threads = options.threads;
    if (clock <= (agent < threads ? own.synced : own.agents_synced[agent - threads])) return true;
    return lane.era == own.era && clock <= lane.known[agent];
}

std::vector<Clock>& Machine::row(Lane& lane) {
    if (lane.era != lane.owner->era) {
        lane.known.assign(lane.owner->agents, 0);
        lane.era = lane.owner->era;
    }
    return lane.known;
}

void Machine::publish(Lane& lane, Message& message) {
    std::vector<Clock>& known = row(lane);
    known[lane.thread] = lane.clock++;
    raise(message.known, known);
    message.foreign = join(message.foreign, lane.foreign);
}

void Machine::receive(Lane& lane, const Message& message) {
    if (!message.known.empty()) raise(row(lane), message.known);
    lane.foreign = join(lane.foreign, message.foreign);
}

ForeignRef Machine::everything(Lane& lane) {
    auto all = lane.foreign ? std::make_shared<Foreign>(*lane.foreign) : std::make_shared<Foreign>();
    std::vector<Clock>& known = row(lane);
    known[lane.thread] = lane.clock;
    Snapshot& own = all->blocks[lane.block];
    own.synced = lane.owner->synced;
    own.known = known;
    for (size_t i = 0; i < lane.owner->agents_synced.size(); ++i) {
        Clock& clock = own.known[options.threads + i];
        clock = std::max(clock, lane.owner->agents_synced[i]);
    }
    ++lane.clock;
    return all;
}

void Machine::acquire(Lane& lane, const ForeignRef& released) {
    if (!released) return;
    lane.foreign = join(lane.foreign, released);
    const auto own = released->blocks.find(lane.block);
    if (own != released->blocks.end()) raise(row(lane), own->second.known);
}

void Machine::full_barrier(Block& block) {
    Clock latest = block.synced;
    ForeignRef foreign;
    const uint32_t threads = options.threads;
    for (const Lane& lane : block.lanes) {
        latest = std::max(latest, lane.clock);
        foreign = join(foreign, lane.foreign);
        if (lane.era != block.era) continue;
        for (size_t i = 0; i < block.agents_synced.size(); ++i) {
            block.agents_synced[i] = std::max(block.agents_synced[i], lane.known[threads + i]);
        }
    }
    block.synced = latest;
    ++block.era;
    for (Lane& lane : block.lanes) {
        lane.clock = latest + 1;
        lane.foreign = foreign;
    }
}

void Machine::warp_barrier(Warp& warp) {
    Message message;
    Clock latest = 0;
    for (uint32_t i = 0; i < WARP; ++i) {
        publish(warp.lanes[i], message);
        latest = std::max(latest, warp.lanes[i].clock);
    }
    for (uint32_t i = 0; i < WARP; ++i) {
        receive(warp.lanes[i], message);
        warp.lanes[i].clock = latest;  // equal epochs, so that readers of one warp share an entry
    }
}

}  // namespace tracea::emulator
