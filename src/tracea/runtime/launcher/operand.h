// What the extension knows of an array: the same few facts from torch tensors and NumPy arrays, read without calling Python.
#ifndef TRACEA_LAUNCHER_OPERAND_H
#define TRACEA_LAUNCHER_OPERAND_H

#include <Python.h>
#include <stdint.h>

namespace tracea_extension {

constexpr int most_dims = 8;

enum Kind : int32_t { ABSENT = 0, TORCH = 1, NUMPY = 2 };

struct Operand {
    char* data;
    int32_t kind;
    int32_t dtype;  // tracea_dtype
    int32_t rank;
    int32_t bytes;  // of one element
    bool writable;
    int64_t shape[most_dims];
    int64_t strides[most_dims];  // elements; 0 where the extent is at most 1, since it addresses nothing then

    // The first byte and one past the last that the elements occupy.
    void range(const char** low, const char** high) const {
        int64_t below = 0;
        int64_t above = 1;
        for (int i = 0; i < rank; ++i) {
            if (shape[i] == 0) {
                *low = *high = data;
                return;
            }
            (strides[i] < 0 ? below : above) += (shape[i] - 1) * strides[i];
        }
        *low = data + below * bytes;
        *high = data + above * bytes;
    }
};

// Fills `operand`; false where the object is nothing that can be read here (the slow path says why). Never leaves a Python error set.
bool read_operand(PyObject* object, Operand* operand);

// Whether torch may be recording what is called on this thread, once a tensor was read: any mode of its dispatcher, or torch.jit.trace.
bool may_be_traced();

// Tells autograd that an array of the caller's is written: what was saved of it for a gradient no longer holds. False with a Python error set.
bool count_write(PyObject* object, const Operand& operand);

// A new array of a kind without gaps, row-major without strides, or nullptr with a Python error set; *data is its first element.
PyObject* allocate(int32_t kind, int32_t dtype, int32_t rank, const int64_t* shape, const int64_t* strides,
                   char** data);

// Whether arrays of a kind can be made with strides of another order than row-major.
bool allocates_any_order(int32_t kind);

// Once: the NumPy type number of bfloat16. False with a Python error set.
bool prepare_operands(int bfloat16);

extern const int32_t element_bytes[];

}  // namespace tracea_extension

#endif
