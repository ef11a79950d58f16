// What accesses cost: wavefronts of shared memory (bank conflicts) and sectors of global memory, for each site.
#pragma once
#include <stdint.h>

#include <string>
#include <vector>

#include "findings.h"

namespace tracea::emulator {

struct Warp;

// One lane's part of a warp-wide access.
struct Request {
    uint64_t address;
    Site site;
    uint8_t lane, bytes;
    bool global;
};

struct Cost {
    uint64_t requests = 0, actual = 0, ideal = 0, bytes = 0;
    uint32_t ways = 0;  // the most distinct words of one bank in one wavefront's worth of lanes
};

class Statistics {
public:
    // Keep the addresses of the accesses of one emitted line, up to `LONGEST` of them; 0 is no line.
    int32_t traced_line = 0;

    void clear();
    // Price one access of up to 32 lanes of `bytes` each to shared memory; `numbers` are those of the lanes, where some
    // take no part.
    void shared(Site site, const uint32_t* addresses, uint32_t lanes, uint32_t bytes, const uint8_t* numbers = nullptr);
    // Price one access of up to 32 lanes to global memory: sectors of 32 bytes.
    void global(Site site, const uint64_t* addresses, uint32_t lanes, uint32_t bytes);
    // Group what the lanes of a warp did one by one since the last collective, and price each group.
    void flush(Warp& warp);
    void write(std::string& json) const;

private:
    static constexpr size_t LONGEST = 4096;
    struct Traced {
        Site site;
        bool global;
        uint32_t block;
        std::vector<uint64_t> addresses;  // of the lanes that took part, in order
    };
    std::vector<Cost> shared_, global_;  // by site
    std::vector<Traced> traced_;

    template <class Address>
    void trace(Site site, bool global, const Address* addresses, uint32_t lanes);
};

}  // namespace tracea::emulator
