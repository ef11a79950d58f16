// ldmatrix, stmatrix and mma.sync: collectives of a warp, by the tables of the PTX ISA.
#include <string.h>

#include "machine.h"
#include "memory.h"
#include "product.h"

namespace tracea::emulator {
namespace {

struct MatrixAccess {
    uint32_t* registers;
    uint32_t address;
};

// Lane 8i + j names row j of matrix i. Register i of lane 4g + t holds elements (g, 2t) and (g, 2t + 1) of matrix i;
// of its transpose where `transposed`.
struct Element16 {
    uint32_t lane, half;
};
Element16 holder(uint32_t row, uint32_t column, bool transposed) {
    if (transposed) std::swap(row, column);
    return {4 * row + column / 2, column % 2};
}

void move_matrices(Warp& warp, Site site, uint32_t matrices, bool transposed, bool store) {
    Block& block = *warp.block;
    uint32_t addresses[WARP];
    for (uint32_t i = 0; i < 8 * matrices; ++i) {
        Lane& lane = warp.lanes[i];
        addresses[i] = static_cast<MatrixAccess*>(lane.operands)->address;
        if (!in_shared(lane, addresses[i], 16, 16, site)) return;
    }
    if (machine.options.statistics) machine.statistics.shared(site, addresses, 8 * matrices, 16);
    for (uint32_t i = 0; i < 8 * matrices; ++i) {
        uint8_t* row = &block.shared[addresses[i]];
        for (uint32_t column = 0; column < 8; ++column) {
            const Element16 at = holder(i % 8, column, transposed);
            Lane& lane = warp.lanes[at.lane];
            auto* held = reinterpret_cast<uint8_t*>(&static_cast<MatrixAccess*>(lane.operands)->registers[i / 8]);
            // The lane that holds an element is the one that moves it: no other is ordered by that.
            if (store) {
                block.shadow.write(addresses[i] + 2 * column, 2, lane, site);
                memcpy(row + 2 * column, held + 2 * at.half, 2);
            } else {
                block.shadow.read(addresses[i] + 2 * column, 2, lane, site);
                memcpy(held + 2 * at.half, row + 2 * column, 2);
            }
        }
    }
}

void load_matrix(uint32_t* to, uint32_t matrices, bool transposed, uint32_t address, int at) {
    memset(to, 0xff, 4 * matrices);
    MatrixAccess access{to, address};
    machine.collective(Primitive::LDMATRIX, at, &access,
                       [=](Warp& warp, Site site) { move_matrices(warp, site, matrices, transposed, false); });
}

void store_matrix(uint32_t address, const uint32_t* from, uint32_t matrices, bool transposed, int at) {
    uint32_t copy[4];
    memcpy(copy, from, 4 * matrices);
    MatrixAccess access{copy, address};
    machine.collective(Primitive::STMATRIX, at, &access,
                       [=](Warp& warp, Site site) { move_matrices(warp, site, matrices, transposed, true); });
}

struct Product {
    void* d;
    const uint32_t* a;
    const uint32_t* b;
};

// A register of A holds 4 bytes of a row: register r of lane 4g + t is row g + 8(r mod 2), bytes 4t + 16(r div 2) on,
// for 16 rows; of B it is column g, bytes 4t + 16r on. Accumulators 2h and 2h + 1 are row g + 8h, columns 2t, 2t + 1.
void mma(MmaForm form, void* d, const uint32_t* a, const uint32_t* b, int at) {
    Product product{d, a, b};
    machine.collective(Primitive::MMA, at, &product, [form](Warp& warp, Site) {
        uint8_t a_rows[16][32], b_columns[8][32];
        const uint32_t tall = form.rows / 8, wide = form.depth_bytes / 16;
        for (uint32_t i = 0; i < WARP; ++i) {
            const auto* mine = static_cast<const Product*>(warp.lanes[i].operands);
            const uint32_t group = i / 4, bytes = 4 * (i % 4);
            for (uint32_t r = 0; r < tall * wide; ++r) {
                memcpy(&a_rows[group + 8 * (r % tall)][bytes + 16 * (r / tall)], &mine->a[r], 4);
            }
            for (uint32_t r = 0; r < wide; ++r) memcpy(&b_columns[group][bytes + 16 * r], &mine->b[r], 4);
        }
        float sums[16][8];
        int32_t whole[16][8];
        const bool integers = form.element == Element::S8;
        auto accumulators = [&](auto move) {
            for (uint32_t i = 0; i < WARP; ++i) {
                auto* held = static_cast<uint8_t*>(static_cast<const Product*>(warp.lanes[i].operands)->d);
                for (uint32_t e = 0; e < 2 * tall; ++e) {
                    const uint32_t row = i / 4 + 8 * (e / 2), column = 2 * (i % 4) + e % 2;
                    move(held + 4 * e, integers ? static_cast<void*>(&whole[row][column]) : &sums[row][column]);
                }
            }
        };
        accumulators([](uint8_t* held, void* value) { memcpy(value, held, 4); });
        if (integers) {
            multiply_s8(&whole[0][0], 8, a_rows[0], b_columns[0], form.rows, 8, form.depth_bytes);
        } else {
            float wide_a[16][16 * 2], wide_b[8][16 * 2];
            const uint32_t depth = form.depth_bytes / bytes_of(form.element);
            for (uint32_t r = 0; r < form.rows; ++r) widen(wide_a[r], a_rows[r], depth, form.element);
            for (uint32_t c = 0; c < 8; ++c) widen(wide_b[c], b_columns[c], depth, form.element);
            multiply(&sums[0][0], 8, &wide_a[0][0], &wide_b[0][0], form.rows, 8, depth);
        }
        accumulators([](uint8_t* held, void* value) { memcpy(held, value, 4); });
    });
}

}  // namespace

void bind_matrix(Core& table) {
    table.load_matrix = load_matrix;
    table.store_matrix = store_matrix;
    table.mma = mma;
}

}  // namespace tracea::emulator
