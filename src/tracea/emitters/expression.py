"""Prints a scalar expression as lines: one per distinct node, each a call of a routine; backends say how they read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum, auto

from tracea.core.dtype import DType
from tracea.core.expr import Binary, Cast, Constant, Expr, Input, Select, Unary
from tracea.emitters.routines import BINARY, UNARY, find_routine
from tracea.emitters.writer import Writer
from tracea.errors import EmitError

__all__ = ["ExpressionPrinter", "Kind"]


class Kind(Enum):
    """What a printed name holds."""

    NUMBER = auto()
    CONDITION = auto()
    CONSTANT = auto()


class ExpressionPrinter(ABC):
    """Numbers the values of one expression; a comparison stays a condition until its value as a number is asked for.

    ``inputs`` names the variable of each ``Input`` index, ``storage`` the type that a cast to each dtype rounds to.
    """

    def __init__(self, writer: Writer, inputs: Mapping[int, str], storage: Mapping[DType, str]) -> None:
        self._writer = writer
        self._inputs = inputs
        self._storage = storage
        self._names: dict[str, str] = {}
        self._printed: dict[int, tuple[str, bool]] = {}

    def print(self, expr: Expr) -> str:
        """Write the lines that compute ``expr`` and return the name that holds its value.

        Raises: EmitError for a node or an input that has no line.
        """
        self._visit(expr)
        return self._value(expr)

    @abstractmethod
    def constant(self, value: float) -> str:
        """Return what stands for a constant in a line."""

    @abstractmethod
    def declared(self, kind: Kind) -> tuple[str, str]:
        """Return the type that a name of this kind is declared with, and what the name begins with."""

    def assign(self, text: str, kind: Kind = Kind.NUMBER) -> str:
        """Return the name that holds the value of ``text``; equal text is an equal value, and one line."""
        name = self._names.get(text)
        if name is None:
            type_, prefix = self.declared(kind)
            name = self._names[text] = f"{prefix}{len(self._names)}"
            self._writer.line(f"const {type_} {name} = {text};")
        return name

    def _visit(self, expr: Expr) -> None:
        """Print a node after its parts; one that is printed already is not printed again."""
        if id(expr) in self._printed:
            return
        idiom = find_routine(expr)
        if idiom is not None:
            routine, argument = idiom
            self._visit(argument)
            self._printed[id(expr)] = self.assign(f"{routine}({self._value(argument)})"), False
            return
        for part in expr.parts:
            self._visit(part)
        self._printed[id(expr)] = self._print(expr)

    def _value(self, expr: Expr) -> str:
        """Return the name of a printed node's value as a number."""
        name, is_condition = self._printed[id(expr)]
        return self.assign(f"select({name}, {self.constant(1.0)}, {self.constant(0.0)})") if is_condition else name

    def _condition(self, expr: Expr) -> str:
        name, is_condition = self._printed[id(expr)]
        return name if is_condition else self.assign(f"not_equal({name}, {self.constant(0.0)})", Kind.CONDITION)

    def _print(self, expr: Expr) -> tuple[str, bool]:
        match expr:
            case Input(index=index):
                if index not in self._inputs:
                    raise EmitError(node=expr, detail=f"input {index} is not bound, there are {sorted(self._inputs)}")
                return self._inputs[index], False
            case Constant(value=value):
                return self.constant(value), False
            case Unary(function=function, operand=operand):
                return self.assign(f"{UNARY[function]}({self._value(operand)})"), False
            case Binary(function=function, left=left, right=right):
                text = BINARY[function].format(self._value(left), self._value(right))
                kind = Kind.CONDITION if function.is_comparison else Kind.NUMBER
                return self.assign(text, kind), function.is_comparison
            case Select(condition=condition, if_true=if_true, if_false=if_false):
                text = f"select({self._condition(condition)}, {self._value(if_true)}, {self._value(if_false)})"
                return self.assign(text), False
            case Cast(operand=operand, dtype=dtype) if dtype in self._storage:
                return self.assign(f"round_to<{self._storage[dtype]}>({self._value(operand)})"), False
            case _:
                raise EmitError(node=expr, detail="no line for this expression node")
