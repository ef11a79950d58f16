// cp.async: the destination is poisoned at the issue and written by the wait that forces it, no sooner; or it is written
// at the issue, and known to be no sooner.
#include <string.h>

#include "machine.h"
#include "memory.h"

namespace tracea::emulator {
namespace {

void bring(Lane& lane, const PendingCopy& copy) {
    uint8_t* shared = &lane.owner->shared[copy.shared];
    if (copy.source_bytes > 0) {
        const Buffer* buffer = machine.memory.find(copy.global, copy.source_bytes, lane, copy.site, false);
        if (buffer != nullptr) memcpy(shared, buffer->host + (copy.global - buffer->address), copy.source_bytes);
    }
    memset(shared + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
}

void copy_async(uint32_t to, const void* from, uint32_t bytes, uint32_t source_bytes, int at) {
    const Site site = machine.enter(Primitive::CP_ASYNC, at);
    Lane& lane = *machine.current;
    const auto address = reinterpret_cast<uint64_t>(from);
    if (!in_shared(lane, to, bytes, bytes, site)) return;
    if (source_bytes > bytes) {
        machine.report("invalid operand", site)
            .say("%u source bytes of a copy of %u, thread %u", source_bytes, bytes, lane.thread);
        source_bytes = bytes;
    }
    if (address % bytes != 0) {
        machine.report("misaligned", site)
            .say("source of %u bytes by thread %u of block %u: the address is %llu more than a multiple", bytes,
                 lane.thread, lane.block, static_cast<unsigned long long>(address % bytes));
        return;
    }
    Buffer* buffer = nullptr;
    if (source_bytes > 0) {
        buffer = machine.memory.find(address, source_bytes, lane, site, false);
        if (buffer == nullptr) return;
        if (!buffer->shadow.empty()) buffer->shadow.begin_reading(address - buffer->address, source_bytes, lane, site);
    }
    lane.owner->shadow.write(to, bytes, lane, site, Write::COPY);
    if (machine.options.statistics) {
        note(lane, to, bytes, site, false);
        if (source_bytes > 0) note(lane, address, bytes, site, true);
    }
    const PendingCopy copy{to, address, bytes, source_bytes, site};
    if (machine.at_once()) {
        bring(lane, copy);
    } else {
        memset(&lane.owner->shared[to], 0xff, bytes);
    }
    lane.open.push_back(copy);
}

void land(Lane& lane, const PendingCopy& copy) {
    if (!machine.at_once()) bring(lane, copy);
    if (copy.source_bytes > 0)
        machine.memory.end_reading(copy.global, copy.source_bytes, lane, lane.thread, lane.clock, copy.site);
    lane.owner->shadow.land(copy.shared, copy.bytes, lane.block, lane.thread, lane.clock, copy.site);
}

void copy_async_commit(int at) {
    machine.enter(Primitive::CP_ASYNC_COMMIT, at);
    Lane& lane = *machine.current;
    lane.groups.push_back(std::move(lane.open));
    lane.open.clear();
}

void copy_async_wait(uint32_t pending, int at) {
    const Site site = machine.enter(Primitive::CP_ASYNC_WAIT, at);
    Lane& lane = *machine.current;
    if (machine.elided(site)) return;
    while (lane.groups.size() > pending) {
        for (const PendingCopy& copy : lane.groups.front()) land(lane, copy);
        lane.groups.pop_front();
    }
}

}  // namespace

void check_exit(Lane& lane) {
    bool unfinished = !lane.open.empty();
    Site site = unfinished ? lane.open.front().site : 0;
    for (const auto& group : lane.groups) {
        if (!group.empty()) unfinished = true, site = group.front().site;
    }
    if (unfinished) {
        machine.report("thread ends with a copy under way", site).say("thread %u of block %u", lane.thread, lane.block);
    }
    if (!lane.unsettled.empty()) {
        machine.report("missing wgmma_accumulators", lane.unsettled.front().second)
            .say("thread %u of block %u: the compiler may read the accumulators before this wait", lane.thread,
                 lane.block);
    }
    unfinished = !lane.open_stores.empty();
    if (unfinished) site = lane.open_stores.front().site;
    for (const auto& group : lane.store_groups) {
        if (!group.empty()) unfinished = true, site = group.front().site;
    }
    if (unfinished) {
        machine.report("thread ends with a tile store under way", site)
            .say("thread %u of block %u: shared memory is gone before it is read", lane.thread, lane.block);
    }
}

void bind_copies(Core& table) {
    table.copy_async = copy_async;
    table.copy_async_commit = copy_async_commit;
    table.copy_async_wait = copy_async_wait;
}

}  // namespace tracea::emulator
