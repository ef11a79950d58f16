// How much memory a torch tensor lies in: its owner may have resized that, and DLPack says nothing of it.
#ifndef TRACEA_LAUNCHER_TENSOR_STORAGE_H
#define TRACEA_LAUNCHER_TENSOR_STORAGE_H

#include <Python.h>

#include "operand.h"

namespace tracea_extension {

// Once, from torch's library and any of its tensors: false where this torch cannot tell, or where the tensor `raised` when it was
// asked, as in a mode of the user's, which says nothing of the next one. Never leaves a Python error set.
bool find_tensor_storage(void* library, PyObject* tensor, bool* raised);

// Whether the memory ends before the last element of a plain tensor that has elements, as after untyped_storage().resize_().
bool is_cut_off(PyObject* tensor, const Operand& operand);

}  // namespace tracea_extension

#endif
