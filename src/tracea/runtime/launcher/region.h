// One parallel region: on the OpenMP runtime that the process already has (torch's), else on the launcher's own pool.
#ifndef TRACEA_LAUNCHER_REGION_H
#define TRACEA_LAUNCHER_REGION_H

#include <stdint.h>

#include "tracea/abi.h"

namespace tracea_launcher {

// Runs body(context, rank) on a team of `threads` threads at most; team->size is the number that take part, team->size == threads on entry.
void run_region(int32_t threads, tracea_team* team, void (*body)(void*, int32_t), void* context);

// Finds a function of a loaded library whose file name contains `library`; prefers a path that contains `preferred`.
struct LoadedLibrary {
    char path[4096];
    bool preferred;
};
bool find_loaded(const char* library, const char* preferred, LoadedLibrary* found);

// torch's thread count for the calling thread; 0 where torch is not loaded.
int32_t torch_threads();
void set_torch_threads(int32_t threads);

// Whether this is a child of a process that had loaded us: the threads of its OpenMP runtime are not here, and a region of several would wait for them.
bool is_forked();

}  // namespace tracea_launcher

#endif
