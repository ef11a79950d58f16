"""A pass that moves pointwise work on what is joined to before the join, where whatever makes the parts takes it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tracea.core.expr import Input
from tracea.core.graph import Graph, Node
from tracea.core.op import Conv2dOp, JoinOp, PointwiseOp, SourceOp, ViewKind, ViewOp
from tracea.core.passes.draft import Draft
from tracea.core.passes.fuse_images import TO_IMAGE, TO_PIXELS

__all__ = ["SinkJoins"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkJoins:
    """Let a pointwise op that alone reads a join work on each part.

    Over the pixels of images, if convolutions make the parts: the phases of a transposed convolution then have the norm
    and the activation behind it in their epilogues. Over the join itself, if a part is pointwise work or would be
    copied: a rotation of halves, ``x * cos + cat(-b, a) * sin``, then is one pointwise op a half.
    """

    name: str = "sink joins"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph with that work before the joins."""
        draft = Draft(graph)
        for name in draft.order():
            node = draft.nodes.get(name)
            if node is not None and isinstance(node.op, PointwiseOp) and name not in draft.outputs:
                _sink_pixels(draft, node, node.op)
            node = draft.nodes.get(name)
            if node is not None and isinstance(node.op, PointwiseOp):
                _sink(draft, node, node.op)
        return draft.finish()


def _sink(draft: Draft, node: Node, op: PointwiseOp) -> None:
    """Make the pointwise op that reads a join itself one for each part, joined behind it."""
    if isinstance(op.expr, Input):
        return  # a copy stays one
    for name in dict.fromkeys(node.inputs):
        join = draft.nodes[name]
        if not isinstance(join.op, JoinOp) or join.op.shape != op.shape or op.out is not None:
            continue
        whole, gains = join.op, [_gains(draft, part) for part in join.inputs]
        if not draft.has_one_user(name) or not any(gains):
            continue
        parts: list[str] = []
        for number, part in enumerate(join.inputs):
            inputs = [part if each == name else _slice(draft, each, whole, number) for each in node.inputs]
            done = draft.fresh(f"{node.id}.part{number}")
            types = tuple(draft.nodes[each].type for each in inputs)
            draft.put(Node(id=done, op=replace(op, inputs=types), inputs=tuple(inputs)))
            parts.append(done)
        over = replace(whole, parts=tuple(draft.nodes[part].type for part in parts), out=None)
        draft.put(Node(id=node.id, op=over, inputs=tuple(parts), fused=(join.id, *node.fused)))
        draft.remove(name)
        return


def _gains(draft: Draft, part: str) -> bool:
    """Whether a part that is joined costs a kernel that work before the join saves: pointwise work, or a copy."""
    op = draft.nodes[part].op
    if isinstance(op, PointwiseOp):
        return draft.has_one_user(part)
    while isinstance(op, ViewOp) and op.kind is ViewKind.PERMUTE:
        part = draft.nodes[part].inputs[0]
        op = draft.nodes[part].op
    return isinstance(op, SourceOp | ViewOp)


def _sink_pixels(draft: Draft, node: Node, op: PointwiseOp) -> None:
    for pixels in dict.fromkeys(node.inputs):
        join = _join_of_convolutions(draft, pixels)
        if join is None or op.out is not None or draft.nodes[pixels].type.shape != op.shape:
            continue
        whole = join.op
        assert isinstance(whole, JoinOp)
        over = replace(
            whole,
            parts=tuple(part.with_dtype(op.out_dtype) for part in whole.parts),
            out=whole.infer().with_dtype(op.out_dtype),
        )
        view = ViewOp(kind=ViewKind.PERMUTE, x=over.infer(), axes=TO_PIXELS)
        if view.infer() != op.infer():
            continue
        images = [_part(draft, node, pixels, join, number) for number in range(len(join.inputs))]
        over = replace(over, parts=tuple(draft.nodes[image].type for image in images))
        joined = draft.fresh(f"{node.id}.joined")
        draft.put(Node(id=joined, op=over, inputs=tuple(images), fused=(join.id,)))
        draft.put(Node(id=node.id, op=view, inputs=(joined,), fused=node.fused))
        draft.remove(pixels)
        draft.remove(join.id)
        return


def _join_of_convolutions(draft: Draft, pixels: str) -> Node | None:
    """Return the join of which a value is the pixels that nothing else reads, if convolutions make its parts."""
    view = draft.nodes[pixels].op
    if not isinstance(view, ViewOp) or view.kind is not ViewKind.PERMUTE or view.axes != TO_PIXELS:
        return None
    join = draft.nodes[draft.nodes[pixels].inputs[0]]
    if not isinstance(join.op, JoinOp) or not draft.has_one_user(pixels) or not draft.has_one_user(join.id):
        return None
    made = [isinstance(draft.nodes[part].op, Conv2dOp) and draft.has_one_user(part) for part in join.inputs]
    return join if all(made) and len(set(join.inputs)) == len(join.inputs) else None


def _part(draft: Draft, node: Node, pixels: str, join: Node, number: int) -> str:
    """Add a pointwise op's work on the pixels of one part, and return the image of its result."""
    whole, op = join.op, node.op
    assert isinstance(whole, JoinOp)
    assert isinstance(op, PointwiseOp)
    part = join.inputs[number]
    own = draft.fresh(f"{part}.pixels")
    view = ViewOp(kind=ViewKind.PERMUTE, x=draft.nodes[part].type, axes=TO_PIXELS)
    draft.put(Node(id=own, op=view, inputs=(part,)))
    inputs = [own if name == pixels else _slice(draft, name, whole, number, TO_PIXELS) for name in node.inputs]
    done = draft.fresh(f"{part}.{node.id}")
    types = tuple(draft.nodes[name].type for name in inputs)
    draft.put(Node(id=done, op=replace(op, inputs=types), inputs=tuple(inputs)))
    image = draft.fresh(f"{done}.image")
    draft.put(Node(id=image, op=ViewOp(kind=ViewKind.PERMUTE, x=draft.nodes[done].type, axes=TO_IMAGE), inputs=(done,)))
    return image


def _slice(draft: Draft, name: str, whole: JoinOp, number: int, axes: tuple[int, ...] | None = None) -> str:
    """Return the elements of an operand, which broadcasts to the whole, its axes in that order, that a part has."""
    x, order = draft.nodes[name].type, range(len(whole.shape)) if axes is None else axes
    starts, steps, shape = ([values[axis] for axis in order] for values in _box(whole, number))
    missing = len(order) - x.rank
    spread = [dim == 1 for dim in x.static_shape]
    view = ViewOp(
        kind=ViewKind.SLICE,
        x=x,
        starts=tuple(0 if one else starts[missing + axis] for axis, one in enumerate(spread)),
        steps=tuple(1 if one else steps[missing + axis] for axis, one in enumerate(spread)),
        shape=tuple(1 if one else shape[missing + axis] for axis, one in enumerate(spread)),
    )
    if view.infer() == x and view.offset_elements == 0:
        return name
    made = draft.fresh(f"{name}.part{number}")
    draft.put(Node(id=made, op=view, inputs=(name,)))
    return made


def _box(whole: JoinOp, number: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return whole.starts[number], whole.steps[number], whole.parts[number].static_shape
