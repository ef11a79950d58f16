#include "shadow.h"

#include <string.h>

#include <algorithm>

#include "machine.h"

namespace tracea::emulator {

void Shadow::reset(uint64_t bytes, uint32_t cell_bytes, bool global, const char* space) {
    granule = cell_bytes;
    global_ = global;
    space_ = space;
    cells_.assign((bytes + granule - 1) / granule, Cell{});
    readers_.assign(1, Reader{});
    free_ = 0;
}

uint32_t Shadow::allocate(const Reader& reader) {
    if (free_ != 0) {
        const uint32_t index = free_;
        free_ = readers_[index].next;
        readers_[index] = reader;
        return index;
    }
    readers_.push_back(reader);
    return static_cast<uint32_t>(readers_.size() - 1);
}

void Shadow::drop_readers(Cell& cell) {
    while (cell.readers != 0) {
        const uint32_t index = cell.readers;
        cell.readers = readers_[index].next;
        readers_[index].next = free_;
        free_ = index;
    }
}

void Shadow::unordered(const char* kind, uint64_t offset, Lane& lane, Site site, uint32_t block, uint32_t agent,
                       Site other) {
    Finding& finding = machine.report(kind, site, other);
    if (!finding.first()) return;
    const uint32_t threads = machine.options.threads;
    char who[64];
    if (agent < threads) {
        snprintf(who, sizeof who, "thread %u", agent);
    } else if (agent < threads + MBARRIERS) {
        snprintf(who, sizeof who, "the copy engine (mbarrier %u)", agent - threads);
    } else {
        snprintf(who, sizeof who, "the tensor cores for warp %u", agent - threads - MBARRIERS);
    }
    if (global_) {
        finding.say("%s byte %llu: thread %u of block %u; earlier %s of block %u", space_,
                    static_cast<unsigned long long>(offset), lane.thread, lane.block, who, block);
    } else {
        finding.say("%s byte %llu: thread %u; earlier %s", space_, static_cast<unsigned long long>(offset), lane.thread,
                    who);
    }
}

bool Shadow::check_last_write(const Cell& cell, uint64_t offset, Lane& lane, Site site, bool write) {
    if (cell.clock == 0 || machine.knows(lane, cell.block, cell.agent, cell.clock)) return true;
    unordered(write ? "race: write after write" : "race: read after write", offset, lane, site, cell.block, cell.agent,
              cell.site);
    return false;
}

void Shadow::check_readers(Cell& cell, uint64_t offset, Lane& lane, Site site) {
    for (uint32_t i = cell.readers; i != 0; i = readers_[i].next) {
        const Reader& reader = readers_[i];
        if (!global_ && reader.clock <= lane.owner->synced) continue;
        for (uint32_t lanes = reader.lanes; lanes != 0; lanes &= lanes - 1) {
            const uint32_t agent = reader.first_agent + static_cast<uint32_t>(__builtin_ctz(lanes));
            if (machine.knows(lane, reader.block, agent, reader.clock)) continue;
            unordered("race: write after read", offset, lane, site, reader.block, agent, reader.site);
            return;
        }
    }
}

void Shadow::note_reader(Cell& cell, Lane& lane, uint32_t first_agent, uint32_t lanes, Clock clock, Site site) {
    uint32_t* link = &cell.readers;
    while (*link != 0) {
        Reader& reader = readers_[*link];
        if (reader.first_agent == first_agent && reader.clock == clock && reader.block == lane.block) {
            reader.lanes |= lanes;
            return;
        }
        bool known = true;  // then whoever is ordered after this read is ordered after that one
        for (uint32_t left = reader.lanes; known && left != 0; left &= left - 1) {
            known = machine.knows(lane, reader.block, reader.first_agent + static_cast<uint32_t>(__builtin_ctz(left)),
                                  reader.clock);
        }
        if (known) {
            const uint32_t gone = *link;
            *link = reader.next;
            readers_[gone].next = free_;
            free_ = gone;
        } else {
            link = &reader.next;
        }
    }
    const uint32_t head = cell.readers;
    cell.readers = allocate({clock, lane.block, lanes, head, static_cast<uint16_t>(first_agent), site});
}

void Shadow::read(uint64_t offset, uint32_t bytes, Lane& lane, Site site, bool atomic) {
    for (uint64_t i = offset / granule, end = (offset + bytes - 1) / granule; i <= end; ++i) {
        Cell& cell = cells_[i];
        if (cell.flags & Cell::IN_FLIGHT) {
            machine.report("lax wait: read of a copy's destination before it has landed", site, cell.under_way)
                .say("%s byte %llu by thread %u", space_, static_cast<unsigned long long>(i * granule), lane.thread);
            continue;
        }
        if (!(cell.flags & Cell::WRITTEN)) {
            machine.report("uninitialised read", site)
                .say("%s byte %llu, which nothing has written, by thread %u", space_,
                     static_cast<unsigned long long>(i * granule), lane.thread);
            continue;
        }
        if ((cell.flags & Cell::MBARRIER) != 0) {
            machine.report("ordinary access to an mbarrier", site)
                .say("%s byte %llu by thread %u", space_, static_cast<unsigned long long>(i * granule), lane.thread);
        }
        if (!(atomic && (cell.flags & Cell::ATOMIC))) check_last_write(cell, i * granule, lane, site, false);
        if (!atomic) note_reader(cell, lane, lane.thread & ~(WARP - 1), 1u << lane.index, lane.clock, site);
    }
}

void Shadow::write(uint64_t offset, uint32_t bytes, Lane& lane, Site site, Write how) {
    const bool atomic = how == Write::ATOMIC;
    for (uint64_t i = offset / granule, end = (offset + bytes - 1) / granule; i <= end; ++i) {
        Cell& cell = cells_[i];
        if (cell.flags & Cell::IN_FLIGHT) {
            machine.report("lax wait: write to a copy's destination before it has landed", site, cell.under_way)
                .say("%s byte %llu by thread %u", space_, static_cast<unsigned long long>(i * granule), lane.thread);
        }
        if (cell.reading != 0) {
            machine.report("lax wait: write to what an asynchronous operation still reads", site, cell.under_way)
                .say("%s byte %llu by thread %u", space_, static_cast<unsigned long long>(i * granule), lane.thread);
        }
        if ((cell.flags & Cell::MBARRIER) != 0) {
            machine.report("ordinary access to an mbarrier", site)
                .say("%s byte %llu by thread %u", space_, static_cast<unsigned long long>(i * granule), lane.thread);
        }
        if (!(atomic && (cell.flags & Cell::ATOMIC))) check_last_write(cell, i * granule, lane, site, true);
        check_readers(cell, i * granule, lane, site);
        if (how == Write::TILE) check_proxy(cell, i * granule, lane, site);
        if (how == Write::COPY || how == Write::TILE) {
            cell.flags |= Cell::IN_FLIGHT;
            cell.under_way = site;
            continue;
        }
        drop_readers(cell);
        cell.clock = lane.clock;
        cell.block = lane.block;
        cell.agent = static_cast<uint16_t>(lane.thread);
        cell.site = site;
        cell.flags = static_cast<uint16_t>((cell.flags & Cell::MBARRIER) | Cell::WRITTEN | Cell::GENERIC |
                                           (atomic ? Cell::ATOMIC : 0));
    }
}

void Shadow::land(uint64_t offset, uint32_t bytes, uint32_t block, uint32_t agent, Clock clock, Site site) {
    for (uint64_t i = offset / granule, end = (offset + bytes - 1) / granule; i <= end; ++i) {
        Cell& cell = cells_[i];
        drop_readers(cell);
        cell.clock = clock;
        cell.block = block;
        cell.agent = static_cast<uint16_t>(agent);
        cell.site = site;
        // cp.async writes as its thread's ordinary stores do; tile copies belong to the asynchronous proxy.
        cell.flags = static_cast<uint16_t>((cell.flags & Cell::MBARRIER) | Cell::WRITTEN |
                                           (agent < machine.options.threads ? Cell::GENERIC : 0));
    }
}

void Shadow::begin_reading(uint64_t offset, uint32_t bytes, Lane& lane, Site site) {
    for (uint64_t i = offset / granule, end = (offset + bytes - 1) / granule; i <= end; ++i) {
        Cell& cell = cells_[i];
        ++cell.reading;
        if (!(cell.flags & Cell::IN_FLIGHT)) cell.under_way = site;
        if (cell.flags & Cell::IN_FLIGHT) {
            machine.report("lax wait: read of a copy's destination before it has landed", site, cell.under_way)
                .say("%s byte %llu by the operation of thread %u", space_, static_cast<unsigned long long>(i * granule),
                     lane.thread);
            continue;
        }
        if (!(cell.flags & Cell::WRITTEN)) {
            machine.report("uninitialised read", site)
                .say("%s byte %llu, which nothing has written, by the operation of thread %u", space_,
                     static_cast<unsigned long long>(i * granule), lane.thread);
            continue;
        }
        if (!check_last_write(cell, i * granule, lane, site, false)) continue;
        check_proxy(cell, i * granule, lane, site);
    }
}

// An ordinary write, then the asynchronous proxy: a proxy fence must stand between, at either end. The writer's counts
// where the lane knows of it: one that only happened to come first orders nothing.
void Shadow::check_proxy(const Cell& cell, uint64_t offset, const Lane& lane, Site site) {
    if (!(cell.flags & Cell::GENERIC) || global_) return;
    const std::vector<Clock>& fences = lane.owner->lanes[cell.agent].proxy_fences;
    const auto fence = std::lower_bound(fences.begin(), fences.end(), cell.clock);
    const bool at_writer = fence != fences.end() && machine.knows(lane, cell.block, cell.agent, *fence);
    const bool at_reader = cell.clock <= lane.proxy_synced ||
                           (cell.agent < lane.proxy_known.size() && cell.clock <= lane.proxy_known[cell.agent]);
    if (at_writer || at_reader) return;
    machine.report("missing fence_proxy_async", site, cell.site)
        .say("%s byte %llu: an ordinary store by thread %u, then an asynchronous access", space_,
             static_cast<unsigned long long>(offset), cell.agent);
}

void Shadow::end_reading(uint64_t offset, uint32_t bytes, uint32_t block, uint32_t agent, Clock clock, Site site) {
    for (uint64_t i = offset / granule, end = (offset + bytes - 1) / granule; i <= end; ++i) {
        Cell& cell = cells_[i];
        if (cell.reading > 0) --cell.reading;
        const uint32_t head = cell.readers;
        const uint32_t first = agent < machine.options.threads ? agent & ~(WARP - 1) : agent;
        cell.readers = allocate({clock, block, 1u << (agent - first), head, static_cast<uint16_t>(first), site});
    }
}

void GlobalMemory::end_reading(uint64_t address, uint32_t bytes, const Lane& lane, uint32_t agent, Clock clock,
                               Site site) {
    for (Buffer& buffer : buffers) {
        if (address < buffer.address || address + bytes > buffer.address + buffer.bytes) continue;
        if (buffer.shadow.empty()) return;
        buffer.shadow.end_reading(address - buffer.address, bytes, lane.block, agent, clock, site);
    }
}

Buffer* GlobalMemory::find(uint64_t address, uint32_t bytes, Lane& lane, Site site, bool write) {
    for (Buffer& buffer : buffers) {
        if (address < buffer.address || address >= buffer.address + buffer.bytes) continue;
        const uint64_t offset = address - buffer.address;
        if (offset + bytes > buffer.bytes) {
            machine.report("global out of bounds", site)
                .say("thread %u of block %u: bytes %llu to %llu of %s, which has %llu", lane.thread, lane.block,
                     static_cast<unsigned long long>(offset), static_cast<unsigned long long>(offset + bytes),
                     buffer.name, static_cast<unsigned long long>(buffer.bytes));
            return nullptr;
        }
        if (buffer.outside != nullptr) {
            for (uint32_t i = 0; i < bytes; ++i) {
                if (buffer.outside[offset + i] == 0) continue;
                machine.report("global out of bounds", site)
                    .say("thread %u of block %u: byte %llu of %s lies between two rows", lane.thread, lane.block,
                         static_cast<unsigned long long>(offset + i), buffer.name);
                return nullptr;
            }
        }
        if (write && !buffer.writable) {
            machine.report("write to an input", site)
                .say("thread %u of block %u: %s", lane.thread, lane.block, buffer.name);
            return nullptr;
        }
        return &buffer;
    }
    // Name the nearest buffer: the usual mistake is to run past its end, or before its beginning.
    const Buffer* nearest = nullptr;
    uint64_t distance = ~0ull;
    for (const Buffer& buffer : buffers) {
        const uint64_t away =
            address < buffer.address ? buffer.address - address : address - buffer.address - buffer.bytes;
        if (away < distance) distance = away, nearest = &buffer;
    }
    machine.report("global out of bounds", site)
        .say("thread %u of block %u: %u bytes, %lld bytes from the %s of %s", lane.thread, lane.block, bytes,
             static_cast<long long>(distance), nearest != nullptr && address < nearest->address ? "beginning" : "end",
             nearest != nullptr ? nearest->name : "nothing");
    return nullptr;
}

}  // namespace tracea::emulator
