#include "statistics.h"

#include <algorithm>

#include "machine.h"

namespace tracea::emulator {
namespace {

constexpr uint32_t BANKS = 32;
constexpr uint32_t SECTOR = 32;

Cost& entry(std::vector<Cost>& costs, Site site) {
    if (costs.size() <= site) costs.resize(site + 1u);
    return costs[site];
}

void write_costs(std::string& json, const std::vector<Cost>& costs) {
    bool comma = false;
    json += '[';
    for (size_t site = 0; site < costs.size(); ++site) {
        const Cost& cost = costs[site];
        if (cost.requests == 0) continue;
        if (comma) json += ',';
        comma = true;
        json += "{\"site\":" + std::to_string(site) + ",\"requests\":" + std::to_string(cost.requests) +
                ",\"actual\":" + std::to_string(cost.actual) + ",\"ideal\":" + std::to_string(cost.ideal) +
                ",\"bytes\":" + std::to_string(cost.bytes) + ",\"ways\":" + std::to_string(cost.ways) + '}';
    }
    json += ']';
}

}  // namespace

void Statistics::clear() {
    shared_.clear();
    global_.clear();
    traced_.clear();
}

template <class Address>
void Statistics::trace(Site site, bool global, const Address* addresses, uint32_t lanes) {
    if (traced_line == 0 || machine.findings.sites[site].line != traced_line || traced_.size() >= LONGEST) return;
    traced_.push_back({site, global, machine.current->block, std::vector<uint64_t>(addresses, addresses + lanes)});
}

void Statistics::shared(Site site, const uint32_t* addresses, uint32_t lanes, uint32_t bytes, const uint8_t* numbers) {
    Cost& cost = entry(shared_, site);
    ++cost.requests;
    trace(site, false, addresses, lanes);
    // 128 bytes at a time: eight lanes of 16 bytes, sixteen of 8, all 32 of 4 or less. Lanes that take no part leave
    // their place empty.
    const uint32_t together = bytes >= 16 ? 8 : bytes == 8 ? 16 : 32;
    const auto phase = [=](uint32_t lane) { return (numbers == nullptr ? lane : numbers[lane]) / together; };
    for (uint32_t lane = 0; lane < lanes;) {
        uint32_t words[WARP * 2];
        uint32_t count = 0;
        for (const uint32_t now = phase(lane); lane < lanes && phase(lane) == now; ++lane) {
            for (uint32_t b = 0; b < bytes; b += 4) words[count++] = (addresses[lane] + b) / 4;
        }
        std::sort(words, words + count);
        count = static_cast<uint32_t>(std::unique(words, words + count) - words);
        uint32_t load[BANKS] = {};
        uint32_t most = 0;
        for (uint32_t i = 0; i < count; ++i) most = std::max(most, ++load[words[i] % BANKS]);
        cost.actual += most;
        cost.ideal += (count + BANKS - 1) / BANKS;
        cost.bytes += count * 4;
        cost.ways = std::max(cost.ways, most);
    }
}

void Statistics::global(Site site, const uint64_t* addresses, uint32_t lanes, uint32_t bytes) {
    Cost& cost = entry(global_, site);
    ++cost.requests;
    trace(site, true, addresses, lanes);
    uint64_t sectors[WARP];
    for (uint32_t i = 0; i < lanes; ++i) sectors[i] = addresses[i] / SECTOR;  // aligned: an access lies in one sector
    std::sort(sectors, sectors + lanes);
    const auto count = static_cast<uint32_t>(std::unique(sectors, sectors + lanes) - sectors);
    uint64_t distinct[WARP];
    std::copy(addresses, addresses + lanes, distinct);
    std::sort(distinct, distinct + lanes);
    const auto different = static_cast<uint32_t>(std::unique(distinct, distinct + lanes) - distinct);
    cost.actual += count;
    cost.ideal += (different * bytes + SECTOR - 1) / SECTOR;
    cost.bytes += different * bytes;
    cost.ways = std::max(cost.ways, count);
}

void Statistics::flush(Warp& warp) {
    std::vector<Request>& requests = warp.requests;
    if (requests.empty()) return;
    // The k-th access that each lane made at one site is one access of the warp.
    std::stable_sort(requests.begin(), requests.end(), [](const Request& a, const Request& b) {
        return a.site != b.site ? a.site < b.site : a.global != b.global ? b.global : a.lane < b.lane;
    });
    for (size_t begin = 0; begin < requests.size();) {
        const Site site = requests[begin].site;
        const bool is_global = requests[begin].global;
        const uint32_t bytes = requests[begin].bytes;
        size_t first[WARP + 1];
        size_t end = begin;
        for (uint32_t lane = 0; lane < WARP; ++lane) {
            first[lane] = end;
            while (end < requests.size() && requests[end].site == site && requests[end].global == is_global &&
                   requests[end].lane == lane) {
                ++end;
            }
        }
        first[WARP] = end;
        size_t longest = 0;
        for (uint32_t lane = 0; lane < WARP; ++lane) longest = std::max(longest, first[lane + 1] - first[lane]);
        for (size_t k = 0; k < longest; ++k) {
            uint32_t near[WARP];
            uint64_t far[WARP];
            uint8_t numbers[WARP];
            uint32_t lanes = 0;
            for (uint32_t lane = 0; lane < WARP; ++lane) {
                if (first[lane] + k >= first[lane + 1]) continue;
                far[lanes] = requests[first[lane] + k].address;
                near[lanes] = static_cast<uint32_t>(far[lanes]);
                numbers[lanes] = static_cast<uint8_t>(lane);
                ++lanes;
            }
            if (is_global) {
                global(site, far, lanes, bytes);
            } else {
                shared(site, near, lanes, bytes, numbers);
            }
        }
        begin = end;
    }
    requests.clear();
}

void Statistics::write(std::string& json) const {
    json += "\"shared\":";
    write_costs(json, shared_);
    json += ",\"global\":";
    write_costs(json, global_);
    json += ",\"traced\":[";
    for (size_t i = 0; i < traced_.size(); ++i) {
        const Traced& traced = traced_[i];
        if (i > 0) json += ',';
        json += "{\"site\":" + std::to_string(traced.site) + ",\"global\":" + (traced.global ? "true" : "false") +
                ",\"block\":" + std::to_string(traced.block) + ",\"addresses\":[";
        for (size_t lane = 0; lane < traced.addresses.size(); ++lane) {
            if (lane > 0) json += ',';
            json += std::to_string(traced.addresses[lane]);
        }
        json += "]}";
    }
    json += ']';
}

}  // namespace tracea::emulator
