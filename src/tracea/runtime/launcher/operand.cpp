#include "operand.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include "dlpack.h"
#include "launcher.h"
#include "tensor_storage.h"

namespace tracea_extension {

const int32_t element_bytes[TRACEA_DTYPES] = {8, 4, 2, 2, 8, 4, 1, 1, 1};

namespace {

typedef struct AtenTensorOpaque* Tensor;
typedef int32_t (*EmptyStrided)(int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, Tensor*);
typedef int32_t (*DataPointer)(Tensor, void**);
typedef int32_t (*DeleteTensor)(Tensor);
typedef int32_t (*Constant)(void);
typedef PyObject* (*Wrap)(Tensor);
typedef bool (*Flag)(void);
typedef bool (*FlagOf)(bool);
typedef bool (*FlagOfKey)(uint16_t);
typedef void* const* (*Shared)(void);

constexpr uintptr_t huge_page = uintptr_t{1} << 21;
constexpr uintptr_t worth_huge_pages = uintptr_t{1} << 22;  // from here on NumPy asks for them too

constexpr const char* torch_names[TRACEA_DTYPES] = {"float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"};

// What is needed of torch, found when the first tensor is seen and then kept for the life of the process.
struct Torch {
    bool ready;
    bool unusable;  // it offers no exchange functions: the slow path serves
    PyTypeObject* tensor;
    PyTypeObject* parameter;
    const DLPackExchangeAPI* exchange;
    PyObject* is_neg;
    PyObject* increment_version;
    PyObject* requires_grad;  // the attribute's name
    Flag records;             // whether autograd records on this thread; may be missing
    FlagOf dispatches;        // whether any dispatch mode is active on this thread; may be missing
    FlagOfKey includes;       // whether a dispatch key is included on this thread; may be missing
    uint16_t pre_dispatch;    // the key of modes that see operators before autograd does
    Shared tracing_state;     // of torch.jit.trace on this thread; may be missing
    PyObject* forward_mode;   // the dictionary of torch.autograd.forward_ad
    PyObject* dual_level;     // the name in it of the number of levels that are open, less one
    PyObject* empty;
    PyObject* empty_keywords;  // ("dtype", "device")
    PyObject* cpu_name;        // whatever torch's default device is
    PyObject* dtypes[TRACEA_DTYPES];
    // Making a tensor without Python: all of these or none.
    EmptyStrided empty_strided;
    DataPointer data_pointer;
    DeleteTensor drop;
    Wrap wrap;
    int32_t cpu;
    int32_t codes[TRACEA_DTYPES];
};

Torch torch{};
int numpy_types[TRACEA_DTYPES];
int8_t numpy_codes[NPY_NTYPES_LEGACY];
int numpy_bfloat16 = -1;

int find_torch_python(dl_phdr_info* info, size_t, void* path) {
    if (info->dlpi_name == nullptr || strstr(info->dlpi_name, "/libtorch_python.so") == nullptr) return 0;
    strncpy(static_cast<char*>(path), info->dlpi_name, 4095);
    return 1;
}

template <class Function>
Function symbol(const char* name, void* handle) {
    return reinterpret_cast<Function>(dlsym(handle, name));
}

// The library of torch's Python side, through which all of its symbols are seen; nullptr where it is not found.
void* find_library() {
    char path[4096] = {};
    return dl_iterate_phdr(find_torch_python, path) == 0 ? nullptr : dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
}

// torch.empty costs as much as the rest of a small call. The C shim makes the same tensor, and THPVariable_Wrap, which takes a reference
// to it, gives it its Python object. Its mangled name changes if its signature ever does; then torch.empty is called.
void find_native_empty(void* handle) {
    if (handle == nullptr) return;
    torch.records = symbol<Flag>("_ZN3c108GradMode10is_enabledEv", handle);
    torch.dispatches = symbol<FlagOf>("_ZN3c104impl20TorchDispatchModeTLS13any_modes_setEb", handle);
    torch.includes = torch.pre_dispatch == 0 ? nullptr : symbol<FlagOfKey>("_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE", handle);
    torch.tracing_state = symbol<Shared>("_ZN5torch3jit6tracer15getTracingStateEv", handle);
    torch.empty_strided = symbol<EmptyStrided>("aoti_torch_empty_strided", handle);
    torch.data_pointer = symbol<DataPointer>("aoti_torch_get_data_ptr", handle);
    torch.drop = symbol<DeleteTensor>("aoti_torch_delete_tensor_object", handle);
    Wrap wrap = symbol<Wrap>("_Z16THPVariable_WrapRKN2at10TensorBaseE", handle);
    Constant cpu = symbol<Constant>("aoti_torch_device_type_cpu", handle);
    if (torch.empty_strided == nullptr || torch.data_pointer == nullptr || torch.drop == nullptr || wrap == nullptr || cpu == nullptr) return;
    torch.cpu = cpu();
    for (int i = 0; i < TRACEA_DTYPES; ++i) {
        char name[64] = "aoti_torch_dtype_";
        strcat(name, torch_names[i]);
        Constant code = symbol<Constant>(name, handle);
        if (code == nullptr) return;
        torch.codes[i] = code();
    }
    torch.wrap = wrap;
}

PyObject* attribute(PyObject* object, const char* name) { return object == nullptr ? nullptr : PyObject_GetAttrString(object, name); }

// The number of torch._C.DispatchKey.PreDispatch, 0 where torch has none.
uint16_t find_pre_dispatch(PyObject* module) {
    PyObject* core = attribute(module, "_C");
    PyObject* keys = attribute(core, "DispatchKey");
    PyObject* key = attribute(keys, "PreDispatch");
    PyObject* number = key == nullptr ? nullptr : PyNumber_Long(key);
    const long found = number == nullptr ? 0 : PyLong_AsLong(number);
    Py_XDECREF(number);
    Py_XDECREF(key);
    Py_XDECREF(keys);
    Py_XDECREF(core);
    PyErr_Clear();
    return found > 0 && found < 65536 ? static_cast<uint16_t>(found) : uint16_t{0};
}

// From the first tensor that is seen: to make another one would ask torch's modes and its default device, which may be none of this machine's.
bool find_torch(PyObject* seen) {
    PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");  // borrowed
    if (module == nullptr || torch.unusable) return false;
    PyObject* tensor = attribute(module, "Tensor");
    bool raised = tensor == nullptr || !PyType_Check(tensor) || !PyObject_TypeCheck(seen, reinterpret_cast<PyTypeObject*>(tensor));
    void* library = raised ? nullptr : find_library();
    const bool knows_storage = !raised && find_tensor_storage(library, seen, &raised);
    if (raised) {  // another library's class of that name, or a mode that refuses: the next tensor tells
        Py_XDECREF(tensor);
        PyErr_Clear();
        return false;
    }
    PyObject* nn = attribute(module, "nn");
    PyObject* parameter = attribute(nn, "Parameter");
    PyObject* capsule = attribute(tensor, "__dlpack_c_exchange_api__");
    PyObject* autograd = attribute(module, "autograd");
    PyObject* versions = attribute(autograd, "graph");
    torch.increment_version = attribute(versions, "increment_version");
    torch.is_neg = attribute(tensor, "is_neg");
    torch.requires_grad = PyUnicode_InternFromString("requires_grad");
    torch.dual_level = PyUnicode_InternFromString("_current_level");
    PyObject* forward_mode = PyDict_GetItemString(PyImport_GetModuleDict(), "torch.autograd.forward_ad");  // borrowed
    torch.forward_mode = forward_mode == nullptr ? nullptr : PyModule_GetDict(forward_mode);
    Py_XINCREF(torch.forward_mode);
    torch.empty = attribute(module, "empty");
    torch.empty_keywords = Py_BuildValue("(ss)", "dtype", "device");
    torch.cpu_name = PyUnicode_InternFromString("cpu");
    bool found = parameter != nullptr && torch.is_neg != nullptr && torch.increment_version != nullptr && torch.requires_grad != nullptr && torch.empty != nullptr && torch.empty_keywords != nullptr && torch.cpu_name != nullptr;
    for (int i = 0; i < TRACEA_DTYPES && found; ++i) {
        torch.dtypes[i] = attribute(module, torch_names[i]);
        found = torch.dtypes[i] != nullptr;
    }
    const DLPackExchangeAPI* exchange = nullptr;
    if (found && capsule != nullptr) exchange = static_cast<const DLPackExchangeAPI*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    Py_XDECREF(nn);
    Py_XDECREF(autograd);
    Py_XDECREF(versions);
    Py_XDECREF(capsule);
    PyErr_Clear();
    found = exchange != nullptr && exchange->header.version.major == DLPACK_MAJOR && exchange->dltensor_from_py_object_no_sync != nullptr;
    if (!found || !knows_storage) {
        Py_XDECREF(tensor);
        Py_XDECREF(parameter);
        torch.unusable = true;
        return false;
    }
    torch.pre_dispatch = find_pre_dispatch(module);
    find_native_empty(library);
    torch.tensor = reinterpret_cast<PyTypeObject*>(tensor);
    torch.parameter = reinterpret_cast<PyTypeObject*>(parameter);
    torch.exchange = exchange;
    torch.ready = true;
    return true;
}

// A lazily negated tensor (the imaginary part of a conjugate) says nothing of it in DLPack, and has any strides: only the tensor knows.
bool is_negated(PyObject* object) {
    PyObject* answer = PyObject_CallOneArg(torch.is_neg, object);
    const bool negated = answer != Py_False;
    Py_XDECREF(answer);
    PyErr_Clear();
    return negated;
}

// Whether a level of forward-mode differentiation is open: then any tensor may carry a tangent, and Python looks.
bool is_dual_possible() {
    PyObject* level = torch.forward_mode == nullptr ? nullptr : PyDict_GetItemWithError(torch.forward_mode, torch.dual_level);
    return level != nullptr && PyLong_Check(level) && PyLong_AsLong(level) >= 0;
}

// A program records no gradient. A tensor that asks for one while autograd records is left to Python, which refuses it.
bool asks_for_gradient(PyObject* object) {
    if (is_dual_possible()) return true;
    if (torch.records != nullptr && !torch.records()) return false;
    PyObject* answer = PyObject_GetAttr(object, torch.requires_grad);
    const bool asks = answer != Py_False;
    Py_XDECREF(answer);
    PyErr_Clear();
    return asks;
}

int32_t dlpack_dtype(DLDataType dtype) {
    if (dtype.lanes != 1) return -1;
    switch (dtype.code << 8 | dtype.bits) {
        case kDLFloat << 8 | 64: return TRACEA_F64;
        case kDLFloat << 8 | 32: return TRACEA_F32;
        case kDLFloat << 8 | 16: return TRACEA_F16;
        case kDLBfloat << 8 | 16: return TRACEA_BF16;
        case kDLInt << 8 | 64: return TRACEA_I64;
        case kDLInt << 8 | 32: return TRACEA_I32;
        case kDLInt << 8 | 8: return TRACEA_I8;
        case kDLUInt << 8 | 8: return TRACEA_U8;
        case kDLBool << 8 | 8: return TRACEA_BOOL;
        default: return -1;
    }
}

bool read_torch(PyObject* object, Operand* operand) {
    DLTensor tensor;
    if (torch.exchange->dltensor_from_py_object_no_sync(object, &tensor) != 0) {
        PyErr_Clear();
        return false;
    }
    operand->dtype = dlpack_dtype(tensor.dtype);
    if (tensor.device.device_type != kDLCPU || operand->dtype < 0 || tensor.ndim > most_dims) return false;
    operand->kind = TORCH;
    operand->data = static_cast<char*>(tensor.data) + tensor.byte_offset;
    operand->rank = tensor.ndim;
    operand->bytes = element_bytes[operand->dtype];
    operand->writable = true;
    bool is_empty = false;
    for (int i = 0; i < tensor.ndim; ++i) {
        is_empty = is_empty || tensor.shape[i] == 0;
        operand->shape[i] = tensor.shape[i];
        operand->strides[i] = tensor.shape[i] > 1 ? tensor.strides[i] : 0;
    }
    // Its storage was freed or cut off: Python refuses it with the reason.
    if (!is_empty && (tensor.data == nullptr || is_cut_off(object, *operand))) return false;
    return !is_negated(object) && !asks_for_gradient(object);
}

bool read_numpy(PyArrayObject* array, Operand* operand) {
    const int type = PyArray_TYPE(array);
    operand->dtype = type >= 0 && type < NPY_NTYPES_LEGACY ? numpy_codes[type] : (type == numpy_bfloat16 ? int32_t{TRACEA_BF16} : -1);
    if (operand->dtype < 0 || PyArray_NDIM(array) > most_dims || !PyArray_ISBEHAVED_RO(array)) return false;
    operand->kind = NUMPY;
    operand->data = PyArray_BYTES(array);
    operand->rank = PyArray_NDIM(array);
    operand->bytes = element_bytes[operand->dtype];
    operand->writable = PyArray_ISWRITEABLE(array);
    for (int i = 0; i < operand->rank; ++i) {
        operand->shape[i] = PyArray_DIM(array, i);
        const int64_t stride = PyArray_DIM(array, i) > 1 ? PyArray_STRIDE(array, i) : 0;
        if (stride % operand->bytes != 0) return false;
        operand->strides[i] = stride / operand->bytes;
    }
    return true;
}

// The strides of a new array: those that are wanted, and of axes of one element, which have none, what row-major would have.
void place_axes(int32_t rank, const int64_t* shape, const int64_t* wanted, int64_t* strides) {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; --i) {
        strides[i] = wanted != nullptr && shape[i] > 1 ? wanted[i] : step;
        step *= shape[i] > 1 ? shape[i] : 1;
    }
}

// Asks for huge pages where a new result lies: written once, memory in pages of 4 KiB costs more than what is written.
void ask_for_huge_pages(char* data, int32_t dtype, int32_t rank, const int64_t* shape) {
    uintptr_t bytes = static_cast<uintptr_t>(element_bytes[dtype]);
    for (int i = 0; i < rank; ++i) bytes *= static_cast<uintptr_t>(shape[i]);
    if (bytes < worth_huge_pages) return;
    const uintptr_t address = reinterpret_cast<uintptr_t>(data);
    const uintptr_t skip = (huge_page - address % huge_page) % huge_page;
    const uintptr_t inside = (bytes - skip) / huge_page * huge_page;  // of the result alone
    madvise(data + skip, inside, MADV_HUGEPAGE);                      // advice: where there are none, all is as it was
}

PyObject* allocate_torch(int32_t dtype, int32_t rank, const int64_t* shape, const int64_t* wanted, char** data) {
    if (torch.wrap != nullptr) {
        int64_t strides[most_dims];
        place_axes(rank, shape, wanted, strides);
        Tensor tensor = nullptr;
        void* address = nullptr;
        if (torch.empty_strided(rank, shape, strides, torch.codes[dtype], torch.cpu, 0, &tensor) == 0) {
            PyObject* result = torch.data_pointer(tensor, &address) == 0 ? torch.wrap(tensor) : nullptr;
            torch.drop(tensor);  // the Python object holds its own reference
            *data = static_cast<char*>(address);
            if (result != nullptr) ask_for_huge_pages(*data, dtype, rank, shape);
            if (result != nullptr) return result;
        }
        PyErr_Clear();  // no memory, most likely: torch.empty says so in torch's words
    }
    PyObject* size = PyTuple_New(rank);
    for (int i = 0; size != nullptr && i < rank; ++i) {
        PyObject* extent = PyLong_FromLongLong(shape[i]);
        if (extent == nullptr) Py_CLEAR(size);
        if (size != nullptr) PyTuple_SET_ITEM(size, i, extent);
    }
    if (size == nullptr) return nullptr;
    PyObject* arguments[] = {size, torch.dtypes[dtype], torch.cpu_name};
    PyObject* result = PyObject_Vectorcall(torch.empty, arguments, 1, torch.empty_keywords);
    Py_DECREF(size);
    Operand made;
    if (result == nullptr) return nullptr;
    if (Py_TYPE(result) == torch.tensor && read_torch(result, &made)) {
        *data = made.data;
        return result;
    }
    Py_DECREF(result);
    PyErr_SetString(PyExc_RuntimeError, "torch.empty did not return a tensor with memory on the CPU: is a torch mode active?");
    return nullptr;
}

PyObject* allocate_numpy(int32_t dtype, int32_t rank, const int64_t* shape, const int64_t* wanted, char** data) {
    static_assert(sizeof(npy_intp) == sizeof(int64_t));
    npy_intp size[most_dims];
    npy_intp strides[most_dims];
    for (int i = 0; i < rank; ++i) size[i] = shape[i];
    PyObject* result = nullptr;
    if (wanted == nullptr) {
        result = PyArray_SimpleNew(rank, size, numpy_types[dtype]);
    } else {
        int64_t steps[most_dims];
        place_axes(rank, shape, wanted, steps);
        PyArray_Descr* described = PyArray_DescrFromType(numpy_types[dtype]);
        if (described == nullptr) return nullptr;
        for (int i = 0; i < rank; ++i) strides[i] = steps[i] * PyDataType_ELSIZE(described);
        result = PyArray_NewFromDescr(&PyArray_Type, described, rank, size, strides, nullptr, 0, nullptr);  // takes the description's reference
    }
    if (result != nullptr) *data = PyArray_BYTES(reinterpret_cast<PyArrayObject*>(result));
    return result;
}

}  // namespace

