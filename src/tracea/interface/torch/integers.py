"""How large whole numbers of a graph may become: kernels compute them in f64, and do not wrap around as torch does.

Arithmetic is taken where no result, whatever a call gives, passes what f64 counts and its own type holds. The inputs
that it reads are therefore held to 2^30 by each call, since indices are no larger, and to less where that is what the
arithmetic needs: a product of two such numbers has none of 2^30. What is known of places that the graph finds itself,
and of counts of what a mask has set, needs no check of a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Cast, Constant, Expr, Input, Select, Unary, UnaryFunction
from tracea.core.op import GatherRowsOp, JoinOp, LargestOp, PointwiseOp, SourceOp, ViewOp
from tracea.core.tensor_type import static
from tracea.interface.torch.functions import floor
from tracea.runtime.index_range import EXACT_INTEGERS

if TYPE_CHECKING:
    import torch

    from tracea.core.graph import Graph, Node

__all__ = ["LARGEST", "Integers", "Range"]

_LIMITS: Final = tuple(2**bits for bits in (30, 26, 23, 20, 16))  # the first that suffices is what inputs are held to
LARGEST: Final = {DType.I64: float(EXACT_INTEGERS), DType.I32: 2.0**31 - 1.0}


@dataclass(frozen=True, slots=True)
class Range:
    """The whole numbers that a value's elements may be, from ``low`` to ``high``; ``most`` is the largest on the way.

    Of what is no whole number all three are infinite.
    """

    low: float
    high: float
    most: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", max(self.most, abs(self.low), abs(self.high)))

    def within(self, other: Range) -> Range:
        """Return the numbers that are in both."""
        return Range(max(self.low, other.low), min(self.high, other.high))

    def sums(self, count: int) -> Range:
        """Return the range of sums of up to ``count`` of them."""
        return Range(min(self.low, 0.0) * count, max(self.high, 0.0) * count)

    def joined(self, *others: Range) -> Range:
        """Return the range of what is in one of several."""
        every = (self, *others)
        return Range(
            min(each.low for each in every), max(each.high for each in every), max(each.most for each in every)
        )


_ANY: Final = Range(-math.inf, math.inf)
_OUTWARD: Final = 1.0 + 2.0**-7  # by the unit of bf16
_OF_TYPE: Final = {
    DType.BOOL: Range(0.0, 1.0),
    DType.U8: Range(0.0, 255.0),
    DType.I8: Range(-128.0, 127.0),
    DType.I32: Range(-(2.0**31), 2.0**31 - 1.0),
}


class Integers:
    """Knows how large the whole numbers of a graph may be; ``limits`` has those inputs on whose limit that rests."""

    def __init__(self, graph: Graph, constants: Mapping[str, torch.Tensor]) -> None:
        self._graph, self._constants = graph, constants
        self._stated: dict[str, Range] = {}
        self._sums: dict[str, tuple[Node, int]] = {}
        self._totals: dict[str, int] = {}
        self._ascending: set[str] = set()
        self.limits: dict[str, int] = {}
        self._found: dict[int, dict[str, tuple[Range, frozenset[str]]]] = {}  # by the limit, until one becomes lower
        self._limit = _LIMITS[0]  # of inputs that nothing holds to less

    def state(self, node: Node, low: int, high: int) -> Node:
        """Return a node after noting that its elements are from ``low`` to ``high``, whatever a call gives."""
        self._stated[node.id] = Range(float(low), float(high))
        return self._anew(node)

    def state_counts(self, node: Node, total: int) -> Node:
        """Return a node after noting that its elements are none below 0, and together at most ``total``."""
        self._totals[node.id] = total
        return self.state(node, 0, total)

    def state_sums(self, node: Node, of: Node, count: int, *, in_turn: bool = False) -> Node:
        """Return a node after noting that its elements are sums of up to ``count`` of those of another.

        Sums up to each element ``in_turn`` ascend where none is below 0.
        """
        if in_turn:
            self._ascending.add(node.id)
        self._sums[node.id] = (of, count)
        return self._anew(node)

    def _anew(self, node: Node) -> Node:
        for found in self._found.values():
            found.pop(node.id, None)
        return node

    def ascends(self, node: Node) -> bool:
        """Tell whether no element is below the one before it, or below 0, whatever a call gives."""
        return node.id in self._ascending and self._of(self._sums[node.id][0], set()).low >= 0.0

    def of(self, node: Node) -> Range:
        """Return what a value's elements may be, where no call is checked for that; else no bound."""
        read: set[str] = set()
        found = self._of(node, read)
        return _ANY if read else found

    def are_exact(self, expr: Expr, operands: Sequence[Node], dtype: DType) -> bool:
        """Tell whether a kernel computes what torch does, of inputs that are then held to a limit."""
        if dtype not in LARGEST:
            return False
        found = self._held(lambda read: _range(expr, [self._of(operand, read) for operand in operands]), LARGEST[dtype])
        return found is not None

    def bounded(self, node: Node, most: float) -> Range | None:
        """Return what a value's elements may be if none is above ``most``, of inputs that are then held to a limit."""
        return self._held(lambda read: self._of(node, read), most)

    def _held(self, of: Callable[[set[str]], Range], most: float) -> Range | None:
        """Return a range that ``of`` finds and that has nothing above ``most``; hold what it read to the limit."""
        for limit in _LIMITS:
            self._limit, read = limit, set[str]()
            found = of(read)
            self._limit = _LIMITS[0]
            if found.most <= most:
                lower = {name: limit for name in read if limit < self.limits.get(name, _LIMITS[0] + 1)}
                if lower:
                    self.limits |= lower
                    self._found.clear()
                return found
        return None

    def _of(self, node: Node, read: set[str]) -> Range:
        """Return the range of a value's elements; note the inputs that it comes from."""
        known = self._found.setdefault(self._limit, {})
        if node.id not in known:
            inputs = set[str]()
            known[node.id] = self._made(node, inputs).within(_OF_TYPE.get(node.type.dtype, _ANY)), frozenset(inputs)
        found, inputs = known[node.id]
        read |= inputs
        return found

    def _made(self, node: Node, read: set[str]) -> Range:
        if node.id in self._stated:
            return self._stated[node.id]
        if node.id in self._sums:
            of, count = self._sums[node.id]
            if of.id in self._totals:
                return Range(0.0, float(self._totals[of.id]))
            return self._of(of, read).sums(count)
        if node.type.dtype.is_float or node.type.dtype is DType.BOOL:  # of a mask its type says it too
            return self._of_floats(node, read)
        sources = [self._graph[name] for name in node.inputs]
        match node.op:
            case SourceOp():
                return self._source(node, read)
            case LargestOp(x=x):
                return Range(0.0, static(x.shape[-1]) - 1.0)
            case ViewOp() | JoinOp():
                first, *others = (self._of(source, read) for source in sources)
                return first.joined(*others)
            case GatherRowsOp():
                return self._of(sources[0], read)
            case PointwiseOp(expr=expr):
                return _range(expr, [self._of(source, read) for source in sources])
            case _:
                return _ANY

    def _of_floats(self, node: Node, read: set[str]) -> Range:
        """Return between what floats lie that may become integers: where a clamp or a choice says it, no input."""
        if not node.type.dtype.is_float or not isinstance(node.op, ViewOp | JoinOp | PointwiseOp):
            return _ANY
        sources = [self._graph[name] for name in node.inputs]
        ranges = [self._of(source, read) if source.type.dtype.is_float else _ANY for source in sources]
        op = node.op
        found = _bounds(op.expr, ranges) if isinstance(op, PointwiseOp) else ranges[0].joined(*ranges[1:])
        return _rounded(found)  # the bounds are rounded to the type too

    def _source(self, node: Node, read: set[str]) -> Range:
        tensor = self._constants.get(node.id)
        if tensor is None:
            if node.type.dtype not in (DType.U8, DType.I8):  # whose own limits are lower
                read.add(node.id)
            limit = float(min(self._limit, self.limits.get(node.id, self._limit)))
            return Range(-limit, limit)
        return Range(float(tensor.min()), float(tensor.max())) if tensor.numel() else Range(0.0, 0.0)


