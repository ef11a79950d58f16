#include "port.h"

#include <dlfcn.h>
#include <stddef.h>

#include "launcher.h"
#include "region.h"

namespace tracea_launcher {
namespace {

// The types of torch's C shim (torch/csrc/inductor/aoti_torch/c/shim.h), which is stable and takes only pointers, integers and floats.
typedef struct AtenTensorOpaque* Tensor;
typedef int32_t (*MakeTensor)(void*, int64_t, const int64_t*, const int64_t*, int64_t, int32_t, int32_t, int32_t, Tensor*);
typedef int32_t (*DeleteTensor)(Tensor);
typedef int32_t (*Constant)(void);
typedef int32_t (*Product)(Tensor, Tensor, Tensor);
typedef int32_t (*SumProduct)(Tensor, Tensor, Tensor, Tensor, double, double);

struct Shim {
    MakeTensor make;
    DeleteTensor drop;
    int32_t cpu;
    int32_t dtypes[TRACEA_DTYPES];
    void* functions[TRACEA_LIBRARY_FUNCTIONS];
};

Shim shim{};
int32_t ready = 0;

constexpr const char* function_names[TRACEA_LIBRARY_FUNCTIONS] = {
    "aoti_torch_cpu_mm_out", "aoti_torch_cpu_addmm_out", "aoti_torch_cpu_bmm_out", "aoti_torch_cpu_baddbmm_out"};
constexpr int32_t arities[TRACEA_LIBRARY_FUNCTIONS] = {3, 4, 3, 4};
constexpr const char* dtype_names[TRACEA_DTYPES] = {
    "aoti_torch_dtype_float64", "aoti_torch_dtype_float32", "aoti_torch_dtype_float16", "aoti_torch_dtype_bfloat16", "aoti_torch_dtype_int64",
    "aoti_torch_dtype_int32",   "aoti_torch_dtype_int8",    "aoti_torch_dtype_uint8",   "aoti_torch_dtype_bool"};

bool constant(void* handle, const char* name, int32_t* value) {
    Constant get = reinterpret_cast<Constant>(dlsym(handle, name));
    if (get == nullptr) return false;
    *value = get();
    return true;
}

// Fills the shim; threads that do so at once write the same values.
bool resolve() {
    if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE) != 0) return true;
    LoadedLibrary torch;
    if (!find_loaded("libtorch_cpu.so", "/torch/", &torch)) return false;
    void* handle = dlopen(torch.path, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) return false;
    Shim found{};
    found.make = reinterpret_cast<MakeTensor>(dlsym(handle, "aoti_torch_create_tensor_from_blob"));
    found.drop = reinterpret_cast<DeleteTensor>(dlsym(handle, "aoti_torch_delete_tensor_object"));
    if (found.make == nullptr || found.drop == nullptr || !constant(handle, "aoti_torch_device_type_cpu", &found.cpu)) return false;
    for (int i = 0; i < TRACEA_DTYPES; ++i) {
        if (!constant(handle, dtype_names[i], &found.dtypes[i])) return false;
    }
    for (int i = 0; i < TRACEA_LIBRARY_FUNCTIONS; ++i) found.functions[i] = dlsym(handle, function_names[i]);
    shim = found;
    __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
    return true;
}

}  // namespace

int32_t port_arity(int32_t function) { return function >= 0 && function < TRACEA_LIBRARY_FUNCTIONS ? arities[function] : -1; }

bool resolve_port(int32_t function) { return port_arity(function) > 0 && resolve() && shim.functions[function] != nullptr; }

int32_t call_port(int32_t function, void* const* pointers, const Blob* blobs, const double* scalars) {
    const int32_t operands = arities[function];
    Tensor tensors[port_operands] = {};
    int32_t failed = 0;
    int32_t made = 0;
    for (; made < operands && failed == 0; ++made) {
        const Blob& blob = blobs[made];
        failed = shim.make(pointers[made], blob.rank, blob.sizes, blob.strides, 0, shim.dtypes[blob.dtype], shim.cpu, 0, &tensors[made]);
    }
    if (failed == 0) {
        if (operands == 3)
            failed = reinterpret_cast<Product>(shim.functions[function])(tensors[0], tensors[1], tensors[2]);
        else
            failed = reinterpret_cast<SumProduct>(shim.functions[function])(tensors[0], tensors[1], tensors[2], tensors[3], scalars[0], scalars[1]);
    }
    for (int32_t i = 0; i < made; ++i) {
        if (tensors[i] != nullptr) shim.drop(tensors[i]);
    }
    return failed;
}

}  // namespace tracea_launcher

TRACEA_API int32_t tracea_library_available(int32_t function) { return tracea_launcher::resolve_port(function); }