bool read_operand(PyObject* object, Operand* operand) {
    if (object == Py_None) {
        operand->kind = ABSENT;
        operand->dtype = 0;
        operand->rank = 0;
        operand->data = nullptr;
        return true;
    }
    PyTypeObject* type = Py_TYPE(object);
    if (type == &PyArray_Type) return read_numpy(reinterpret_cast<PyArrayObject*>(object), operand);
    // Subclasses may mean something else by their memory (fake and distributed tensors): only the two plain types are read here.
    if (!torch.ready && (strcmp(type->tp_name, "Tensor") != 0 && strcmp(type->tp_name, "Parameter") != 0)) return false;
    if (!torch.ready && !find_torch(object)) return false;
    if (type != torch.tensor && type != torch.parameter) return false;
    return read_torch(object, operand) && (reinterpret_cast<uintptr_t>(operand->data) & static_cast<uintptr_t>(operand->bytes - 1)) == 0;
}

bool may_be_traced() {
    if (torch.dispatches != nullptr && torch.dispatches(false)) return true;
    if (torch.includes != nullptr && torch.includes(torch.pre_dispatch)) return true;
    return torch.tracing_state != nullptr && *torch.tracing_state() != nullptr;
}

bool count_write(PyObject* object, const Operand& operand) {
    if (operand.kind != TORCH) return true;
    PyObject* none = PyObject_CallOneArg(torch.increment_version, object);
    Py_XDECREF(none);
    return none != nullptr;
}

