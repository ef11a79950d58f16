"""Lowerings of what is made with statistics of slabs, and of cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Constant, Expr, Input, Unary, UnaryFunction, select
from tracea.core.op import CumulativeSumOp, Epilogue, ReduceKind, ReduceOp, Statistic, StatisticsOp
from tracea.core.ops.statistics import squares_about_mean
from tracea.core.tensor_type import TensorType, static
from tracea.flow.channel_groups import add_group_scale, has_narrow_groups
from tracea.interface.torch.lower_pointwise import batch_norm
from tracea.interface.torch.lower_rows import as_exact_floats, reduction
from tracea.interface.torch.operand_types import as_stored

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = ["cumulative_sum", "group_norm", "instance_norm", "variance", "variance_and_mean", "vector_norm"]


def variance(*, root: bool) -> Callable[..., Node]:
    """Return the lowering of the variance over some axes or all, or of its root."""

    def lower(
        low: Lowering,
        x: Node,
        axes: Sequence[int] | None = None,
        correction: float | bool | None = None,
        keepdims: bool = False,
    ) -> Node:
        # `unbiased=True` of the older overloads is a correction of 1, and False one of 0.
        if not x.type.rank:
            low.refuse("the variance of one number", "compute it over an axis")
        chosen = tuple(axis % x.type.rank for axis in axes or range(x.type.rank))
        count = math.prod(static(x.type.shape[axis]) for axis in chosen)
        divisor = count - (1 if correction is None else correction)
        if divisor <= 0:
            low.refuse(f"the variance of {count} numbers with a correction of {correction}", "use more numbers")
        statistics, squares = squares_about_mean(count)
        value = squares / Constant(float(divisor))
        op = StatisticsOp(
            x=(x.type,),
            axes=chosen,
            statistics=statistics,
            expr=Unary(UnaryFunction.SQRT, value) if root else value,
            reduced=True,
            keepdims=keepdims,
            out=TensorType(low.shape, low.dtype),
        )
        return low.graph.add(op, [x], name=low.label(""))

    return lower


def variance_and_mean(*, root: bool) -> Callable[..., tuple[Node | None, Node | None]]:
    """Return the lowering of the variance over some axes or all, or of its root, and of the mean, as far as read."""
    spread, mean = variance(root=root), reduction(ReduceKind.MEAN)

    def lower(
        low: Lowering,
        x: Node,
        axes: Sequence[int] | None = None,
        correction: float | bool | None = None,
        keepdims: bool = False,
    ) -> tuple[Node | None, Node | None]:
        return (
            spread(low, x, axes, correction, keepdims) if 0 in low.asked else None,
            mean(low, x, axes or range(x.type.rank), keepdims) if 1 in low.asked else None,
        )

    return lower


def vector_norm(
    low: Lowering, x: Node, order: float = 2, axes: int | Sequence[int] | None = None, keepdims: bool = False, *_: Any
) -> Node:
    """Lower the norm of vectors of any order, in one reduction: what is summed is not rounded to the result's type."""
    if not x.type.dtype.is_float:
        low.refuse(f"a norm of {x.type.dtype.value}", "take norms of floats")
    kind, term, root = _norm_of_order(float(order))
    if x.type.rank == 0:
        return low.reshape(vector_norm(low, low.reshape(x, (1,)), order, (0,), True), ())
    chosen = (axes,) if isinstance(axes, int) else tuple(axes or range(x.type.rank))
    op = ReduceOp(
        kind=kind,
        x=(x.type,),
        axes=chosen,
        prologue=term if order else as_stored(term, x),  # of order 0 it counts
        epilogue=Epilogue(root, ()),
        keepdims=keepdims,
    )
    return low.add(replace(op, out=TensorType(op.shape, low.dtype)), [x])


def _norm_of_order(order: float) -> tuple[ReduceKind, Expr, Expr]:
    """Return how terms are gathered, what the term of an element is, and what is made of all of them."""
    size = Unary(UnaryFunction.ABS, Input(0))
    if math.isinf(order):
        return ReduceKind.MAX if order > 0 else ReduceKind.MIN, size, Input(0)
    if order == 0:
        return ReduceKind.SUM, select(Input(0), 1.0, 0.0), Input(0)
    if order == 1:
        return ReduceKind.SUM, size, Input(0)
    if order == 2:
        return ReduceKind.SUM, Input(0) * Input(0), Unary(UnaryFunction.SQRT, Input(0))
    term, root = (
        Binary(BinaryFunction.POW, base, Constant(power)) for base, power in ((size, order), (Input(0), 1.0 / order))
    )
    return ReduceKind.SUM, term, root


