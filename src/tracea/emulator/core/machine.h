// The emulated machine: blocks of warps of lanes, each lane a fiber; who runs next; what each knows.
#pragma once
#include <stdint.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "clock.h"
#include "context.h"
#include "findings.h"
#include "shadow.h"
#include "statistics.h"
#include "tracea/emulator_abi.h"

namespace tracea::emulator {

constexpr uint32_t WARP = 32;
constexpr uint32_t WARPGROUP = 128;
constexpr uint32_t MBARRIERS = 64;     // agents kept for a block's mbarriers
constexpr uint32_t TENSOR_CORES = 32;  // agents kept for what reads for a warp's matrix operations
constexpr uint32_t NAMED_BARRIERS = 16;

struct Warp;
struct Block;

enum class State : uint8_t { READY, WAITING, DONE };

// A schedule, which a seed names: who runs next, and when an asynchronous operation does its work.
enum class Order : uint8_t {
    FORWARD,     // warps and blocks in their order, until they must wait
    BACKWARD,    // the other way
    RANDOM,      // any of those that can run, at any point where others may notice
    PRIORITIES,  // the one with the highest rank, which takes over as soon as it can run
};
enum class Landing : uint8_t { LATE, SOMETIMES, AT_ONCE };

// A cp.async, or a tile store, between its issue and the wait that forces it.
struct PendingCopy {
    uint32_t shared;
    uint64_t global;
    uint32_t bytes, source_bytes;
    Site site;
};

// A tile copy between its issue and its completion; pieces lie together on both sides, within 16 bytes.
struct TileTransfer {
    Block* block;
    uint32_t mbarrier = 0;
    uint32_t thread = 0;
    Site site = 0;
    uint32_t bytes = 0;
    struct Piece {
        uint32_t shared;
        uint64_t global;  // 0: outside of the tensor
        uint32_t bytes;
    };
    std::vector<Piece> pieces;     // for the bytes
    std::vector<uint32_t> chunks;  // of 16 bytes of shared memory, for what is told of them
};

struct Lane : Face {
    void* stack = nullptr;
    Block* owner = nullptr;
    Warp* warp = nullptr;
    uint32_t index = 0;  // within the warp
    State state = State::READY;
    Site site = 0;  // of the primitive it is in
    std::string waits_for;
    void* operands = nullptr;  // of the collective it is in

    Clock clock = 1;
    uint32_t era = 0;  // of the block, for which `known` is valid
    std::vector<Clock> known;
    ForeignRef foreign;
    ForeignRef fenced;                // everything known at the last thread_fence, own block included
    std::vector<Clock> proxy_fences;  // the epochs that its proxy fences ended, in order
    Clock proxy_synced = 0;           // what it knew at the last of them
    std::vector<Clock> proxy_known;
    uint64_t polled_address = 0;  // of its last ld_acquire
    int32_t polled_value = 0;
    uint32_t polled_in_vain = 0;
    uint64_t polled_at = 0;  // the machine's progress then

    std::vector<PendingCopy> open;
    std::deque<std::vector<PendingCopy>> groups;
    std::vector<TileTransfer> open_stores;
    std::deque<std::vector<TileTransfer>> store_groups;
    std::vector<std::pair<const void*, Site>> unsettled;  // accumulators given back, with the wait that did
    std::vector<uint32_t> visits;                         // by site
};

struct Warp {
    Block* block = nullptr;
    Lane* lanes = nullptr;
    uint32_t index = 0;
    uint32_t ready = 0;    // lanes that can run
    uint32_t arrived = 0;  // lanes that stand at `meeting`
    Site meeting = 0;
    int64_t rank = 0;               // the highest runs, where a schedule has priorities
    std::vector<Request> requests;  // accesses since the last collective
};

struct NamedBarrier {
    uint32_t arrived = 0, expected = 0;
    bool only_waits = true;
    Site site = 0;
    Message message;
    std::vector<Warp*> waiting;
};

// What a thread did at a time.
struct Step {
    uint32_t thread;
    Clock clock;
    Site site;
};

struct Mbarrier {
    uint32_t address = 0, count = 0, missing = 0, agent = 0;
    int64_t bytes = 0;
    uint32_t completed = 0;  // phases
    Clock initialised_clock = 0;
    uint32_t initialised_by = 0;
    bool fenced = false;
    Site site = 0;
    Message gathering, published;
    std::vector<std::pair<Lane*, uint32_t>> waiting;  // with the parity
    // Whether phases are the same under every schedule (mbarrier.cpp):
    bool judged = true;
    bool announced = false, announced_before = false;  // bytes, in the phase that is open, and in the one before
    std::vector<Step> arrivals, arrivals_before;
    std::vector<Step> passed;  // waits for the phase before the one that is open, which no arrival knows of
};

struct MatrixOperation {
    WgmmaForm form;
    uint64_t da, db;
    bool accumulate;
    Site site;
    std::vector<void*> accumulators;  // one for each thread
    std::vector<uint32_t> pieces[4];  // of 16 bytes of shared memory, that are being read, by warp
    bool performed = false;           // at its issue
};

// How far one warp of a warpgroup is: matrix operations are counted from the block's first.
struct MatrixStream {
    bool fenced = false;
    Clock completed = 0;          // groups
    uint64_t performed = 0;       // operations
    std::deque<uint64_t> groups;  // committed and not waited for: where each ends
};

// A thread's registers while the tensor cores own them.
struct Accumulator {
    Lane* owner = nullptr;
    std::vector<uint32_t> content;
};

struct Warpgroup {
    uint32_t arrived = 0;
    Site meeting = 0;
    void* operands[WARPGROUP] = {};
    MatrixStream streams[4];  // of its warps
    uint64_t first = 0;       // the number of the first of `operations`
    std::deque<MatrixOperation> operations;
    std::map<void*, Accumulator> accumulators;  // what the tensor cores own
    uint32_t registers = 0;                     // for each thread
    std::vector<Lane*> waiting_for_registers;
    uint32_t wanted = 0;
};

struct Block {
    uint32_t index = 0, agents = 0;
    uint32_t live = 0;
    std::vector<Lane> lanes;
    std::vector<Warp> warps;
    uint32_t ready_warps = 0;
    std::vector<uint8_t> shared;
    Shadow shadow;
    Clock synced = 0;
    uint32_t era = 1;
    std::vector<Clock> agents_synced;  // by agent beyond the threads
    NamedBarrier barriers[NAMED_BARRIERS];
    std::map<uint32_t, Mbarrier> mbarriers;  // by address
    std::vector<Warpgroup> warpgroups;
    uint32_t free_registers = 0;
    size_t first_stack = 0;
};

struct Options {
    uint32_t threads = 0, blocks = 0, shared_bytes = 0, resident = 4, capacity = 132;
    uint64_t seed = 0;
    int64_t budget = 0;
    bool statistics = true;
    uint32_t shared_granule = 2;  // bytes of shared memory for which races are told apart
    // A synchronising line that takes part but orders nothing: what is found then says whether it was needed.
    int32_t elided_line = 0, elided_at = 0;
    const char* elided_primitive = nullptr;
};

class Machine {
public:
    Core table = {};
    Lane* current = nullptr;
    Options options;
    Findings findings;
    Statistics statistics;
    GlobalMemory memory;
    uint64_t statements = 0;  // of the text, executed by all threads of the run
    bool bytewise = false;    // the run stopped: it needs a shadow of single bytes

