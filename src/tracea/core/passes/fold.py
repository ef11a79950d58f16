"""Constant folding: in expressions, of constants of one element, and of whole subgraphs of constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tracea.core.arithmetic import is_narrowed
from tracea.core.expr import Constant, Expr, Input
from tracea.core.graph import Graph, Node
from tracea.core.op import Conv2dOp, Epilogue, GemmOp, Op, PointwiseOp, ReduceOp, RowOp, SourceKind, SourceOp, ViewOp
from tracea.core.passes.draft import Draft
from tracea.core.reference import evaluate
from tracea.core.tensor_type import Dim, TensorType, broadcast_shapes

__all__ = ["FoldConstants", "Folded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """A folded graph, and the data of the constants that folding made, by id."""

    graph: Graph
    values: Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldConstants:
    """Simplify expressions, put known one-element constants into them, and drop pointwise ops that change nothing.

    ``values`` gives the data of constants by id, as far as they are known. :meth:`fold` also evaluates ops whose
    operands are all known, in float64, rounded once, and reductions of nothing, whatever they are of; views stay views,
    since they cost nothing.
    """

    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str = "fold constants"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph with simpler expressions; no constant is made."""
        draft = Draft(graph)
        for name in draft.order():
            draft.put(self._simplified(draft.nodes[name]))
            _skip_identity(draft, draft.nodes[name])
        return draft.finish()

    def fold(self, graph: Graph) -> Folded:
        """Return the graph with simpler expressions, and with constants of the same id for constant subgraphs."""
        draft = Draft(graph)
        known: dict[str, Any] = {name: self.values[name] for name in graph.constants if name in self.values}
        looked_at: dict[str, Node] = {}  # views of known values; most are of weights, which nothing here reads
        made: dict[str, np.ndarray[Any, Any]] = {}

        def value_of(name: str) -> Any:
            if name not in known:
                view = looked_at[name]
                known[name] = evaluate(view.op, [value_of(source) for source in view.inputs], rounded=True)
            return known[name]

        for node in graph:
            unread = _unread(node.op)
            is_known = all(name in known or name in looked_at for name in node.inputs[len(unread) :])
            if isinstance(node.op, SourceOp) or not node.inputs or not is_known:
                continue
            if isinstance(node.op, ViewOp):
                looked_at[node.id] = node
                continue
            operands = [*unread, *(value_of(name) for name in node.inputs[len(unread) :])]
            value = evaluate(node.op, operands, rounded=True)
            known[node.id] = value
            made[node.id] = value.astype(node.type.dtype.numpy, order="C")
            source = SourceOp(kind=SourceKind.CONSTANT, type=node.type)
            draft.put(Node(id=node.id, op=source, fused=node.fused))
        folded = replace(self, values={**self.values, **made}).apply(draft.finish())
        return Folded(graph=folded, values={name: made[name] for name in folded.constants if name in made})

    def _simplified(self, node: Node) -> Node:
        simpler = self._with_scalars(node)
        if is_narrowed(simpler.op, node.op):  # without its operand of f64 the op would be computed in f32
            return replace(self, values={})._with_scalars(node)
        return simpler

    def _with_scalars(self, node: Node) -> Node:
        op = node.op
        match op:
            case PointwiseOp():
                expr, inputs, types = self._folded(op.expr, node.inputs, op.inputs, op.shape)
                return replace(node, op=replace(op, expr=expr, inputs=types), inputs=inputs)
            case GemmOp() | Conv2dOp():
                epilogue, extras = self._folded_epilogue(op.epilogue, node.inputs[2:])
                return replace(node, op=replace(op, epilogue=epilogue), inputs=(*node.inputs[:2], *extras))
            case RowOp() | ReduceOp():
                split = len(op.x)
                shape = op.shape if isinstance(op, RowOp) else op.source_shape
                prologue, sources, types = self._folded(op.prologue, node.inputs[:split], op.x, shape)
                epilogue, extras = self._folded_epilogue(op.epilogue, node.inputs[split:])
                new = replace(op, x=types, prologue=prologue, epilogue=epilogue, out=op.infer())
                return replace(node, op=new, inputs=(*sources, *extras))
            case _:
                return node

    def _scalar(self, name: str, tensor: TensorType) -> Expr | None:
        if name not in self.values or not tensor.is_static or tensor.elements != 1:
            return None
        return Constant(float(tensor.dtype.round(np.asarray(self.values[name], dtype=np.float64)).reshape(())))

    def _folded_epilogue(self, epilogue: Epilogue, names: Sequence[str]) -> tuple[Epilogue, tuple[str, ...]]:
        inputs: dict[int, Expr] = {0: Input(0)}
        for index, (name, tensor) in enumerate(zip(names, epilogue.operands, strict=True), start=1):
            scalar = self._scalar(name, tensor)
            inputs[index] = Input(index) if scalar is None else scalar
        expr = epilogue.expr.substitute(inputs).simplify()
        kept = [index for index in expr.inputs() if index > 0]
        expr = expr.substitute({old: Input(new) for new, old in enumerate(kept, start=1)})
        operands = tuple(epilogue.operands[index - 1] for index in kept)
        return Epilogue(expr, operands), tuple(names[index - 1] for index in kept)

    def _folded(
        self, expr: Expr, names: Sequence[str], types: Sequence[TensorType], shape: tuple[Dim, ...]
    ) -> tuple[Expr, tuple[str, ...], tuple[TensorType, ...]]:
        scalars = {i: self._scalar(name, types[i]) for i, name in enumerate(names)}
        expr = expr.substitute({i: value for i, value in scalars.items() if value is not None}).simplify()
        # The operands also say the shape: one that the expression no longer reads stays if the shape needs it.
        kept = list(expr.inputs())
        for index in range(len(types)):
            if not kept or broadcast_shapes(types[i].shape for i in kept) != shape:
                kept = sorted({*kept, index})
        expr = expr.substitute({old: Input(new) for new, old in enumerate(kept)})
        return expr, tuple(names[i] for i in kept), tuple(types[i] for i in kept)


def _unread(op: Op) -> list[np.ndarray[Any, Any]]:
    """Return stand-ins for the sources of a reduction of no element: of none of them does a value count."""
    if not isinstance(op, ReduceOp) or not all(tensor.is_static for tensor in op.operands):
        return []
    is_constant = 0 in op.source_shape and op.infer().elements > 0
    return [np.zeros(tensor.static_shape) for tensor in op.x] if is_constant else []


def _skip_identity(draft: Draft, node: Node) -> None:
    if not isinstance(node.op, PointwiseOp) or node.id in draft.outputs or not isinstance(node.op.expr, Input):
        return
    source = node.inputs[node.op.expr.index]
    if draft.nodes[source].type == node.type:
        draft.stand_in(node.id, source)