def _rounded(of: Range) -> Range:
    return Range(_OUTWARD * of.low, _OUTWARD * of.high)


def _bounds(expr: Expr, operands: Sequence[Range]) -> Range:
    """Return between what an expression of floats lies, whatever it is made of."""
    match expr:
        case Input(index=index):
            return operands[index]
        case Constant(value=value) if not math.isnan(value):
            return Range(value, value)
        case Unary(function=UnaryFunction.FLOOR):
            part = _bounds(expr.parts[0], operands)
            return Range(part.low - 1.0, part.high)
        case Binary(BinaryFunction.MAX | BinaryFunction.MIN as function, left, right):
            return _of_two(function, _bounds(left, operands), _bounds(right, operands), 0.0)
        case Binary(function=function) if function.is_comparison:
            return Range(0.0, 1.0)
        case Cast(dtype=dtype) if dtype.is_float:
            return _rounded(_bounds(expr.parts[0], operands))
        case Select():
            _, if_true, if_false = expr.parts
            return _bounds(if_true, operands).joined(_bounds(if_false, operands))
        case _:
            return _ANY


def _range(expr: Expr, operands: Sequence[Range]) -> Range:
    """Return the range of an expression, with the largest magnitude of what it is made of."""
    parts = [_range(part, operands) for part in expr.parts]
    most = max((part.most for part in parts), default=0.0)
    match expr:
        case Input(index=index):
            return operands[index]
        case Constant(value=value):
            return Range(value, value) if float(value).is_integer() else _ANY
        case Unary(function=UnaryFunction.NEG):
            return Range(-parts[0].high, -parts[0].low, most)
        case Unary(function=UnaryFunction.ABS):
            return Range(0.0, max(abs(parts[0].low), abs(parts[0].high)), most)
        case Unary(UnaryFunction.FLOOR, Binary(BinaryFunction.DIV, left, right)):
            return _floor(_range(left, operands), _range(right, operands))
        case Binary(BinaryFunction.SUB, left, Binary(BinaryFunction.MUL, quotient, divisor)) if quotient == floor(
            left / divisor
        ):
            return _rest(parts[0], _range(divisor, operands))
        case Binary(function=function):
            return _of_two(function, parts[0], parts[1], most)
        case Select():
            _, if_true, if_false = parts
            return replace(if_true.joined(if_false), most=most)
        case Cast(dtype=dtype) if dtype.is_float or most <= LARGEST.get(dtype, -1.0):
            return _rounded(parts[0]) if dtype.is_float else parts[0]
        case _:
            return _ANY