    void run(void (*kernel)(const void*), const void* arguments, const Options& chosen);

    // Note that the running thread enters a primitive; returns its site.
    Site enter(Primitive primitive, int at);
    bool elided(Site site) const { return site == elided_ && site != 0; }

    // --- scheduling
    void wait(std::string what);  // until `wake`
    void wake(Lane& lane);
    void yield();                 // let others run if the schedule says so
    void poll(uint64_t address);  // until it is written, or nobody else can run
    void wake_pollers(uint64_t address);
    void enqueue(TileTransfer transfer);
    bool at_once() const { return landing_ == Landing::AT_ONCE; }
    [[noreturn]] void abort_run();
    [[noreturn]] void trap(int signal, uintptr_t address);
    [[noreturn]] void exhausted();
    uint32_t random(uint32_t below);

    // --- knowledge
    bool knows(const Lane& lane, uint32_t block, uint32_t agent, Clock clock) const;
    std::vector<Clock>& row(Lane& lane);         // what it knows beyond the last barrier of the block
    void publish(Lane& lane, Message& message);  // begins a new epoch of the lane
    void receive(Lane& lane, const Message& message);
    ForeignRef everything(Lane& lane);  // as another block is told it
    void acquire(Lane& lane, const ForeignRef& released);
    void full_barrier(Block& block);
    void warp_barrier(Warp& warp);

    // --- collectives: the last lane to arrive performs for all
    template <class F>
    void collective(Primitive primitive, int at, void* operands, F perform) {
        Lane& lane = *current;
        const Site site = enter(primitive, at);
        lane.operands = operands;
        if (!meet(lane, site)) return;
        perform(*lane.warp, site);
        depart(lane);
    }
    void hold(Warp& warp, const std::string& what);  // from within `perform`: its lanes wait
    void release(Warp& warp);

    // Report a finding at the running thread.
    Finding& report(const char* kind, Site site, Site other = 0) { return findings.add(kind, site, other, current); }

private:
    friend void fiber_main();
    friend class Traps;
    bool meet(Lane& lane, Site site);
    void depart(Lane& lane);
    void leave();
    [[noreturn]] void finish_fiber();
    Lane* choose();
    Lane* first_by_rank();
    void draw_schedule();
    int64_t draw_rank(const Block& block, uint32_t warp);
    void go(Lane* next);
    [[noreturn]] void stop();
    void admit();
    void retire(Block& block);
    bool step_transfer();
    bool wake_one_poller();
    void deadlock();

    void* main_stack_ = nullptr;
    Stacks stacks_;
    std::vector<std::unique_ptr<Block>> resident_;
    std::vector<uint32_t> pending_blocks_;
    std::vector<size_t> free_stacks_;
    size_t stacks_made_ = 0;
    std::vector<TileTransfer> transfers_;
    std::unordered_map<uint64_t, std::vector<Lane*>> pollers_;
    void (*kernel_)(const void*) = nullptr;
    const void* arguments_ = nullptr;
    uint64_t rng_ = 1;
    uint64_t progress_ = 0;  // fibers woken or ended
    Order order_ = Order::FORWARD;
    Landing landing_ = Landing::LATE;
    int64_t lowest_rank_ = 0;
    bool aborted_ = false;
    Site elided_ = 0;
};

extern Machine machine;

// --- what other files give to the machine
void check_exit(Lane& lane);               // copies.cpp, at the end of a thread
void check_end(Block& block);              // mbarrier.cpp
void complete(TileTransfer& transfer);     // tma.cpp
std::string describe(const Block& block);  // mbarrier.cpp: what mbarriers are short of
void forget_flags();                       // global.cpp
void bind_shared(Core& table);
void bind_global(Core& table);
void bind_collectives(Core& table);
void bind_copies(Core& table);
void bind_matrix(Core& table);
void bind_mbarriers(Core& table);
void bind_tiles(Core& table);
void bind_wgmma(Core& table);

}  // namespace tracea::emulator
