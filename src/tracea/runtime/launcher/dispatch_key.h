// What a call of a dispatcher is known by: its operands' types, and its attributes by value or by the address of what they are.
#ifndef TRACEA_LAUNCHER_DISPATCH_KEY_H
#define TRACEA_LAUNCHER_DISPATCH_KEY_H

#include "runner.h"
// Python.h comes before what the system has.
#include <string.h>

namespace tracea_extension {

constexpr int most_attributes = 80;  // the axes of the largest tensor there is, and some more
constexpr int most_words = 1 + (most_arrays + 1) * (1 + 2 * most_dims) + 2 * most_attributes;

struct Key {
    int64_t words[most_words];
    int32_t count;
    uint64_t hash;

    void add(int64_t word) { words[count++] = word; }
    void add(const Operand& operand) {
        add(operand.kind | operand.dtype << 8 | operand.rank << 16 |
            static_cast<int32_t>(operand.kind == ABSENT ? 0 : operand.writable) << 24);
        for (int i = 0; i < operand.rank; ++i) add(operand.shape[i]);
        for (int i = 0; i < operand.rank; ++i) add(operand.strides[i]);
    }
    void seal() {
        uint64_t value = 0x9e3779b97f4a7c15u;
        for (int32_t i = 0; i < count; ++i) {
            value = (value ^ static_cast<uint64_t>(words[i])) * 0xff51afd7ed558ccdu;
            value ^= value >> 32;
        }
        hash = value;
    }
};

// The objects whose addresses are in the key of a call, for as long as it lasts.
struct Held {
    PyObject* objects[most_attributes];
    int count = 0;

    Held() {}  // not the objects: a call has few
    ~Held() {
        for (int i = 0; i < count; ++i) Py_DECREF(objects[i]);
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

    PyObject* tuple() const {
        PyObject* made = PyTuple_New(count);
        for (int i = 0; made != nullptr && i < count; ++i) PyTuple_SET_ITEM(made, i, Py_NewRef(objects[i]));
        return made;
    }
};

// Adds an attribute by value (numbers) or by identity (strings, interned, and the singletons). False: only Python can compare it.
inline bool add_attribute(Key* key, PyObject* attribute, Held* held) {
    if (PyFloat_CheckExact(attribute)) {
        const double value = PyFloat_AS_DOUBLE(attribute);
        int64_t bits = 0;
        memcpy(&bits, &value, sizeof(bits));
        key->add(1);
        key->add(bits);
    } else if (PyLong_CheckExact(attribute)) {
        int overflow = 0;
        const long long value = PyLong_AsLongLongAndOverflow(attribute, &overflow);
        if (overflow != 0) return false;
        key->add(2);
        key->add(value);
    } else {
        if (!PyUnicode_CheckExact(attribute) && attribute != Py_None && !PyBool_Check(attribute)) return false;
        Py_INCREF(attribute);
        if (PyUnicode_CheckExact(attribute)) PyUnicode_InternInPlace(&attribute);
        key->add(3);
        key->add(static_cast<int64_t>(reinterpret_cast<uintptr_t>(attribute)));
        held->objects[held->count++] = attribute;
    }
    return true;
}

}  // namespace tracea_extension

#endif
