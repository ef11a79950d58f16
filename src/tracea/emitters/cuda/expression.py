"""Prints a scalar expression as CUDA lines over floats: one line per distinct node, each a function of math.h."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tracea.core.expr import Expr
from tracea.emitters.cuda.types import STORAGE
from tracea.emitters.expression import ExpressionPrinter, Kind
from tracea.emitters.writer import Writer

__all__ = ["print_expression"]


def print_expression(writer: Writer, expr: Expr, inputs: Mapping[int, str]) -> str:
    """Write the lines that compute ``expr`` and return the name that holds its value.

    ``inputs`` names the variable of each ``Input`` index. Equal subexpressions are computed once.

    Raises: EmitError for a node or an input that has no line.
    """
    return _Printer(writer, inputs, STORAGE).print(expr)


class _Printer(ExpressionPrinter):
    def assign(self, text: str, kind: Kind = Kind.NUMBER) -> str:
        # Qualified: the CUDA headers declare ::tanh(float) and its like, which a using directive leaves ambiguous.
        return super().assign(f"tracea::{text}", kind)

    def constant(self, value: float) -> str:
        return _literal(value)

    def declared(self, kind: Kind) -> tuple[str, str]:
        return "bool" if kind is Kind.CONDITION else "float", "t"


def _literal(value: float) -> str:
    if math.isnan(value):
        return "tracea::bits_as<float>(0x7fc00000U)"
    if math.isinf(value):
        return f"tracea::bits_as<float>({'0x7f800000U' if value > 0 else '0xff800000U'})"
    return f"{value!r}F" if value >= 0 else f"({value!r}F)"
