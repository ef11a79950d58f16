"""Passes that let values be written where they are wanted: parts where they are joined, and in the order of a copy.

The op that makes a part gets the strides that the part has within the joined tensor; the memory plan then puts it
there. A part that cannot is copied by one kernel: a source, a constant, an output, a value that another join has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tracea.core.expr import Input
from tracea.core.graph import Graph, Node
from tracea.core.op import JoinOp, PointwiseOp, SourceOp, ViewKind, ViewOp
from tracea.core.passes.draft import Draft
from tracea.core.passes.retype import relaid
from tracea.core.tensor_type import BlockedLayout, StridedLayout, TensorType

__all__ = ["DropCopies", "PlaceParts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceParts:
    """Give the ops that make the parts of a join the strides of their places in it; copy what cannot have them.

    Where a join's parts are parts of a larger one too, as in a dense block, the smaller join becomes one part of the
    larger, so that each value lies in one place for all of them. Copies are named ``<join>.part<number>``.
    """

    name: str = "place parts"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph in which every part of every join is an own value with the strides of its place."""
        draft = Draft(graph)
        _nest(draft)
        taken: set[str] = set()
        for node in reversed(draft.finish().nodes):  # a join before the joins that are its parts
            if isinstance(node.op, JoinOp):
                _place(draft, node.id, taken)
        return draft.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCopies:
    """Let whatever makes a value write it in the order in which it is copied, if only the copy reads it.

    Heads that a product or an attention makes, and that are put inside their tokens, cost no kernel then. Only where
    the elements of the maker's last axis stay side by side.
    """

    name: str = "drop copies"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph without those copies."""
        draft = Draft(graph)
        for name in draft.order():
            node = draft.nodes.get(name)
            if node is not None and _is_copy(node) and name not in draft.outputs:
                _drop(draft, node)
        return draft.finish()


def _is_copy(node: Node) -> bool:
    op = node.op
    if not isinstance(op, PointwiseOp) or op.expr != Input(0) or len(op.inputs) != 1 or not op.infer().is_static:
        return False
    return op.inputs[0].dtype is op.out_dtype and op.inputs[0].shape == op.shape


def _drop(draft: Draft, copy: Node) -> None:
    source = copy.inputs[0]
    name, node = source, draft.nodes[source]
    while draft.has_one_user(name) and isinstance(node.op, ViewOp) and node.op.kind is ViewKind.PERMUTE:
        name, node = node.inputs[0], draft.nodes[node.inputs[0]]
    if not draft.has_one_user(name) or isinstance(copy.type.layout, BlockedLayout):
        return
    before = node
    moved = _moved(draft, draft.nodes[source], copy.type, set())
    if moved is None:
        return
    made = draft.nodes[moved].type
    if draft.nodes[source].type == copy.type and (made.strides[-1:] == (1,) or made.shape[-1:] == (1,)):
        draft.stand_in(copy.id, source)
        return
    back = relaid(draft, moved, before.type)
    assert back is not None  # as it was
    for each in back.values():
        draft.put(each)


def _nest(draft: Draft) -> None:
    """Make a join a part of each later join that has all of its parts in the same places to each other."""
    original: dict[str, Node] = {}
    for name in draft.order():
        node = draft.nodes[name]
        if not isinstance(node.op, JoinOp):
            continue
        original[name] = node
        held = [other for other in original.values() if other.id != name and other.id not in draft.outputs]
        for inner in sorted(held, key=lambda other: -len(other.inputs)):
            outer = draft.nodes[name]
            nested = _nested(outer, inner, draft.nodes[inner.id].type)
            if nested is not None:
                draft.put(nested)


def _nested(outer: Node, inner: Node, type_: TensorType) -> Node | None:
    """Return ``outer`` with ``inner``, a join of a run of the same parts, in their place; None where it is none."""
    whole, part = outer.op, inner.op
    assert isinstance(whole, JoinOp)
    assert isinstance(part, JoinOp)
    count = len(inner.inputs)
    for first in range(len(outer.inputs) - count + 1):
        run = slice(first, first + count)
        if outer.inputs[run] != inner.inputs or whole.steps[run] != part.steps:
            continue
        shifts = {
            tuple(mine - theirs for mine, theirs in zip(ours, others, strict=True))
            for ours, others in zip(whole.starts[run], part.starts, strict=True)
        }
        if len(shifts) != 1 or type_.dtype is not whole.parts[0].dtype:
            continue
        (shift,) = shifts
        ends = tuple(start + size for start, size in zip(shift, part.shape, strict=True))
        if min(shift) < 0 or any(end > size for end, size in zip(ends, whole.shape, strict=True)):
            continue
        op = replace(
            whole,
            parts=(*whole.parts[:first], type_, *whole.parts[first + count :]),
            starts=(*whole.starts[:first], shift, *whole.starts[first + count :]),
            steps=(*whole.steps[:first], (1,) * len(shift), *whole.steps[first + count :]),
        )
        return replace(outer, op=op, inputs=(*outer.inputs[:first], inner.id, *outer.inputs[first + count :]))
    return None


def _place(draft: Draft, name: str, taken: set[str]) -> None:
    for number in range(len(draft.nodes[name].inputs)):
        node = draft.nodes[name]
        assert isinstance(node.op, JoinOp)
        part = draft.nodes[node.inputs[number]]
        wanted, _ = node.op.place(number)
        maker = _moved(draft, part, wanted, taken)
        if maker is None:
            copy = draft.fresh(f"{name}.part{number}")
            draft.put(
                Node(
                    id=copy,
                    op=PointwiseOp(expr=Input(0), inputs=(part.type,), out_dtype=part.type.dtype, out=wanted),
                    inputs=(part.id,),
                )
            )
            inputs = (*node.inputs[:number], copy, *node.inputs[number + 1 :])
            parts = (*node.op.parts[:number], draft.nodes[copy].type, *node.op.parts[number + 1 :])
            draft.put(replace(node, op=replace(node.op, parts=parts), inputs=inputs))
            maker = copy
        taken.add(maker)


def _moved(draft: Draft, part: Node, wanted: TensorType, taken: set[str]) -> str | None:
    """Let whatever makes ``part`` write it in the strides of ``wanted``; return its id, None where it cannot."""
    axes: list[tuple[int, ...]] = []
    node = part
    while isinstance(node.op, ViewOp) and node.op.kind is ViewKind.PERMUTE:
        axes.append(node.op.axes)
        node = draft.nodes[node.inputs[0]]
    if isinstance(node.op, SourceOp | ViewOp) or isinstance(node.type.layout, BlockedLayout):
        return None
    if node.id in taken or node.id in draft.outputs:
        return None
    strides = wanted.strides
    for each in axes:  # from the part's axes to its maker's
        strides = tuple(strides[each.index(axis)] for axis in range(len(each)))
    type_ = TensorType(node.type.shape, node.type.dtype, StridedLayout(strides))
    if type_ == node.type:
        return node.id
    changed = relaid(draft, node.id, type_)
    if changed is None or any(_is_spoilt(draft, each, taken) for each in changed.values()):
        return None
    for each in changed.values():
        draft.put(each)
    return node.id


def _is_spoilt(draft: Draft, node: Node, taken: set[str]) -> bool:
    """Whether a node that was placed already, or is returned as it is, would get another type."""
    return (node.id in taken or node.id in draft.outputs) and node.type != draft.nodes[node.id].type
