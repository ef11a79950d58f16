// Who runs next. A fiber runs until it must wait; then another lane of its warp, another warp, another block. Only when
// no fiber can run does the copy engine get to work, as late as the contract of a copy allows; then a further block is
// started; and if even that is impossible the kernel is in a deadlock. Other schedules let one warp overtake the others
// as soon as it can run, and copies land as soon as they are issued: what is never late may be as wrong.
#include <string.h>

#include "machine.h"

namespace tracea::emulator {
namespace {

constexpr uint32_t POLLS_IN_VAIN = 1000;  // of one thread, while nobody else can run
constexpr uint64_t FIRST_DRAWN = 5;       // seeds below have a schedule of their own
constexpr uint32_t BETWEEN_CHANGES = 32;  // points at which the running warp keeps its rank, on average

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
    if (order_ == Order::PRIORITIES) {
        Warp& warp = *current->warp;
        if (options.seed >= FIRST_DRAWN && random(BETWEEN_CHANGES) == 0) warp.rank = --lowest_rank_;
        Lane* first = first_by_rank();
        if (first->warp != &warp) go(first);
        return;
    }
    if (order_ != Order::RANDOM || random(4) != 0) return;
    // The lane stays ready: another one goes first.
    Lane* next = choose();
    if (next != nullptr) go(next);
}

// The first seeds are the corners: warps in order, in reverse, at random, the first ones always first (in most kernels
// they consume, so that who produces for them is starved), the last ones always first. Further seeds draw ranks, which
// change now and then, or warps, with each kind of landing in turn.
void Machine::draw_schedule() {
    constexpr Order orders[] = {Order::FORWARD, Order::BACKWARD, Order::RANDOM, Order::PRIORITIES, Order::PRIORITIES};
    constexpr Landing first[] = {Landing::LATE, Landing::AT_ONCE, Landing::SOMETIMES, Landing::AT_ONCE,
                                 Landing::AT_ONCE};
    constexpr Landing drawn[] = {Landing::AT_ONCE, Landing::LATE, Landing::SOMETIMES};
    lowest_rank_ = 0;
    if (options.seed < FIRST_DRAWN) {
        order_ = orders[options.seed];
        landing_ = first[options.seed];
        return;
    }
    const uint64_t number = options.seed - FIRST_DRAWN;
    order_ = number % 6 < 3 ? Order::PRIORITIES : Order::RANDOM;
    landing_ = drawn[number % 3];
}

int64_t Machine::draw_rank(const Block& block, uint32_t warp) {
    if (order_ != Order::PRIORITIES) return 0;
    if (options.seed >= FIRST_DRAWN) {  // warps apart, or the four of a warpgroup, which have one role, together
        const bool together = (options.seed - FIRST_DRAWN) / 6 % 2 == 0 && warp % 4 != 0;
        return (together ? block.warps[warp - 1].rank : random(1u << 30)) - together;
    }
    const int64_t place = static_cast<int64_t>(warp) * options.blocks + block.index;
    const int64_t all = static_cast<int64_t>(options.threads / WARP) * options.blocks;
    return options.seed + 1 < FIRST_DRAWN ? all - place : place + 1;
}

// The lane that goes on in the warp with the highest rank; null where none can run.
Lane* Machine::first_by_rank() {
    Warp* best = nullptr;
    for (auto& block : resident_) {
        for (uint32_t left = block->ready_warps; left != 0; left &= left - 1) {
            Warp& warp = block->warps[__builtin_ctz(left)];
            if (best == nullptr || warp.rank > best->rank) best = &warp;
        }
    }
    return best == nullptr ? nullptr : &best->lanes[__builtin_ctz(best->ready)];
}

void Machine::enqueue(TileTransfer transfer) {
    if (at_once()) {
        complete(transfer);
    } else {
        transfers_.push_back(std::move(transfer));
    }
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
    if (!transfers_.empty() && landing_ == Landing::SOMETIMES && random(4) == 0) step_transfer();
    for (;;) {
        if (order_ == Order::PRIORITIES) {
            Lane* first = first_by_rank();
            if (first != nullptr) return first;
        }
        Warp& warp = *current->warp;
        const uint32_t others = warp.ready & ~(1u << current->index);
        if (others != 0) {  // the next lane of the same warp, in rotation
            const uint32_t above = others & ~((2u << current->index) - 1);
            return &warp.lanes[__builtin_ctz(above != 0 ? above : others)];
        }
        Block* block = current->owner;
        if (block->ready_warps == 0 || (order_ == Order::RANDOM && random(2) == 0)) {
            std::vector<Block*> able;
            for (auto& each : resident_) {
                if (each->ready_warps != 0) able.push_back(each.get());
            }
            block =
                able.empty() ? nullptr : able[order_ == Order::RANDOM ? random(static_cast<uint32_t>(able.size())) : 0];
        }
        if (block != nullptr) {
            const auto count = static_cast<uint32_t>(block->warps.size());
            uint32_t from = block == current->owner ? current->warp->index : 0;
            if (order_ == Order::RANDOM) from = random(count);
            const bool down = order_ == Order::BACKWARD;
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
