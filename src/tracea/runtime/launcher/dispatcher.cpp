// Dispatcher: callable(array..., out, attribute...) that finds the program of this signature in its own table.
#include "dispatch_key.h"
#include "runner.h"

#include <stddef.h>
#include <stdlib.h>
#include <structmember.h>

namespace tracea_extension {
namespace {

constexpr int most_entries = 4096;  // then the table starts again: shapes that never come back must not pile up

struct Entry {
    uint64_t hash;
    int64_t* words;  // the key; nullptr in an empty place
    int32_t word_count;
    PyObject* program;
    Runner* runner;
    PyObject* held;  // a tuple of the objects whose addresses are in the key: a freed one's address would be another's
};

struct Dispatcher {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject* miss;
    int32_t arrays;
    int32_t used;
    int32_t capacity;  // a power of two, more than used
    Entry* entries;
    int64_t hits;
    int64_t misses;
};

Entry* find(Dispatcher* self, const Key& key) {
    const uint64_t mask = static_cast<uint64_t>(self->capacity) - 1;
    for (uint64_t i = key.hash & mask;; i = (i + 1) & mask) {
        Entry* entry = &self->entries[i];
        if (entry->words == nullptr) return entry;
        if (entry->hash == key.hash && entry->word_count == key.count &&
            memcmp(entry->words, key.words, static_cast<size_t>(key.count) * sizeof(int64_t)) == 0)
            return entry;
    }
}

void drop_entries(Entry* entries, int32_t capacity) {
    for (int32_t i = 0; i < capacity; ++i) {
        if (entries[i].words == nullptr) continue;
        free(entries[i].words);
        Py_DECREF(entries[i].program);
        Py_DECREF(entries[i].runner);
        Py_DECREF(entries[i].held);
    }
    free(entries);
}

// Makes room for one more; false with a Python error set.
bool make_room(Dispatcher* self) {
    if (2 * (self->used + 1) <= self->capacity && self->used < most_entries) return true;
    const bool start_again = self->used >= most_entries;
    const int32_t capacity = start_again ? 64 : 2 * self->capacity;
    Entry* entries = static_cast<Entry*>(calloc(static_cast<size_t>(capacity), sizeof(Entry)));
    if (entries == nullptr) {
        PyErr_NoMemory();
        return false;
    }
    Entry* before = self->entries;
    const int32_t before_capacity = self->capacity;
    self->entries = entries;
    self->capacity = capacity;
    if (start_again) {
        self->used = 0;
        drop_entries(before, before_capacity);
        return true;
    }
    for (int32_t i = 0; i < before_capacity; ++i) {
        if (before[i].words == nullptr) continue;
        uint64_t place = before[i].hash & (static_cast<uint64_t>(capacity) - 1);
        while (entries[place].words != nullptr) place = (place + 1) & (static_cast<uint64_t>(capacity) - 1);
        entries[place] = before[i];
    }
    free(before);
    return true;
}

bool insert(Dispatcher* self, const Key& key, PyObject* program, Runner* runner, const Held& held) {
    if (!make_room(self)) return false;
    Entry* entry = find(self, key);
    if (entry->words != nullptr) return true;  // another thread was first, while this one waited for `miss`
    const size_t bytes = static_cast<size_t>(key.count) * sizeof(int64_t);
    int64_t* words = static_cast<int64_t*>(malloc(bytes));
    if (words == nullptr) {
        PyErr_NoMemory();
        return false;
    }
    PyObject* objects = held.tuple();
    if (objects == nullptr) {
        free(words);
        return false;
    }
    memcpy(words, key.words, bytes);
    *entry = Entry{key.hash, words, key.count, Py_NewRef(program), reinterpret_cast<Runner*>(Py_NewRef(reinterpret_cast<PyObject*>(runner))), objects};
    self->used += 1;
    return true;
}

// Runs a program on the operands of a call; operands that are None are left out. *slow: Python has to run it.
PyObject* run_entry(PyObject* program, const Runner* runner, const Operand* given, int count, PyObject* out, const Operand& out_operand, int32_t threads, bool* slow) {
    Operand inputs[most_arrays];
    int present = 0;
    for (int i = 0; i < count; ++i) {
        if (given[i].kind != ABSENT) inputs[present++] = given[i];
    }
    *slow = !indices_hold(runner, inputs);
    if (*slow) return nullptr;
    void* outputs[1];
    if (out_operand.kind != ABSENT) {
        if (!clean_output(out_operand, inputs, present)) {
            *slow = true;
            return nullptr;
        }
        outputs[0] = out_operand.data;
        if (!count_write(out, out_operand)) return nullptr;
        return launch(program, runner, inputs, outputs, threads) ? Py_NewRef(out) : nullptr;
    }
    return launch_into_new(program, runner, inputs, present > 0 ? inputs[0].kind : int32_t{NUMPY}, threads, slow);
}

PyObject* tuple_of(PyObject* const* items, Py_ssize_t count, bool skip_none) {
    Py_ssize_t kept = 0;
    for (Py_ssize_t i = 0; i < count; ++i) kept += !(skip_none && items[i] == Py_None);
    PyObject* tuple = PyTuple_New(kept);
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; tuple != nullptr && i < count; ++i) {
        if (!(skip_none && items[i] == Py_None)) PyTuple_SET_ITEM(tuple, at++, Py_NewRef(items[i]));
    }
    return tuple;
}

PyObject* run_slowly(PyObject* program, PyObject* const* arguments, int arrays, int32_t threads) {
    PyObject* given = tuple_of(arguments, arrays, true);
    if (given == nullptr) return nullptr;
    PyObject* result = PyObject_CallFunction(bound.run_slowly, "OOOi", program, given, arguments[arrays], static_cast<int>(threads));
    Py_DECREF(given);
    return result;
}

// Whether a runner fits the operands that its program was asked for: `miss` may have answered with another program.
bool fits(const Runner* runner, const Operand* operands, int count, const Operand& out) {
    int present = 0;
    for (int i = 0; i < count; ++i) {
        if (operands[i].kind == ABSENT) continue;
        if (present >= runner->inputs || !runner->signatures[present++].accepts(operands[i])) return false;
    }
    if (present != runner->inputs || runner->outputs < 1) return false;
    return out.kind == ABSENT || (runner->outputs == 1 && runner->signatures[runner->inputs].accepts(out));
}

PyObject* on_miss(Dispatcher* self, PyObject* const* arguments, Py_ssize_t count, const Key* key, const Held& held, const Operand* operands, const Operand& out, int32_t threads) {
    self->misses += 1;
    PyObject* arrays = tuple_of(arguments, self->arrays, false);
    PyObject* attributes = tuple_of(arguments + self->arrays + 1, count - self->arrays - 1, false);
    PyObject* program = nullptr;
    PyObject* runner = nullptr;
    PyObject* result = nullptr;
    if (arrays != nullptr && attributes != nullptr)
        program = PyObject_CallFunction(self->miss, "OOOi", arrays, arguments[self->arrays], attributes, static_cast<int>(threads));
    if (program != nullptr) runner = PyObject_CallOneArg(bound.runner_of, program);
    if (runner == Py_None) {
        result = Py_NewRef(program);  // not a program: the result itself
    } else if (runner == Py_NotImplemented) {
        result = run_slowly(program, arguments, self->arrays, threads);
    } else if (runner != nullptr) {
        Runner* made = reinterpret_cast<Runner*>(runner);
        bool slow = key == nullptr || !fits(made, operands, self->arrays, out);
        if (!slow && insert(self, *key, program, made, held))
            result = run_entry(program, made, operands, self->arrays, arguments[self->arrays], out, threads, &slow);
        if (slow && !PyErr_Occurred()) result = run_slowly(program, arguments, self->arrays, threads);
    }
    Py_XDECREF(runner);
    Py_XDECREF(program);
    Py_XDECREF(arrays);
    Py_XDECREF(attributes);
    return result;
}

PyObject* dispatch(PyObject* callable, PyObject* const* arguments, size_t flags, PyObject* keywords) {
    Dispatcher* self = reinterpret_cast<Dispatcher*>(callable);
    const Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (keywords != nullptr || count < self->arrays + 1 || count > self->arrays + 1 + most_attributes) {
        PyErr_Format(PyExc_TypeError, "%d arrays (or None), out, and at most %d attributes; got %zd positional arguments", self->arrays, most_attributes, count);
        return nullptr;
    }
    if (self->entries == nullptr) {
        PyErr_SetString(PyExc_RuntimeError, "the dispatcher was already collected");
        return nullptr;
    }
    const int32_t threads = bound.threads();
    Operand operands[most_arrays];
    Operand out;
    Key key;
    key.count = 0;
    key.add(threads);
    Held held;
    bool readable = true;
    int32_t kinds = 0;  // of the operands, ORed
    for (int i = 0; readable && i < self->arrays; ++i) {
        readable = read_operand(arguments[i], &operands[i]);
        if (!readable) break;
        kinds |= operands[i].kind;
        key.add(operands[i]);
    }
    readable = readable && read_operand(arguments[self->arrays], &out);
    readable = readable && !is_traced(kinds);  // Python refuses it
    if (readable) key.add(out);
    for (Py_ssize_t i = self->arrays + 1; readable && i < count; ++i) readable = add_attribute(&key, arguments[i], &held);
    if (readable) key.seal();
    const Entry* entry = readable ? find(self, key) : nullptr;
    if (entry == nullptr || entry->words == nullptr) {
        bound.refresh();  // torch, whose setting counts, may have been imported since the last program was made
        if (bound.threads() != threads) return dispatch(callable, arguments, flags, keywords);
        return on_miss(self, arguments, count, readable ? &key : nullptr, held, operands, out, threads);
    }
    self->hits += 1;
    PyObject* program = Py_NewRef(entry->program);
    PyObject* runner = Py_NewRef(reinterpret_cast<PyObject*>(entry->runner));
    bool slow = false;
    PyObject* result = run_entry(program, reinterpret_cast<Runner*>(runner), operands, self->arrays, arguments[self->arrays], out, threads, &slow);
    if (slow) result = run_slowly(program, arguments, self->arrays, threads);
    Py_DECREF(runner);
    Py_DECREF(program);
    return result;
}

PyObject* dispatcher_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    int arrays = 0;
    PyObject* miss = nullptr;
    if (!PyArg_ParseTuple(arguments, "iO", &arrays, &miss)) return nullptr;
    if (bound.run == nullptr || arrays < 1 || arrays > most_arrays || !PyCallable_Check(miss)) {
        PyErr_Format(PyExc_ValueError, "Dispatcher(arrays, miss): 1 to %d arrays and a callable, after bind()", most_arrays);
        return nullptr;
    }
    Dispatcher* self = reinterpret_cast<Dispatcher*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->call = dispatch;
    self->miss = Py_NewRef(miss);
    self->arrays = arrays;
    self->capacity = 64;
    self->entries = static_cast<Entry*>(calloc(64, sizeof(Entry)));
    if (self->entries == nullptr) {
        self->capacity = 0;
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return reinterpret_cast<PyObject*>(self);
}

int dispatcher_traverse(PyObject* object, visitproc visit, void* arg) {
    Dispatcher* self = reinterpret_cast<Dispatcher*>(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->miss);
    for (int32_t i = 0; i < self->capacity; ++i) {
        if (self->entries[i].words == nullptr) continue;
        Py_VISIT(self->entries[i].program);
        Py_VISIT(self->entries[i].held);
    }
    return 0;
}

// Empties the table without ever showing half of it: dropping a program may run Python code that calls this dispatcher.
int dispatcher_clear_table(Dispatcher* self) {
    Entry* fresh = static_cast<Entry*>(calloc(64, sizeof(Entry)));
    if (fresh == nullptr) {
        PyErr_NoMemory();
        return -1;
    }
    Entry* before = self->entries;
    const int32_t capacity = self->capacity;
    self->entries = fresh;
    self->capacity = 64;
    self->used = 0;
    drop_entries(before, capacity);
    return 0;
}

int dispatcher_tp_clear(PyObject* object) {
    Dispatcher* self = reinterpret_cast<Dispatcher*>(object);
    Entry* before = self->entries;
    const int32_t capacity = self->capacity;
    self->entries = nullptr;
    self->capacity = 0;
    self->used = 0;
    if (before != nullptr) drop_entries(before, capacity);
    Py_CLEAR(self->miss);
    return 0;
}

void dispatcher_dealloc(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    dispatcher_tp_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject* dispatcher_clear(PyObject* object, PyObject*) {
    if (dispatcher_clear_table(reinterpret_cast<Dispatcher*>(object)) != 0) return nullptr;
    Py_RETURN_NONE;
}

PyObject* dispatcher_statistics(PyObject* object, PyObject*) {
    const Dispatcher* self = reinterpret_cast<Dispatcher*>(object);
    return Py_BuildValue("{s:i,s:L,s:L}", "entries", self->used, "hits", self->hits, "misses", self->misses);
}

PyMethodDef dispatcher_methods[] = {
    {"clear", dispatcher_clear, METH_NOARGS, "Forget every program."},
    {"statistics", dispatcher_statistics, METH_NOARGS, "Entries now; hits and misses ever."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef dispatcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Dispatcher, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot dispatcher_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(dispatcher_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dispatcher_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(dispatcher_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(dispatcher_tp_clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_methods, dispatcher_methods},
    {Py_tp_members, dispatcher_members},
    {Py_tp_doc, const_cast<char*>("Dispatcher(arrays, miss): callable(array..., out, attribute...)")},
    {0, nullptr},
};

}  // namespace

PyType_Spec dispatcher_spec = {
    "tracea.runtime.Dispatcher", sizeof(Dispatcher), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, dispatcher_slots};

}  // namespace tracea_extension
