// wgmma: a warpgroup's products of tiles in shared memory. The four warps meet to issue a product, and nowhere else: a
// fence, a commit and a wait are each warp's own. A warp's quarter of a product reads its operands, and writes its
// accumulators, in the wait of that warp that forces it, or in the issue; until the wait the accumulators hold poison and
// the operands must not change.
#include <string.h>

#include <algorithm>

#include "machine.h"
#include "memory.h"
#include "product.h"
#include "tensor_map.h"

namespace tracea::emulator {
namespace {

constexpr uint32_t ROWS = 64;
constexpr uint32_t WARP_ROWS = 16;
constexpr uint32_t MOST_COLUMNS = 256;
constexpr uint32_t STEP_BYTES = 32;      // of the depth of one instruction
constexpr uint32_t POISON = 0xffbfffff;  // a signalling NaN: arithmetic on it changes its bits

// A collective of the four warps of a warpgroup; the last warp to come performs.
template <class F>
void together(Primitive primitive, int at, void* operands, F perform) {
    machine.collective(primitive, at, operands, [&](Warp& warp, Site site) {
        Block& block = *warp.block;
        const uint32_t index = warp.index / 4;
        if (index >= block.warpgroups.size()) {
            machine.report("invalid operand", site).say("warp %u belongs to no whole warpgroup", warp.index);
            machine.abort_run();
        }
        Warpgroup& group = block.warpgroups[index];
        if (group.arrived != 0 && group.meeting != site) {
            machine.report("divergence at a collective", site, group.meeting)
                .say("warp %u is here, while another of its warpgroup waits elsewhere", warp.index);
            machine.abort_run();
        }
        group.meeting = site;
        for (uint32_t i = 0; i < WARP; ++i) group.operands[warp.index % 4 * WARP + i] = warp.lanes[i].operands;
        group.arrived += WARP;
        if (group.arrived < WARPGROUP) {
            machine.hold(warp, name_of(primitive));
            return;
        }
        group.arrived = 0;
        perform(block, index, site);
        for (uint32_t i = 0; i < 4; ++i) machine.release(block.warps[4 * index + i]);
    });
}

// One operand as its descriptor says: 16-byte pieces by row (of M or N) and depth.
struct Tile {
    uint32_t start, leading, stride, swizzle_bytes;
    bool transposed;  // M or N is the contiguous axis

    explicit Tile(uint64_t descriptor, bool transposes) : transposed(transposes) {
        constexpr uint32_t modes[] = {0, 128, 64, 32};
        start = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
        leading = static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4;
        stride = static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4;
        swizzle_bytes = modes[descriptor >> 62];
    }

    // The piece that begins at row `row`, byte 16·half of the depth; rows of 8 core matrices repeat with `stride`.
    uint32_t along_depth(uint32_t row, uint32_t half) const {
        if (swizzle_bytes == 0) return start + row / 8 * stride + row % 8 * 16 + half * leading;
        return swizzled(start + row / 8 * stride + row % 8 * swizzle_bytes + half * 16, swizzle_bytes);
    }

    // The piece of rows 8·chunk to 8·chunk + 7 at depth k.
    uint32_t across_depth(uint32_t chunk, uint32_t k) const {
        if (swizzle_bytes == 0) return start + chunk * stride + k % 8 * 16 + k / 8 * leading;
        const uint32_t wide = swizzle_bytes / 16;
        return swizzled(start + chunk % wide * 16 + chunk / wide * leading + k % 8 * swizzle_bytes + k / 8 * stride,
                        swizzle_bytes);
    }

    template <class F>
    void each_piece(uint32_t rows, F visit) const {
        if (!transposed) {
            for (uint32_t row = 0; row < rows; ++row) {
                for (uint32_t half = 0; half < 2; ++half) visit(along_depth(row, half), row, 16 * half);
            }
        } else {
            for (uint32_t k = 0; k < STEP_BYTES / 2; ++k) {
                for (uint32_t chunk = 0; chunk < rows / 8; ++chunk) visit(across_depth(chunk, k), 8 * chunk, 2 * k);
            }
        }
    }

