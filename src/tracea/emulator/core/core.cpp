// The emulator's C interface, which Python calls.
#include <string.h>
#include <sys/mman.h>

#include <string>

#include "machine.h"
#include "tensor_map.h"

#define TRACEA_EXPORT extern "C" __attribute__((visibility("default")))

using namespace tracea::emulator;

namespace {

std::string result;

}  // namespace

// One buffer of a run, as Python describes it; `outside` may be null.
struct BufferDescription {
    uint64_t address, bytes;
    uint8_t* host;
    const uint8_t* outside;
    uint8_t* written;  // one byte for each granule, set where the run wrote; may be null
    uint32_t granule, writable, initialised;
    char name[64];
};

struct RunDescription {
    uint32_t threads, blocks, shared_bytes, resident, capacity, shared_granule, statistics;
    int32_t elided_line, elided_at, traced_line;
    uint64_t seed;
    int64_t budget;
    const char* elided_primitive;  // null: none
};

TRACEA_EXPORT const Core* tracea_emulator_core() {
    Core& table = machine.table;
    bind_shared(table);
    bind_global(table);
    bind_collectives(table);
    bind_copies(table);
    bind_matrix(table);
    bind_mbarriers(table);
    bind_tiles(table);
    bind_wgmma(table);
    table.exhausted = [] { machine.exhausted(); };
    table.broken_requirement = [](const char* condition, int at) {
        const Lane& lane = *machine.current;
        const Site site = machine.findings.intern(Primitive::NONE, lane.line, at);
        machine.report("broken requirement", site).say("thread %u: %s does not hold", lane.thread, condition);
    };
    return &table;
}

TRACEA_EXPORT const char* tracea_emulator_encode_map(void* map, uint64_t base, uint32_t rank, const uint64_t* extents,
                                                     const uint64_t* pitches, const uint32_t* box,
                                                     uint32_t element_bytes, uint32_t swizzle_bytes) {
    return encode_map(map, base, rank, extents, pitches, box, element_bytes, swizzle_bytes);
}

// Run a kernel once; returns a report in JSON, which is valid until the next run.
TRACEA_EXPORT const char* tracea_emulator_run(void (*kernel)(const void*), const void* arguments,
                                              const BufferDescription* buffers, uint32_t buffer_count,
                                              const RunDescription* description) {
    Options options;
    options.threads = description->threads;
    options.blocks = description->blocks;
    options.shared_bytes = description->shared_bytes;
    options.resident = description->resident;
    options.capacity = description->capacity;
    options.shared_granule = description->shared_granule;
    options.statistics = description->statistics != 0;
    options.elided_line = description->elided_line;
    options.elided_at = description->elided_at;
    options.elided_primitive = description->elided_primitive;
    options.seed = description->seed;
    options.budget = description->budget;
    std::vector<Buffer>& memory = machine.memory.buffers;
    memory.clear();
    memory.resize(buffer_count);
    for (uint32_t i = 0; i < buffer_count; ++i) {
        const BufferDescription& given = buffers[i];
        Buffer& buffer = memory[i];
        buffer.address = given.address;
        buffer.bytes = given.bytes;
        buffer.host = given.host;
        buffer.outside = given.outside;
        buffer.writable = given.writable != 0;
        memcpy(buffer.name, given.name, sizeof buffer.name);
        if (!buffer.writable && given.initialised != 0) continue;  // nothing can go wrong there but bounds
        buffer.shadow.reset(given.bytes, given.granule, true, buffer.name);
        if (given.initialised != 0) {
            for (uint64_t cell = 0; cell < buffer.shadow.size(); ++cell)
                buffer.shadow.data()[cell].flags = Cell::WRITTEN;
        }
    }
    machine.statistics.traced_line = description->traced_line;
    machine.run(kernel, arguments, options);
    for (uint32_t i = 0; i < buffer_count; ++i) {
        Shadow& shadow = memory[i].shadow;
        if (buffers[i].written == nullptr) continue;
        for (uint64_t cell = 0; cell < shadow.size(); ++cell) buffers[i].written[cell] = shadow.data()[cell].clock != 0;
    }
    result = "{";
    machine.findings.write(result);
    result += ',';
    machine.statistics.write(result);
    result += ",\"statements\":" + std::to_string(machine.statements);
    result += machine.bytewise ? ",\"bytewise\":true}" : ",\"bytewise\":false}";
    return result.c_str();
}

// The first of `bytes` addresses that nothing is mapped at; valid until the next call. 0: there are none.
TRACEA_EXPORT uint64_t tracea_emulator_reserve(uint64_t bytes) {
    static void* reserved = nullptr;
    static uint64_t size = 0;
    if (bytes <= size) return reinterpret_cast<uint64_t>(reserved);
    if (reserved != nullptr) munmap(reserved, size);
    size = 0;
    reserved = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
        reserved = nullptr;
        return 0;
    }
    size = bytes;
    return reinterpret_cast<uint64_t>(reserved);
}
