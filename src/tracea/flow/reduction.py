"""Reductions as graphs: in one kernel, or in stages where one would leave threads idle or find no tile.

The sum of a whole matrix is one number, which one task would compute: its rows are reduced first, side by side, and
then their sums. Between the stages numbers are kept in the type that they are computed in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input
from tracea.core.graph import Graph, Node
from tracea.core.op import Epilogue, ReduceKind, ReduceOp, ViewKind
from tracea.core.tensor_type import TensorType
from tracea.doctor import host
from tracea.flow.compile import for_threads
from tracea.kernels.registry import candidates

__all__ = ["add_reduction", "wide_type"]

_TASKS: Final = 4  # a thread, for the first stage to keep all of them busy
_SMALL: Final = 1 << 16  # source elements below which one task is as fast


def wide_type(*dtypes: DType) -> DType:
    """Return the type in which numbers between two kernels lose nothing of these."""
    return DType.F64 if {DType.F64, DType.I64, DType.I32} & set(dtypes) else DType.F32


def add_reduction(
    graph: Graph,
    kind: ReduceKind,
    sources: Sequence[Node],
    axes: Sequence[int],
    *,
    prologue: Expr | None = None,
    epilogue: Expr | None = None,
    keepdims: bool = False,
    out: TensorType | None = None,
    threads: int,
) -> Node:
    """Append the reduction of ``prologue`` over the sources, in as many stages as pay; ``epilogue`` is of the result.

    The axes have elements.

    Raises: InvalidOp: an axis that does not exist, or twice. InvalidShape: the empty maximum.
    """
    expr = Input(0) if prologue is None else prologue
    after = Epilogue(Input(0) if epilogue is None else epilogue)
    whole = ReduceOp(
        kind=kind,
        x=tuple(node.type for node in sources),
        axes=tuple(axes),
        prologue=expr,
        epilogue=after,
        keepdims=keepdims,
        out=out,
    )
    first = _first_stage(whole, threads)
    if first is None:
        return graph.add(whole, sources)
    split, inner = first
    nodes = list(sources)
    if split is not None:
        axis, parts = split
        nodes = [_split(graph, node, axis, parts) for node in nodes]
    wide = wide_type(*(node.type.dtype for node in nodes), whole.infer().dtype)
    partial = ReduceOp(kind=kind, x=tuple(node.type for node in nodes), axes=inner, prologue=expr, keepdims=True)
    partial = ReduceOp(
        kind=kind, x=partial.x, axes=inner, prologue=expr, keepdims=True, out=TensorType(partial.shape, wide)
    )
    sums = graph.add(partial, nodes)
    if split is not None:
        axis, _ = split
        shape = [dim for at, dim in enumerate(sums.type.shape) if at != axis + 1]
        sums = graph.add_view(ViewKind.RESHAPE, sums, shape=shape)
    stored = whole.infer() if out is None else out
    rest = whole.axes if split is not None else tuple(axis for axis in whole.axes if axis not in inner)
    kept = rest if keepdims else whole.axes
    final = ReduceOp(kind=kind, x=(sums.type,), axes=kept, epilogue=after, keepdims=keepdims, out=stored)
    return graph.add(final, [sums])


def _first_stage(op: ReduceOp, threads: int) -> tuple[tuple[int, int] | None, tuple[int, ...]] | None:
    """Return the axis that is split in a number of parts, if any, and the axes that are reduced first; None: all."""
    source = [int(dim) for dim in op.source_shape]  # pyright: ignore[reportArgumentType]
    results = op.infer().elements
    fits = bool(candidates(op, for_threads(host(), threads)))
    busy = threads == 1 or results >= _TASKS * threads or math.prod(source) < _SMALL
    if fits and busy:
        return None
    near = [axis for axis in op.axes if source[axis] != 1]
    if len(near) > 1:
        # What is next to each other in memory is reduced first, and the other axes make the tasks.
        steps = _steps(op)
        innermost = min(near, key=lambda axis: steps[axis])
        return None, (innermost,)
    if not near:
        return None
    (axis,) = near
    parts = next((parts for parts in (64, 32, 16, 8) if source[axis] % parts == 0 and source[axis] > parts), None)
    whole = all(x.shape == op.source_shape for x in op.x)
    return None if parts is None or not whole else ((axis, parts), (axis + 1,))


def _steps(op: ReduceOp) -> tuple[int, ...]:
    pivot = next((x for x in op.x if x.shape == op.source_shape), op.x[0])
    return (0,) * (len(op.source_shape) - pivot.rank) + pivot.strides


def _split(graph: Graph, node: Node, axis: int, parts: int) -> Node:
    shape = list(node.type.static_shape)
    shape[axis : axis + 1] = [parts, shape[axis] // parts]
    return graph.add_view(ViewKind.RESHAPE, node, shape=shape)
