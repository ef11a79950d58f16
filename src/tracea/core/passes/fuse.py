"""Passes that move pointwise work into the ops that make or take its data, so that it costs no trip to memory.

A fused value is no longer rounded to the storage type of the node that is gone: results come out closer to the
reference, never further. ``keep_rounding=True`` keeps each rounding as a cast. Integer and bool nodes always keep
theirs, since it is their meaning. Ops are kept apart where one of them computes in f64, since a value between them
or an operand is of f64 or a wide integer, and the two as one op, by the types at its ends, would compute in f32; and
where one that rounds to f32 would, for the sake of an integer beside it, no longer be rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tracea.core.arithmetic import is_narrowed, is_widened
from tracea.core.dtype import DType
from tracea.core.expr import MAX_DEPTH, MAX_SIZE, Cast, Expr, Input
from tracea.core.graph import Graph, Node
from tracea.core.op import Conv2dOp, Epilogue, GemmOp, Op, PointwiseOp, ReduceOp, RowOp
from tracea.core.passes.draft import Draft
from tracea.core.tensor_type import TensorType

__all__ = ["FuseEpilogue", "FusePointwise", "FuseRows", "with_epilogue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseEpilogue:
    """Move a pointwise op into the epilogue of the GEMM or convolution whose result only it uses.

    Bias, residual and whatever else the pointwise op reads become epilogue operands. Where several inputs qualify, the
    one that comes last takes it: the others are then already in memory. A mask, or any other operand or result that is
    not of floats, or of f64 where sums are of f32, stays out: it keeps the pointwise op, which a row op behind it may
    take. ``producers`` are the ops that may take one.
    """

    max_operands: int = 6
    max_size: int = 256
    keep_rounding: bool = False
    producers: tuple[type[Op], ...] = (GemmOp, Conv2dOp)
    name: str = "fuse epilogue"

    def apply(self, graph: Graph) -> Graph:
        """Return the fused graph."""
        draft = Draft(graph)
        for name in draft.order():
            _fuse_into_producer(draft, name, self.producers, self)
        return draft.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseRows:
    """Move pointwise ops into the row op or reduction that reads them (prologue) or that only they read (epilogue)."""

    max_operands: int = 6
    max_size: int = 256
    keep_rounding: bool = False
    name: str = "fuse rows"

    def apply(self, graph: Graph) -> Graph:
        """Return the fused graph."""
        draft = Draft(graph)
        for name in draft.order():
            _fuse_into_producer(draft, name, (RowOp, ReduceOp), self)
        for name in draft.order():
            while name in draft.nodes and _fuse_prologue(draft, draft.nodes[name], self):
                pass
        return draft.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class FusePointwise:
    """Merge chains and diamonds of pointwise ops whose inner values only the next one uses, at equal shapes."""

    max_operands: int = 8
    max_size: int = 256
    keep_rounding: bool = False
    name: str = "fuse pointwise"

    def apply(self, graph: Graph) -> Graph:
        """Return the fused graph."""
        draft = Draft(graph)
        for name in draft.order():
            while _fuse_chain(draft, draft.nodes[name], self):
                pass
        return draft.finish()


_Limits: TypeAlias = FuseEpilogue | FuseRows | FusePointwise


def _fuse_into_producer(draft: Draft, name: str, kinds: tuple[type[Op], ...], limits: _Limits) -> None:
    node = draft.nodes[name]
    if not isinstance(node.op, PointwiseOp):
        return
    for producer_name in sorted(set(node.inputs), key=draft.place.__getitem__, reverse=True):
        producer = draft.nodes[producer_name]
        if isinstance(producer.op, kinds) and draft.has_one_user(producer_name):
            fused = with_epilogue(producer, node, node.op, limits)
            if fused is not None:
                draft.put(fused)
                draft.remove(producer_name)
                return


def with_epilogue(producer: Node, node: Node, pointwise: PointwiseOp, limits: _Limits) -> Node | None:
    """Return a node that does the producer's work and a pointwise op's on its result; None where none can."""
    op = producer.op
    if not isinstance(op, GemmOp | Conv2dOp | RowOp | ReduceOp) or pointwise.shape != op.shape:
        return None
    types = (pointwise.out_dtype, *(tensor.dtype for tensor in pointwise.inputs))
    if isinstance(op, GemmOp | Conv2dOp) and not _is_one_arithmetic(op, types):
        return None
    main = len(producer.inputs) - len(op.epilogue.operands)
    operands = _Operands(producer.inputs[main:], op.epilogue.operands)
    inputs: dict[int, Expr] = {}
    for index, (name, tensor) in enumerate(zip(node.inputs, pointwise.inputs, strict=True)):
        if name == producer.id:
            inputs[index] = _stored(op.epilogue.expr, producer.type.dtype, limits)
        else:
            inputs[index] = Input(1 + operands.index(name, tensor))
    expr = _substituted(pointwise.expr, inputs, limits)
    if expr is None or len(operands.names) > limits.max_operands:
        return None
    fused_op = replace(op, epilogue=Epilogue(expr, tuple(operands.types)), out=pointwise.infer())
    if is_narrowed(fused_op, op, pointwise) or is_widened(fused_op, pointwise):
        return None
    return _merged(node, producer, fused_op, (*producer.inputs[:main], *operands.names))


def _is_one_arithmetic(op: GemmOp | Conv2dOp, types: Sequence[DType]) -> bool:
    """Whether an epilogue of floats computes as the sums do: kernels have f64 everywhere, or nowhere."""
    if not all(dtype.is_float for dtype in types):
        return False
    return set(types) == {DType.F64} if op.accumulator is DType.F64 else DType.F64 not in types


def _fuse_prologue(draft: Draft, node: Node, limits: _Limits) -> bool:
    op = node.op
    if not isinstance(op, RowOp | ReduceOp):
        return False
    sources, extras = node.inputs[: len(op.x)], node.inputs[len(op.x) :]
    shape = op.shape if isinstance(op, RowOp) else op.source_shape
    for name in sources:
        producer = draft.nodes[name]
        if not isinstance(producer.op, PointwiseOp) or not draft.has_one_user(name) or name in extras:
            continue
        if producer.op.shape != shape:
            continue
        merged = _inlined(op.prologue, zip(sources, op.x, strict=True), producer, producer.op, limits)
        if merged is None:
            continue
        expr, operands = merged
        fused = replace(op, x=tuple(operands.types), prologue=expr, out=op.infer())
        if is_narrowed(fused, op, producer.op) or is_widened(fused, op, producer.op):
            continue
        draft.put(_merged(node, producer, fused, (*operands.names, *extras)))
        draft.remove(name)
        return True
    return False


def _fuse_chain(draft: Draft, node: Node, limits: _Limits) -> bool:
    op = node.op
    if not isinstance(op, PointwiseOp):
        return False
    for name in dict.fromkeys(node.inputs):
        producer = draft.nodes[name]
        if not isinstance(producer.op, PointwiseOp) or not draft.has_one_user(name) or producer.op.shape != op.shape:
            continue
        merged = _inlined(op.expr, zip(node.inputs, op.inputs, strict=True), producer, producer.op, limits)
        if merged is None:
            continue
        expr, operands = merged
        fused = replace(op, expr=expr, inputs=tuple(operands.types))
        if is_narrowed(fused, op, producer.op) or is_widened(fused, op, producer.op):
            continue
        draft.put(_merged(node, producer, fused, tuple(operands.names)))
        draft.remove(name)
        return True
    return False


def _inlined(
    expr: Expr, reads: Iterable[tuple[str, TensorType]], producer: Node, pointwise: PointwiseOp, limits: _Limits
) -> tuple[Expr, _Operands] | None:
    """Return an expression over ``reads`` with the producer's own expression in its place, and what it then reads."""
    operands = _Operands((), ())
    inner: dict[int, Expr] = {
        index: Input(operands.index(name, tensor))
        for index, (name, tensor) in enumerate(zip(producer.inputs, pointwise.inputs, strict=True))
    }
    body = _substituted(pointwise.expr, inner, limits)
    if body is None:
        return None
    value = _stored(body, pointwise.out_dtype, limits)
    outer: dict[int, Expr] = {
        index: value if name == producer.id else Input(operands.index(name, tensor))
        for index, (name, tensor) in enumerate(reads)
    }
    merged = _substituted(expr, outer, limits)
    if merged is None or len(operands.names) > limits.max_operands:
        return None
    return merged, operands


