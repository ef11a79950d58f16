#include "workspace.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "launcher.h"

namespace tracea_launcher {
namespace {

constexpr int64_t huge_page = int64_t{1} << 21;
// Below this a huge page would cost more to clear than it saves in address translation.
constexpr int64_t worth_huge_pages = int64_t{1} << 19;

pthread_mutex_t workspace_mutex = PTHREAD_MUTEX_INITIALIZER;
Workspace* idle_workspaces = nullptr;  // last in, first out: the warmest first
tracea_statistics statistics{};

// Maps `bytes` (a multiple of 2 MiB) at a 2 MiB boundary: the surplus of a larger mapping is cut off at both ends.
char* map_aligned(int64_t bytes) {
    const int64_t surplus = bytes + huge_page;
    void* raw = mmap(nullptr, static_cast<size_t>(surplus), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return nullptr;
    char* begin = static_cast<char*>(raw);
    const int64_t skip = (huge_page - static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) % huge_page)) % huge_page;
    if (skip > 0) munmap(begin, static_cast<size_t>(skip));
    const int64_t rest = huge_page - skip;
    if (rest > 0) munmap(begin + skip + bytes, static_cast<size_t>(rest));
    return begin + skip;
}

// The mapping is not reserved, so that any size succeeds: what the machine does not have would end the process once it is written.
bool exceeds_machine(int64_t bytes) {
    const int64_t pages = sysconf(_SC_PHYS_PAGES);
    return pages > 0 && bytes / sysconf(_SC_PAGESIZE) > pages;
}

bool grow(Workspace* workspace, int64_t bytes) {
    if (exceeds_machine(bytes)) return false;
    const int64_t capacity = (bytes + huge_page - 1) / huge_page * huge_page;
    char* base = map_aligned(capacity);
    if (base == nullptr) return false;
    if (bytes >= worth_huge_pages) madvise(base, static_cast<size_t>(capacity), MADV_HUGEPAGE);
    if (workspace->base != nullptr) munmap(workspace->base, static_cast<size_t>(workspace->capacity));
    lock_workspaces();
    statistics.mapped += 1;
    statistics.workspace_bytes += capacity - workspace->capacity;
    unlock_workspaces();
    workspace->base = base;
    workspace->capacity = capacity;
    return true;
}

}  // namespace

void lock_workspaces() { pthread_mutex_lock(&workspace_mutex); }
void unlock_workspaces() { pthread_mutex_unlock(&workspace_mutex); }
void reset_workspace_lock() { pthread_mutex_init(&workspace_mutex, nullptr); }

Workspace* acquire_workspace(int64_t bytes) {
    lock_workspaces();
    Workspace* workspace = idle_workspaces;
    if (workspace != nullptr) idle_workspaces = workspace->next;
    statistics.acquired += 1;
    if (workspace == nullptr) statistics.workspaces += 1;
    unlock_workspaces();
    if (workspace == nullptr) workspace = static_cast<Workspace*>(calloc(1, sizeof(Workspace)));
    if (workspace != nullptr && (workspace->capacity >= bytes || grow(workspace, bytes))) return workspace;
    if (workspace != nullptr) {
        release_workspace(workspace);
    } else {
        lock_workspaces();
        statistics.workspaces -= 1;
        unlock_workspaces();
    }
    return nullptr;
}

void release_workspace(Workspace* workspace) {
    lock_workspaces();
    workspace->next = idle_workspaces;
    idle_workspaces = workspace;
    unlock_workspaces();
}

}  // namespace tracea_launcher

namespace tracea_launcher {
int64_t worker_count();
}

TRACEA_API void tracea_get_statistics(tracea_statistics* out) {
    tracea_launcher::lock_workspaces();
    *out = tracea_launcher::statistics;
    tracea_launcher::unlock_workspaces();
    out->workers = tracea_launcher::worker_count();
}

TRACEA_API void tracea_trim(void) {
    tracea_launcher::lock_workspaces();
    tracea_launcher::Workspace* list = tracea_launcher::idle_workspaces;
    tracea_launcher::idle_workspaces = nullptr;
    for (tracea_launcher::Workspace* each = list; each != nullptr; each = each->next) {
        tracea_launcher::statistics.workspaces -= 1;
        tracea_launcher::statistics.workspace_bytes -= each->capacity;
    }
    tracea_launcher::unlock_workspaces();
    while (list != nullptr) {
        tracea_launcher::Workspace* next = list->next;
        if (list->base != nullptr) munmap(list->base, static_cast<size_t>(list->capacity));
        free(list);
        list = next;
    }
}
