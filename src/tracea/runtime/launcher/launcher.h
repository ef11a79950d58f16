// The launcher's C interface: a Program is built once from a table of words and then walked by one call.
//
// Everything here may be called from any thread at any time, and again in a child after fork. Nothing throws; nothing calls Python.
#ifndef TRACEA_LAUNCHER_H
#define TRACEA_LAUNCHER_H

#include <stdint.h>

#include "tracea/abi.h"

#define TRACEA_API extern "C" __attribute__((visibility("default")))

// What tracea_program_run returns.
enum tracea_status {
    TRACEA_OK = 0,
    TRACEA_OUT_OF_MEMORY = 1,    // the arena and the scratch could not be mapped, or are more than this machine has
    TRACEA_LIBRARY_FAILED = 2,   // a library port reported an error; torch printed it
    TRACEA_LIBRARY_MISSING = 3,  // a library port's function is not loaded in this process
    TRACEA_MALFORMED = 4,        // the table of words does not describe a program
};

enum tracea_slot_kind { TRACEA_INPUT = 0, TRACEA_OUTPUT = 1, TRACEA_CONSTANT = 2, TRACEA_ARENA = 3 };
enum tracea_call_kind { TRACEA_KERNEL = 0, TRACEA_LIBRARY = 1 };
enum tracea_library_function {
    TRACEA_MM = 0,
    TRACEA_ADDMM = 1,
    TRACEA_BMM = 2,
    TRACEA_BADDBMM = 3,
    TRACEA_LIBRARY_FUNCTIONS = 4
};

typedef struct tracea_program tracea_program;

// The table, all int64 (scalars are the bits of doubles):
//   format 1, inputs, outputs, arena bytes, calls, then for each call
//     kind, address of the kernel or tracea_library_function, parallel, team scratch bytes, thread scratch bytes, slots, integers, scalars
//     slots x (kind, index or address of the constant, byte offset), integers, scalars
//     and for a library call, slots x (dtype, rank, sizes, strides in elements); dtypes are those of `tracea_dtype`.
enum tracea_dtype {
    TRACEA_F64 = 0,
    TRACEA_F32,
    TRACEA_F16,
    TRACEA_BF16,
    TRACEA_I64,
    TRACEA_I32,
    TRACEA_I8,
    TRACEA_U8,
    TRACEA_BOOL,
    TRACEA_DTYPES
};

TRACEA_API int32_t tracea_program_create(const int64_t* words, int64_t count, tracea_program** created);
TRACEA_API void tracea_program_destroy(tracea_program* program);
// threads <= 0 means tracea_threads(). Fewer may take part; the result does not depend on that being reported.
TRACEA_API int32_t tracea_program_run(const tracea_program* program, void* const* inputs, void* const* outputs,
                                      int32_t threads);
// Whether a run is worth releasing a lock for: it uses threads, or calls a library.
TRACEA_API int32_t tracea_program_is_long(const tracea_program* program);

// The thread count of a call that names none: the override, else torch's for this thread, else OpenMP's, else the cores allowed.
TRACEA_API int32_t tracea_threads(void);
TRACEA_API void tracea_threads_override(int32_t threads);  // 0 takes it back
// The process is the child of a fork from before this library was loaded, which hears of later ones itself.
TRACEA_API void tracea_mark_forked(void);
// Looks for an OpenMP runtime and for torch among the loaded libraries; called by tracea_program_create too.
TRACEA_API void tracea_refresh(void);
// The file of the OpenMP runtime whose threads are used, or "" for the launcher's own pool.
TRACEA_API const char* tracea_thread_source(void);
TRACEA_API int32_t tracea_library_available(int32_t function);
TRACEA_API int32_t tracea_cpu_supports(const char* isa);

typedef struct tracea_statistics {
    int64_t workspaces;       // alive, idle or in use
    int64_t workspace_bytes;  // mapped
    int64_t mapped;           // times that memory was asked of the system, ever
    int64_t acquired;         // runs that took a workspace, ever
    int64_t workers;          // threads of the launcher's own pool
} tracea_statistics;
TRACEA_API void tracea_get_statistics(tracea_statistics* out);
TRACEA_API void tracea_trim(void);  // gives the idle workspaces back to the system

#endif
