// The part of DLPack 1.3 that is used here: the tensor view and the table of C functions that a producer's type offers as
// `__dlpack_c_exchange_api__`. Transcribed from the specification at https://dmlc.github.io/dlpack/latest/c_api.html
#ifndef TRACEA_LAUNCHER_DLPACK_H
#define TRACEA_LAUNCHER_DLPACK_H

#include <stdint.h>

#define DLPACK_MAJOR 1

enum : int32_t { kDLCPU = 1 };
enum : int32_t { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 };

struct DLDevice {
    int32_t device_type;
    int32_t device_id;
};

struct DLDataType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};

struct DLTensor {
    void* data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t* shape;
    int64_t* strides;  // elements
    uint64_t byte_offset;
};

struct DLPackExchangeAPIHeader {
    struct {
        uint32_t major;
        uint32_t minor;
    } version;
    DLPackExchangeAPIHeader* prev_api;
};

struct DLPackExchangeAPI {
    DLPackExchangeAPIHeader header;
    void* managed_tensor_allocator;
    void* managed_tensor_from_py_object_no_sync;
    void* managed_tensor_to_py_object_no_sync;
    int (*dltensor_from_py_object_no_sync)(void* object, DLTensor* out);  // 0, or -1 with a Python error set
    void* current_work_stream;
};

#endif
