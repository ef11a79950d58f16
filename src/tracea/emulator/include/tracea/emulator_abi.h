// What a kernel's translation unit and the emulator's core share: the running thread's face, and a table of calls.
//
// The kernel is compiled alone, against this thin header, and bound to the core by `tracea_emulator_bind`; nothing is
// linked. `at` is the line of the call, in the emitted text or in the tile routines; `Face::line` is the line of the
// emitted text, kept by a marker before each of its statements.
#pragma once
#include <stdint.h>

namespace tracea::emulator {

// Every primitive that has a place in a report. The order is the order of `primitive_names` in findings.cpp.
enum class Primitive : uint8_t {
    NONE,
    LD_SHARED,
    ST_SHARED,
    LD_GLOBAL,
    ST_GLOBAL,
    ATOMIC_ADD,
    LD_ACQUIRE,
    ST_RELEASE,
    RED_RELEASE_ADD,
    THREAD_FENCE,
    SYNC_BLOCK,
    SYNC_WARP,
    NAMED_BARRIER_SYNC,
    NAMED_BARRIER_ARRIVE,
    SHUFFLE,
    SHUFFLE_XOR,
    CP_ASYNC,
    CP_ASYNC_COMMIT,
    CP_ASYNC_WAIT,
    LDMATRIX,
    STMATRIX,
    MMA,
    MBARRIER_INIT,
    MBARRIER_FENCE_INIT,
    MBARRIER_ARRIVE,
    MBARRIER_ARRIVE_EXPECT,
    MBARRIER_WAIT,
    TMA_LOAD,
    TMA_STORE,
    TMA_STORE_COMMIT,
    TMA_STORE_WAIT,
    TMA_STORE_WAIT_READ,
    FENCE_PROXY_ASYNC,
    PREFETCH_TENSOR_MAP,
    WGMMA_FENCE,
    WGMMA,
    WGMMA_COMMIT,
    WGMMA_WAIT,
    WGMMA_ACCUMULATORS,
    SETMAXNREG,
    ELECT_ONE,
    WARP_INDEX,
    COUNT,
};

// Element types of matrix instructions.
enum class Element : uint8_t { F16, BF16, TF32, S8, E4M3, E5M2 };

// What the kernel may read and write of the running thread without a call.
struct Face {
    int32_t line;         // of the emitted text
    uint32_t thread;      // within the block
    uint32_t block;       // within the grid
    int64_t budget;       // marked statements and primitives before the thread is taken to run for ever
    uint64_t statements;  // marked ones that it has executed
};

// One tile copy or store of the copy engine.
struct TileCoordinates {
    int32_t rank;
    int32_t at[5];
};

// One wgmma: m64nN with a depth of 32 bytes, both operands in shared memory.
struct WgmmaForm {
    Element element;
    int16_t n;
    bool transposed_a, transposed_b;
};

// One mma.sync: rows 8 or 16, n = 8, depth in bytes of one row of A.
struct MmaForm {
    Element element;
    uint8_t rows, depth_bytes;
};

struct Core {
    Face* face;
    uint32_t block_count;
    uint32_t threads;
    void (*exhausted)();
    void (*broken_requirement)(const char* condition, int at);
    void (*load_shared)(void* to, uint32_t address, uint32_t bytes, int at);
    void (*store_shared)(uint32_t address, const void* from, uint32_t bytes, int at);
    void (*load_global)(void* to, const void* from, uint32_t bytes, int at);
    void (*store_global)(void* to, const void* from, uint32_t bytes, int at);
    void (*atomic_add)(float* to, float value, int at);
    int32_t (*load_acquire)(const int32_t* from, int at);
    void (*store_release)(int32_t* to, int32_t value, int at);
    void (*add_release)(int32_t* to, int32_t value, int at);
    void (*thread_fence)(int at);
    void (*sync_block)(int at);
    void (*sync_warp)(int at);
    void (*named_barrier)(uint32_t id, uint32_t threads, bool wait, int at);
    uint32_t (*shuffle)(uint32_t value, uint32_t operand, Primitive how, int at);
    void (*copy_async)(uint32_t to, const void* from, uint32_t bytes, uint32_t source_bytes, int at);
    void (*copy_async_commit)(int at);
    void (*copy_async_wait)(uint32_t pending, int at);
    void (*load_matrix)(uint32_t* to, uint32_t matrices, bool transposed, uint32_t address, int at);
    void (*store_matrix)(uint32_t address, const uint32_t* from, uint32_t matrices, bool transposed, int at);
    void (*mma)(MmaForm form, void* d, const uint32_t* a, const uint32_t* b, int at);
    void (*mbarrier_init)(uint32_t address, uint32_t count, int at);
    void (*mbarrier_fence_init)(int at);
    void (*mbarrier_arrive)(uint32_t address, uint32_t expected_bytes, bool expects, int at);
    void (*mbarrier_wait)(uint32_t address, uint32_t parity, int at);
    void (*tile_load)(uint32_t to, const void* map, uint32_t mbarrier, TileCoordinates where, int at);
    void (*tile_store)(const void* map, uint32_t from, TileCoordinates where, int at);
    void (*tile_store_commit)(int at);
    void (*tile_store_wait)(uint32_t pending, bool reads_only, int at);
    void (*fence_proxy_async)(int at);
    void (*prefetch_tensor_map)(const void* map, int at);
    void (*wgmma_fence)(int at);
    void (*wgmma)(WgmmaForm form, void* d, uint64_t a, uint64_t b, bool accumulate, int at);
    void (*wgmma_commit)(int at);
    void (*wgmma_wait)(uint32_t pending, int at);
    void (*settle_accumulators)(const void* d, uint32_t bytes, int at);
    void (*set_registers)(uint32_t registers, bool increase, int at);
    bool (*elect_one)(int at);
};

}  // namespace tracea::emulator
