#include "finite.h"

#include <stdint.h>

#include "launcher.h"
#include "operand.h"

namespace tracea_extension {

namespace {

// Infinities and NaN have all bits of the exponent set.
template <class Bits>
bool row_is_finite(const Bits* numbers, int64_t count, int64_t stride, Bits exponent) {
    Bits found = 0;
    if (stride == 1) {
        for (int64_t i = 0; i < count; ++i) found |= static_cast<Bits>((numbers[i] & exponent) == exponent);
    } else {
        for (int64_t i = 0; i < count; ++i) found |= static_cast<Bits>((numbers[i * stride] & exponent) == exponent);
    }
    return found == 0;
}

template <class Bits>
bool is_finite(const Operand& array, const Bits* numbers, int axis, Bits exponent) {
    if (axis + 1 >= array.rank) return row_is_finite(numbers, array.rank == 0 ? 1 : array.shape[axis], array.rank == 0 ? 1 : array.strides[axis], exponent);
    bool finite = true;
    for (int64_t i = 0; finite && i < array.shape[axis]; ++i) finite = is_finite(array, numbers + i * array.strides[axis], axis + 1, exponent);
    return finite;
}

}  // namespace

PyObject* all_finite(PyObject*, PyObject* array) {
    Operand operand;
    if (!read_operand(array, &operand) || operand.kind == ABSENT) Py_RETURN_NONE;
    switch (operand.dtype) {
        case TRACEA_F64: return PyBool_FromLong(is_finite(operand, reinterpret_cast<const uint64_t*>(operand.data), 0, uint64_t{0x7ff0000000000000}));
        case TRACEA_F32: return PyBool_FromLong(is_finite(operand, reinterpret_cast<const uint32_t*>(operand.data), 0, uint32_t{0x7f800000}));
        case TRACEA_F16: return PyBool_FromLong(is_finite(operand, reinterpret_cast<const uint16_t*>(operand.data), 0, uint16_t{0x7c00}));
        case TRACEA_BF16: return PyBool_FromLong(is_finite(operand, reinterpret_cast<const uint16_t*>(operand.data), 0, uint16_t{0x7f80}));
        default: Py_RETURN_TRUE;
    }
}

}  // namespace tracea_extension