def group_norm(
    low: Lowering,
    x: Node,
    groups: int,
    weight: Node | None = None,
    bias: Node | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Node:
    """Lower the normalisation of groups of channels; the last axes are one, so that a group is a slab of two."""
    if x.type.is_static and has_narrow_groups(x.type, groups):
        return _group_norm_by_channels(low, x, groups, weight, bias, float(eps))
    batch, channels = (static(dim) for dim in x.type.shape[:2])
    pixels = math.prod(static(dim) for dim in x.type.shape[2:])
    shape = (batch, groups, channels // groups, pixels)
    nodes = [low.reshape(x, shape)]
    parameters = [parameter for parameter in (weight, bias) if parameter is not None]
    nodes += [low.reshape(parameter, (groups, channels // groups, 1)) for parameter in parameters]
    count = len(nodes)
    away = Input(0) - Input(count)
    expr: Expr = away * Unary(UnaryFunction.RSQRT, Input(count + 1) + float(eps))
    if weight is not None:
        expr = expr * Input(1)
    if bias is not None:
        expr = expr + Input(count - 1)
    op = StatisticsOp(
        x=tuple(node.type for node in nodes),
        axes=(2, 3),
        statistics=(Statistic(ReduceKind.MEAN, Input(0)), Statistic(ReduceKind.MEAN, away * away)),
        expr=expr,
        out=TensorType(shape, low.dtype),
    )
    return low.reshape(low.graph.add(op, nodes, name=low.label("groups")), x.type.shape)


def _group_norm_by_channels(
    low: Lowering, x: Node, groups: int, weight: Node | None, bias: Node | None, eps: float
) -> Node:
    # Threads are not known yet: as other reductions of a module, these are one kernel each.
    mean, scale = add_group_scale(low.graph, x, groups, weight=weight, eps=eps, threads=1)
    value: Expr = (Input(0) - Input(1)) * Input(2)
    if bias is None:
        return low.pointwise(value, x, mean, scale)
    trailing = (1,) * (x.type.rank - 2)
    return low.pointwise(value + Input(3), x, mean, scale, low.reshape(bias, (*bias.type.shape, *trailing)))


def instance_norm(
    low: Lowering,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    mean: Node | None,
    variance: Node | None,
    by_its_own: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Node:
    """Lower the normalisation of each channel of each image, by its own statistics or by stored ones."""
    if not by_its_own:
        return batch_norm(low, x, weight, bias, mean, variance, False, momentum, eps)
    if mean is not None:
        low.refuse("an instance norm that updates its statistics", "call module.eval() first: this is for inference")
    return group_norm(low, x, static(x.type.shape[1]), weight, bias, eps)


def cumulative_sum(low: Lowering, x: Node, axis: int, *_: Any) -> Node:
    """Lower the sums up to each element along an axis; integers to integers where every sum is told to be exact."""
    if not x.type.rank:
        return low.cast(x, low.dtype)
    if not low.dtype.is_float:
        return _cumulative_count(low, x, axis)
    terms = x if x.type.dtype.is_float else low.cast(x, low.dtype)  # as torch converts them
    return _cumulative_sum(low, terms, axis, low.dtype, "")


def _cumulative_sum(low: Lowering, x: Node, axis: int, dtype: DType, part: str) -> Node:
    op = CumulativeSumOp(x=x.type, axis=axis, out=TensorType(x.type.shape, dtype))
    return low.graph.add(op, [x], name=low.label(part))


def _cumulative_count(low: Lowering, x: Node, axis: int) -> Node:
    """Append sums of whole numbers, in floats that hold each of them: of a mask none is above the axis's extent."""
    extent = static(x.type.shape[axis])
    read = as_exact_floats(low, x, extent, "cumulative sums")
    sums = _cumulative_sum(low, read, axis, read.type.dtype, "sums")
    return low.integers.state_sums(low.cast(sums, low.dtype), x, extent, in_turn=True)
