#include "tensor_storage.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace tracea_extension {

namespace {

typedef int32_t (*Fact)(void*, int64_t*);

Fact storage_bytes = nullptr;
Fact storage_offset = nullptr;  // of a tensor's first element, in elements
ptrdiff_t cpp_tensor = 0;       // where a tensor's Python object holds the C++ tensor, which is one pointer

// torch's C functions take a C++ tensor. It is looked for in the object, so that no layout of torch's is taken for granted.
ptrdiff_t find_cpp_tensor(PyObject* tensor, bool* raised) {
    PyObject* number = PyObject_GetAttrString(tensor, "_cdata");
    const void* wanted = number == nullptr ? nullptr : PyLong_AsVoidPtr(number);
    Py_XDECREF(number);
    *raised = PyErr_Occurred() != nullptr;
    PyErr_Clear();
    const ptrdiff_t end = Py_TYPE(tensor)->tp_basicsize - static_cast<ptrdiff_t>(sizeof(void*));
    for (ptrdiff_t place = sizeof(PyObject); wanted != nullptr && place <= end; place += sizeof(void*)) {
        const void* held = nullptr;
        memcpy(&held, reinterpret_cast<const char*>(tensor) + place, sizeof(held));
        if (held == wanted) return place;
    }
    return 0;
}

}  // namespace

bool find_tensor_storage(void* library, PyObject* tensor, bool* raised) {
    *raised = false;
    if (library == nullptr) return false;
    storage_bytes = reinterpret_cast<Fact>(dlsym(library, "aoti_torch_get_storage_size"));
    storage_offset = reinterpret_cast<Fact>(dlsym(library, "aoti_torch_get_storage_offset"));
    cpp_tensor = find_cpp_tensor(tensor, raised);
    return storage_bytes != nullptr && storage_offset != nullptr && cpp_tensor != 0;
}

bool is_cut_off(PyObject* tensor, const Operand& operand) {
    void* handle = reinterpret_cast<char*>(tensor) + cpp_tensor;
    int64_t bytes = 0;
    int64_t last = 0;
    if (storage_bytes(handle, &bytes) != 0 || storage_offset(handle, &last) != 0) return true;
    for (int i = 0; i < operand.rank; ++i) last += (operand.shape[i] - 1) * operand.strides[i];
    return (last + 1) * operand.bytes > bytes;
}

}  // namespace tracea_extension
