// Loads and stores of global memory, atomics, and the flags by which blocks order one another.
//
// A kernel's pointers are addresses that nothing is mapped at: what does not go through here traps.
#include <string.h>

#include "machine.h"
#include "memory.h"

namespace tracea::emulator {

uint8_t* in_global(Lane& lane, uint64_t address, uint32_t bytes, Site site, bool write, Buffer** buffer) {
    if (address % bytes != 0) {
        machine.report("misaligned", site)
            .say("global access of %u bytes by thread %u of block %u: the address is %llu more than a multiple", bytes,
                 lane.thread, lane.block, static_cast<unsigned long long>(address % bytes));
        return nullptr;
    }
    Buffer* found = machine.memory.find(address, bytes, lane, site, write);
    if (found == nullptr) return nullptr;
    *buffer = found;
    return found->host + (address - found->address);
}

namespace {

// What releases have left at each flag.
std::unordered_map<uint64_t, ForeignRef> released;

void load_global(void* to, const void* from, uint32_t bytes, int at) {
    const Site site = machine.enter(Primitive::LD_GLOBAL, at);
    Lane& lane = *machine.current;
    Buffer* buffer = nullptr;
    const auto address = reinterpret_cast<uint64_t>(from);
    const uint8_t* host = in_global(lane, address, bytes, site, false, &buffer);
    if (host == nullptr) {
        memset(to, 0xff, bytes);
        return;
    }
    if (!buffer->shadow.empty()) {
        buffer->shadow.read(address - buffer->address, bytes, lane, site);
    }
    if (machine.options.statistics) note(lane, address, bytes, site, true);
    memcpy(to, host, bytes);
}

void store_global(void* to, const void* from, uint32_t bytes, int at) {
    const Site site = machine.enter(Primitive::ST_GLOBAL, at);
    Lane& lane = *machine.current;
    Buffer* buffer = nullptr;
    const auto address = reinterpret_cast<uint64_t>(to);
    uint8_t* host = in_global(lane, address, bytes, site, true, &buffer);
    if (host == nullptr) return;
    buffer->shadow.write(address - buffer->address, bytes, lane, site);
    if (machine.options.statistics) note(lane, address, bytes, site, true);
    memcpy(host, from, bytes);
    machine.wake_pollers(address);
}

// The host's address of an atomic operation's operand, after its checks; null after a finding.
uint8_t* atomic(uint64_t address, Site site, bool reads, bool writes) {
    machine.yield();  // another order of the same operations
    Lane& lane = *machine.current;
    Buffer* buffer = nullptr;
    uint8_t* host = in_global(lane, address, 4, site, writes, &buffer);
    if (host == nullptr) return nullptr;
    const uint64_t offset = address - buffer->address;
    if (machine.options.statistics) note(lane, address, 4, site, true);
    if (buffer->shadow.empty()) return host;
    if (reads) buffer->shadow.read(offset, 4, lane, site, true);
    if (writes) buffer->shadow.write(offset, 4, lane, site, Write::ATOMIC);
    return host;
}

void atomic_add(float* to, float value, int at) {
    const Site site = machine.enter(Primitive::ATOMIC_ADD, at);
    const auto address = reinterpret_cast<uint64_t>(to);
    uint8_t* host = atomic(address, site, true, true);
    if (host == nullptr) return;
    float sum;
    memcpy(&sum, host, 4);
    sum += value;
    memcpy(host, &sum, 4);
    ForeignRef& flag = released[address];
    if (machine.current->fenced) flag = join(flag, machine.current->fenced);  // a fence made it a release
    machine.wake_pollers(address);
}

int32_t load_acquire(const int32_t* from, int at) {
    const Site site = machine.enter(Primitive::LD_ACQUIRE, at);
    const auto address = reinterpret_cast<uint64_t>(from);
    uint8_t* host = atomic(address, site, true, false);
    if (host == nullptr) return -1;
    Lane& lane = *machine.current;
    int32_t value;
    memcpy(&value, host, 4);
    if (lane.polled_address == address && lane.polled_value == value) {
        machine.poll(address);  // asked before, and nothing has changed: others first
        memcpy(&value, host, 4);
    }
    lane.polled_address = address;
    lane.polled_value = value;
    const auto flag = released.find(address);
    if (flag != released.end() && !machine.elided(site)) machine.acquire(lane, flag->second);
    return value;
}

void release(int32_t* to, int32_t value, bool add, Site site) {
    const auto address = reinterpret_cast<uint64_t>(to);
    uint8_t* host = atomic(address, site, add, true);
    if (host == nullptr) return;
    int32_t old = 0;
    if (add) memcpy(&old, host, 4);
    old += value;
    memcpy(host, &old, 4);
    ForeignRef& flag = released[address];
    if (!add) flag.reset();  // an addition goes on with the release sequence, a store begins one
    if (!machine.elided(site)) flag = join(flag, machine.everything(*machine.current));
    machine.wake_pollers(address);
}

void store_release(int32_t* to, int32_t value, int at) {
    release(to, value, false, machine.enter(Primitive::ST_RELEASE, at));
}

void add_release(int32_t* to, int32_t value, int at) {
    release(to, value, true, machine.enter(Primitive::RED_RELEASE_ADD, at));
}

void thread_fence(int at) {
    const Site site = machine.enter(Primitive::THREAD_FENCE, at);
    Lane& lane = *machine.current;
    if (!machine.elided(site)) lane.fenced = machine.everything(lane);
}

}  // namespace

void forget_flags() { released.clear(); }

void bind_global(Core& table) {
    table.load_global = load_global;
    table.store_global = store_global;
    table.atomic_add = atomic_add;
    table.load_acquire = load_acquire;
    table.store_release = store_release;
    table.add_release = add_release;
    table.thread_fence = thread_fence;
}

}  // namespace tracea::emulator
