"""Passes over views: drop those that strides or broadcasting already say, and move reshapes out of fusion's way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tracea.core.graph import Graph, Node
from tracea.core.op import Epilogue, PointwiseOp, RowOp, SourceOp, ViewKind, ViewOp
from tracea.core.passes.draft import Draft
from tracea.core.tensor_type import Dim, TensorType, broadcast_shapes
from tracea.errors import InvalidShape, InvalidStride

__all__ = ["EliminateViews", "SinkReshapes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EliminateViews:
    """Drop views that change nothing, make one of two in a row, and let broadcasting take the place of an expand."""

    name: str = "eliminate views"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph with as few views as strides can say."""
        draft = Draft(graph)
        for name in draft.order():
            node = draft.nodes[name]
            if isinstance(node.op, ViewOp):
                while (merged := _composed(draft, draft.nodes[name])) is not None:
                    draft.put(merged)
                _skip_identity(draft, draft.nodes[name])
            elif isinstance(node.op, PointwiseOp):
                draft.put(_without_expands(draft, node, node.op))
        return draft.finish()


def _composed(draft: Draft, node: Node) -> Node | None:
    inner_node = draft.nodes[node.inputs[0]]
    outer, inner = node.op, inner_node.op
    if not isinstance(outer, ViewOp) or not isinstance(inner, ViewOp) or outer.kind is not inner.kind:
        return None
    match outer.kind:
        case ViewKind.RESHAPE | ViewKind.EXPAND:
            merged = _view(outer.kind, inner.x, shape=outer.shape)
        case ViewKind.PERMUTE:
            merged = ViewOp(kind=outer.kind, x=inner.x, axes=tuple(inner.axes[axis] for axis in outer.axes))
        case ViewKind.SLICE:
            triples = zip(inner.starts, inner.steps, outer.starts, strict=True)
            merged = ViewOp(
                kind=outer.kind,
                x=inner.x,
                starts=tuple(start + step * offset for start, step, offset in triples),
                steps=tuple(a * b for a, b in zip(inner.steps, outer.steps, strict=True)),
                shape=outer.shape,
            )
        case ViewKind.WINDOWS:
            return None
    if merged is None or merged.infer() != node.type:
        return None
    return replace(node, op=merged, inputs=inner_node.inputs)


def _skip_identity(draft: Draft, node: Node) -> None:
    op = node.op
    is_same = isinstance(op, ViewOp) and op.infer() == op.x and op.offset_elements == 0
    # A transpose of a matrix with equal strides and extents, such as 1×1, is the same too: the types say so.
    if is_same and node.id not in draft.outputs:
        draft.stand_in(node.id, node.inputs[0])


def _without_expands(draft: Draft, node: Node, op: PointwiseOp) -> Node:
    names, types = list(node.inputs), list(op.inputs)
    for index, name in enumerate(names):
        source = draft.nodes[name]
        if not isinstance(source.op, ViewOp) or source.op.kind is not ViewKind.EXPAND:
            continue
        shorter = [*types[:index], source.op.x, *types[index + 1 :]]
        if broadcast_shapes(tensor.shape for tensor in shorter) == op.shape:
            names[index], types = source.inputs[0], shorter
    return replace(node, op=replace(op, inputs=tuple(types)), inputs=tuple(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReshapes:
    """Move a reshape from before a pointwise or row op to behind it, next to what the op can be fused with.

    ``Linear`` on (batch, rows, features) is a GEMM on (batch·rows, features) between two reshapes; the activation
    behind it can be its epilogue only if it works on the GEMM's own shape. Only reshapes that flatten are moved, so
    that the pass comes to an end.
    """

    name: str = "sink reshapes"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph with flattening reshapes moved towards the outputs."""
        draft = Draft(graph)
        for name in draft.order():
            if name in draft.nodes:
                _sink(draft, draft.nodes[name])
        return draft.finish()


def _sink(draft: Draft, node: Node) -> None:
    op = node.op
    if not isinstance(op, PointwiseOp | RowOp) or not op.infer().is_contiguous:
        return
    shape = op.shape
    flat = next((found for name in node.inputs if (found := _flat_source(draft, name, shape)) is not None), None)
    if flat is None or (isinstance(op, RowOp) and flat[-1:] != shape[-1:]):
        return
    reshaped: list[tuple[str, ViewOp | None]] = []
    for name, tensor in zip(node.inputs, op.operands, strict=True):
        target = _flattened(tensor, shape, flat)
        view = None if target is None else _view(ViewKind.RESHAPE, tensor, shape=target)
        if target is None or view is None:
            return
        reshaped.append((name, None if target == tensor.shape else view))
    inputs = [name if view is None else _reshape(draft, name, view) for name, view in reshaped]
    types = [draft.nodes[name].type for name in inputs]
    body = draft.fresh(f"{node.id}.flat")
    draft.put(Node(id=body, op=_over(op, types), inputs=tuple(inputs)))
    view = ViewOp(kind=ViewKind.RESHAPE, x=draft.nodes[body].type, shape=shape)
    draft.put(Node(id=node.id, op=view, inputs=(body,), fused=node.fused))
    for name in dict.fromkeys(node.inputs):
        if isinstance(draft.nodes[name].op, ViewOp) and not draft.users(name) and name not in draft.outputs:
            draft.remove(name)


def _flat_source(draft: Draft, name: str, shape: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """Return the shape before a flat value was reshaped to ``shape``, if only this use keeps it from its maker."""
    op = draft.nodes[name].op
    if not isinstance(op, ViewOp) or op.kind is not ViewKind.RESHAPE or op.shape != shape:
        return None
    source = draft.nodes[name].inputs[0]
    is_made = not isinstance(draft.nodes[source].op, SourceOp | ViewOp)
    is_flat = op.x.layout is None and op.x.rank < len(shape)
    return op.x.shape if is_made and is_flat and draft.has_one_user(name) and draft.has_one_user(source) else None


def _flattened(tensor: TensorType, shape: tuple[Dim, ...], flat: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """Return the shape that an operand of an op over ``shape`` needs over ``flat``; None where no reshape gives it."""
    if tensor.layout is not None:
        return None
    if tensor.shape == shape:
        return flat
    significant = tensor.shape
    while significant and significant[0] == 1:
        significant = significant[1:]
    if not significant:
        return tensor.shape if tensor.rank <= len(flat) else ()
    if len(significant) == 1 and shape[-1:] == flat[-1:]:
        return tensor.shape if tensor.rank <= len(flat) else significant
    return None


def _reshape(draft: Draft, name: str, view: ViewOp) -> str:
    source = draft.nodes[name]
    undone = isinstance(source.op, ViewOp) and source.op.kind is ViewKind.RESHAPE and source.op.x == view.infer()
    if undone:
        return source.inputs[0]
    made = draft.fresh(f"{name}.flat")
    draft.put(Node(id=made, op=view, inputs=(name,)))
    return made


def _over(op: PointwiseOp | RowOp, types: Sequence[TensorType]) -> PointwiseOp | RowOp:
    if isinstance(op, PointwiseOp):
        return replace(op, inputs=tuple(types))
    split = len(op.x)
    epilogue = Epilogue(op.epilogue.expr, tuple(types[split:]))
    flat = broadcast_shapes(tensor.shape for tensor in types[:split])
    return replace(op, x=tuple(types[:split]), epilogue=epilogue, out=TensorType(flat, op.infer().dtype))


def _view(kind: ViewKind, x: TensorType, *, shape: tuple[Dim, ...]) -> ViewOp | None:
    try:
        return ViewOp(kind=kind, x=x, shape=shape)
    except (InvalidShape, InvalidStride):
        return None
