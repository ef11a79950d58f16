// The launcher's own threads, for processes without an OpenMP runtime and for children of a fork.
#ifndef TRACEA_LAUNCHER_POOL_H
#define TRACEA_LAUNCHER_POOL_H

#include <stdint.h>

namespace tracea_launcher {

// Runs body(context, rank) on `threads` threads at most, this one as rank 0, and returns when all are done. `begin(context, size)` is
// called before any of them with the number that take part: threads that other regions hold are not waited for.
void pool_run(int32_t threads, void (*begin)(void*, int32_t), void (*body)(void*, int32_t), void* context);

int64_t worker_count();
void lock_pool();
void unlock_pool();
void reset_pool();  // in the child of a fork, which has no threads but its own

}  // namespace tracea_launcher

#endif
