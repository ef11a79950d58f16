// The CPython extension: from Python objects to tracea_program_run in a fraction of a microsecond.
//
// Runner (runner.cpp)          runs one program on operands that fit it.
// Dispatcher (dispatcher.cpp)  finds the program of a call's signature, and asks `miss` for it once.
// all_finite (finite.cpp)      tells whether a result has to be made in a wider type.
//
// Whatever is unusual (another kind of array, an overlap, a wrong shape) is handed to Python code that explains it.
#include "finite.h"
#include "runner.h"

using namespace tracea_extension;

namespace {

PyObject* bind(PyObject*, PyObject* arguments) {
    unsigned long long run = 0;
    unsigned long long threads = 0;
    unsigned long long refresh = 0;
    unsigned long long is_long = 0;
    int bfloat16 = -1;
    PyObject* runner_of = nullptr;
    PyObject* slowly = nullptr;
    PyObject* raise_status = nullptr;
    PyObject* is_traced = nullptr;
    if (!PyArg_ParseTuple(arguments, "KKKKiOOOO", &run, &threads, &refresh, &is_long, &bfloat16, &runner_of, &slowly, &raise_status, &is_traced)) return nullptr;
    if (!prepare_operands(bfloat16)) return nullptr;
    bound.threads = reinterpret_cast<int32_t (*)()>(threads);
    bound.refresh = reinterpret_cast<void (*)()>(refresh);
    bound.is_long = reinterpret_cast<int32_t (*)(const tracea_program*)>(is_long);
    bound.runner_of = Py_NewRef(runner_of);
    bound.run_slowly = Py_NewRef(slowly);
    bound.raise_status = Py_NewRef(raise_status);
    bound.is_traced = Py_NewRef(is_traced);
    bound.run = reinterpret_cast<int32_t (*)(const tracea_program*, void* const*, void* const*, int32_t)>(run);
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"bind", bind, METH_VARARGS, "bind(run, threads, refresh, is_long, bfloat16, runner_of, run_slowly, raise_status, is_traced)"},
    {"all_finite", all_finite, METH_O, "all_finite(array) -> bool, or None where the array is not read here"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "tracea_extension", "Runs programs without crossing Python twice.", -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_tracea_extension(void) {
    PyObject* made = PyModule_Create(&module);
    PyObject* runner = PyType_FromSpec(&runner_spec);
    PyObject* dispatcher = PyType_FromSpec(&dispatcher_spec);
    if (made == nullptr || runner == nullptr || dispatcher == nullptr || PyModule_AddObjectRef(made, "Runner", runner) < 0 ||
        PyModule_AddObjectRef(made, "Dispatcher", dispatcher) < 0)
        Py_CLEAR(made);
    Py_XDECREF(runner);
    Py_XDECREF(dispatcher);
    return made;
}
