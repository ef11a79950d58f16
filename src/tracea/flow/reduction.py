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
from tracea.core.op import Epilogue, PointwiseOp, ReduceKind, ReduceOp, StatisticsOp, ViewKind
from tracea.core.tensor_type import Dim, TensorType, broadcast_shapes
from tracea.doctor import host
from tracea.kernels.registry import candidates
from tracea.targets.target import for_threads

__all__ = ["add_reduction", "add_statistics", "wide_type"]

_TASKS: Final = 4  # a thread, for the first stage to keep all of them busy
_PAGE_BYTES: Final = 4096
_MANY_PAGES: Final = 1024
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
    rest = whole.axes if split is not None else tuple(axis for axis in whole.axes if axis not in inner)
    return add_reduction(
        graph,
        kind,
        [sums],
        rest if keepdims else whole.axes,
        epilogue=epilogue,
        keepdims=keepdims,
        out=whole.infer() if out is None else out,
        threads=threads,
    )


def add_statistics(graph: Graph, op: StatisticsOp, sources: Sequence[Node], *, threads: int) -> Node:
    """Append statistics and what is made with them: in one kernel, or, where slabs have no tile, a reduction for each.

    A group's channels and pixels are one slab only where they merge: with a weight of its own for each channel, and
    pixels in another order than their memory's, they do not.
    """
    if candidates(op, for_threads(host(), threads)):
        return graph.add(op, sources)
    nodes = list(sources)
    shape = tuple(1 if axis in op.axes else dim for axis, dim in enumerate(op.source_shape))
    result = TensorType(shape, wide_type(*(node.type.dtype for node in sources), op.infer().dtype))
    for statistic in op.statistics:
        expr, used = _of_used(statistic.expr, nodes, op.source_shape)
        made = add_reduction(
            graph, statistic.kind, used, op.axes, prologue=expr, keepdims=True, out=result, threads=threads
        )
        nodes.append(made)
    expr, used = _of_used(op.expr, nodes, ())
    out = op.infer()
    if not op.reduced:
        return graph.add(_pointwise(expr, used, out), used)
    if op.keepdims:
        return graph.add(_pointwise(expr, used, out), used)
    # The result has no reduced axes: they have extent 1, and a reduction over them is a copy.
    wide = graph.add(_pointwise(expr, used, TensorType(shape, result.dtype)), used)
    return graph.add(ReduceOp(kind=ReduceKind.SUM, x=(wide.type,), axes=op.axes, out=out), [wide])


def _of_used(expr: Expr, nodes: Sequence[Node], shape: tuple[Dim, ...]) -> tuple[Expr, list[Node]]:
    """Return an expression over the nodes that it uses, and these, which have to broadcast to ``shape``."""
    used = list(expr.inputs())
    if shape and broadcast_shapes(nodes[index].type.shape for index in used) != shape:
        used.append(next(index for index, node in enumerate(nodes) if node.type.shape == shape))
    return expr.substitute({index: Input(at) for at, index in enumerate(used)}), [nodes[index] for index in used]


def _pointwise(expr: Expr, nodes: Sequence[Node], out: TensorType) -> PointwiseOp:
    return PointwiseOp(expr=expr, inputs=tuple(node.type for node in nodes), out_dtype=out.dtype, out=out)


def _first_stage(op: ReduceOp, threads: int) -> tuple[tuple[int, int] | None, tuple[int, ...]] | None:
    """Return the axis that is split in a number of parts, if any, and the axes that are reduced first; None: all."""
    source = [int(dim) for dim in op.source_shape]  # pyright: ignore[reportArgumentType]
    results = op.infer().elements
    fits = bool(candidates(op, for_threads(host(), threads)))
    busy = threads == 1 or results >= _TASKS * threads or math.prod(source) < _SMALL
    if fits and busy and not _turns_many_pages(op):
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
    alike = all(x.rank == len(source) and x.shape[axis] == source[axis] for x in op.x)
    return None if parts is None or not alike else ((axis, parts), (axis + 1,))


def _turns_many_pages(op: ReduceOp) -> bool:
    """Tell whether one task would walk down columns of more rows than a core keeps addresses of pages for."""
    source, steps = op.source_shape, _steps(op)
    near = [axis for axis in op.axes if source[axis] != 1]
    if len(near) != 1 or source[near[0]] < _MANY_PAGES:  # pyright: ignore[reportOperatorIssue]
        return False
    step = steps[near[0]]
    beside = any(dim != 1 and 0 < own < step for dim, own in zip(source, steps, strict=True))
    return beside and step * op.x[0].dtype.nbytes >= _PAGE_BYTES


def _steps(op: ReduceOp) -> tuple[int, ...]:
    pivot = next((x for x in op.x if x.shape == op.source_shape), op.x[0])
    return (0,) * (len(op.source_shape) - pivot.rank) + pivot.strides


def _split(graph: Graph, node: Node, axis: int, parts: int) -> Node:
    shape = list(node.type.static_shape)
    shape[axis : axis + 1] = [parts, shape[axis] // parts]
    return graph.add_view(ViewKind.RESHAPE, node, shape=shape)
