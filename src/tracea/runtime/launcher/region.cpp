#include "region.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher.h"
#include "pool.h"
#include "tracea/amx_grant.h"
#include "tracea/team.h"
#include "workspace.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tracea_launcher {
namespace {

#if defined(__x86_64__)
// What the processor has and the system saves. Not __builtin_cpu_supports: its table lies in a library of the compiler, which
// zig's linker does not let a shared library refer to. Source: Intel SDM volume 1, 14.3 and 15.2 to 15.4.
struct Features {
    bool avx2;    // with FMA and F16C
    bool avx512;  // F, BW, DQ and VL
};

bool has(unsigned word, int bit) { return (word >> bit & 1u) != 0; }

Features features() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !has(c, 27)) return {};  // OSXSAVE
    const bool with_avx2 = has(c, 12) && has(c, 29);                      // FMA, F16C
    unsigned saved = 0, upper = 0;
    __asm__("xgetbv" : "=a"(saved), "=d"(upper) : "c"(0));
    if ((saved & 0x06u) != 0x06u || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return {};  // SSE and AVX state
    const bool avx2 = with_avx2 && has(b, 5);
    const bool avx512 = avx2 && (saved & 0xe6u) == 0xe6u && has(b, 16) && has(b, 17) && has(b, 30) && has(b, 31);
    return {avx2, avx512};
}
#endif

typedef void (*GompParallel)(void (*)(void*), void*, unsigned, unsigned);
typedef int (*IntFunction)(void);
typedef void (*SetFunction)(int);

// One OpenMP runtime; never changed after it was published.
struct OpenMp {
    GompParallel parallel;
    IntFunction thread_number;
    IntFunction team_size;
    IntFunction most_threads;
    LoadedLibrary file;
};

const OpenMp* openmp = nullptr;
IntFunction torch_get_threads = nullptr;
SetFunction torch_set_threads = nullptr;
int32_t forked = 0;    // libgomp's threads do not exist in a child, and it would wait for them
int32_t overridden = 0;

struct Search {
    const char* library;
    const char* preferred;
    LoadedLibrary* found;
    bool any;
};

int visit(dl_phdr_info* info, size_t, void* argument) {
    Search* search = static_cast<Search*>(argument);
    const char* path = info->dlpi_name;
    const char* slash = path == nullptr ? nullptr : strrchr(path, '/');
    if (slash == nullptr || strstr(slash, search->library) == nullptr || strlen(path) >= sizeof(search->found->path)) return 0;
    const bool preferred = strstr(path, search->preferred) != nullptr;
    if (search->any && !preferred) return 0;
    strcpy(search->found->path, path);
    search->found->preferred = preferred;
    search->any = true;
    return preferred ? 1 : 0;
}

template <class Function>
Function symbol(void* handle, const char* name) {
    return reinterpret_cast<Function>(dlsym(handle, name));
}

const OpenMp* usable_openmp() {
    if (is_forked()) return nullptr;
    return __atomic_load_n(&openmp, __ATOMIC_ACQUIRE);
}

struct OpenMpRegion {
    const OpenMp* openmp;
    int32_t requested;
    tracea_team* team;
    void (*body)(void*, int32_t);
    void* context;
    int32_t resized;
};

// Every thread sees the same team size. Where it is not the one asked for (nested regions, thread limits), rank 0 corrects the team
// before anybody enters the body: a barrier that counts absent threads would never open.
void openmp_entry(void* argument) {
    OpenMpRegion* region = static_cast<OpenMpRegion*>(argument);
    const int32_t rank = region->openmp->thread_number();
    const int32_t size = region->openmp->team_size();
    if (size != region->requested) {
        if (rank == 0) {
            region->team->size = size;
            __atomic_store_n(&region->resized, 1, __ATOMIC_RELEASE);
        } else {
            while (__atomic_load_n(&region->resized, __ATOMIC_ACQUIRE) == 0) sched_yield();
        }
    }
    region->body(region->context, rank);
}

struct PoolRegion {
    tracea_team* team;
    void (*body)(void*, int32_t);
    void* context;
};

void pool_begin(void* argument, int32_t size) { static_cast<PoolRegion*>(argument)->team->size = size; }

void pool_body(void* argument, int32_t rank) {
    PoolRegion* region = static_cast<PoolRegion*>(argument);
    region->body(region->context, rank);
}

int32_t cores_allowed() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? static_cast<int32_t>(online) : 1;
}

void before_fork() {
    lock_workspaces();
    lock_pool();
}

void after_fork_in_parent() {
    unlock_pool();
    unlock_workspaces();
}

void after_fork_in_child() {
    reset_pool();
    reset_workspace_lock();
    __atomic_store_n(&forked, 1, __ATOMIC_RELAXED);
}

__attribute__((constructor)) void on_load() { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

}  // namespace

