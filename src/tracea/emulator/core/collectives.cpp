// Barriers of the block, the warp and a number of warps; shuffles; the election of a lane; registers of a warpgroup.
#include "machine.h"

namespace tracea::emulator {
namespace {

// A warp comes to a barrier; the last one lets all who wait through.
void arrive(Warp& warp, uint32_t id, uint32_t expected, bool wait, Site site) {
    Block& block = *warp.block;
    NamedBarrier& barrier = block.barriers[id];
    const std::string what = id == 0 ? "sync_block" : "named barrier " + std::to_string(id);
    if (barrier.arrived != 0 && barrier.expected != expected) {
        machine.report("barrier with two thread counts", site, barrier.site)
            .say("barrier %u: %u threads here, %u at the other", id, expected, barrier.expected);
    }
    barrier.expected = expected;
    barrier.site = site;
    barrier.arrived += WARP;
    const bool whole = expected == machine.options.threads;
    const bool orders = !machine.elided(site);
    if (!wait) barrier.only_waits = false;
    if (orders && (!wait || !whole)) {
        for (uint32_t i = 0; i < WARP; ++i) machine.publish(warp.lanes[i], barrier.message);
    }
    if (wait) barrier.waiting.push_back(&warp);
    if (barrier.arrived < expected) {
        if (wait) machine.hold(warp, what + " (" + std::to_string(expected) + " threads)");
        return;
    }
    if (barrier.arrived > expected) {
        machine.report("barrier overrun", site)
            .say("barrier %u: %u threads came, %u expected", id, barrier.arrived, expected);
    }
    NamedBarrier done;
    std::swap(done, barrier);
    if (whole && done.only_waits) {
        if (orders) machine.full_barrier(block);
    } else if (orders) {
        if (whole) {
            for (Warp* each : done.waiting) {
                for (uint32_t i = 0; i < WARP; ++i) machine.publish(each->lanes[i], done.message);
            }
        }
        for (Warp* each : done.waiting) {
            for (uint32_t i = 0; i < WARP; ++i) machine.receive(each->lanes[i], done.message);
        }
    }
    for (Warp* each : done.waiting) {
        if (machine.options.statistics) machine.statistics.flush(*each);
        machine.release(*each);
    }
}

void sync_block(int at) {
    machine.collective(Primitive::SYNC_BLOCK, at, nullptr,
                       [](Warp& warp, Site site) { arrive(warp, 0, machine.options.threads, true, site); });
}

void sync_warp(int at) {
    machine.collective(Primitive::SYNC_WARP, at, nullptr, [](Warp& warp, Site site) {
        if (!machine.elided(site)) machine.warp_barrier(warp);
    });
}

void named_barrier(uint32_t id, uint32_t threads, bool wait, int at) {
    const Primitive which = wait ? Primitive::NAMED_BARRIER_SYNC : Primitive::NAMED_BARRIER_ARRIVE;
    uint32_t operands[2] = {id, threads};
    machine.collective(which, at, operands, [wait](Warp& warp, Site site) {
        const uint32_t* first = static_cast<const uint32_t*>(warp.lanes[0].operands);
        for (uint32_t i = 1; i < WARP; ++i) {
            const uint32_t* other = static_cast<const uint32_t*>(warp.lanes[i].operands);
            if (other[0] == first[0] && other[1] == first[1]) continue;
            machine.report("divergence at a collective", site)
                .say("lanes 0 and %u of warp %u come to barriers %u and %u", i, warp.index, first[0], other[0]);
            machine.abort_run();
        }
        if (first[0] == 0 || first[0] >= NAMED_BARRIERS || first[1] == 0 || first[1] % WARP != 0 ||
            first[1] > machine.options.threads) {
            machine.report("invalid operand", site)
                .say("barrier %u of %u threads: ids are 1 to 15, threads a multiple of 32 up to the block's %u",
                     first[0], first[1], machine.options.threads);
            machine.abort_run();
        }
        arrive(warp, first[0], first[1], wait, site);
    });
}

struct Exchange {
    uint32_t value, operand, result;
};

uint32_t shuffle(uint32_t value, uint32_t operand, Primitive how, int at) {
    Exchange exchange{value, operand, 0};
    machine.collective(how, at, &exchange, [how](Warp& warp, Site) {
        for (uint32_t i = 0; i < WARP; ++i) {
            auto* mine = static_cast<Exchange*>(warp.lanes[i].operands);
            // As shfl does: only five bits of the operand count.
            const uint32_t from = (how == Primitive::SHUFFLE_XOR ? i ^ mine->operand : mine->operand) % WARP;
            mine->result = static_cast<Exchange*>(warp.lanes[from].operands)->value;
        }
    });
    return exchange.result;
}

bool elect_one(int at) {
    uint32_t elected = 0;
    machine.collective(Primitive::ELECT_ONE, at, &elected, [](Warp& warp, Site) {
        // Which lane is not promised, only that it is always the same.
        const uint64_t mixed = (machine.options.seed + 1) * 0x9e3779b97f4a7c15u + warp.index * 0x2545f4914f6cdd1du;
        const uint32_t lane = machine.options.seed == 0 ? 0 : static_cast<uint32_t>(mixed >> 59);
        *static_cast<uint32_t*>(warp.lanes[lane].operands) = 1;
    });
    return elected != 0;
}

// The four warps of a warpgroup ask one by one; the request counts when the last has come.
void grant(Block& block) {
    for (Warpgroup& group : block.warpgroups) {
        if (group.waiting_for_registers.size() < WARPGROUP) continue;
        const uint32_t more = (group.wanted - group.registers) * WARPGROUP;
        if (more > block.free_registers) continue;
        block.free_registers -= more;
        group.registers = group.wanted;
        for (Lane* lane : group.waiting_for_registers) machine.wake(*lane);
        group.waiting_for_registers.clear();
    }
}

void set_registers(uint32_t registers, bool increase, int at) {
    uint32_t operand = registers;
    machine.collective(Primitive::SETMAXNREG, at, &operand, [increase](Warp& warp, Site site) {
        Block& block = *warp.block;
        uint32_t wanted = *static_cast<const uint32_t*>(warp.lanes[0].operands);
        if (warp.index / 4 >= block.warpgroups.size()) {
            machine.report("invalid operand", site).say("warp %u belongs to no whole warpgroup", warp.index);
            return;
        }
        Warpgroup& group = block.warpgroups[warp.index / 4];
        if (group.arrived != 0 && group.meeting != site) {
            machine.report("divergence at a collective", site, group.meeting)
                .say("warp %u: the warps of one warpgroup are at two setmaxnreg", warp.index);
            machine.abort_run();
        }
        group.meeting = site;
        group.wanted = wanted;
        for (uint32_t i = 0; i < WARP; ++i) group.waiting_for_registers.push_back(&warp.lanes[i]);
        machine.hold(warp,
                     "setmaxnreg: the other warps of its warpgroup, and " + std::to_string(wanted) + " registers");
        if (group.waiting_for_registers.size() < WARPGROUP) return;
        // What a thread begins with is the compiler's choice; `registers` is the most that it can be.
        if (!increase && wanted > group.registers) {
            machine.report("invalid operand", site)
                .say("setmaxnreg_dec to %u registers where the warpgroup has at most %u", wanted, group.registers);
        }
        const bool impossible = !increase && wanted > group.registers;
        if (wanted <= group.registers || impossible) {
            if (impossible) wanted = group.registers;
            block.free_registers += (group.registers - wanted) * WARPGROUP;
            group.registers = wanted;
            for (Lane* lane : group.waiting_for_registers) machine.wake(*lane);
            group.waiting_for_registers.clear();
        }
        grant(block);
    });
}

}  // namespace

void bind_collectives(Core& table) {
    table.sync_block = sync_block;
    table.sync_warp = sync_warp;
    table.named_barrier = named_barrier;
    table.shuffle = shuffle;
    table.elect_one = elect_one;
    table.set_registers = set_registers;
}

}  // namespace tracea::emulator
