// mbarriers: a phase ends when its arrivals and its bytes have come; who waits then knows what those who arrived knew.
//
// A wait names the parity of a phase, and an arrival names none at all: which phase they mean is decided by when they
// come. Two rules make that the same under every schedule, and they are judged by what threads know, not by the schedule
// that is run. (1) A phase ends only after every wait for the one before: of each such wait some arrival of the phase
// knows, or the copy of some of its bytes. Else the wait may come too late, see the parity that it waits for to end, and
// wait for a phase that perhaps never does. (2) Who arrives knows that the phase before is over: else the arrival may
// count for that one. A kernel that keeps them and stops under no deadlock in one schedule does so in none.
#include "mbarrier.h"

namespace tracea::emulator {

Mbarrier* find_mbarrier(Lane& lane, uint32_t address, Site site) {
    if (!in_shared(lane, address, 8, 8, site)) return nullptr;
    const auto found = lane.owner->mbarriers.find(address);
    if (found == lane.owner->mbarriers.end()) {
        machine.report("mbarrier used before its initialisation", site)
            .say("byte %u by thread %u", address, lane.thread);
        return nullptr;
    }
    Mbarrier& barrier = found->second;
    if (!machine.knows(lane, lane.block, barrier.initialised_by, barrier.initialised_clock)) {
        machine.report("race: mbarrier used before its initialisation is visible", site, barrier.site)
            .say("byte %u by thread %u, initialised by thread %u", address, lane.thread, barrier.initialised_by);
    }
    return &barrier;
}

void note_progress(Mbarrier& barrier, const Lane& lane) {
    std::erase_if(barrier.passed, [&](const Step& wait) {
        return wait.thread == lane.thread ? wait.clock <= lane.clock
                                          : machine.knows(lane, lane.block, wait.thread, wait.clock);
    });
}

void settle(Mbarrier& barrier) {
    if (barrier.missing != 0 || barrier.bytes != 0) return;
    for (const Step& wait : barrier.passed) {
        if (barrier.arrivals.empty()) break;
        machine
            .report("race: mbarrier phase may end before a wait for the one before", barrier.arrivals.back().site,
                    wait.site)
            .say(
                "phase %u of the mbarrier at byte %u ends with the arrival of thread %u, which does not come after the "
                "wait "
                "of thread %u for phase %lld: that one may find the next phase, of the same parity, and wait for ever",
                barrier.completed, barrier.address, barrier.arrivals.back().thread, wait.thread,
                static_cast<long long>(barrier.completed) - 1);
        break;  // one of them says it
    }
    barrier.passed.clear();
    barrier.arrivals_before = std::move(barrier.arrivals);
    barrier.arrivals.clear();
    barrier.announced_before = barrier.announced;
    barrier.announced = false;
    ++barrier.completed;
    barrier.missing = barrier.count;
    barrier.published = barrier.gathering;
    std::vector<std::pair<Lane*, uint32_t>> left;
    for (const auto& [lane, parity] : barrier.waiting) {
        if ((barrier.completed & 1) != parity) {
            if (barrier.judged) barrier.passed.push_back({lane->thread, lane->clock, lane->site});
            machine.wake(*lane);
        } else {
            left.push_back({lane, parity});
        }
    }
    barrier.waiting = std::move(left);
}

namespace {

// How many phases of a barrier a lane knows to be over.
uint32_t known_phases(const Mbarrier& barrier, const Lane& lane) {
    const Block& block = *lane.owner;
    const Clock all = block.agents_synced[barrier.agent - machine.options.threads];
    return lane.era == block.era ? std::max(all, lane.known[barrier.agent]) : all;
}

// Rule 2, of an arrival in the phase that is open.
void check_arrival(const Mbarrier& barrier, const Lane& lane, Site site) {
    if (!barrier.judged || known_phases(barrier, lane) >= barrier.completed) return;
    const Step* unknown = nullptr;
    for (const Step& arrival : barrier.arrivals_before) {
        if (arrival.thread == lane.thread || machine.knows(lane, lane.block, arrival.thread, arrival.clock)) continue;
        unknown = &arrival;
    }
    if (unknown == nullptr && !barrier.announced_before) return;
    machine
        .report("race: mbarrier arrival may count for the phase before", site, unknown != nullptr ? unknown->site : 0)
        .say("thread %u arrives at the mbarrier at byte %u in phase %u, and does not know that the one before is over",
             lane.thread, barrier.address, barrier.completed);
}

// Rule 1, of a wait that begins: the phase that it means, as far as its lane knows, is not followed by another that ended.
void check_wait(const Mbarrier& barrier, const Lane& lane, uint32_t parity, Site site) {
    const uint32_t known = known_phases(barrier, lane);
    const int64_t meant = (known & 1) != parity ? static_cast<int64_t>(known) - 1 : static_cast<int64_t>(known);
    if (!barrier.judged || barrier.completed < meant + 2) return;
    machine.report("race: mbarrier phase may end before a wait for the one before", site)
        .say(
            "thread %u waits for parity %u of the mbarrier at byte %u; it knows of %u phases that are over, and means "
            "phase "
            "%lld, but already %u are over",
            lane.thread, parity, barrier.address, known, static_cast<long long>(meant), barrier.completed);
}

void mbarrier_init(uint32_t address, uint32_t count, int at) {
    const Site site = machine.enter(Primitive::MBARRIER_INIT, at);
    Lane& lane = *machine.current;
    if (!in_shared(lane, address, 8, 8, site)) return;
    Block& block = *lane.owner;
    if (block.mbarriers.count(address) != 0) {
        machine.report("mbarrier initialised twice", site, block.mbarriers[address].site)
            .say("byte %u by thread %u", address, lane.thread);
        return;
    }
    if (count == 0 || count >= 1u << 20 || block.mbarriers.size() == MBARRIERS) {
        machine.report("invalid operand", site)
            .say("mbarrier %zu of %u arrivals: at most %u barriers, 1 to %u arrivals", block.mbarriers.size(), count,
                 MBARRIERS, (1u << 20) - 1);
        return;
    }
    block.shadow.write(address, 8, lane, site);
    for (uint32_t i = 0; i < 8; i += block.shadow.granule) block.shadow.at(address + i).flags |= Cell::MBARRIER;
    Mbarrier barrier;
    barrier.address = address;
    barrier.count = barrier.missing = count;
    barrier.agent = machine.options.threads + static_cast<uint32_t>(block.mbarriers.size());
    barrier.initialised_by = lane.thread;
    barrier.initialised_clock = lane.clock;
    barrier.site = site;
    block.mbarriers.emplace(address, std::move(barrier));
}

void mbarrier_fence_init(int at) {
    const Site site = machine.enter(Primitive::MBARRIER_FENCE_INIT, at);
    if (machine.elided(site)) return;
    const Lane& lane = *machine.current;
    for (auto& entry : lane.owner->mbarriers) {
        if (entry.second.initialised_by == lane.thread) entry.second.fenced = true;
    }
}

void mbarrier_arrive(uint32_t address, uint32_t bytes, bool expects, int at) {
    const Site site = machine.enter(expects ? Primitive::MBARRIER_ARRIVE_EXPECT : Primitive::MBARRIER_ARRIVE, at);
    machine.yield();
    Lane& lane = *machine.current;
    Mbarrier* barrier = find_mbarrier(lane, address, site);
    if (barrier == nullptr) return;
    if (barrier->missing == 0) {
        machine.report("mbarrier overrun", site)
            .say("byte %u: thread %u arrives, but the phase has all its %u arrivals and lacks %lld bytes", address,
                 lane.thread, barrier->count, static_cast<long long>(barrier->bytes));
        return;
    }
    check_arrival(*barrier, lane, site);
    note_progress(*barrier, lane);
    barrier->arrivals.push_back({lane.thread, lane.clock, site});
    barrier->announced = barrier->announced || expects;
    machine.publish(lane, barrier->gathering);
    barrier->bytes += bytes;
    --barrier->missing;
    settle(*barrier);
}

void mbarrier_wait(uint32_t address, uint32_t parity, int at) {
    const Site site = machine.enter(Primitive::MBARRIER_WAIT, at);
    machine.yield();
    Lane& lane = *machine.current;
    Mbarrier* barrier = find_mbarrier(lane, address, site);
    if (barrier == nullptr) return;
    if (parity > 1) {
        machine.report("invalid operand", site).say("parity %u by thread %u", parity, lane.thread);
        parity &= 1;
    }
    if (machine.elided(site)) barrier->judged = false;  // who does not learn of phases says nothing of which it means
    check_wait(*barrier, lane, parity, site);
    if ((barrier->completed & 1) == parity) {
        barrier->waiting.push_back({&lane, parity});
        machine.wait("phase parity " + std::to_string(parity) + " of the mbarrier at byte " + std::to_string(address));
    } else if (barrier->judged) {
        barrier->passed.push_back({lane.thread, lane.clock, site});
    }
    if (machine.elided(site)) return;
    machine.receive(lane, barrier->published);
    Clock& phases = machine.row(lane)[barrier->agent];
    if (phases < barrier->completed) phases = barrier->completed;
}

}  // namespace

std::string describe(const Block& block) {
    std::string text;
    for (const auto& [address, barrier] : block.mbarriers) {
        if (barrier.waiting.empty()) continue;
        text += "block " + std::to_string(block.index) + ": the mbarrier at byte " + std::to_string(address) +
                ", phase " + std::to_string(barrier.completed) + ", lacks " + std::to_string(barrier.missing) + " of " +
                std::to_string(barrier.count) + " arrivals and " + std::to_string(barrier.bytes) + " bytes; ";
    }
    return text;
}

void check_end(Block& block) {
    for (const auto& [address, barrier] : block.mbarriers) {
        if (barrier.bytes != 0) {
            machine.findings.add("mbarrier byte count", barrier.site, 0, &block.lanes[barrier.initialised_by])
                .say("block %u ends while the mbarrier at byte %u has %lld bytes more announced than landed",
                     block.index, address, static_cast<long long>(barrier.bytes));
        }
        if (barrier.missing != barrier.count) {
            machine.findings
                .add("mbarrier phase left unfinished", barrier.site, 0, &block.lanes[barrier.initialised_by])
                .say("block %u ends while phase %u of the mbarrier at byte %u lacks %u of its %u arrivals", block.index,
                     barrier.completed, address, barrier.missing, barrier.count);
        }
    }
    for (size_t i = 0; i < block.warpgroups.size(); ++i) {
        const Warpgroup& group = block.warpgroups[i];
        if (group.accumulators.empty()) continue;
        const Site site = group.operations.empty() ? Site{0} : group.operations.front().site;
        machine.findings.add("thread ends with a matrix operation under way", site, 0, &block.lanes[i * WARPGROUP])
            .say("warpgroup %zu of block %u", i, block.index);
    }
}

void bind_mbarriers(Core& table) {
    table.mbarrier_init = mbarrier_init;
    table.mbarrier_fence_init = mbarrier_fence_init;
    table.mbarrier_arrive = mbarrier_arrive;
    table.mbarrier_wait = mbarrier_wait;
}

}  // namespace tracea::emulator
