// The walker: a Program's calls, run in order, as few parallel regions as possible.
#include <stdlib.h>
#include <string.h>

#include "launcher.h"
#include "port.h"
#include "region.h"
#include "tracea/team.h"
#include "workspace.h"

using namespace tracea_launcher;

namespace {

constexpr int32_t most_threads = 1024;
constexpr int64_t page = 4096;
// More than any machine has, and so little that no sum of a run's parts, with scratch for each thread, overflows.
constexpr int64_t most_bytes = int64_t{1} << 50;

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

struct tracea_program {
    struct Slot {
        int64_t kind;
        int64_t where;  // index, or the address of a constant
        int64_t offset;
    };

    struct Call {
        int32_t kind;
        int32_t function;  // of a library
        tracea_kernel kernel;
        bool parallel;
        int64_t slot_count;
        int64_t first_slot;
        const int64_t* integers;
        const double* scalars;
        const Blob* blobs;
        int64_t thread_scratch;  // rounded to a cache line
    };

    int64_t inputs;
    int64_t outputs;
    int64_t arena;
    int64_t team_scratch;    // the largest of all calls
    int64_t thread_scratch;  // the largest of all calls, rounded to a cache line
    int64_t call_count;
    int64_t slot_count;
    bool parallel;
    bool library;
    Call* calls;
    Slot* slots;
    int64_t* words;  // the table; calls point into it
    Blob* blobs;
    mutable int64_t runs;  // the last bit is used; runs at the same time may count one less
};

namespace {

using Slot = tracea_program::Slot;
using Call = tracea_program::Call;

// What the threads of one run share.
struct Run {
    const tracea_program* program;
    tracea_call* calls;
    int64_t begin;
    int64_t end;
    tracea_team* team;
};

bool serial(const tracea_program* program, int64_t call) { return !program->calls[call].parallel; }

// The calls [begin, end) as one thread of a team sees them. Serial calls belong to rank 0, with a team of one.
void walk(void* context, int32_t rank) {
    const Run* run = static_cast<const Run*>(context);
    const tracea_call team{nullptr, nullptr, nullptr, nullptr, nullptr, 0, run->team, 0};
    for (int64_t i = run->begin; i < run->end; ++i) {
        if (!serial(run->program, i))
            run->program->calls[i].kernel(&run->calls[i], rank);
        else if (rank == 0)
            run->program->calls[i].kernel(&run->calls[i], 0);
        const bool last = i + 1 == run->end;
        if (!last && !(serial(run->program, i) && serial(run->program, i + 1))) tracea::team_barrier(&team, rank);
    }
}

// A cursor over the table that refuses to read past its end.
struct Reader {
    const int64_t* words;
    int64_t left;
    bool failed;

