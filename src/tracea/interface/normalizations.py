"""Normalisations as functions beside softmax, layer norm and RMS norm: over groups, batches and any axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tracea.core.expr import Expr, Input, Unary, UnaryFunction, exp
from tracea.core.graph import Graph
from tracea.core.op import PointwiseOp, ReduceKind, RowKind, RowOp, Statistic, StatisticsOp, ViewKind
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.doctor import host
from tracea.errors import InvalidDType, InvalidOp, InvalidShape
from tracea.flow.channel_groups import add_group_norm, has_narrow_groups
from tracea.flow.compile import compile_graph, compile_op
from tracea.flow.reduction import add_statistics, wide_type
from tracea.flow.sections import Part, Section, Temporary, compile_sections
from tracea.interface.channel_statistics import channel_statistics, rounded_as
from tracea.interface.operands import Given, dispatched, number
from tracea.interface.reductions import axis_of
from tracea.interface.results import compile_as_vectors, compile_as_views, dense_like, filled, state_result, vector
from tracea.interface.whole_numbers import axis_number, whole_number
from tracea.kernels.registry import candidates
from tracea.targets.target import for_threads

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = [
    "batch_norm",
    "batch_norm_training",
    "check_channels",
    "check_groups",
    "compiled_softmax",
    "group_norm",
    "log_softmax",
    "norm_eps",
    "positive_eps",
    "refuse_eps_in_place",
]

_OF_LOG_SOFTMAX: Final = ("x",)
_OF_BATCH_NORM: Final = ("x", "mean", "var", "weight", "bias", "rest")

_OF_GROUP_NORM: Final = ("x", "weight", "bias")
_FEW_PIXELS: Final = 8
# What a batch norm reads by its place among what was given: from where, and its type.
_Operands: TypeAlias = dict[int, tuple[Part | Temporary, TensorType]]


def log_softmax(x: Any, dim: int = -1, *, out: Any = None) -> Any:
    """Return ``x - max x - log(sum of exp(x - max x))`` along ``dim``; NaN where a softmax has NaN.

    Raises: InvalidShape: there is no such axis. InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch_log_softmax()(x, out, axis_number("dim", dim))


def group_norm(
    x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, out: Any = None
) -> Any:
    """Return ``(x - mean) / sqrt(variance + eps) · weight + bias`` over each group of channels, as torch.

    Shapes: x is (n, c, ...), in any order of axes; weight and bias are (c,); ``num_groups`` divides c.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp: ``num_groups`` is no
    whole number from 1 on, or eps is negative or not finite.
    """
    return _dispatch_group_norm()(x, weight, bias, out, check_groups(num_groups), positive_eps(eps))


def batch_norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5, out: Any = None
) -> Any:
    """Return ``(x - mean) / sqrt(var + eps) · weight + bias`` by the channels' given statistics: inference.

    Shapes: x is (n, c, ...); mean, var, weight and bias are (c,). The result has the order of axes of x.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp: eps is negative or
    not finite.
    """
    return _dispatch_batch_norm()(x, mean, var, weight, bias, None, out, positive_eps(eps))


def batch_norm_training(
    x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, out: Any = None
) -> tuple[Any, Any, Any]:
    """Return the batch norm by the channels' own statistics, and these: mean and variance (by n, not n - 1), (c,) each.

    Running statistics are the caller's to update, from what is returned.

    Shapes: as :func:`batch_norm`; the statistics have the type of x. The result is made from them before they are
    rounded to 16 bits, where a variance above 65504 is infinite in f16.

    Raises: as :func:`batch_norm`; InvalidShape: a channel has no element.
    """
    center, rest, spread = channel_statistics(x)
    y = _dispatch_batch_norm()(x, center, spread, weight, bias, rest, out, positive_eps(eps))
    if y.itemsize == center.itemsize:
        return y, center, spread
    return y, rounded_as(x, center), rounded_as(x, spread)