    // Price the reads: a core matrix, eight pieces of 16 bytes, is a wavefront.
    void price(uint32_t rows, Site site) const {
        uint32_t cores[2 * MOST_COLUMNS];
        each_piece(rows, [&](uint32_t address, uint32_t row, uint32_t byte) {
            cores[(row / 8 * 2 + byte / 16) * 8 + (transposed ? byte / 2 % 8 : row % 8)] = address;
        });
        for (uint32_t core = 0; core < rows / 8 * 2; ++core) machine.statistics.shared(site, cores + core * 8, 8, 16);
    }

    // Gather into rows of STEP_BYTES, depth contiguous.
    void gather(const Block& block, uint32_t rows, uint8_t* to) const {
        each_piece(rows, [&](uint32_t address, uint32_t row, uint32_t byte) {
            const uint8_t* from = &block.shared[address];
            if (!transposed) {
                memcpy(to + row * STEP_BYTES + byte, from, 16);
            } else {
                for (uint32_t i = 0; i < 8; ++i) memcpy(to + (row + i) * STEP_BYTES + byte, from + 2 * i, 2);
            }
        });
    }
};

struct Call {
    void* d;
    uint64_t a, b;
    bool accumulate;
};

// What one warp of a warpgroup does by itself.
template <class F>
void alone(Primitive primitive, int at, F perform) {
    machine.collective(primitive, at, nullptr, [&](Warp& warp, Site site) {
        if (warp.index / 4 >= warp.block->warpgroups.size()) {
            machine.report("invalid operand", site).say("warp %u belongs to no whole warpgroup", warp.index);
            machine.abort_run();
        }
        Warpgroup& group = warp.block->warpgroups[warp.index / 4];
        perform(warp, group, group.streams[warp.index % 4], site);
    });
}

void wgmma_fence(int at) {
    alone(Primitive::WGMMA_FENCE, at, [](Warp&, Warpgroup&, MatrixStream& stream, Site site) {
        if (!machine.elided(site)) stream.fenced = true;
    });
}

void wgmma_commit(int at) {
    alone(Primitive::WGMMA_COMMIT, at, [](Warp&, Warpgroup& group, MatrixStream& stream, Site) {
        stream.groups.push_back(group.first + group.operations.size());
    });
}

// The compiler has been told of these registers, or need not be.
void forget(Lane& lane, const void* registers, size_t bytes) {
    const auto* first = static_cast<const uint8_t*>(registers);
    std::erase_if(lane.unsettled, [&](const auto& entry) {
        const auto* each = static_cast<const uint8_t*>(entry.first);
        return each >= first && each < first + bytes;
    });
}

// The tensor cores take a thread's accumulators: keep their content, and leave poison.
bool take(Warpgroup& group, Lane& lane, void* registers, uint32_t count) {
    auto [entry, taken] = group.accumulators.try_emplace(registers);
    if (!taken) return false;
    entry->second.owner = &lane;
    entry->second.content.resize(count);
    memcpy(entry->second.content.data(), registers, 4 * count);
    forget(lane, registers, 4 * count);
    std::fill_n(static_cast<uint32_t*>(registers), count, POISON);
    return true;
}

void begin(Block& block, uint32_t index, Site site, WgmmaForm form) {
    Warpgroup& group = block.warpgroups[index];
    Lane* lanes = &block.lanes[index * WARPGROUP];
    const Call& first = *static_cast<const Call*>(group.operands[0]);
    MatrixOperation operation{form, first.a, first.b, first.accumulate, site, {}, {}};
    for (uint32_t i = 0; i < WARPGROUP; ++i) {
        const Call& call = *static_cast<const Call*>(group.operands[i]);
        if (call.a != first.a || call.b != first.b || call.accumulate != first.accumulate) {
            machine.report("divergence at a collective", site)
                .say("threads 0 and %u give different operands", lanes[i].thread);
        }
        operation.accumulators.push_back(call.d);
        const bool own = take(group, lanes[i], call.d, static_cast<uint32_t>(form.n) / 2);
        if (own && !group.streams[i / WARP].fenced) {
            machine.report("missing wgmma_fence", site)
                .say("warp %u: its accumulators were the threads' own since the last fence", lanes[i].warp->index);
        }
    }
    for (const uint64_t descriptor : {first.a, first.b}) {
        if ((descriptor >> 49 & 7) != 0 || (descriptor & 0x3f80c000c000c000ull) != 0) {
            machine.report("invalid operand", site)
                .say("descriptor 0x%016llx: a base offset, or bits that must be zero",
                     static_cast<unsigned long long>(descriptor));
        }
    }
    size_t found = 0;
    auto check = [&](const Tile& tile, uint32_t rows, bool of_all) {
        if (machine.options.statistics) tile.price(rows, site);
        tile.each_piece(rows, [&](uint32_t address, uint32_t row, uint32_t byte) {
            // Rows of A are one warp's; all four read B.
            const uint32_t owner = of_all ? (row / 8 + byte / 16) % 4 : row / WARP_ROWS;
            if (!in_shared(lanes[WARP * owner], address, 16, 16, site)) return;
            ++found;
            for (uint32_t i = 0; i < 4; ++i) {
                if (!of_all && i != owner) continue;
                block.shadow.begin_reading(address, 16, lanes[WARP * i], site);
                operation.pieces[i].push_back(address);
            }
        });
    };
    check(Tile(first.a, form.transposed_a), ROWS, false);
    check(Tile(first.b, form.transposed_b), static_cast<uint32_t>(form.n), true);
    if (found == 2 * ROWS + 2 * static_cast<size_t>(form.n)) group.operations.push_back(std::move(operation));
}

// One warp's quarter of a product.
void perform(Block& block, Warpgroup& group, const MatrixOperation& operation, uint32_t quarter) {
    static float a[WARP_ROWS * DEPTH], b[MOST_COLUMNS * DEPTH], sums[WARP_ROWS * 256];
    static int32_t whole[WARP_ROWS * 256];
    static uint8_t a_bytes[ROWS * STEP_BYTES], b_bytes[MOST_COLUMNS * STEP_BYTES];
    const auto n = static_cast<uint32_t>(operation.form.n);
    const Element element = operation.form.element;
    const bool integers = element == Element::S8;
    Tile(operation.da, operation.form.transposed_a).gather(block, ROWS, a_bytes);
    Tile(operation.db, operation.form.transposed_b).gather(block, n, b_bytes);
    const uint8_t* mine = a_bytes + quarter * WARP_ROWS * STEP_BYTES;
    auto accumulators = [&](auto move) {
        for (uint32_t t = 0; t < WARP; ++t) {
            std::vector<uint32_t>& held = group.accumulators[operation.accumulators[quarter * WARP + t]].content;
            for (uint32_t i = 0; i < n / 2; ++i) {
                const uint32_t row = t / 4 + 8 * (i / 2 % 2);
                const uint32_t column = 8 * (i / 4) + 2 * (t % 4) + i % 2;
                move(&held[i], integers ? static_cast<void*>(&whole[row * 256 + column]) : &sums[row * 256 + column]);
            }
        }
    };
    const bool accumulate = operation.accumulate;
    accumulators([accumulate](uint32_t* held, void* value) {
        if (accumulate)
            memcpy(value, held, 4);
        else
            memset(value, 0, 4);
    });
    if (integers) {
        multiply_s8(whole, 256, mine, b_bytes, WARP_ROWS, n, STEP_BYTES);
    } else {
        const uint32_t depth = STEP_BYTES / bytes_of(element);
        for (uint32_t r = 0; r < WARP_ROWS; ++r) widen(a + r * DEPTH, mine + r * STEP_BYTES, depth, element);
        for (uint32_t c = 0; c < n; ++c) widen(b + c * DEPTH, b_bytes + c * STEP_BYTES, depth, element);
        multiply(sums, 256, a, b, WARP_ROWS, n, depth);
    }
    accumulators([](uint32_t* held, void* value) { memcpy(held, value, 4); });
}

// Give back a warp's accumulators that no operation still writes.
void give_back(const Warp& warp, Warpgroup& group, MatrixStream& stream, Site site) {
    std::map<void*, bool> busy;
    for (uint64_t i = stream.performed - group.first; i < group.operations.size(); ++i) {
        for (void* registers : group.operations[i].accumulators) busy[registers] = true;
    }
    for (auto entry = group.accumulators.begin(); entry != group.accumulators.end();) {
        if (entry->second.owner->warp != &warp || busy.count(entry->first) != 0) {
            ++entry;
            continue;
        }
        auto* registers = static_cast<uint32_t*>(entry->first);
        const std::vector<uint32_t>& content = entry->second.content;
        for (size_t i = 0; i < content.size(); ++i) {
            if (registers[i] == POISON) continue;
            machine.report("accumulator touched before wgmma_wait", site)
                .say("register %zu was written while the tensor cores owned it", i);
            break;
        }
        memcpy(registers, content.data(), 4 * content.size());
        entry->second.owner->unsettled.push_back({registers, site});
        entry = group.accumulators.erase(entry);
        stream.fenced = false;  // the threads may use them: the next wgmma on them needs a fence
    }
}

void wgmma(WgmmaForm form, void* d, uint64_t a, uint64_t b, bool accumulate, int at) {
    Call call{d, a, b, accumulate};
    together(Primitive::WGMMA, at, &call, [form](Block& block, uint32_t index, Site site) {
        Warpgroup& group = block.warpgroups[index];
        const size_t before = group.operations.size();
        begin(block, index, site, form);
        if (!machine.at_once() || group.operations.size() == before) return;
        MatrixOperation& operation = group.operations.back();
        for (uint32_t quarter = 0; quarter < 4; ++quarter) perform(block, group, operation, quarter);
        operation.performed = true;
    });
}

// Holds the warp that executes it, not its warpgroup: the issue of every product was met by all four already.
void wgmma_wait(uint32_t pending, int at) {
    alone(Primitive::WGMMA_WAIT, at, [pending](Warp& warp, Warpgroup& group, MatrixStream& stream, Site site) {
        if (machine.elided(site)) return;
        Block& block = *warp.block;
        const uint32_t agent = machine.options.threads + MBARRIERS + warp.index;
        for (; stream.groups.size() > pending; stream.groups.pop_front()) {
            ++stream.completed;
            for (; stream.performed < stream.groups.front(); ++stream.performed) {
                const MatrixOperation& operation = group.operations[stream.performed - group.first];
                if (!operation.performed) perform(block, group, operation, warp.index % 4);
                for (const uint32_t piece : operation.pieces[warp.index % 4]) {
                    block.shadow.end_reading(piece, 16, block.index, agent, stream.completed, operation.site);
                }
            }
        }
        give_back(warp, group, stream, site);
        uint64_t first = stream.performed;
        for (const MatrixStream& other : group.streams) first = std::min(first, other.performed);
        for (; group.first < first; ++group.first) group.operations.pop_front();
        for (uint32_t i = 0; i < WARP; ++i) machine.row(warp.lanes[i])[agent] = stream.completed;
    });
}

void settle_accumulators(const void* d, uint32_t bytes, int at) {
    machine.enter(Primitive::WGMMA_ACCUMULATORS, at);
    forget(*machine.current, d, bytes);
}

}  // namespace

void bind_wgmma(Core& table) {
    table.settle_accumulators = settle_accumulators;
    table.wgmma_fence = wgmma_fence;
    table.wgmma = wgmma;
    table.wgmma_commit = wgmma_commit;
    table.wgmma_wait = wgmma_wait;
}

}  // namespace tracea::emulator
