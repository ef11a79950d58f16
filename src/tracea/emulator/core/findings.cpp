#include "findings.h"

#include <stdarg.h>
#include <stdio.h>

#include "machine.h"

namespace tracea::emulator {
namespace {

constexpr const char* primitive_names[] = {
    "",
    "ld_shared",
    "st_shared",
    "ld_global",
    "st_global",
    "atomic_add",
    "ld_acquire",
    "st_release",
    "red_release_add",
    "thread_fence",
    "sync_block",
    "sync_warp",
    "named_barrier_sync",
    "named_barrier_arrive",
    "shuffle",
    "shuffle_xor",
    "cp_async",
    "cp_async_commit",
    "cp_async_wait",
    "ldmatrix",
    "stmatrix",
    "mma",
    "mbarrier_init",
    "mbarrier_fence_init",
    "mbarrier_arrive",
    "mbarrier_arrive_expect",
    "mbarrier_wait",
    "tma_load",
    "tma_store",
    "tma_store_commit",
    "tma_store_wait",
    "tma_store_wait_read",
    "fence_proxy_async",
    "prefetch_tensor_map",
    "wgmma_fence",
    "wgmma",
    "wgmma_commit",
    "wgmma_wait",
    "wgmma_accumulators",
    "setmaxnreg",
    "elect_one",
    "warp_index",
};
static_assert(sizeof primitive_names / sizeof *primitive_names == static_cast<size_t>(Primitive::COUNT));

}  // namespace

const char* name_of(Primitive primitive) { return primitive_names[static_cast<size_t>(primitive)]; }

void Finding::say(const char* format, ...) {
    if (!first()) return;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    detail = text;
}

void Findings::clear() {
    sites.assign(1, Place{0, 0, Primitive::NONE});
    known_.clear();
    found_.clear();
    for (uint64_t& key : recent_key_) key = 0;
}

Site Findings::intern(Primitive primitive, int32_t line, int32_t at) {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(line)) << 32 |
                         static_cast<uint64_t>(static_cast<uint32_t>(at) & 0xffffff) << 8 |
                         static_cast<uint64_t>(primitive);
    const size_t slot = (key * 0x9e3779b97f4a7c15u) >> 58;
    if (recent_key_[slot] == key) return recent_[slot];
    auto [entry, added] = known_.try_emplace(key, static_cast<Site>(sites.size()));
    if (added) {
        if (sites.size() == 0xffff) machine.abort_run();  // texts have thousands of lines at most
        sites.push_back({line, at, primitive});
    }
    recent_key_[slot] = key;
    recent_[slot] = entry->second;
    return entry->second;
}

Finding& Findings::add(const char* kind, Site site, Site other, const Lane* lane) {
    Finding& finding = found_[{kind, site, other}];
    if (finding.count++ == 0) {
        finding.kind = kind;
        finding.site = site;
        finding.other = other;
        if (lane != nullptr) {
            finding.block = lane->block;
            finding.thread = lane->thread;
            finding.iteration = site < lane->visits.size() && lane->visits[site] > 0 ? lane->visits[site] - 1 : 0;
        }
    }
    return finding;
}

void append_string(std::string& json, const std::string& text) {
    json += '"';
    for (const char c : text) {
        if (c == '"' || c == '\\') json += '\\';
        json += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    json += '"';
}

void Findings::write(std::string& json) const {
    json += "\"sites\":[";
    for (size_t i = 0; i < sites.size(); ++i) {
        if (i > 0) json += ',';
        json += "{\"line\":" + std::to_string(sites[i].line) + ",\"at\":" + std::to_string(sites[i].at) +
                ",\"primitive\":\"" + name_of(sites[i].primitive) + "\",\"count\":" + std::to_string(sites[i].count) +
                '}';
    }
    json += "],\"findings\":[";
    bool comma = false;
    for (const auto& entry : found_) {
        const Finding& finding = entry.second;
        if (comma) json += ',';
        comma = true;
        json += "{\"kind\":\"" + std::string(finding.kind) + "\",\"site\":" + std::to_string(finding.site) +
                ",\"other\":" + std::to_string(finding.other) + ",\"count\":" + std::to_string(finding.count) +
                ",\"block\":" + std::to_string(finding.block) + ",\"thread\":" + std::to_string(finding.thread) +
                ",\"iteration\":" + std::to_string(finding.iteration) + ",\"detail\":";
        append_string(json, finding.detail);
        json += '}';
    }
    json += ']';
}

}  // namespace tracea::emulator
