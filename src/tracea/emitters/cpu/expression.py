"""Prints a scalar expression as C++ lines over vectors: one line per distinct node, each a call of a primitive."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tracea.core.dtype import DType
from tracea.core.expr import (
    Binary,
    Cast,
    Constant,
    Expr,
    Input,
    Select,
    Unary,
)
from tracea.emitters.routines import BINARY, UNARY, find_routine
from tracea.emitters.writer import Writer
from tracea.errors import EmitError

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


def print_expression(writer: Writer, expr: Expr, inputs: Mapping[int, str], *, vector: str = "V") -> str:
    """Write the lines that compute ``expr`` and return the name that holds its value.

    ``inputs`` names the C++ variable of each ``Input`` index; ``vector`` is the C++ vector type. Equal subexpressions
    are computed once.

    Raises: EmitError for a node or an input that has no line.
    """
    printer = _Printer(writer, inputs, vector)
    printer.visit(expr)
    return printer.value(expr)


class _Printer:
    """Numbers the values of one expression; a comparison stays a mask until its value as a number is asked for."""

    def __init__(self, writer: Writer, inputs: Mapping[int, str], vector: str) -> None:
        self._writer = writer
        self._inputs = inputs
        self._vector = vector
        self._names: dict[str, str] = {}
        self._printed: dict[int, tuple[str, bool]] = {}

    def visit(self, expr: Expr) -> None:
        """Print a node after its parts; one that is printed already is not printed again."""
        if id(expr) in self._printed:
            return
        idiom = find_routine(expr)
        if idiom is not None:
            routine, argument = idiom
            self.visit(argument)
            self._printed[id(expr)] = self._assign(f"{routine}({self.value(argument)})"), False
            return
        for part in expr.parts:
            self.visit(part)
        self._printed[id(expr)] = self._print(expr)

    def value(self, expr: Expr) -> str:
        """Return the name of a printed node's value as a vector of numbers."""
        name, is_mask = self._printed[id(expr)]
        return self._assign(f"select({name}, {self._constant(1.0)}, {self._constant(0.0)})") if is_mask else name

    def _mask(self, expr: Expr) -> str:
        name, is_mask = self._printed[id(expr)]
        return name if is_mask else self._assign(f"not_equal({name}, {self._constant(0.0)})", "m")

    def _print(self, expr: Expr) -> tuple[str, bool]:
        match expr:
            case Input(index=index):
                if index not in self._inputs:
                    raise EmitError(node=expr, detail=f"input {index} is not bound, there are {sorted(self._inputs)}")
                return self._inputs[index], False
            case Constant(value=value):
                return self._constant(value), False
            case Unary(function=function, operand=operand):
                return self._assign(f"{UNARY[function]}({self.value(operand)})"), False
            case Binary(function=function, left=left, right=right):
                text = BINARY[function].format(self.value(left), self.value(right))
                return self._assign(text, "m" if function.is_comparison else "t"), function.is_comparison
            case Select(condition=condition, if_true=if_true, if_false=if_false):
                mask = self._mask(condition)
                return self._assign(f"select({mask}, {self.value(if_true)}, {self.value(if_false)})"), False
            case Cast(operand=operand, dtype=dtype):
                return self._assign(f"round_to<{C_TYPES[dtype]}>({self.value(operand)})"), False
            case _:
                raise EmitError(node=expr, detail="no line for this expression node")

    def _constant(self, value: float) -> str:
        return self._assign(f"broadcast<{self._vector}>(typename {self._vector}::element({_literal(value)}))", "k")

    def _assign(self, text: str, prefix: str = "t") -> str:
        # Equal text is an equal value: operands are named by what they compute.
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = f"{prefix}{len(self._names)}"
            self._writer.line(f"const auto {name} = {text};")
        return name


def _literal(value: float) -> str:
    if math.isnan(value):
        return '__builtin_nan("")'
    if math.isinf(value):
        return "__builtin_inf()" if value > 0 else "-__builtin_inf()"
    return repr(value)
