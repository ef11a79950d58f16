"""A pass that moves pointwise work over pixels into the convolution that makes them.

A convolution's result is (n, k, p, q), channels last; what follows it element by element works on (n, p, q, k), which
is row-major: between the two is a permutation that moves nothing, and that no other fusion looks through.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from tracea.core.graph import Graph, Node
from tracea.core.op import Conv2dOp, PointwiseOp, ViewKind, ViewOp
from tracea.core.passes.draft import Draft
from tracea.core.passes.fuse import FuseEpilogue, with_epilogue
from tracea.errors import InvalidShape, InvalidStride

__all__ = ["TO_IMAGE", "TO_PIXELS", "FuseImages"]

TO_PIXELS: Final = (0, 2, 3, 1)  # of (n, c, h, w): (n, h, w, c)
TO_IMAGE: Final = (0, 3, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseImages:
    """Move a pointwise op over (n, p, q, k) into the convolution of which only it reads a permuted result."""

    limits: FuseEpilogue = field(default_factory=FuseEpilogue)
    name: str = "fuse images"

    def apply(self, graph: Graph) -> Graph:
        """Return the fused graph."""
        draft = Draft(graph)
        for name in draft.order():
            _fuse(draft, name, self.limits)
        return draft.finish()


def _fuse(draft: Draft, name: str, limits: FuseEpilogue) -> None:
    node = draft.nodes.get(name)
    if node is None or not isinstance(node.op, PointwiseOp) or len(node.op.shape) != 4 or node.op.out:
        return
    for pixels in sorted(set(node.inputs), key=draft.place.__getitem__, reverse=True):
        producer = _convolution(draft, pixels)
        if producer is None or draft.nodes[pixels].type.shape != node.op.shape:
            continue
        operands = [producer if item == pixels else _as_image(draft, item) for item in node.inputs]
        if any(operand is None for operand in operands):
            continue
        images = [operand for operand in operands if operand is not None]
        over_images = PointwiseOp(
            expr=node.op.expr, inputs=tuple(each.type for each in images), out_dtype=node.op.out_dtype
        )
        inputs = tuple(each.id for each in images)
        made = Node(id=draft.fresh(f"{name}.image"), op=over_images, inputs=inputs, fused=node.fused)
        fused = with_epilogue(producer, made, over_images, limits)
        if fused is None or not isinstance(fused.op, Conv2dOp):
            continue
        if producer.type.with_dtype(node.op.out_dtype).permuted(TO_PIXELS) != node.type:
            continue  # the pixels' readers were told of others: the convolution is row-major
        for each in images:
            if each.id not in draft.nodes:
                draft.put(each)
        draft.put(replace(fused, op=replace(fused.op, out=producer.type.with_dtype(node.op.out_dtype))))
        view = ViewOp(kind=ViewKind.PERMUTE, x=draft.nodes[fused.id].type, axes=TO_PIXELS)
        draft.put(Node(id=name, op=view, inputs=(fused.id,)))
        draft.remove(pixels)
        draft.remove(producer.id)
        return


def _convolution(draft: Draft, pixels: str) -> Node | None:
    """Return the convolution of which a value is a permuted result that has no other reader."""
    view = draft.nodes[pixels].op
    if not isinstance(view, ViewOp) or view.kind is not ViewKind.PERMUTE or view.axes != TO_PIXELS:
        return None
    producer = draft.nodes[draft.nodes[pixels].inputs[0]]
    alone = draft.has_one_user(pixels) and draft.has_one_user(producer.id)
    return producer if alone and isinstance(producer.op, Conv2dOp) else None


def _as_image(draft: Draft, name: str) -> Node | None:
    """Return an operand of an op over pixels as one that broadcasts to (n, k, p, q); None where no view is that."""
    node = draft.nodes[name]
    op, rank = node.op, node.type.rank
    if isinstance(op, ViewOp) and op.kind is ViewKind.PERMUTE and op.axes == TO_PIXELS:
        return draft.nodes[node.inputs[0]]
    if rank == 0:
        return node
    made = draft.fresh(f"{name}.image")
    try:
        if rank == 1:
            return _view(made, node, ViewKind.RESHAPE, shape=(*node.type.shape, 1, 1))
        if rank == 4:
            return _view(made, node, ViewKind.PERMUTE, axes=TO_IMAGE)
    except (InvalidShape, InvalidStride):
        return None
    return None


def _view(name: str, x: Node, kind: ViewKind, *, shape: tuple[object, ...] = (), axes: tuple[int, ...] = ()) -> Node:
    view = ViewOp(kind=kind, x=x.type, shape=shape, axes=axes)  # type: ignore[arg-type]
    return Node(id=name, op=view, inputs=(x.id,))
