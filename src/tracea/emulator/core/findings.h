// Findings: what went wrong, at which emitted line, for which thread; and the sites that findings speak of.
#pragma once
#include <stdint.h>

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tracea/emulator_abi.h"

namespace tracea::emulator {

struct Lane;
using Site = uint16_t;  // an entry of `Findings::sites`; 0 is none

// Where a primitive is called: line of the emitted text, line of the call itself (they differ within a tile routine).
struct Place {
    int32_t line, at;
    Primitive primitive;
    uint64_t count = 0;
};

struct Finding {
    const char* kind;
    Site site, other;
    uint64_t count = 0;
    uint32_t block = 0, thread = 0, iteration = 0;
    std::string detail;  // of the first

    bool first() const { return count == 1; }
    __attribute__((format(printf, 2, 3))) void say(const char* format, ...);
};

class Findings {
public:
    std::vector<Place> sites;

    void clear();
    Site intern(Primitive primitive, int32_t line, int32_t at);
    Finding& add(const char* kind, Site site, Site other, const Lane* lane);
    bool any() const { return !found_.empty(); }
    void write(std::string& json) const;

private:
    std::unordered_map<uint64_t, Site> known_;
    std::map<std::tuple<std::string_view, Site, Site>, Finding> found_;  // kinds are literals
    uint64_t recent_key_[64] = {};
    Site recent_[64] = {};
};

const char* name_of(Primitive primitive);
void append_string(std::string& json, const std::string& text);

}  // namespace tracea::emulator
