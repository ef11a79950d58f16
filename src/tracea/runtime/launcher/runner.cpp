#include "runner.h"

namespace tracea_extension {

Bound bound{};

namespace {

bool overlap(const Operand& first, const Operand& second) {
    const char *low, *high, *begin, *end;
    first.range(&low, &high);
    second.range(&begin, &end);
    return begin < high && low < end;
}

bool disjoint(const Operand& out, const Operand* inputs, int count) {
    for (int i = 0; i < count; ++i) {
        if (overlap(out, inputs[i])) return false;
    }
    return true;
}

// An output of the caller's may not reach one element by two indices. It cannot where each axis, from the shortest stride to the longest, steps over all of
// those before it: contiguous outputs in any order of axes, channels last among them. Others are left to the exact check.
bool plain_output(const Operand& out) {
    bool seen[most_dims] = {};
    int64_t step = 1;
    for (int found = 0; found < out.rank; ++found) {
        int next = -1;
        for (int i = 0; i < out.rank; ++i) {
            if (!seen[i] && (next < 0 || out.strides[i] < out.strides[next])) next = i;
        }
        seen[next] = true;
        if (out.shape[next] <= 1) continue;  // its stride is 0 here
        if (out.strides[next] < step) return false;
        step = out.strides[next] * out.shape[next];
    }
    return out.writable;
}

}  // namespace

bool is_traced(int32_t kinds) {
    if ((kinds & TORCH) == 0 || !may_be_traced()) return false;
    PyObject* answer = PyObject_CallNoArgs(bound.is_traced);
    const bool traced = answer != Py_False;  // an error too: Python meets it again
    Py_XDECREF(answer);
    PyErr_Clear();
    return traced;
}

bool clean_output(const Operand& out, const Operand* inputs, int count) { return plain_output(out) && disjoint(out, inputs, count); }

bool indices_hold(const Runner* runner, const Operand* inputs) {
    if (runner->range_count == 0) return true;
    bool hold = true;
    // The callers hold the runner and the operands, whatever other threads drop meanwhile.
    PyThreadState* state = runner->long_run ? PyEval_SaveThread() : nullptr;
    for (int i = 0; hold && i < runner->range_count; ++i) hold = runner->ranges[i].holds(inputs[runner->ranges[i].input]);
    if (state != nullptr) PyEval_RestoreThread(state);
    return hold;
}

bool launch(PyObject* owner, const Runner* runner, const Operand* inputs, void* const* outputs, int32_t threads) {
    Room<void*> room(runner->inputs);
    void** const addresses = room.items;
    if (addresses == nullptr) {
        PyErr_NoMemory();
        return false;
    }
    for (int i = 0; i < runner->inputs; ++i) addresses[i] = inputs[i].data;
    const tracea_program* program = runner->program;
    int32_t status = 0;
    if (runner->long_run) {
        Py_INCREF(owner);  // the table may drop it while other threads hold the lock
        Py_BEGIN_ALLOW_THREADS
        status = bound.run(program, addresses, outputs, threads);
        Py_END_ALLOW_THREADS
        if (status != 0) Py_XDECREF(PyObject_CallFunction(bound.raise_status, "Oii", owner, static_cast<int>(status), static_cast<int>(threads)));
        Py_DECREF(owner);
        return status == 0;
    }
    status = bound.run(program, addresses, outputs, threads);
    if (status != 0) Py_XDECREF(PyObject_CallFunction(bound.raise_status, "Oii", owner, static_cast<int>(status), static_cast<int>(threads)));
    return status == 0;
}

namespace {

bool row_major(const Signature& signature) {
    int64_t step = 1;
    for (int i = signature.rank - 1; i >= 0; --i) {
        if (signature.shape[i] > 1 && signature.strides[i] != step) return false;
        step *= signature.shape[i];
    }
    return true;
}

// Whether the elements lie side by side, in whatever order of the axes.
bool dense(const Signature& signature) {
    bool seen[most_dims] = {};
    int64_t step = 1;
    for (int found = 0; found < signature.rank; ++found) {
        int next = -1;
        for (int i = 0; i < signature.rank; ++i) {
            if (signature.shape[i] == 0) return false;
            if (!seen[i] && (signature.shape[i] == 1 || signature.strides[i] == step)) next = i;
        }
        if (next < 0) return false;
        seen[next] = true;
        step *= signature.shape[next];
    }
    return true;
}

// Whether an output of a kind of arrays can be made in its own strides; else Python has to.
bool can_allocate(const Runner* runner, int index, int32_t kind) {
    const Signature& signature = runner->signatures[runner->inputs + index];
    return row_major(signature) || (dense(signature) && allocates_any_order(kind));
}

PyObject* new_output(const Runner* runner, int index, int32_t kind, char** data) {
    const Signature& signature = runner->signatures[runner->inputs + index];
    const int64_t* strides = row_major(signature) ? nullptr : signature.strides;
    return allocate(kind, signature.dtype, signature.rank, signature.shape, strides, data);
}

}  // namespace

PyObject* launch_into_new(PyObject* owner, const Runner* runner, const Operand* inputs, int32_t kind, int32_t threads, bool* slow) {
    for (int i = 0; i < runner->outputs; ++i) {
        *slow = *slow || !can_allocate(runner, i, kind);
    }
    if (*slow) return nullptr;
    Room<void*> places(runner->outputs);
    Room<PyObject*> made(runner->outputs);
    void** const outputs = places.items;
    PyObject** const results = made.items;
    if (outputs == nullptr || results == nullptr) return PyErr_NoMemory();
    for (int i = 0; i < runner->outputs; ++i) {
        char* data = nullptr;
        results[i] = new_output(runner, i, kind, &data);
        outputs[i] = data;
        if (results[i] == nullptr) {
            while (--i >= 0) Py_DECREF(results[i]);
            return nullptr;
        }
    }
    PyObject* result = nullptr;
    if (launch(owner, runner, inputs, outputs, threads)) {
        if (runner->outputs == 1) return results[0];
        result = PyTuple_New(runner->outputs);
        for (int i = 0; result != nullptr && i < runner->outputs; ++i) PyTuple_SET_ITEM(result, i, Py_NewRef(results[i]));
    }
    for (int i = 0; i < runner->outputs; ++i) Py_DECREF(results[i]);
    return result;
}

namespace {

bool read_signature(PyObject* item, Signature* signature) {
    PyObject* shape = nullptr;
    PyObject* strides = nullptr;
    if (!PyArg_ParseTuple(item, "iO!O!", &signature->dtype, &PyTuple_Type, &shape, &PyTuple_Type, &strides)) return false;
    const Py_ssize_t rank = PyTuple_GET_SIZE(shape);
    if (rank > most_dims || PyTuple_GET_SIZE(strides) != rank || signature->dtype < 0 || signature->dtype >= TRACEA_DTYPES) {
        PyErr_SetString(PyExc_ValueError, "signature: too many dimensions, or an unknown dtype");
        return false;
    }
    signature->rank = static_cast<int32_t>(rank);
    for (Py_ssize_t i = 0; i < rank; ++i) {
        signature->shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
        signature->strides[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i));
        if (signature->shape[i] <= 1) signature->strides[i] = 0;
    }
    return PyErr_Occurred() == nullptr;
}

bool read_range(PyObject* item, Runner* runner) {
    IndexRange* range = &runner->ranges[runner->range_count];
    long long least = 0;
    long long count = 0;
    PyObject* ignored = nullptr;
    if (!PyArg_ParseTuple(item, "iLLO", &range->input, &least, &count, &ignored)) return false;
    range->least = least;
    range->count = count;
    range->ignores = ignored != Py_None;
    range->ignored = range->ignores ? PyLong_AsLongLong(ignored) : 0;
    if (PyErr_Occurred() != nullptr) return false;
    const int32_t dtype = range->input >= 0 && range->input < runner->inputs ? runner->signatures[range->input].dtype : -1;
    if (dtype != TRACEA_I64 && dtype != TRACEA_I32) {
        PyErr_SetString(PyExc_ValueError, "range: of no input, or of one that is neither int64 nor int32");
        return false;
    }
    runner->range_count += 1;
    return true;
}

PyObject* runner_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    unsigned long long handle = 0;
    PyObject* inputs = nullptr;
    PyObject* outputs = nullptr;
    PyObject* ranges = nullptr;
    if (!PyArg_ParseTuple(arguments, "KO!O!O!", &handle, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs, &PyTuple_Type, &ranges)) return nullptr;
    const Py_ssize_t input_count = PyTuple_GET_SIZE(inputs);
    const Py_ssize_t output_count = PyTuple_GET_SIZE(outputs);
    if (bound.run == nullptr || handle == 0 || input_count > most_operands || output_count > most_operands || PyTuple_GET_SIZE(ranges) > most_ranges) {
        PyErr_SetString(PyExc_ValueError, "Runner: not bound to a launcher, no handle, or too many operands");
        return nullptr;
    }
    Runner* self = reinterpret_cast<Runner*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->program = reinterpret_cast<const tracea_program*>(handle);
    self->inputs = static_cast<int32_t>(input_count);
    self->outputs = static_cast<int32_t>(output_count);
    self->long_run = bound.is_long(self->program) != 0;
    self->signatures = static_cast<Signature*>(calloc(static_cast<size_t>(input_count + output_count) + 1, sizeof(Signature)));
    if (self->signatures == nullptr) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < input_count + output_count; ++i) {
        PyObject* item = i < input_count ? PyTuple_GET_ITEM(inputs, i) : PyTuple_GET_ITEM(outputs, i - input_count);
        if (!read_signature(item, &self->signatures[i])) {
            Py_DECREF(self);
            return nullptr;
        }
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ranges); ++i) {
        if (!read_range(PyTuple_GET_ITEM(ranges, i), self)) {
            Py_DECREF(self);
            return nullptr;
        }
    }
    return reinterpret_cast<PyObject*>(self);
}