    const int64_t* take(int64_t count) {
        if (failed || count < 0 || count > left) {
            failed = true;
            return nullptr;
        }
        const int64_t* at = words;
        words += count;
        left -= count;
        return at;
    }
    int64_t one() {
        const int64_t* at = take(1);
        return at == nullptr ? 0 : *at;
    }
};

bool valid_slot(const tracea_program* program, const Slot& slot) {
    switch (slot.kind) {
        case TRACEA_INPUT: return slot.where >= 0 && slot.where < program->inputs;
        case TRACEA_OUTPUT: return slot.where >= 0 && slot.where < program->outputs;
        case TRACEA_CONSTANT: return slot.where != 0;
        case TRACEA_ARENA: return slot.where == 0 && slot.offset >= 0 && slot.offset <= program->arena;
        default: return false;
    }
}

bool read_blob(Reader* reader, Blob* blob) {
    const int64_t dtype = reader->one();
    const int64_t rank = reader->one();
    if (dtype < 0 || dtype >= TRACEA_DTYPES || rank < 0 || rank > port_rank) return false;
    blob->dtype = static_cast<int32_t>(dtype);
    blob->rank = static_cast<int32_t>(rank);
    const int64_t* sizes = reader->take(rank);
    const int64_t* strides = reader->take(rank);
    if (reader->failed) return false;
    memcpy(blob->sizes, sizes, static_cast<size_t>(rank) * sizeof(int64_t));
    memcpy(blob->strides, strides, static_cast<size_t>(rank) * sizeof(int64_t));
    return true;
}

int32_t read_call(Reader* reader, tracea_program* program, Call* call) {
    const int64_t kind = reader->one();
    const int64_t target = reader->one();
    const int64_t parallel = reader->one();
    const int64_t team_scratch = reader->one();
    const int64_t thread_scratch = reader->one();
    const int64_t slots = reader->one();
    const int64_t integers = reader->one();
    const int64_t scalars = reader->one();
    if (reader->failed || team_scratch < 0 || thread_scratch < 0 || target == (kind == TRACEA_KERNEL ? 0 : -1)) return TRACEA_MALFORMED;
    if (team_scratch > most_bytes || thread_scratch > most_bytes) return TRACEA_OUT_OF_MEMORY;
    call->kind = static_cast<int32_t>(kind);
    call->parallel = parallel != 0;
    call->thread_scratch = round_up(thread_scratch, TRACEA_CACHE_LINE);
    call->first_slot = program->slot_count;
    call->slot_count = slots;
    const Slot* given = reinterpret_cast<const Slot*>(reader->take(slots < 0 || slots > reader->left ? -1 : 3 * slots));
    call->integers = reader->take(integers);
    call->scalars = reinterpret_cast<const double*>(reader->take(scalars));
    if (reader->failed) return TRACEA_MALFORMED;
    for (int64_t i = 0; i < slots; ++i) {
        if (!valid_slot(program, given[i])) return TRACEA_MALFORMED;
        program->slots[program->slot_count++] = given[i];
    }
    if (team_scratch > program->team_scratch) program->team_scratch = team_scratch;
    if (call->thread_scratch > program->thread_scratch) program->thread_scratch = call->thread_scratch;
    if (kind == TRACEA_KERNEL) {
        call->kernel = reinterpret_cast<tracea_kernel>(target);
        program->parallel |= call->parallel;
        return TRACEA_OK;
    }
    call->function = static_cast<int32_t>(target);
    const int32_t operands = port_arity(call->function);
    if (kind != TRACEA_LIBRARY || operands < 0 || slots != operands || (operands == 4 && scalars != 2)) return TRACEA_MALFORMED;
    if (!resolve_port(call->function)) return TRACEA_LIBRARY_MISSING;
    program->library = true;
    Blob* blobs = program->blobs + port_operands * (call - program->calls);
    for (int64_t i = 0; i < slots; ++i) {
        if (!read_blob(reader, &blobs[i])) return TRACEA_MALFORMED;
    }
    call->blobs = blobs;
    return TRACEA_OK;
}

int32_t read_program(tracea_program* program, int64_t count) {
    Reader reader{program->words, count, false};
    if (reader.one() != 1) return TRACEA_MALFORMED;
    program->inputs = reader.one();
    program->outputs = reader.one();
    program->arena = reader.one();
    const int64_t calls = reader.one();
    if (reader.failed || program->inputs < 0 || program->outputs < 0 || program->arena < 0 || calls < 0 || calls > count) return TRACEA_MALFORMED;
    if (program->arena > most_bytes) return TRACEA_OUT_OF_MEMORY;
    program->calls = static_cast<Call*>(calloc(static_cast<size_t>(calls) + 1, sizeof(Call)));
    program->slots = static_cast<Slot*>(calloc(static_cast<size_t>(count) + 1, sizeof(int64_t)));
    program->blobs = static_cast<Blob*>(calloc(static_cast<size_t>(calls) * port_operands + 1, sizeof(Blob)));
    if (program->calls == nullptr || program->slots == nullptr || program->blobs == nullptr) return TRACEA_OUT_OF_MEMORY;
    for (; program->call_count < calls; ++program->call_count) {
        const int32_t status = read_call(&reader, program, &program->calls[program->call_count]);
        if (status != TRACEA_OK) return status;
    }
    return reader.left == 0 ? TRACEA_OK : TRACEA_MALFORMED;
}

int32_t run_library(const Call& call, const tracea_call& arguments, int32_t threads) {
    // torch reads its own setting. It is changed, and put back, only where this run asks for another one.
    const int32_t before = torch_threads();
    if (is_forked()) threads = 1;
    if (before != threads) set_torch_threads(threads);
    const int32_t failed = call_port(call.function, arguments.pointers, call.blobs, arguments.scalars);
    if (before != threads) set_torch_threads(before);
    return failed == 0 ? TRACEA_OK : TRACEA_LIBRARY_FAILED;
}

}  // namespace

TRACEA_API int32_t tracea_program_create(const int64_t* words, int64_t count, tracea_program** created) {
    *created = nullptr;
    tracea_refresh();
    tracea_program* program = static_cast<tracea_program*>(calloc(1, sizeof(tracea_program)));
    if (program == nullptr) return TRACEA_OUT_OF_MEMORY;
    program->words = static_cast<int64_t*>(malloc((static_cast<size_t>(count) + 1) * sizeof(int64_t)));
    if (program->words == nullptr) {
        tracea_program_destroy(program);
        return TRACEA_OUT_OF_MEMORY;
    }
    memcpy(program->words, words, static_cast<size_t>(count) * sizeof(int64_t));
    const int32_t status = read_program(program, count);
    if (status != TRACEA_OK) {
        tracea_program_destroy(program);
        return status;
    }
    *created = program;
    return TRACEA_OK;
}

TRACEA_API void tracea_program_destroy(tracea_program* program) {
    if (program == nullptr) return;
    free(program->calls);
    free(program->slots);
    free(program->blobs);
    free(program->words);
    free(program);
}

TRACEA_API int32_t tracea_program_is_long(const tracea_program* program) { return program->parallel || program->library; }

TRACEA_API int32_t tracea_program_run(const tracea_program* program, void* const* inputs, void* const* outputs, int32_t threads) {
    if (threads <= 0) threads = tracea_threads();
    if (threads > most_threads) threads = most_threads;
    const int32_t team_threads = program->parallel ? threads : 1;

    // team | team of one | arguments | pointers | arena | team scratch | scratch of each thread
    const int64_t at_calls = 2 * round_up(sizeof(tracea_team), page);
    const int64_t at_pointers = at_calls + program->call_count * static_cast<int64_t>(sizeof(tracea_call));
    const int64_t at_arena = round_up(at_pointers + program->slot_count * static_cast<int64_t>(sizeof(void*)), page);
    const int64_t at_team_scratch = round_up(at_arena + program->arena, page);
    const int64_t at_thread_scratch = round_up(at_team_scratch + program->team_scratch, page);
    const int64_t bytes = at_thread_scratch + program->thread_scratch * team_threads;
    Workspace* workspace = acquire_workspace(bytes);
    if (workspace == nullptr) return TRACEA_OUT_OF_MEMORY;

    char* const base = workspace->base;
    tracea_team* const team = reinterpret_cast<tracea_team*>(base);
    tracea_team* const alone = reinterpret_cast<tracea_team*>(base + round_up(sizeof(tracea_team), page));
    memset(static_cast<void*>(team), 0, sizeof(tracea_team));
    alone->size = 1;
    team->size = team_threads;
    tracea_call* const calls = reinterpret_cast<tracea_call*>(base + at_calls);
    void** const pointers = reinterpret_cast<void**>(base + at_pointers);
    for (int64_t i = 0; i < program->slot_count; ++i) {
        const Slot& slot = program->slots[i];
        char* address = nullptr;
        switch (slot.kind) {
            case TRACEA_INPUT: address = static_cast<char*>(inputs[slot.where]); break;
            case TRACEA_OUTPUT: address = static_cast<char*>(outputs[slot.where]); break;
            case TRACEA_CONSTANT: address = reinterpret_cast<char*>(slot.where); break;
            default: address = base + at_arena; break;
        }
        pointers[i] = address + slot.offset;
    }
    // Each kernel walks the other way than the one before it, and than itself the last time.
    const int64_t runs = __atomic_load_n(&program->runs, __ATOMIC_RELAXED);
    __atomic_store_n(&program->runs, runs + 1, __ATOMIC_RELAXED);
    for (int64_t i = 0; i < program->call_count; ++i) {
        const Call& call = program->calls[i];
        tracea_team* const own = call.parallel ? team : alone;
        calls[i] = tracea_call{pointers + call.first_slot, call.integers,      call.scalars, base + at_team_scratch, base + at_thread_scratch,
                               call.thread_scratch,        own, (runs + i) & 1};
    }

    int32_t status = TRACEA_OK;
    for (int64_t i = 0; i < program->call_count && status == TRACEA_OK;) {
        if (program->calls[i].kind == TRACEA_LIBRARY) {
            status = run_library(program->calls[i], calls[i], threads);
            ++i;
            continue;
        }
        Run run{program, calls, i, i, team};
        bool shared = false;
        for (; run.end < program->call_count && program->calls[run.end].kind == TRACEA_KERNEL; ++run.end) shared |= program->calls[run.end].parallel;
        if (shared && team_threads > 1) {
            team->size = team_threads;
            run_region(team_threads, team, walk, &run);
        } else {
            team->size = 1;
            walk(&run, 0);
        }
        i = run.end;
    }
    release_workspace(workspace);
    return status;
}
