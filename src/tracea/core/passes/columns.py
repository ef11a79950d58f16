"""A pass that lays images of one column down: convolutions of images of one row, whose pixels are neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tracea.core.graph import Graph, Node
from tracea.core.op import Conv2dOp, ViewKind, ViewOp
from tracea.core.passes.draft import Draft
from tracea.core.tensor_type import StridedLayout, TensorType

__all__ = ["LayColumns", "as_row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayColumns:
    """Let convolutions of images of one column be those of images of one row, between views.

    Kernels walk rows: a column is rows of one pixel to them.
    """

    name: str = "lay columns"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph with those convolutions laid down."""
        draft = Draft(graph)
        for name in draft.order():
            node = draft.nodes[name]
            row = as_row(node.op) if isinstance(node.op, Conv2dOp) else None
            if row is None:
                continue
            inputs = tuple(
                _laid(draft, operand, type_) for operand, type_ in zip(node.inputs, row.operands, strict=True)
            )
            made = draft.fresh(f"{name}.row")
            draft.put(Node(id=made, op=row, inputs=inputs, fused=node.fused))
            draft.put(Node(id=name, op=_turn(row.infer()), inputs=(made,)))
        return draft.finish()


def as_row(op: Conv2dOp) -> Conv2dOp | None:
    """Return the convolution of an image of one column with rows and columns in each other's place; None of another."""
    is_column = op.x.shape[3] == op.w.shape[3] == op.shape[3] == 1 and op.padding[1] == 0
    if not is_column or op.x.shape[2] == 1 or not isinstance(op.infer().layout, StridedLayout | None):
        return None
    operands = tuple(map(swapped, op.epilogue.operands))
    return replace(
        op,
        x=swapped(op.x),
        w=swapped(op.w),
        stride=op.stride[::-1],
        padding=op.padding[::-1],
        dilation=op.dilation[::-1],
        size=None if op.size is None else op.size[::-1],
        epilogue=replace(op.epilogue, operands=operands),
        out=swapped(op.infer()),
    )


def swapped(type_: TensorType) -> TensorType:
    """Return a type with its last two axes in each other's place; as it is where it has them not, or both are 1."""
    if type_.rank < 2 or type_.shape[-2:] == (1, 1):
        return type_
    *shape, rows, columns = type_.shape
    *strides, down, right = type_.strides
    return TensorType((*shape, columns, rows), type_.dtype, StridedLayout((*strides, right, down)))


def _turn(type_: TensorType) -> ViewOp:
    axes = (*range(type_.rank - 2), type_.rank - 1, type_.rank - 2)
    return ViewOp(kind=ViewKind.PERMUTE, x=type_, axes=axes)


def _laid(draft: Draft, operand: str, type_: TensorType) -> str:
    """Return the id of a view of ``operand`` that is of ``type_``, or its own where it is."""
    node = draft.nodes[operand]
    if node.type == type_:
        return operand
    view = draft.fresh(f"{operand}.row")
    draft.put(Node(id=view, op=_turn(node.type), inputs=(operand,)))
    return view