class _Operands:
    """Operands in order, each node once."""

    def __init__(self, names: Sequence[str], types: Sequence[TensorType]) -> None:
        self.names = list(names)
        self.types = list(types)

    def index(self, name: str, tensor: TensorType) -> int:
        if name not in self.names:
            self.names.append(name)
            self.types.append(tensor)
        return self.names.index(name)


def _stored(expr: Expr, dtype: DType, limits: _Limits) -> Expr:
    if dtype.is_float and not limits.keep_rounding:
        return expr
    return expr if dtype is DType.F64 else Cast(expr, dtype)


def _substituted(expr: Expr, inputs: dict[int, Expr], limits: _Limits) -> Expr | None:
    """Return the substituted expression, or None where it would outgrow the limits."""
    depth = expr.depth + max((part.depth for part in inputs.values()), default=0)
    growth = max((part.size for part in inputs.values()), default=1)
    if depth > MAX_DEPTH or expr.size * growth > MAX_SIZE:
        return None
    result = expr.substitute(inputs)
    return result if result.size <= limits.max_size else None


def _merged(node: Node, producer: Node, op: Op, inputs: tuple[str, ...]) -> Node:
    return Node(id=node.id, op=op, inputs=inputs, fused=(*producer.fused, producer.id, *node.fused))
