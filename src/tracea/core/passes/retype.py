"""Another layout for a value: the op that makes it, and what reads it or a view of it, under its new strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracea.core.graph import Node
from tracea.core.op import (
    AdaptivePool2dOp,
    AttentionOp,
    BlockSparseOp,
    Conv2dOp,
    Epilogue,
    GemmOp,
    GroupedGemmOp,
    JoinOp,
    LowRankOp,
    Op,
    PairsOp,
    PointwiseOp,
    Pool2dOp,
    ReduceOp,
    RowOp,
    ViewOp,
)
from tracea.core.passes.draft import Draft
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidInput

__all__ = ["relaid"]


def relaid(draft: Draft, name: str, type_: TensorType) -> dict[str, Node] | None:
    """Return the nodes that change where ``name`` gets the layout of ``type_``; None where one of them cannot.

    Shapes and element types stay. A view that cannot look at the new strides, and an op that states no layout of its
    result, say None.
    """
    node = draft.nodes[name]
    op = _with_result(node.op, type_)
    if op is None:
        return None
    changed = {name: replace(node, op=op)}
    waiting = [name]
    while waiting:
        source = waiting.pop()
        for user in sorted(draft.users(source)):
            before = changed.get(user, draft.nodes[user])
            types = [changed[item].type if item in changed else draft.nodes[item].type for item in before.inputs]
            try:
                after = replace(before, op=_with_operands(before.op, types))
                moved = after.type != draft.nodes[user].type
            except InvalidInput:
                return None
            if tuple(after.op.operands) != tuple(types):
                return None  # an op that reads one layout of this operand
            changed[user] = after
            if moved:
                if not isinstance(after.op, ViewOp):
                    return None  # a result's layout is stated, not taken from an operand
                waiting.append(user)
    return changed


def _with_result(op: Op, type_: TensorType) -> Op | None:
    products = GemmOp | LowRankOp | BlockSparseOp | GroupedGemmOp | Conv2dOp
    elements = PointwiseOp | PairsOp | JoinOp
    if isinstance(op, PairsOp) and type_.strides[-1] != 1:
        return None  # pairs lie side by side
    if not isinstance(op, products | elements | Pool2dOp | AdaptivePool2dOp | RowOp | ReduceOp | AttentionOp):
        return None
    made = replace(op, out=type_)
    return made if made.infer() == type_ else None


def _with_operands(op: Op, types: Sequence[TensorType]) -> Op:  # noqa: PLR0911 - one case an op
    match op:
        case GemmOp():
            return replace(op, a=types[0], b=types[1], epilogue=_epilogue(op.epilogue, types[2:]))
        case BlockSparseOp():
            return replace(op, a=types[0], b=types[1])
        case GroupedGemmOp():
            return replace(op, x=types[0], weights=types[1], bias=None if op.bias is None else types[2])
        case LowRankOp():
            return replace(op, x=types[0], a=types[1], b=types[2], epilogue=_epilogue(op.epilogue, types[3:]))
        case Conv2dOp():
            return replace(op, x=types[0], w=types[1], epilogue=_epilogue(op.epilogue, types[2:]))
        case Pool2dOp() | AdaptivePool2dOp() | ViewOp():
            return replace(op, x=types[0])
        case RowOp() | ReduceOp():
            split = len(op.x)
            epilogue = _epilogue(op.epilogue, types[split:])
            return replace(op, x=tuple(types[:split]), epilogue=epilogue, out=op.infer())
        case PointwiseOp() | PairsOp():
            return replace(op, inputs=tuple(types))
        case JoinOp():
            return replace(op, parts=tuple(types), out=op.infer())
        case AttentionOp():
            return replace(op, q=types[0], k=types[1], v=types[2])
        case _:
            return op


def _epilogue(epilogue: Epilogue, types: Sequence[TensorType]) -> Epilogue:
    return Epilogue(epilogue.expr, tuple(types))
