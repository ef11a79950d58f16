"""Prints a scalar expression as C++ lines over vectors: one line per distinct node, each a call of a primitive."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from tracea.core.dtype import DType
from tracea.core.expr import Expr
from tracea.emitters.expression import ExpressionPrinter, Kind
from tracea.emitters.writer import Writer

__all__ = ["C_TYPES", "print_expression"]

# The storage type of vec.h that each dtype is read and written as.
C_TYPES: Mapping[DType, str] = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "f16",
    DType.BF16: "bf16",
    DType.I64: "int64_t",
    DType.I32: "int32_t",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
    DType.BOOL: "bool",
}

# A comparison is a mask; a constant is broadcast once.
_PREFIXES: Final = {Kind.NUMBER: "t", Kind.CONDITION: "m", Kind.CONSTANT: "k"}


def print_expression(writer: Writer, expr: Expr, inputs: Mapping[int, str], *, vector: str = "V") -> str:
    """Write the lines that compute ``expr`` and return the name that holds its value.

    ``inputs`` names the C++ variable of each ``Input`` index; ``vector`` is the C++ vector type. Equal subexpressions
    are computed once.

    Raises: EmitError for a node or an input that has no line.
    """
    return _Printer(writer, inputs, vector).print(expr)


class _Printer(ExpressionPrinter):
    def __init__(self, writer: Writer, inputs: Mapping[int, str], vector: str) -> None:
        super().__init__(writer, inputs, C_TYPES)
        self._vector = vector

    def constant(self, value: float) -> str:
        text = f"broadcast<{self._vector}>(typename {self._vector}::element({_literal(value)}))"
        return self.assign(text, Kind.CONSTANT)

    def declared(self, kind: Kind) -> tuple[str, str]:
        return "auto", _PREFIXES[kind]


def _literal(value: float) -> str:
    if math.isnan(value):
        return '__builtin_nan("")'
    if math.isinf(value):
        return "__builtin_inf()" if value > 0 else "-__builtin_inf()"
    return repr(value)