bool allocates_any_order(int32_t kind) { return kind != TORCH || torch.wrap != nullptr; }

PyObject* allocate(int32_t kind, int32_t dtype, int32_t rank, const int64_t* shape, const int64_t* strides, char** data) {
    return kind == TORCH ? allocate_torch(dtype, rank, shape, strides, data) : allocate_numpy(dtype, rank, shape, strides, data);
}

bool prepare_operands(int bfloat16) {
    if (PyArray_ImportNumPyAPI() < 0) return false;
    const int types[TRACEA_DTYPES] = {NPY_FLOAT64, NPY_FLOAT32, NPY_FLOAT16, bfloat16, NPY_INT64, NPY_INT32, NPY_INT8, NPY_UINT8, NPY_BOOL};
    memset(numpy_codes, -1, sizeof(numpy_codes));
    for (int i = 0; i < TRACEA_DTYPES; ++i) {
        numpy_types[i] = types[i];
        if (types[i] < NPY_NTYPES_LEGACY) numpy_codes[types[i]] = static_cast<int8_t>(i);
    }
    // Two C types of the same size have two numbers in NumPy.
    numpy_codes[NPY_LONGLONG] = TRACEA_I64;
    numpy_bfloat16 = bfloat16;
    return true;
}

}  // namespace tracea_extension
