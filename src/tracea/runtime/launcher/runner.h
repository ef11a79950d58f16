// Runner: one program's signature and handle; it runs operands that are exactly what the program was built for.
#ifndef TRACEA_LAUNCHER_RUNNER_H
#define TRACEA_LAUNCHER_RUNNER_H

#include <stdlib.h>
#include <string.h>

#include "index_range.h"
#include "launcher.h"
#include "operand.h"

namespace tracea_extension {

constexpr int most_operands =
    4096;                        // inputs of a program, and outputs: a model's caches are two of each for every layer
constexpr int most_arrays = 16;  // of a dispatcher
constexpr int most_ranges = 4;

// Room for something of each operand of a call: on the stack for as many as ops have. `items` is null where there is no memory.
template <class Item>
struct Room {
    explicit Room(int count)
        : items(count <= most_arrays ? few : static_cast<Item*>(malloc(static_cast<size_t>(count) * sizeof(Item)))) {}
    ~Room() {
        if (items != few) free(items);
    }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

    Item few[most_arrays];
    Item* items;
};

// The launcher's functions, and the Python functions that take over.
struct Bound {
    int32_t (*run)(const tracea_program*, void* const*, void* const*, int32_t);
    int32_t (*threads)(void);
    void (*refresh)(void);
    int32_t (*is_long)(const tracea_program*);
    PyObject* runner_of;     // (object) -> Runner, NotImplemented for a program without one, None for anything else
    PyObject* run_slowly;    // (program, arrays, out, threads) -> result
    PyObject* raise_status;  // (program, status, threads)
    PyObject* is_traced;     // () -> bool, asked where torch may be recording
};

extern Bound bound;

struct Signature {
    int32_t dtype;
    int32_t rank;
    int64_t shape[most_dims];
    int64_t strides[most_dims];  // 0 where the extent is at most 1, as an Operand's

    bool accepts(const Operand& operand) const {
        if (operand.kind == ABSENT || operand.dtype != dtype || operand.rank != rank) return false;
        const size_t bytes = static_cast<size_t>(rank) * sizeof(int64_t);
        return memcmp(shape, operand.shape, bytes) == 0 && memcmp(strides, operand.strides, bytes) == 0;
    }
};

struct Runner {
    PyObject_HEAD const tracea_program* program;
    int32_t inputs;
    int32_t outputs;
    int32_t range_count;
    bool long_run;
    IndexRange ranges[most_ranges];
    Signature* signatures;  // inputs, then outputs; the runner owns them
};

// Whether torch records what is called with operands of these kinds, ORed: native code would leave a constant in its trace.
bool is_traced(int32_t kinds);

// Whether an output shares no byte with any input, and may be written by distinct indices: false leaves it to the exact check.
bool clean_output(const Operand& out, const Operand* inputs, int count);

// Whether the numbers by which a program reads or writes its memory name something; else Python says which does not.
bool indices_hold(const Runner* runner, const Operand* inputs);

// Runs on operands that match; false with a Python error set where it failed. `owner` is the program's Python object.
bool launch(PyObject* owner, const Runner* runner, const Operand* inputs, void* const* outputs, int32_t threads);

// Runs into new arrays of a kind: the one result, or a tuple of them. `slow`, which begins false: Python has to make one.
PyObject* launch_into_new(PyObject* owner, const Runner* runner, const Operand* inputs, int32_t kind, int32_t threads,
                          bool* slow);

template <class Function>
PyCFunction method(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(function));
}

extern PyType_Spec runner_spec;
extern PyType_Spec dispatcher_spec;

}  // namespace tracea_extension

#endif