def _floor(left: Range, right: Range) -> Range:
    """Return the range of quotients that are rounded down, of divisors that are not 0."""
    most = max(left.most, right.most)
    if right.low <= 0.0 <= right.high or math.isinf(most):
        return _ANY
    corners = [a / b for a in (left.low, left.high) for b in (right.low, right.high)]
    return Range(math.floor(min(corners)), math.floor(max(corners)), most)


def _rest(left: Range, right: Range) -> Range:
    """Return the range of what such a quotient leaves, which has the sign of the divisor."""
    most = 2 * max(left.most, right.most)
    if right.low <= 0.0 <= right.high or math.isinf(most):
        return _ANY
    return Range(min(right.low + 1.0, 0.0), max(right.high - 1.0, 0.0), most)


def _of_two(function: BinaryFunction, left: Range, right: Range, most: float) -> Range:
    match function:
        case BinaryFunction.ADD:
            return Range(left.low + right.low, left.high + right.high, most)
        case BinaryFunction.SUB:
            return Range(left.low - right.high, left.high - right.low, most)
        case BinaryFunction.MUL if not math.isinf(most):  # of which nothing may be a factor
            corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
            return Range(min(corners), max(corners), most)
        case BinaryFunction.MAX:
            return Range(max(left.low, right.low), max(left.high, right.high), most)
        case BinaryFunction.MIN:
            return Range(min(left.low, right.low), min(left.high, right.high), most)
        case _ if function.is_comparison:
            return Range(0.0, 1.0, most)
        case _:
            return _ANY
