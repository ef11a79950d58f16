"""A pass that lets one op make the two parts of a join: results side by side, or the two halves of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracea.core.arithmetic import is_stored_as_computed
from tracea.core.expr import Expr, Input
from tracea.core.graph import Graph, Node
from tracea.core.op import JoinOp, PairsOp, PointwiseOp, SourceOp, ViewKind, ViewOp
from tracea.core.passes.draft import Draft
from tracea.core.tensor_type import static

__all__ = ["FusePairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FusePairs:
    """Let one op write both parts of a join that are its last axis in turns, or half and half.

    Both of them pointwise work on one value, or one of them a copy of it: complex numbers, rotary embeddings, sines
    beside cosines. Each part by itself would read its operands again and, in turns, write every other element one by
    one. Worked example on a Zen 3: a complex product of 1x512x32x64 takes half of the time.
    """

    name: str = "fuse pairs"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph with those joins as ops."""
        draft = Draft(graph)
        for name in draft.order():
            node = draft.nodes.get(name)
            if node is not None and isinstance(node.op, JoinOp) and _has_pairs(node.op):
                _fuse(draft, node, node.op)
        return draft.finish()


def _has_pairs(op: JoinOp) -> bool:
    """Whether a join has two parts of floats that are its last axis, which is contiguous, in turns or half and half."""
    if len(op.parts) != 2 or not op.shape or not op.parts[0].dtype.is_float or op.infer().strides[-1] != 1:
        return False
    if op.parts[0].shape != op.parts[1].shape or 2 * static(op.parts[0].shape[-1]) != op.shape[-1]:
        return False
    before = (0,) * (len(op.shape) - 1)
    return all(starts[:-1] == before for starts in op.starts) and all(set(steps[:-1]) <= {1} for steps in op.steps)


def _fuse(draft: Draft, join: Node, op: JoinOp) -> None:
    order = sorted((0, 1), key=lambda number: op.starts[number][-1])
    halves = op.steps[0][-1] == 1
    names = [join.inputs[number] for number in order]
    made = [name for name in dict.fromkeys(names) if _is_own(draft, name)]
    others = [draft.nodes[name].op for name in names if name not in made]
    if not made or not all(_would_be_copied(other) for other in others) or not _share(draft, names, made):
        return
    inputs: list[str] = []
    first, second = (_expression(draft, name, name in made, inputs) for name in names)
    types = tuple(draft.nodes[name].type for name in inputs)
    out = op.infer()
    if not is_stored_as_computed(out.dtype, (type_.dtype for type_ in types)):
        return
    done = PairsOp(first=first, second=second, inputs=types, out_dtype=out.dtype, halves=halves, out=out)
    if done.shape != op.shape:
        return
    fused = [each for name in made for each in (*draft.nodes[name].fused, name)]
    draft.put(Node(id=join.id, op=done, inputs=tuple(inputs), fused=(*join.fused, *fused)))
    for name in made:
        draft.remove(name)


def _share(draft: Draft, names: Sequence[str], made: Sequence[str]) -> bool:
    """Whether both parts read the memory of one value: else they are as well made one after the other."""
    first, second = (
        {_origin(draft, source) for source in (draft.nodes[name].inputs if name in made else (name,))} for name in names
    )
    return bool(first & second)


def _origin(draft: Draft, name: str) -> str:
    """Return whose memory a value is."""
    while isinstance(draft.nodes[name].op, ViewOp):
        (name,) = draft.nodes[name].inputs
    return name


def _is_own(draft: Draft, name: str) -> bool:
    """Whether pointwise work makes a value that nothing else reads."""
    return isinstance(draft.nodes[name].op, PointwiseOp) and draft.has_one_user(name)


def _would_be_copied(op: object) -> bool:
    """Whether a value could not be written where it is wanted."""
    return isinstance(op, SourceOp) or (isinstance(op, ViewOp) and op.kind is not ViewKind.PERMUTE)


def _expression(draft: Draft, name: str, is_own: bool, inputs: list[str]) -> Expr:
    """Return what a part is of the inputs, to which it adds its own."""
    if not is_own:
        return _input(inputs, name)
    node = draft.nodes[name]
    assert isinstance(node.op, PointwiseOp)
    return node.op.expr.substitute({index: _input(inputs, source) for index, source in enumerate(node.inputs)})


def _input(inputs: list[str], name: str) -> Input:
    if name not in inputs:
        inputs.append(name)
    return Input(inputs.index(name))