def check_groups(num_groups: Any) -> int:
    """Return a number of groups.

    Raises: InvalidOp: it is no whole number from 1 on.
    """
    remedy = "num_groups=1, or another number that divides the channels"
    if hasattr(num_groups, "shape"):
        remedy = "give the number of groups before the weight"
    return whole_number("num_groups", num_groups, 1, remedy=remedy)


def check_channels(x: TensorType, groups: int = 1) -> None:
    """Check that x is (n, c, ...), with as many channels in each group.

    Raises: InvalidShape: it is not.
    """
    if x.rank < 2 or x.static_shape[1] % groups:
        raise InvalidShape(
            field="x",
            got=x.shape,
            expected="(n, c, ...)" if groups == 1 else f"(n, c, ...), c a multiple of {groups} groups",
            remedy="give the batch and channels"
            if x.rank < 2
            else "choose a number of groups that divides the channels",
        )


def positive_eps(eps: Any) -> float:
    """Return what is added inside a root.

    Raises: InvalidOp: it is no number, negative or not finite.
    """
    found = number("eps", eps, example=1e-5)
    if not 0.0 <= found < float("inf"):
        raise InvalidOp(field="eps", got=eps, expected="a finite number >= 0", remedy="use 1e-5 or so")
    return found


def norm_eps(eps: float | None, x: TensorType) -> float:
    """Return what a norm of rows adds inside its root; None is torch's, the rounding unit of what x is computed in.

    Raises: InvalidOp: it is negative or not finite.
    """
    return x.dtype.compute.eps if eps is None else positive_eps(eps)


def refuse_eps_in_place(names: Sequence[str], arrays: Sequence[Any]) -> None:
    """Refuse a number in the place of a norm's parameter: torch's functions have eps elsewhere.

    Raises: InvalidDType: there is one.
    """
    for name, array in zip(names, arrays, strict=True):
        if isinstance(array, float):
            raise InvalidDType(
                field=name, got=array, expected="a tensor or an array, or None", remedy=f"give it by name: eps={array}"
            )


@cache
def _dispatch_log_softmax() -> Any:
    return dispatched(_OF_LOG_SOFTMAX, _missed_log_softmax)


