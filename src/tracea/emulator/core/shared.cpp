// Loads and stores of shared memory.
#include <string.h>

#include "machine.h"
#include "memory.h"

namespace tracea::emulator {

bool in_shared(Lane& lane, uint32_t address, uint32_t bytes, uint32_t alignment, Site site) {
    if (bytes < machine.options.shared_granule) {
        machine.bytewise = true;
        machine.abort_run();
    }
    if (address % alignment != 0) {
        machine.report("misaligned", site)
            .say("shared byte %u by thread %u: not a multiple of %u", address, lane.thread, alignment);
        return false;
    }
    if (address + static_cast<uint64_t>(bytes) > machine.options.shared_bytes) {
        machine.report("shared out of bounds", site)
            .say("bytes %u to %llu by thread %u, of %u", address, static_cast<unsigned long long>(address) + bytes,
                 lane.thread, machine.options.shared_bytes);
        return false;
    }
    return true;
}

namespace {

void load_shared(void* to, uint32_t address, uint32_t bytes, int at) {
    const Site site = machine.enter(Primitive::LD_SHARED, at);
    Lane& lane = *machine.current;
    if (!in_shared(lane, address, bytes, bytes, site)) {
        memset(to, 0xff, bytes);
        return;
    }
    lane.owner->shadow.read(address, bytes, lane, site);
    if (machine.options.statistics) note(lane, address, bytes, site, false);
    memcpy(to, &lane.owner->shared[address], bytes);
}

void store_shared(uint32_t address, const void* from, uint32_t bytes, int at) {
    const Site site = machine.enter(Primitive::ST_SHARED, at);
    Lane& lane = *machine.current;
    if (!in_shared(lane, address, bytes, bytes, site)) return;
    lane.owner->shadow.write(address, bytes, lane, site);
    if (machine.options.statistics) note(lane, address, bytes, site, false);
    memcpy(&lane.owner->shared[address], from, bytes);
}

}  // namespace

void bind_shared(Core& table) {
    table.load_shared = load_shared;
    table.store_shared = store_shared;
}

}  // namespace tracea::emulator
