// TMA: boxes of tensors between global and shared memory. A load lands when nobody can run without it (or, by the
// schedule, earlier, or in its issue); a store reads shared memory in the wait that forces it.
#include <string.h>

#include "mbarrier.h"
#include "tensor_map.h"

namespace tracea::emulator {
namespace {

constexpr uint32_t CHUNK = 16;  // bytes that swizzles move together; every box has whole ones

}  // namespace

const char* encode_map(void* map, uint64_t base, uint32_t rank, const uint64_t* extents, const uint64_t* pitches,
                       const uint32_t* box, uint32_t element_bytes, uint32_t swizzle_bytes) {
    if (rank < 1 || rank > 5) return "a tensor map has 1 to 5 axes";
    if (base % 16 != 0) return "the tensor's address is a multiple of 16";
    TileMap made = {};
    made.magic = TileMap::MAGIC;
    made.rank = static_cast<uint8_t>(rank);
    made.element_bytes = static_cast<uint8_t>(element_bytes);
    made.swizzle_bytes = static_cast<uint8_t>(swizzle_bytes);
    made.base = base;
    for (uint32_t axis = 0; axis < rank; ++axis) {
        if (extents[axis] < 1 || extents[axis] > 1ull << 32) return "an extent is 1 to 2^32";
        if (box[axis] < 1 || box[axis] > 256) return "a box has 1 to 256 elements along each axis";
        if (axis > 0 && (pitches[axis - 1] % 16 != 0 || pitches[axis - 1] >= 1ull << 40)) {
            return "a stride is a multiple of 16 bytes, below 2^40";
        }
        made.extent[axis] = static_cast<uint32_t>(extents[axis] - 1);  // 2^32 fits
        made.box[axis] = static_cast<uint16_t>(box[axis]);
        if (axis > 0) made.pitch[axis - 1] = pitches[axis - 1];
    }
    const uint32_t row = box[0] * element_bytes;
    if (row % 16 != 0) return "a row of the box is a multiple of 16 bytes";
    if (swizzle_bytes != 0 && row > swizzle_bytes) return "a row of the box is at most the swizzle's bytes";
    memset(map, 0, 128);
    memcpy(map, &made, sizeof made);
    return nullptr;
}

namespace {

const TileMap* open_map(const void* opaque, uint32_t rank, uint32_t shared, Lane& lane, Site site) {
    const auto* map = static_cast<const TileMap*>(opaque);
    if (map->magic != TileMap::MAGIC || map->rank != rank) {
        machine.report("invalid operand", site)
            .say("thread %u: %s", lane.thread,
                 map->magic != TileMap::MAGIC ? "this is no encoded tensor map" : "the map has another number of axes");
        return nullptr;
    }
    uint32_t bytes = map->element_bytes;
    for (uint32_t axis = 0; axis < rank; ++axis) bytes *= map->box[axis];
    const uint32_t alignment = map->swizzle_bytes != 0 ? 8u * map->swizzle_bytes : 128;
    return in_shared(lane, shared, bytes, alignment, site) ? map : nullptr;
}

// Cut a box into pieces that lie together on both sides: at most 16 bytes, inside or outside of the tensor.
void cut(const TileMap& map, uint32_t shared, const TileCoordinates& where, TileTransfer& transfer) {
    uint32_t index[5] = {};
    const uint32_t size = map.element_bytes;
    uint32_t offset = 0;
    for (;;) {
        uint64_t address = map.base;
        bool inside = true;
        for (uint32_t axis = 1; axis < map.rank; ++axis) {
            const int64_t at = static_cast<int64_t>(where.at[axis]) + index[axis];
            inside = inside && at >= 0 && at <= map.extent[axis];
            address += static_cast<uint64_t>(at) * map.pitch[axis - 1];
        }
        for (uint32_t x = 0; x < map.box[0]; ++x, offset += size) {
            const int64_t at = static_cast<int64_t>(where.at[0]) + x;
            const bool here = inside && at >= 0 && at <= map.extent[0];
            const uint64_t global = here ? address + static_cast<uint64_t>(at) * size : 0;
            if (offset % CHUNK == 0) {
                transfer.chunks.push_back(swizzled(shared + offset, map.swizzle_bytes));
            } else {
                TileTransfer::Piece& last = transfer.pieces.back();
                if (here ? last.global != 0 && last.global + last.bytes == global : last.global == 0) {
                    last.bytes += size;
                    continue;
                }
            }
            transfer.pieces.push_back({swizzled(shared + offset, map.swizzle_bytes), global, size});
        }
        uint32_t axis = 1;
        while (axis < map.rank && ++index[axis] == map.box[axis]) index[axis++] = 0;
        if (axis >= map.rank) break;
    }
    transfer.bytes = offset;
}

void tile_load(uint32_t to, const void* opaque, uint32_t address, TileCoordinates where, int at) {
    const Site site = machine.enter(Primitive::TMA_LOAD, at);
    Lane& lane = *machine.current;
    Block& block = *lane.owner;
    const TileMap* map = open_map(opaque, static_cast<uint32_t>(where.rank), to, lane, site);
    Mbarrier* barrier = find_mbarrier(lane, address, site);
    if (map == nullptr || barrier == nullptr) return;
    if (!barrier->fenced) {
        machine.report("missing mbarrier_fence_init", site, barrier->site)
            .say("the mbarrier at byte %u is not yet the copy engine's to see; thread %u", address, lane.thread);
    }
    TileTransfer transfer{&block, address, lane.thread, site, 0, {}, {}};
    cut(*map, to, where, transfer);
    for (const uint32_t chunk : transfer.chunks) {
        block.shadow.write(chunk, CHUNK, lane, site, Write::TILE);
        memset(&block.shared[chunk], 0xff, CHUNK);
    }
    for (const TileTransfer::Piece& piece : transfer.pieces) {
        if (piece.global == 0) continue;
        Buffer* buffer = machine.memory.find(piece.global, piece.bytes, lane, site, false);
        if (buffer != nullptr && !buffer->shadow.empty()) {
            buffer->shadow.begin_reading(piece.global - buffer->address, piece.bytes, lane, site);
        }
    }
    note_progress(*barrier, lane);
    machine.enqueue(std::move(transfer));
    machine.yield();
}

void tile_store(const void* opaque, uint32_t from, TileCoordinates where, int at) {
    const Site site = machine.enter(Primitive::TMA_STORE, at);
    Lane& lane = *machine.current;
    Block& block = *lane.owner;
    const TileMap* map = open_map(opaque, static_cast<uint32_t>(where.rank), from, lane, site);
    if (map == nullptr) return;
    TileTransfer transfer{&block, 0, lane.thread, site, 0, {}, {}};
    cut(*map, from, where, transfer);
    for (const uint32_t chunk : transfer.chunks) block.shadow.begin_reading(chunk, CHUNK, lane, site);
    for (const TileTransfer::Piece& piece : transfer.pieces) {
        if (piece.global == 0) continue;
        Buffer* buffer = machine.memory.find(piece.global, piece.bytes, lane, site, true);
        if (buffer != nullptr) {
            buffer->shadow.write(piece.global - buffer->address, piece.bytes, lane, site, Write::TILE);
        }
    }
    lane.open_stores.push_back(std::move(transfer));
}

void tile_store_commit(int at) {
    machine.enter(Primitive::TMA_STORE_COMMIT, at);
    Lane& lane = *machine.current;
    lane.store_groups.push_back(std::move(lane.open_stores));
    lane.open_stores.clear();
}

void tile_store_wait(uint32_t pending, bool reads_only, int at) {
    const Site site = machine.enter(reads_only ? Primitive::TMA_STORE_WAIT_READ : Primitive::TMA_STORE_WAIT, at);
    Lane& lane = *machine.current;
    Block& block = *lane.owner;
    if (machine.elided(site)) return;
    // After a wait for the reads only, nobody may rely on the writes within this launch, this thread included.
    const Clock visible = reads_only ? ~0u : lane.clock;
    while (lane.store_groups.size() > pending) {
        for (const TileTransfer& transfer : lane.store_groups.front()) {
            for (const uint32_t chunk : transfer.chunks) {
                block.shadow.end_reading(chunk, CHUNK, lane.block, lane.thread, lane.clock, transfer.site);
            }
            for (const TileTransfer::Piece& piece : transfer.pieces) {
                if (piece.global == 0) continue;
                Buffer* buffer = machine.memory.find(piece.global, piece.bytes, lane, transfer.site, true);
                if (buffer == nullptr) continue;
                const uint64_t offset = piece.global - buffer->address;
                memcpy(buffer->host + offset, &block.shared[piece.shared], piece.bytes);
                buffer->shadow.land(offset, piece.bytes, lane.block, lane.thread, visible, transfer.site);
            }
        }
        lane.store_groups.pop_front();
    }
}

void fence_proxy_async(int at) {
    const Site site = machine.enter(Primitive::FENCE_PROXY_ASYNC, at);
    Lane& lane = *machine.current;
    if (machine.elided(site)) return;
    lane.proxy_fences.push_back(lane.clock);
    lane.proxy_synced = lane.owner->synced;
    lane.proxy_known = lane.era == lane.owner->era ? lane.known : std::vector<Clock>();
    // What it does next in this epoch is not covered: begin another.
    ++lane.clock;
}

void prefetch_tensor_map(const void* opaque, int at) {
    const Site site = machine.enter(Primitive::PREFETCH_TENSOR_MAP, at);
    if (static_cast<const TileMap*>(opaque)->magic != TileMap::MAGIC) {
        machine.report("invalid operand", site)
            .say("thread %u: this is no encoded tensor map", machine.current->thread);
    }
}

}  // namespace

void complete(TileTransfer& transfer) {
    Block& block = *transfer.block;
    Lane& lane = block.lanes[transfer.thread];
    Mbarrier& barrier = block.mbarriers[transfer.mbarrier];
    for (const TileTransfer::Piece& piece : transfer.pieces) {
        uint8_t* shared = &block.shared[piece.shared];
        const Buffer* buffer =
            piece.global == 0 ? nullptr : machine.memory.find(piece.global, piece.bytes, lane, transfer.site, false);
        if (buffer != nullptr) {
            memcpy(shared, buffer->host + (piece.global - buffer->address), piece.bytes);
        } else {
            memset(shared, 0, piece.bytes);
        }
        if (piece.global == 0) continue;
        machine.memory.end_reading(piece.global, piece.bytes, lane, barrier.agent, barrier.completed + 1,
                                   transfer.site);
    }
    for (const uint32_t chunk : transfer.chunks) {
        block.shadow.land(chunk, CHUNK, block.index, barrier.agent, barrier.completed + 1, transfer.site);
    }
    barrier.bytes -= transfer.bytes;
    settle(barrier);
}

void bind_tiles(Core& table) {
    table.tile_load = tile_load;
    table.tile_store = tile_store;
    table.tile_store_commit = tile_store_commit;
    table.tile_store_wait = tile_store_wait;
    table.fence_proxy_async = fence_proxy_async;
    table.prefetch_tensor_map = prefetch_tensor_map;
}

}  // namespace tracea::emulator
