"""Prints a scalar expression as CUDA lines over floats: one line per distinct node, each a function of math.h."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tracea.core.expr import (
    Binary,
    Cast,
    Constant,
    Expr,
    Input,
    Select,
    Unary,
)
from tracea.emitters.cuda.types import STORAGE
from tracea.emitters.routines import BINARY, UNARY, find_routine
from tracea.emitters.writer import Writer
from tracea.errors import EmitError

__all__ = ["print_expression"]


def print_expression(writer: Writer, expr: Expr, inputs: Mapping[int, str]) -> str:
    """Write the lines that compute ``expr`` and return the name that holds its value.

    ``inputs`` names the variable of each ``Input`` index. Equal subexpressions are computed once.

    Raises: EmitError for a node or an input that has no line.
    """
    printer = _Printer(writer, inputs)
    printer.visit(expr)
    return printer.value(expr)


class _Printer:
    """Numbers the values of one expression; a comparison is a bool until its value as a number is asked for."""

    def __init__(self, writer: Writer, inputs: Mapping[int, str]) -> None:
        self._writer = writer
        self._inputs = inputs
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
        """Return the name of a printed node's value as a number."""
        name, is_condition = self._printed[id(expr)]
        return self._assign(f"select({name}, 1.0F, 0.0F)") if is_condition else name

    def _condition(self, expr: Expr) -> str:
        name, is_condition = self._printed[id(expr)]
        return name if is_condition else self._assign(f"not_equal({name}, 0.0F)", "bool")

    def _print(self, expr: Expr) -> tuple[str, bool]:
        match expr:
            case Input(index=index):
                if index not in self._inputs:
                    raise EmitError(node=expr, detail=f"input {index} is not bound, there are {sorted(self._inputs)}")
                return self._inputs[index], False
            case Constant(value=value):
                return _literal(value), False
            case Unary(function=function, operand=operand):
                return self._assign(f"{UNARY[function]}({self.value(operand)})"), False
            case Binary(function=function, left=left, right=right):
                text = BINARY[function].format(self.value(left), self.value(right))
                kind = "bool" if function.is_comparison else "float"
                return self._assign(text, kind), function.is_comparison
            case Select(condition=condition, if_true=if_true, if_false=if_false):
                text = f"select({self._condition(condition)}, {self.value(if_true)}, {self.value(if_false)})"
                return self._assign(text), False
            case Cast(operand=operand, dtype=dtype) if dtype in STORAGE:
                return self._assign(f"round_to<{STORAGE[dtype]}>({self.value(operand)})"), False
            case _:
                raise EmitError(node=expr, detail="no line for this expression node")

    def _assign(self, text: str, kind: str = "float") -> str:
        # Equal text is an equal value: operands are named by what they compute.
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = f"t{len(self._names)}"
            self._writer.line(f"const {kind} {name} = {text};")
        return name


def _literal(value: float) -> str:
    if math.isnan(value):
        return "bits_as<float>(0x7fc00000U)"
    if math.isinf(value):
        return f"bits_as<float>({'0x7f800000U' if value > 0 else '0xff800000U'})"
    return f"{value!r}F" if value >= 0 else f"({value!r}F)"
