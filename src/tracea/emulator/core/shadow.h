// Shadow memory: for each piece of memory who wrote it last, who has read it since, and what is still under way.
#pragma once
#include <stdint.h>

#include <vector>

#include "clock.h"
#include "findings.h"

namespace tracea::emulator {

struct Block;
struct Lane;

struct Cell {
    enum Flag : uint16_t {
        WRITTEN = 1,
        GENERIC = 2,    // the last write was an ordinary one, not the copy engine's
        IN_FLIGHT = 4,  // the destination of a copy that has not been waited for
        MBARRIER = 8,
        ATOMIC = 16,  // the last write was atomic
    };
    Clock clock = 0;  // of the last write
    uint32_t block = 0;
    uint32_t readers = 0;  // the first of a list of Readers; 0 is none
    uint16_t agent = 0;
    Site site = 0;
    Site under_way = 0;  // the copy that is in flight, or the matrix operation that reads
    uint16_t flags = 0;
    uint16_t reading = 0;  // matrix operations and tile stores that may read it until they are waited for
};

// Lanes of one warp (or one agent) that read in one epoch.
struct Reader {
    Clock clock;
    uint32_t block, lanes, next;
    uint16_t first_agent;
    Site site;
};

// COPY and TILE only begin here: a cp.async, and a copy of the asynchronous proxy, which write when they land.
enum class Write : uint8_t { ORDINARY, ATOMIC, COPY, TILE };

class Shadow {
public:
    uint32_t granule = 2;  // bytes of a cell

    void reset(uint64_t bytes, uint32_t cell_bytes, bool global, const char* space);
    bool empty() const { return cells_.empty(); }
    Cell& at(uint64_t offset) { return cells_[offset / granule]; }
    uint64_t size() const { return cells_.size(); }
    Cell* data() { return cells_.data(); }

    // Checks of accesses by the thread `lane`.
    void read(uint64_t offset, uint32_t bytes, Lane& lane, Site site, bool atomic = false);
    void write(uint64_t offset, uint32_t bytes, Lane& lane, Site site, Write how = Write::ORDINARY);

    // A copy lands: the write is the agent's, in its epoch.
    void land(uint64_t offset, uint32_t bytes, uint32_t block, uint32_t agent, Clock clock, Site site);

    // An asynchronous reader begins, and is done.
    void begin_reading(uint64_t offset, uint32_t bytes, Lane& lane, Site site);
    void end_reading(uint64_t offset, uint32_t bytes, uint32_t block, uint32_t agent, Clock clock, Site site);

private:
    std::vector<Cell> cells_;
    std::vector<Reader> readers_;
    uint32_t free_ = 0;
    bool global_ = false;
    const char* space_ = "";

    void note_reader(Cell& cell, Lane& lane, uint32_t first_agent, uint32_t lanes, Clock clock, Site site);
    void drop_readers(Cell& cell);
    uint32_t allocate(const Reader& reader);
    void unordered(const char* kind, uint64_t offset, Lane& lane, Site site, uint32_t block, uint32_t agent,
                   Site other);
    bool check_last_write(const Cell& cell, uint64_t offset, Lane& lane, Site site, bool write);
    void check_proxy(const Cell& cell, uint64_t offset, const Lane& lane, Site site);
    void check_readers(Cell& cell, uint64_t offset, Lane& lane, Site site);
};

// A buffer of the caller, at an address that no raw access can reach.
struct Buffer {
    uint64_t address = 0, bytes = 0;
    uint8_t* host = nullptr;
    bool writable = false, initialised = false;
    Shadow shadow;                     // empty where nobody can write
    const uint8_t* outside = nullptr;  // one byte for each byte, non-zero between rows; null: none
    char name[64] = {};
};

// Global memory: the buffers, in address order.
struct GlobalMemory {
    std::vector<Buffer> buffers;

    // Return the buffer that holds these bytes whole, or null after a finding.
    Buffer* find(uint64_t address, uint32_t bytes, Lane& lane, Site site, bool write);

    // A copy that began to read here has landed.
    void end_reading(uint64_t address, uint32_t bytes, const Lane& lane, uint32_t agent, Clock clock, Site site);
};

}  // namespace tracea::emulator
