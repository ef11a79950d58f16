// Whether the numbers of an array are finite: what an op that computes in a narrower type than it may need looks at.
#ifndef TRACEA_LAUNCHER_FINITE_H
#define TRACEA_LAUNCHER_FINITE_H

#include <Python.h>

namespace tracea_extension {

// all_finite(array) -> bool; None where it is no array that is read here.
PyObject* all_finite(PyObject* module, PyObject* array);

}  // namespace tracea_extension

#endif
