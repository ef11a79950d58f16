// Who runs next. A fiber runs until it must wait; then another lane of its warp, another warp, another block. Only when
// no fiber can run does the copy engine get to work, as late as the contract of a copy allows; then a further block is
// started; and if even that is impossible the kernel is in a deadlock.
#include <string.h>

#include "machine.h"

namespace tracea::emulator {
namespace {

constexpr uint32_t POLLS_IN_VAIN = 1000;  // of one thread, while nobody else can run

}  // namespace

Machine machine;

void fiber_main() {
    machine.kernel_(machine.arguments_);
    machine.finish_fiber();
}

uint32_t Machine::random(uint32_t below) {
    rng_ = rng_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>((rng_ >> 33) % below);
}

Site Machine::enter(Primitive primitive, int at) {
    Lane& lane = *current;
    if (--lane.budget < 0) exhausted();
    const Site site = findings.intern(primitive, lane.line, at);
    ++findings.sites[site].count;
    lane.site = site;
    if (lane.visits.size() <= site) lane.visits.resize(site + 16u, 0);
    ++lane.visits[site];
    if (elided_ == 0 && options.elided_primitive != nullptr) {
        const Place& place = findings.sites[site];
        if (place.line == options.elided_line && place.at == options.elided_at &&
            strcmp(name_of(place.primitive), options.elided_primitive) == 0) {
            elided_ = site;
        }
    }
    return site;
}

// ------------------------------------------------------------------------------------------------- switching
void Machine::go(Lane* next) {
    Lane* previous = current;
    current = next;
    table.face = next;
    if (previous != next) tracea_emulator_switch(&previous->stack, next->stack);
}

void Machine::stop() {
    void* abandoned;
    Lane* previous = current;
    current = nullptr;
    tracea_emulator_switch(previous != nullptr ? &previous->stack : &abandoned, main_stack_);
    __builtin_unreachable();
}

void Machine::abort_run() {
    aborted_ = true;
    stop();
}

void Machine::wait(std::string what) {
    current->waits_for = std::move(what);
    current->state = State::WAITING;
    leave();
}

void Machine::leave() {
    Warp& warp = *current->warp;
    warp.ready &= ~(1u << current->index);
    if (warp.ready == 0) warp.block->ready_warps &= ~(1u << warp.index);
    Lane* next = choose();
    if (next == nullptr) {
        deadlock();
        abort_run();
    }
    go(next);
}

void Machine::wake(Lane& lane) {
    ++progress_;
    lane.state = State::READY;
    lane.warp->ready |= 1u << lane.index;
    lane.owner->ready_warps |= 1u << lane.warp->index;
}

void Machine::yield() {
    if (options.seed < 2 || random(4) != 0) return;
    // The lane stays ready: another one goes first.
    Lane* next = choose();
    if (next != nullptr) go(next);
}

void Machine::wake_pollers(uint64_t address) {
    const auto found = pollers_.find(address);
    if (found == pollers_.end()) return;
    for (Lane* lane : found->second) wake(*lane);
    pollers_.erase(found);
}

void Machine::poll(uint64_t address) {
    pollers_[address].push_back(current);
    wait("another value of a flag");
}

// A flag that keeps its value may still let its poller go on, if that only looked twice: try, but not for ever.
bool Machine::wake_one_poller() {
    for (auto& [address, lanes] : pollers_) {
        for (size_t i = 0; i < lanes.size(); ++i) {
            Lane& lane = *lanes[i];
            if (lane.polled_at != progress_) lane.polled_in_vain = 0;
            if (lane.polled_in_vain > POLLS_IN_VAIN) continue;
            lanes.erase(lanes.begin() + static_cast<ptrdiff_t>(i));
            ++lane.polled_in_vain;
            wake(lane);
            lane.polled_at = --progress_;  // being asked again is no progress
            return true;
        }
    }
    return false;
}

Lane* Machine::choose() {
    if (!transfers_.empty() && options.seed % 2 == 1 && random(4) == 0) step_transfer();
    for (;;) {
        Warp& warp = *current->warp;
        const uint32_t others = warp.ready & ~(1u << current->index);
        if (others != 0) {  // the next lane of the same warp, in rotation
            const uint32_t above = others & ~((2u << current->index) - 1);
            return &warp.lanes[__builtin_ctz(above != 0 ? above : others)];
        }
        Block* block = current->owner;
        if (block->ready_warps == 0 || (options.seed > 1 && random(2) == 0)) {
            std::vector<Block*> able;
            for (auto& each : resident_) {
                if (each->ready_warps != 0) able.push_back(each.get());
            }
            block = able.empty() ? nullptr : able[options.seed > 1 ? random(static_cast<uint32_t>(able.size())) : 0];
        }
        if (block != nullptr) {
            const auto count = static_cast<uint32_t>(block->warps.size());
            uint32_t from = block == current->owner ? current->warp->index : 0;
            if (options.seed > 1) from = random(count);
            const bool down = options.seed == 1;
            for (uint32_t step = 1; step <= count; ++step) {
                const uint32_t index = down ? (from + count - step % count) % count : (from + step) % count;
                Warp& other = block->warps[index];
                if (other.ready != 0) return &other.lanes[__builtin_ctz(other.ready)];
            }
        }
        if (step_transfer()) continue;
        if (!pending_blocks_.empty() && resident_.size() < options.capacity) {
            admit();
            continue;
        }
        if (wake_one_poller()) continue;
        return nullptr;
    }
}

bool Machine::step_transfer() {
    if (transfers_.empty()) return false;
    const size_t index = options.seed > 0 ? random(static_cast<uint32_t>(transfers_.size())) : 0;
    TileTransfer transfer = std::move(transfers_[index]);
    transfers_.erase(transfers_.begin() + static_cast<ptrdiff_t>(index));
    complete(transfer);
    return true;
}

// ------------------------------------------------------------------------------------------------- collectives
bool Machine::meet(Lane& lane, Site site) {
    Warp& warp = *lane.warp;
    if (warp.arrived != 0 && warp.meeting != site) {
        const auto other = static_cast<uint32_t>(__builtin_ctz(warp.arrived));
        report("divergence at a collective", site, warp.meeting)
            .say("lane %u of warp %u is here, while lane %u waits at another", lane.index, warp.index, other);
        abort_run();
    }
    warp.meeting = site;
    warp.arrived |= 1u << lane.index;
    if (warp.arrived != ~0u) {
        wait(name_of(findings.sites[site].primitive));
        return false;
    }
    warp.arrived = 0;
    if (options.statistics) statistics.flush(warp);
    release(warp);
    return true;
}

void Machine::depart(Lane& lane) {
    if (lane.state == State::WAITING) leave();
}

void Machine::release(Warp& warp) {
    for (uint32_t i = 0; i < WARP; ++i) wake(warp.lanes[i]);
}

void Machine::hold(Warp& warp, const std::string& what) {
    for (uint32_t i = 0; i < WARP; ++i) {
        warp.lanes[i].state = State::WAITING;
        warp.lanes[i].waits_for = what;
    }
    warp.ready = 0;
    warp.block->ready_warps &= ~(1u << warp.index);
}

}  // namespace tracea::emulator