bool find_loaded(const char* library, const char* preferred, LoadedLibrary* found) {
    Search search{library, preferred, found, false};
    dl_iterate_phdr(visit, &search);
    return search.any;
}

bool is_forked() { return __atomic_load_n(&forked, __ATOMIC_RELAXED) != 0; }

void run_region(int32_t threads, tracea_team* team, void (*body)(void*, int32_t), void* context) {
    if (const OpenMp* runtime = usable_openmp()) {
        OpenMpRegion region{runtime, threads, team, body, context, 0};
        runtime->parallel(openmp_entry, &region, static_cast<unsigned>(threads), 0);
    } else {
        PoolRegion region{team, body, context};
        pool_run(threads, pool_begin, pool_body, &region);
    }
}

int32_t torch_threads() {
    IntFunction get = __atomic_load_n(&torch_get_threads, __ATOMIC_ACQUIRE);
    return get == nullptr ? 0 : get();
}

void set_torch_threads(int32_t threads) {
    if (SetFunction set = __atomic_load_n(&torch_set_threads, __ATOMIC_ACQUIRE)) set(threads);
}

}  // namespace tracea_launcher

TRACEA_API void tracea_refresh(void) {
    using namespace tracea_launcher;
    LoadedLibrary file;
    if (__atomic_load_n(&torch_get_threads, __ATOMIC_ACQUIRE) == nullptr && find_loaded("libtorch_cpu.so", "/torch/", &file)) {
        if (void* handle = dlopen(file.path, RTLD_LAZY | RTLD_NOLOAD)) {
            __atomic_store_n(&torch_set_threads, symbol<SetFunction>(handle, "_ZN2at15set_num_threadsEi"), __ATOMIC_RELEASE);
            __atomic_store_n(&torch_get_threads, symbol<IntFunction>(handle, "_ZN2at15get_num_threadsEv"), __ATOMIC_RELEASE);
        }
    }
    // A process may hold several libgomp files, since wheels bring their own. torch's is preferred: its threads then serve both. Regions
    // that run on another one meanwhile keep their own pointer to it.
    const OpenMp* known = __atomic_load_n(&openmp, __ATOMIC_ACQUIRE);
    if ((known != nullptr && known->file.preferred) || !find_loaded("libgomp", "/torch", &file)) return;
    if (known != nullptr && !file.preferred) return;
    void* handle = dlopen(file.path, RTLD_LAZY | RTLD_NOLOAD);
    OpenMp* found = handle == nullptr ? nullptr : static_cast<OpenMp*>(calloc(1, sizeof(OpenMp)));
    if (found == nullptr) return;
    found->parallel = symbol<GompParallel>(handle, "GOMP_parallel");
    found->thread_number = symbol<IntFunction>(handle, "omp_get_thread_num");
    found->team_size = symbol<IntFunction>(handle, "omp_get_num_threads");
    found->most_threads = symbol<IntFunction>(handle, "omp_get_max_threads");
    found->file = file;
    if (found->parallel != nullptr && found->thread_number != nullptr && found->team_size != nullptr && found->most_threads != nullptr)
        __atomic_store_n(&openmp, found, __ATOMIC_RELEASE);
    else
        free(found);
}

TRACEA_API int32_t tracea_threads(void) {
    using namespace tracea_launcher;
    const int32_t chosen = __atomic_load_n(&overridden, __ATOMIC_RELAXED);
    if (chosen > 0) return chosen;
    const int32_t torch = torch_threads();
    if (torch > 0) return torch;
    if (const OpenMp* runtime = usable_openmp()) return runtime->most_threads();
    return cores_allowed();
}

TRACEA_API void tracea_mark_forked() { __atomic_store_n(&tracea_launcher::forked, 1, __ATOMIC_RELAXED); }

TRACEA_API void tracea_threads_override(int32_t threads) { __atomic_store_n(&tracea_launcher::overridden, threads, __ATOMIC_RELAXED); }

TRACEA_API const char* tracea_thread_source(void) {
    const tracea_launcher::OpenMp* runtime = tracea_launcher::usable_openmp();
    return runtime == nullptr ? "" : runtime->file.path;
}

TRACEA_API int32_t tracea_cpu_supports(const char* isa) {
#if defined(__x86_64__)
    if (strcmp(isa, "plain") == 0) return 1;
    const tracea_launcher::Features found = tracea_launcher::features();
    const bool avx2 = found.avx2;
    if (strcmp(isa, "avx2") == 0) return avx2;
    const bool avx512 = found.avx512;
    if (strcmp(isa, "avx512") == 0) return avx512;
    if (strcmp(isa, "amx") == 0) return avx512 && tracea_amx_granted();
#elif defined(__aarch64__)
    if (strcmp(isa, "plain") == 0 || strcmp(isa, "neon") == 0) return 1;
#else
    if (strcmp(isa, "plain") == 0) return 1;
#endif
    return 0;
}
