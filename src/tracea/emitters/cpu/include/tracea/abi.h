// The C interface between a kernel and whoever launches it.
//
// A kernel is a *team function*: every thread of the parallel region calls it once with its own rank, and the threads share work inside it by task
// loops and team barriers (team.h). Nothing here allocates: scratch and team memory belong to the launcher.
//
//   pointers[i], integers[i], scalars[i]   arguments, in the order that the kernel's text states
//   team_scratch                           one buffer for the whole team, 64-byte aligned (2 MiB aligned where large), content undefined
//   thread_scratch                         base of team->size buffers of thread_scratch_bytes each; rank r owns [r * bytes, (r + 1) * bytes)
//   team                                   zero-filled by the launcher but for `size`; reusable for any number of kernels without clearing, provided
//                                          that all threads left one kernel before any enters the next (a join, or team_barrier)
//   backward                               nonzero: static loops walk from their end (team.h); a launcher that alternates it from call to call lets a
//                                          kernel begin where the one before, or its own last run, left the caches
#ifndef TRACEA_ABI_H
#define TRACEA_ABI_H

#include <stdint.h>

#define TRACEA_CACHE_LINE 64
#define TRACEA_TASK_SLOTS 8

#ifdef __cplusplus
extern "C" {
#endif

// One counter alone on its cache line (and away from its neighbour's prefetch pair).
typedef struct tracea_counter {
    int64_t value;
    char padding[2 * TRACEA_CACHE_LINE - sizeof(int64_t)];
} tracea_counter;

typedef struct tracea_team {
    int32_t size;
    char padding[2 * TRACEA_CACHE_LINE - sizeof(int32_t)];
    tracea_counter arrived;                   // threads that reached the current barrier
    tracea_counter generation;                // barriers completed; the first 32 bits are the futex word
    tracea_counter sleeping;                  // threads asleep at the current barrier
    tracea_counter tasks[TRACEA_TASK_SLOTS];  // next task of the dynamic loop in each slot; zero between loops
} tracea_team;

typedef struct tracea_call {
    void* const* pointers;
    const int64_t* integers;
    const double* scalars;
    char* team_scratch;
    char* thread_scratch;
    int64_t thread_scratch_bytes;
    tracea_team* team;
    int64_t backward;
} tracea_call;

typedef void (*tracea_kernel)(const tracea_call* call, int32_t rank);

#ifdef __cplusplus
}
#endif

#endif
