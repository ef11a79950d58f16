"""How large whole numbers of a graph may become: kernels compute them in f64, and do not wrap around as torch does.

Arithmetic is taken where no result, whatever a call gives, passes what f64 counts and its own type holds. The inputs
that it reads are therefore held to 2^30 by each call: indices are no larger.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Cast, Constant, Expr, Input, Select, Unary, UnaryFunction
from tracea.core.op import GatherRowsOp, JoinOp, PointwiseOp, SourceOp, ViewOp
from tracea.interface.ranges import EXACT_INTEGERS

if TYPE_CHECKING:
    import torch

    from tracea.core.graph import Graph, Node

__all__ = ["SMALL_INTEGERS", "Integers"]

SMALL_INTEGERS: Final = 2**30
_LARGEST: Final = {DType.I64: float(EXACT_INTEGERS), DType.I32: 2.0**31 - 1.0}
_OF_TYPE: Final = {DType.BOOL: 1.0, DType.U8: 255.0, DType.I8: 128.0, DType.I32: 2.0**31}
_SUMS: Final = (BinaryFunction.ADD, BinaryFunction.SUB)
_CHOICES: Final = (BinaryFunction.MAX, BinaryFunction.MIN)


class Integers:
    """Knows how large the whole numbers of a graph may be; ``read`` are the inputs on whose limit that rests."""

    def __init__(self, graph: Graph, constants: Mapping[str, torch.Tensor]) -> None:
        self._graph, self._constants = graph, constants
        self.read: set[str] = set()

    def are_exact(self, expr: Expr, operands: Sequence[Node], dtype: DType) -> bool:
        """Tell whether a kernel computes what torch does, of inputs that are then held to a limit."""
        if dtype not in _LARGEST:
            return False
        read: set[str] = set()
        is_exact = _largest(expr, [self._of(operand, read) for operand in operands]) <= _LARGEST[dtype]
        if is_exact:
            self.read |= read
        return is_exact

    def _of(self, node: Node, read: set[str]) -> float:
        """Return the largest magnitude of a value's elements, or infinity; note the inputs that it comes from."""
        return min(self._made(node, read), _OF_TYPE.get(node.type.dtype, math.inf))

    def _made(self, node: Node, read: set[str]) -> float:
        if node.type.dtype.is_float or node.type.dtype is DType.BOOL:
            return math.inf  # of a mask its type says it
        sources = [self._graph[name] for name in node.inputs]
        match node.op:
            case SourceOp():
                return self._source(node, read)
            case ViewOp() | JoinOp():
                return max(self._of(source, read) for source in sources)
            case GatherRowsOp():
                return self._of(sources[0], read)
            case PointwiseOp(expr=expr):
                return _largest(expr, [self._of(source, read) for source in sources])
            case _:
                return math.inf

    def _source(self, node: Node, read: set[str]) -> float:
        tensor = self._constants.get(node.id)
        if tensor is None:
            read.add(node.id)
            return float(SMALL_INTEGERS)
        return float(tensor.abs().max()) if tensor.numel() else 0.0


def _largest(expr: Expr, operands: Sequence[float]) -> float:
    """Return the largest magnitude of an expression and of what it is made of; infinity of what is no whole number."""
    parts = [_largest(part, operands) for part in expr.parts]
    match expr:
        case Input(index=index):
            return operands[index]
        case Constant(value=value):
            return abs(value) if float(value).is_integer() else math.inf
        case Unary(function=UnaryFunction.NEG | UnaryFunction.ABS):
            return parts[0]
        case Binary(function=function) if function in _SUMS:
            return sum(parts)
        case Binary(function=BinaryFunction.MUL):
            return max(math.prod(parts), *parts)  # by nothing, too, of an infinity
        case Binary(function=function) if function in _CHOICES or function.is_comparison:
            return max(*parts, 1.0)
        case Select():
            return max(parts)
        case Cast(dtype=dtype) if dtype in _LARGEST and parts[0] <= _LARGEST[dtype]:
            return parts[0]
        case _:
            return math.inf