def _missed_log_softmax(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    return compiled_softmax(RowKind.LOG_SOFTMAX, arrays[0], out, attributes[0], threads)


def compiled_softmax(kind: RowKind, x: Any, out: Any, dim: Any, threads: int) -> Any:
    """Return the program of a softmax along any axis, or of its logarithm; of nothing, the empty result.

    Along another axis than the last, the result has the order of axes of x.
    """
    given = Given.of(_OF_LOG_SOFTMAX, (x,), out)
    given.check_floats()
    type_ = given.type(0)
    axis, rows = axis_of(dim, type_.rank), TensorType(type_.shape, type_.dtype)
    given.check_result_type(rows)
    if type_.elements == 0:
        return filled(x, rows, out, 0.0)
    if axis == max(type_.rank, 1) - 1:
        output = given.result or rows
        op = RowOp(kind=kind, x=(vector(type_),), out=vector(output))
        return compile_as_vectors(op, inputs=(type_,), output=output, threads=threads)
    away = Input(0) - Input(1)
    of_rows = StatisticsOp(
        x=(type_,),
        axes=(axis,),
        statistics=(Statistic(ReduceKind.MAX, Input(0)), Statistic(ReduceKind.SUM, exp(away))),
        expr=exp(away) * Unary(UnaryFunction.RECIPROCAL, Input(2))
        if kind is RowKind.SOFTMAX
        else away - Unary(UnaryFunction.LOG, Input(2)),
        out=_result(given, type_),
    )
    return compile_op(of_rows, threads=threads)


@cache
def _dispatch_group_norm() -> Any:
    return dispatched(_OF_GROUP_NORM, _missed_group_norm)


def _missed_group_norm(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    refuse_eps_in_place(_OF_GROUP_NORM, arrays)
    given = Given.of(_OF_GROUP_NORM, arrays, out)
    given.check_floats()
    groups, eps = attributes
    x = given.type(0)
    check_channels(x, groups)
    parameters = _of_channels(given, 1, 2)
    y = _result(given, x)
    if has_narrow_groups(x, groups):
        return _by_channels(given, groups, eps, y, threads)
    wide = [_in_groups(type_, groups, x.rank) for type_ in (x, *parameters, y)]
    return _of_slabs(_normalized(given, wide, eps), given, y, threads)


def _by_channels(given: Given, groups: int, eps: float, y: TensorType, threads: int) -> Program:
    graph = Graph()
    sources = {at: graph.add_input(type_) for at in range(3) if (type_ := given.optional(at)) is not None}
    made = add_group_norm(
        graph, sources[0], groups, weight=sources.get(1), bias=sources.get(2), eps=eps, out=y, threads=threads
    )
    state_result(graph, made, y.shape, y)
    return compile_graph(graph, threads=threads, name="groups").program


def _normalized(given: Given, types: Sequence[TensorType], eps: float) -> StatisticsOp:
    """Return the op that scales x, the first type, by the statistics of its groups; the last is the result's."""
    count = len(types) - 1
    center, away = Input(count), Input(0) - Input(count)
    return StatisticsOp(
        x=tuple(types[:-1]),
        axes=tuple(range(2, types[0].rank)),
        statistics=(Statistic(ReduceKind.MEAN, Input(0)), Statistic(ReduceKind.MEAN, away * away)),
        expr=_scaled(given, (Input(0) - center) * _inverse_root(Input(count + 1), eps), 1),
        out=types[-1],
    )


@cache
def _dispatch_batch_norm() -> Any:
    return dispatched(_OF_BATCH_NORM, _missed_batch_norm)


def _missed_batch_norm(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    refuse_eps_in_place(_OF_BATCH_NORM, arrays)
    given = Given.of(_OF_BATCH_NORM, arrays, out)
    given.check_floats()
    x = given.type(0)
    check_channels(x)
    _ = given.type(1), given.type(2)
    _of_channels(given, 1, 2, 3, 4, 5)
    y, eps = _result(given, x), attributes[0]
    present = [at for at in range(len(given.names)) if given.optional(at) is not None]
    of: _Operands = {at: (Part(i), given.type(at)) for i, at in enumerate(present)}
    before: list[Section] = []
    scale = _inverse_root(Input(2), eps)
    if x.elements >= _FEW_PIXELS * x.static_shape[1]:
        before, scale = _made_once(of, eps), Input(2)
    place = {at: Input(i) for i, at in enumerate(of)}
    value: Expr = (place[0] - place[1] - place[5] if 5 in of else place[0] - place[1]) * scale
    value = value * place[3] if 3 in of else value
    value = value + place[4] if 4 in of else value
    # In the order in which the image lies: long rows for both orders.
    order = tuple(sorted(range(x.rank), key=lambda axis: -y.strides[axis]))
    types = [type_ if at == 0 else _by_channel(type_, x.rank) for at, (_, type_) in of.items()]
    op = PointwiseOp(
        expr=value,
        inputs=tuple(type_.permuted(order) for type_ in types),
        out_dtype=y.dtype,
        out=y.permuted(order),
    )
    return compile_sections(
        [*before, Section(op=op, operands=tuple(part for part, _ in of.values()))],
        inputs=_given_types(given),
        output=y,
        temporaries=[section.op.infer() for section in before],
        threads=threads,
        name="batch_norm",
    )


def _made_once(of: _Operands, eps: float) -> list[Section]:
    """Return what makes one number a channel of variance and weight, and widens the others; ``of`` has these then.

    A root and a division for each element take longer than the image's memory: 3 MB channels last 277 us, once a
    channel 97. So do conversions of numbers of 16 bits, which stores of 16 bits might change: f16 in rows 99 us and 66.
    """
    wide = wide_type(*(type_.dtype for _, type_ in of.values()))
    narrow = [at for at in (1, 4, 5) if at in of and of[at][1].dtype is not wide]
    weights = [of.pop(3)] if 3 in of else []
    root = _inverse_root(Input(0), eps)
    sections: list[Section] = []
    for at in (2, *narrow):
        taken = [of[at], *(weights if at == 2 else [])]
        expr = Input(0) if at != 2 else root * Input(1) if weights else root
        op = PointwiseOp(expr=expr, inputs=tuple(type_ for _, type_ in taken), out_dtype=wide)
        sections.append(Section(op=op, operands=tuple(part for part, _ in taken), temporary=len(sections)))
        of[at] = Temporary(len(sections) - 1), op.infer()
    return sections


def _given_types(given: Given) -> list[TensorType]:
    return [type_ for type_ in map(given.optional, range(len(given.names))) if type_ is not None]


def _of_slabs(op: StatisticsOp, given: Given, y: TensorType, threads: int) -> Program:
    """Return the program of statistics on views of what was given: one kernel, or several where slabs have no tile."""
    if op.infer().elements == 0 or candidates(op, for_threads(host(), threads)):
        return compile_as_views(op, inputs=_given_types(given), output=y, threads=threads)
    graph = Graph()
    sources = [graph.add_input(type_) for type_ in _given_types(given)]
    views = [
        node if node.type.shape == type_.shape else graph.add_view(ViewKind.RESHAPE, node, shape=type_.shape)
        for node, type_ in zip(sources, op.x, strict=True)
    ]
    out = y if op.shape == y.shape else TensorType(op.shape, y.dtype)
    op = replace(op, x=tuple(node.type for node in views), out=out)
    made = add_statistics(graph, op, views, threads=threads)
    state_result(graph, made, y.shape, y)
    return compile_graph(graph, threads=threads, name="slabs").program


def _result(given: Given, x: TensorType) -> TensorType:
    """Return the type of the result: that of ``out``, or of x, in the order of its axes without gaps."""
    if given.result is not None:
        given.check_result_type(TensorType(x.shape, x.dtype))
        return given.result
    y = dense_like(x)
    given.check_result_type(y)
    return y


def _of_channels(given: Given, *indices: int) -> list[TensorType]:
    """Return the types of the parameters that were given, each of which has one value for each channel."""
    channels = given.type(0).shape[1]
    found: list[TensorType] = []
    for at in indices:
        type_ = given.optional(at)
        if type_ is None:
            continue
        if type_.shape != (channels,):
            raise InvalidShape(
                field=given.names[at], got=type_.shape, expected=(channels,), remedy="give one value for each channel"
            )
        found.append(type_)
    return found


def _scaled(given: Given, value: Expr, weight: int) -> Expr:
    """Return the value times the weight, operand ``weight``, plus the bias after it, where they were given."""
    at = weight
    if given.optional(weight) is not None:
        value, at = value * Input(at), at + 1
    return value + Input(at) if given.optional(weight + 1) is not None else value


def _inverse_root(spread: Expr, eps: float) -> Expr:
    return Unary(UnaryFunction.RSQRT, spread + eps)


def _by_channel(type_: TensorType, rank: int) -> TensorType:
    """Return (c,) as (1, c, 1, ...)."""
    shape, strides = [1] * rank, [0] * rank
    shape[1], strides[1] = type_.static_shape[0], type_.strides[0]
    return TensorType(tuple(shape), type_.dtype, StridedLayout(tuple(strides)))


def _in_groups(type_: TensorType, groups: int, rank: int) -> TensorType:
    """Return (n, c, ...) as (n, groups, c / groups, ...), and (c,) as (groups, c / groups, 1, ...)."""
    at = min(1, type_.rank - 1)
    channels, step = type_.static_shape[at], type_.strides[at]
    ends = (1,) * (rank - 2) if at == 0 else type_.static_shape[2:]
    steps = (0,) * (rank - 2) if at == 0 else type_.strides[2:]
    shape = (*type_.static_shape[:at], groups, channels // groups, *ends)
    strides = (*type_.strides[:at], step * (channels // groups), step, *steps)
    return TensorType(shape, type_.dtype, StridedLayout(strides))
