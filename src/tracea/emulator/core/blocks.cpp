// A run from its first block to its last: blocks are admitted, retired, and ended early by what cannot go on.
#include <signal.h>

#include <algorithm>

#include "machine.h"

namespace tracea::emulator {

void Machine::admit() {
    auto block = std::make_unique<Block>();
    const uint32_t threads = options.threads;
    block->index = pending_blocks_.back();
    pending_blocks_.pop_back();
    block->agents = threads + MBARRIERS + TENSOR_CORES;
    block->live = threads;
    block->lanes.resize(threads);
    block->warps.resize(threads / WARP);
    block->warpgroups.resize(threads / WARPGROUP);
    block->shared.assign(options.shared_bytes, 0xff);
    block->shadow.reset(options.shared_bytes, options.shared_granule, false, "shared");
    block->agents_synced.assign(MBARRIERS + TENSOR_CORES, 0);
    const uint32_t each = std::min(255u, 65536u / threads) & ~7u;
    for (Warpgroup& group : block->warpgroups) group.registers = each;
    block->free_registers = 65536 - each * threads;
    if (free_stacks_.empty()) {
        block->first_stack = stacks_made_;
        stacks_made_ += threads;
    } else {
        block->first_stack = free_stacks_.back();
        free_stacks_.pop_back();
    }
    for (uint32_t i = 0; i < threads; ++i) {
        Lane& lane = block->lanes[i];
        lane.line = 0;
        lane.thread = i;
        lane.block = block->index;
        lane.budget = options.budget;
        lane.statements = 0;
        lane.owner = block.get();
        lane.warp = &block->warps[i / WARP];
        lane.index = i % WARP;
        lane.stack = stacks_.prepare(block->first_stack + i, fiber_main);
        if (lane.stack == nullptr) {
            report("out of memory", 0).say("no stack for thread %u", i);
            abort_run();
        }
    }
    for (uint32_t w = 0; w < block->warps.size(); ++w) {
        Warp& warp = block->warps[w];
        warp.block = block.get();
        warp.lanes = &block->lanes[w * WARP];
        warp.index = w;
        warp.rank = draw_rank(*block, w);
        release(warp);
    }
    resident_.push_back(std::move(block));
}

void Machine::retire(Block& block) {
    check_end(block);
    for (size_t i = 0; i < transfers_.size();) {
        if (transfers_[i].block != &block) {
            ++i;
            continue;
        }
        findings.add("block ends with a tile copy under way", transfers_[i].site, 0, &block.lanes[transfers_[i].thread])
            .say("block %u: shared memory is gone before it lands", block.index);
        transfers_.erase(transfers_.begin() + static_cast<ptrdiff_t>(i));
    }
    free_stacks_.push_back(block.first_stack);
    for (size_t i = 0; i < resident_.size(); ++i) {
        if (resident_[i].get() == &block) {
            resident_.erase(resident_.begin() + static_cast<ptrdiff_t>(i));
            return;
        }
    }
}

void Machine::run(void (*kernel)(const void*), const void* arguments, const Options& chosen) {
    options = chosen;
    findings.clear();
    statistics.clear();
    statements = 0;
    kernel_ = kernel;
    arguments_ = arguments;
    rng_ = chosen.seed * 0x9e3779b97f4a7c15u + 1;
    draw_schedule();
    aborted_ = false;
    bytewise = false;
    elided_ = 0;
    resident_.clear();
    transfers_.clear();
    pollers_.clear();
    progress_ = 0;
    forget_flags();
    free_stacks_.clear();
    stacks_made_ = 0;
    pending_blocks_.resize(options.blocks);
    for (uint32_t i = 0; i < options.blocks; ++i) pending_blocks_[i] = options.blocks - 1 - i;  // taken from the end
    if (order_ == Order::BACKWARD) std::reverse(pending_blocks_.begin(), pending_blocks_.end());
    const bool drawn = order_ == Order::RANDOM || order_ == Order::PRIORITIES;
    for (uint32_t i = options.blocks; drawn && i > 1; --i) {
        std::swap(pending_blocks_[i - 1], pending_blocks_[random(i)]);
    }
    table.threads = options.threads;
    table.block_count = options.blocks;
    Traps traps;
    while (!aborted_ && !(pending_blocks_.empty() && resident_.empty())) {
        while (!pending_blocks_.empty() && resident_.size() < options.resident) admit();
        Lane* next = order_ == Order::PRIORITIES ? first_by_rank() : nullptr;
        for (auto& block : resident_) {
            if (next != nullptr || block->ready_warps == 0) continue;
            Warp& warp = block->warps[__builtin_ctz(block->ready_warps)];
            next = &warp.lanes[__builtin_ctz(warp.ready)];
            break;
        }
        if (next == nullptr) {  // everybody waits: continue from any waiting lane's choice
            for (Lane& lane : resident_.front()->lanes) {
                if (lane.state != State::DONE) current = &lane;
            }
            next = choose();
            if (next == nullptr) {
                deadlock();
                current = nullptr;
                break;
            }
        }
        current = next;
        table.face = next;
        tracea_emulator_switch(&main_stack_, next->stack);
        current = nullptr;
        for (size_t i = 0; i < resident_.size();) {
            Block& block = *resident_[i];
            if (!aborted_ && block.live == 0) {
                retire(block);
            } else {
                ++i;
            }
        }
    }
    resident_.clear();
    transfers_.clear();
}

void Machine::finish_fiber() {
    Lane& lane = *current;
    check_exit(lane);
    statements += lane.statements;
    if (options.statistics) {
        const Warp& warp = *lane.warp;
        bool last = true;
        for (uint32_t i = 0; i < WARP; ++i)
            last = last && (&warp.lanes[i] == &lane || warp.lanes[i].state == State::DONE);
        if (last) statistics.flush(*lane.warp);
    }
    lane.state = State::DONE;
    ++progress_;
    Block& block = *lane.owner;
    if (--block.live > 0) {
        leave();
        __builtin_unreachable();
    }
    stop();  // to the main stack, which can free this one
}

void Machine::exhausted() {
    report("endless loop", current->site)
        .say("thread %u of block %u ran through its budget of statements", current->thread, current->block);
    abort_run();
}

void Machine::trap(int signal, uintptr_t address) {
    Lane& lane = *current;
    Place place{lane.line, lane.line, Primitive::NONE};
    const Site site = findings.intern(place.primitive, place.line, place.at);
    if (signal == SIGFPE) {
        report("arithmetic trap", site)
            .say("thread %u of block %u: an integer division by zero", lane.thread, lane.block);
    } else if (signal == SIGILL) {
        report("arithmetic trap", site)
            .say("thread %u of block %u: code that must not be reached", lane.thread, lane.block);
    } else if (stacks_.guards(address)) {
        report("stack overflow", site)
            .say("thread %u of block %u needs more than %zu bytes of stack", lane.thread, lane.block, Stacks::BYTES);
    } else {
        report("raw access", site)
            .say("thread %u of block %u: address 0x%llx, without a primitive", lane.thread, lane.block,
                 static_cast<unsigned long long>(address));
    }
    abort_run();
}

void Machine::deadlock() {
    std::map<std::pair<uint32_t, Site>, std::pair<uint32_t, std::string>> standing;
    std::map<std::pair<uint32_t, Site>, const Lane*> first;
    uint32_t exited = 0;
    for (const auto& block : resident_) {
        for (const Lane& lane : block->lanes) {
            if (lane.state == State::DONE) {
                ++exited;
                continue;
            }
            auto& group = standing[{lane.block, lane.site}];
            if (group.first++ == 0) {
                group.second = lane.waits_for;
                first[{lane.block, lane.site}] = &lane;
            }
        }
    }
    std::string text;
    size_t told = 0;
    for (const auto& [key, group] : standing) {
        if (++told > 12) break;
        const Lane* lane = first[key];
        text += "block " + std::to_string(key.first) + ": " + std::to_string(group.first) + " thread(s) from " +
                std::to_string(lane->thread) + " wait for " + group.second + " at line " +
                std::to_string(findings.sites[key.second].line) + "; ";
    }
    for (const auto& block : resident_) {
        if (block->live > 0) text += describe(*block);
        if (text.size() > 2000) break;
    }
    text += std::to_string(exited) + " exited";
    if (!pending_blocks_.empty()) {
        text += "; " + std::to_string(pending_blocks_.size()) + " block(s) cannot start while " +
                std::to_string(resident_.size()) + " are resident";
    }
    const Lane* stuck = first.empty() ? current : first.begin()->second;
    Finding& finding = findings.add("deadlock", stuck->site, 0, stuck);
    if (finding.first()) finding.detail = text;
}

}  // namespace tracea::emulator