void runner_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    free(reinterpret_cast<Runner*>(self)->signatures);
    type->tp_free(self);
    Py_DECREF(type);
}

// run(program, arrays, out, threads) -> result, or NotImplemented where the operands are not exactly the program's.
PyObject* runner_run(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Runner* self = reinterpret_cast<Runner*>(object);
    if (count != 4 || !PyTuple_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "run(program, arrays, out, threads)");
        return nullptr;
    }
    PyObject* arrays = arguments[1];
    PyObject* out = arguments[2];
    const long threads = PyLong_AsLong(arguments[3]);
    if (threads == -1 && PyErr_Occurred()) return nullptr;
    void* outputs[1];
    if (PyTuple_GET_SIZE(arrays) != self->inputs || self->outputs == 0) Py_RETURN_NOTIMPLEMENTED;
    Room<Operand> room(self->inputs);
    Operand* const operands = room.items;
    if (operands == nullptr) return PyErr_NoMemory();
    int32_t kinds = 0;
    for (int i = 0; i < self->inputs; ++i) {
        if (!read_operand(PyTuple_GET_ITEM(arrays, i), &operands[i]) || !self->signatures[i].accepts(operands[i])) Py_RETURN_NOTIMPLEMENTED;
        kinds |= operands[i].kind;
    }
    if (is_traced(kinds) || !indices_hold(self, operands)) Py_RETURN_NOTIMPLEMENTED;
    const int32_t kind = self->inputs > 0 ? operands[0].kind : int32_t{NUMPY};
    if (out != Py_None) {
        Operand given;
        if (self->outputs != 1 || !read_operand(out, &given) || !self->signatures[self->inputs].accepts(given)) Py_RETURN_NOTIMPLEMENTED;
        if (!clean_output(given, operands, self->inputs)) Py_RETURN_NOTIMPLEMENTED;
        outputs[0] = given.data;
        if (!count_write(out, given) || !launch(arguments[0], self, operands, outputs, static_cast<int32_t>(threads))) return nullptr;
        return Py_NewRef(out);
    }
    bool slow = false;
    PyObject* result = launch_into_new(arguments[0], self, operands, kind, static_cast<int32_t>(threads), &slow);
    if (slow) Py_RETURN_NOTIMPLEMENTED;
    return result;
}

PyMethodDef runner_methods[] = {
    {"run", method(runner_run), METH_FASTCALL, "run(program, arrays, out, threads) -> result or NotImplemented"},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot runner_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(runner_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(runner_dealloc)},
    {Py_tp_methods, runner_methods},
    {Py_tp_doc, const_cast<char*>("Runner(handle, inputs, outputs, ranges): signatures are (dtype, shape, strides), ranges (input, least, count, ignored)")},
    {0, nullptr},
};

}  // namespace

PyType_Spec runner_spec = {"tracea.runtime.Runner", sizeof(Runner), 0, Py_TPFLAGS_DEFAULT, runner_slots};

}  // namespace tracea_extension
