"""The scalar functions that expressions are made of, each with its meaning in NumPy float64.

Extreme values mean what torch and IEEE 754 make of them: MAX and MIN hand a NaN on, a comparison with NaN is false
(NE: true), a division by zero is infinite, and nothing warns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias, cast

import numpy as np

__all__ = ["Array", "BinaryFunction", "UnaryFunction"]

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


class UnaryFunction(Enum):
    """A scalar function of one argument."""

    NEG = "neg"
    ABS = "abs"
    EXP = "exp"
    LOG = "log"
    LOG2 = "log2"
    LOG10 = "log10"
    SIN = "sin"
    COS = "cos"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    RECIPROCAL = "reciprocal"
    TANH = "tanh"
    ERF = "erf"
    SIGMOID = "sigmoid"
    FLOOR = "floor"

    def meaning(self, x: Array) -> Array:
        """Return the function of each element in float64."""
        with np.errstate(all="ignore"):
            return _UNARY[self](x)


class BinaryFunction(Enum):
    """A scalar function of two arguments; the comparisons give 1 or 0, and FMOD the exact rest, of the left's sign."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MAX = "max"
    MIN = "min"
    POW = "pow"
    FMOD = "fmod"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    EQ = "eq"
    NE = "ne"

    @property
    def is_comparison(self) -> bool:
        """Whether the result is 1 or 0."""
        return self in _COMPARISONS

    @property
    def is_commutative(self) -> bool:
        """Whether the arguments may change places."""
        return self in _COMMUTATIVE

    def meaning(self, left: Array, right: Array) -> Array:
        """Return the function of each pair of elements in float64."""
        with np.errstate(all="ignore"):
            return np.asarray(_BINARY[self](left, right), dtype=np.float64)


def _erf(x: Array) -> Array:
    # NumPy has no erf and SciPy is no dependency of the core; libm's is within an ulp.
    flat = np.fromiter(map(math.erf, x.ravel().tolist()), dtype=np.float64, count=x.size)
    return flat.reshape(x.shape)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # never overflows
    return np.where(x < 0, small, 1.0) / (1.0 + small)


def _reciprocal(x: Array) -> Array:
    return np.divide(1.0, x)


def _rsqrt(x: Array) -> Array:
    return np.divide(1.0, np.sqrt(x))


_UNARY: dict[UnaryFunction, Callable[[Array], Array]] = {
    UnaryFunction.NEG: cast("Callable[[Array], Array]", np.negative),
    UnaryFunction.ABS: cast("Callable[[Array], Array]", np.abs),
    UnaryFunction.EXP: cast("Callable[[Array], Array]", np.exp),
    UnaryFunction.LOG: cast("Callable[[Array], Array]", np.log),
    UnaryFunction.LOG2: cast("Callable[[Array], Array]", np.log2),
    UnaryFunction.LOG10: cast("Callable[[Array], Array]", np.log10),
    UnaryFunction.SIN: cast("Callable[[Array], Array]", np.sin),
    UnaryFunction.COS: cast("Callable[[Array], Array]", np.cos),
    UnaryFunction.SQRT: cast("Callable[[Array], Array]", np.sqrt),
    UnaryFunction.RSQRT: _rsqrt,
    UnaryFunction.RECIPROCAL: _reciprocal,
    UnaryFunction.TANH: cast("Callable[[Array], Array]", np.tanh),
    UnaryFunction.ERF: _erf,
    UnaryFunction.SIGMOID: _sigmoid,
    UnaryFunction.FLOOR: cast("Callable[[Array], Array]", np.floor),
}
_BINARY: dict[BinaryFunction, Callable[[Array, Array], Any]] = {
    BinaryFunction.ADD: np.add,
    BinaryFunction.SUB: np.subtract,
    BinaryFunction.MUL: np.multiply,
    BinaryFunction.DIV: np.divide,
    BinaryFunction.MAX: np.maximum,
    BinaryFunction.MIN: np.minimum,
    BinaryFunction.POW: np.power,
    BinaryFunction.FMOD: np.fmod,
    BinaryFunction.LT: np.less,
    BinaryFunction.LE: np.less_equal,
    BinaryFunction.GT: np.greater,
    BinaryFunction.GE: np.greater_equal,
    BinaryFunction.EQ: np.equal,
    BinaryFunction.NE: np.not_equal,
}
_COMPARISONS = frozenset(
    {
        BinaryFunction.LT,
        BinaryFunction.LE,
        BinaryFunction.GT,
        BinaryFunction.GE,
        BinaryFunction.EQ,
        BinaryFunction.NE,
    }
)
_COMMUTATIVE = frozenset(
    {
        BinaryFunction.ADD,
        BinaryFunction.MUL,
        BinaryFunction.MAX,
        BinaryFunction.MIN,
        BinaryFunction.EQ,
        BinaryFunction.NE,
    }
)
