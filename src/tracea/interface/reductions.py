"""Reductions as functions: over any axes, in any strides, without a copy; the sums of 16-bit floats are kept in f32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, cast

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Constant, Expr, Input, Unary, UnaryFunction, select
from tracea.core.graph import Graph, Node
from tracea.core.op import ReduceKind, StatisticsOp, ViewKind
from tracea.core.ops.statistics import corrected_squares, squares_about_mean
from tracea.core.tensor_type import Dim, TensorType
from tracea.errors import InvalidOp, InvalidShape
from tracea.flow.compile import compile_graph
from tracea.flow.reduction import add_reduction, add_statistics, wide_type
from tracea.interface.operands import ANY, FOLLOWING, Given, dispatched, flag, number
from tracea.interface.ranges import check_exact_numbers, is_exact
from tracea.interface.results import filled, state_result
from tracea.interface.whole_numbers import axis_number, read_whole
from tracea.runtime.buffers import view
from tracea.runtime.extension import all_finite

__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "axes_of",
    "axis_of",
    "correction_number",
    "dim_numbers",
    "mean",
    "prod",
    "std",
    "sum",
    "var",
]

_OPERANDS: Final = ("x",)
_TAKES: Final = {"x": ANY, "out": FOLLOWING}

_OF_NOTHING: Final = {
    "sum": 0.0,
    "product": 1.0,
    "mean": math.nan,
    "var": math.nan,
    "std": math.nan,
    "any": 0.0,
    "all": 1.0,
}
_OF_INTEGERS: Final = ("sum", "max", "min", "any", "all")
_IS_TRUE: Final = select(Binary(BinaryFunction.NE, Input(0), Constant(0.0)), 1.0, 0.0)


def sum(x: Any, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the sum over ``dim``, one or more axes or all; of nothing it is 0.

    Integers and booleans sum to int64, exactly.

    Raises: InvalidShape: there is no such axis, or it is named twice. InvalidInput: sums of integers may pass 2^53.
    InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch()(x, out, "sum", 0.0, flag("keepdim", keepdim), *dim_numbers(dim))


def mean(x: Any, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the mean over ``dim``; of nothing it is NaN.

    Raises: as :func:`sum`.
    """
    return _dispatch()(x, out, "mean", 0.0, flag("keepdim", keepdim), *dim_numbers(dim))


def prod(x: Any, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the product over ``dim``; of nothing it is 1.

    Raises: as :func:`sum`.
    """
    return _dispatch()(x, out, "product", 0.0, flag("keepdim", keepdim), *dim_numbers(dim))


def amax(x: Any, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the largest over ``dim``, NaN where there is one; of integers and booleans too.

    Raises: as :func:`sum`; InvalidShape: the largest of nothing. InvalidInput: an integer is beyond 2^53.
    """
    return _dispatch()(x, out, "max", 0.0, flag("keepdim", keepdim), *dim_numbers(dim))


def amin(x: Any, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the smallest over ``dim``, NaN where there is one; of integers and booleans too.

    Raises: as :func:`sum`; InvalidShape: the smallest of nothing. InvalidInput: an integer is beyond 2^53.
    """
    return _dispatch()(x, out, "min", 0.0, flag("keepdim", keepdim), *dim_numbers(dim))


def any(x: Any, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return whether an element over ``dim`` is not 0, of whatever type; NaN is not, and of nothing it is False.

    Raises: as :func:`sum`.
    """
    return _dispatch()(x, out, "any", 0.0, flag("keepdim", keepdim), *dim_numbers(dim))


def all(x: Any, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return whether every element over ``dim`` is not 0, of whatever type; NaN is not, and of nothing it is True.

    Raises: as :func:`sum`.
    """
    return _dispatch()(x, out, "all", 0.0, flag("keepdim", keepdim), *dim_numbers(dim))


def var(
    x: Any,
    dim: int | Sequence[int] | None = None,
    *,
    correction: float = 1.0,
    keepdim: bool = False,
    out: Any = None,
) -> Any:
    """Return the variance over ``dim``: squares about the mean by ``n - correction``; NaN where that is 0 of nothing.

    It is infinite only where no number of x's type is as large: where sums of float32 are not finite, those of float64
    are taken.

    Raises: as :func:`sum`; InvalidOp: ``correction`` is no number.
    """
    return _spread(x, out, "var", correction_number(correction), flag("keepdim", keepdim), *dim_numbers(dim))


def std(
    x: Any,
    dim: int | Sequence[int] | None = None,
    *,
    correction: float = 1.0,
    keepdim: bool = False,
    out: Any = None,
) -> Any:
    """Return the root of :func:`var`.

    Raises: as :func:`var`.
    """
    return _spread(x, out, "std", correction_number(correction), flag("keepdim", keepdim), *dim_numbers(dim))


def _spread(x: Any, out: Any, *attributes: Any) -> Any:
    """Return a variance or its root, made in float64 where float32, in which it is made first, was left behind."""
    found = _dispatch()(x, out, *attributes)
    # No sum of squares of float16 leaves float32, and nothing is wider than float64.
    if all_finite(found) or view(found).dtype not in (DType.F32, DType.BF16):
        return found
    return _dispatch_wide()(x, found, *attributes)


def correction_number(value: Any) -> float:
    """Return what the number of elements is lessened by.

    Raises: InvalidOp: it is no finite number.
    """
    found = number("correction", value)
    if not math.isfinite(found):
        raise InvalidOp(field="correction", got=value, expected="a finite number", remedy="correction=1")
    return found


def dim_numbers(dim: Any) -> tuple[int, ...]:
    """Return the axes that ``dim`` names, as given; none for None.

    Raises: InvalidShape: it is neither an axis, several nor None.
    """
    if dim is None:
        return ()
    if read_whole(dim) is not None:
        return (axis_number("dim", dim),)
    several = cast("Sequence[Any]", dim) if isinstance(dim, Sequence) and not isinstance(dim, str | bytes) else ()
    if not several:
        expected, remedy = "an axis, several or None", "dim=-1, dim=(0, 2); dim=None reduces all"
        raise InvalidShape(field="dim", got=dim, expected=expected, remedy=remedy)
    return tuple(axis_number("dim", axis) for axis in several)


def axis_of(dim: Any, rank: int) -> int:
    """Return an axis counted from the first; a number has one, as in torch.

    Raises: InvalidShape: there is none.
    """
    axes, axis = max(rank, 1), read_whole(dim)
    if axis is None or not -axes <= axis < axes:
        raise InvalidShape(field="dim", got=dim, expected=f"an axis of rank {rank}", remedy="name an axis that exists")
    return axis % axes


def axes_of(dims: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return axes counted from the first, ascending; all where none is named.

    Raises: InvalidShape: there is none, or one is named twice.
    """
    found = sorted(axis_of(dim, rank) for dim in dims) or list(range(rank))
    if len(set(found)) != len(found):
        raise InvalidShape(field="dim", got=dims, expected="each axis once", remedy="name each axis once")
    return tuple(found)


@cache
def _dispatch() -> Any:
    return dispatched(_OPERANDS, _missed)


def _missed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    name, dims = attributes[0], attributes[3:]
    x = Given.of(_OPERANDS, arrays, out, takes=_TAKES if name in _OF_INTEGERS else {}).type(0)
    axes = axes_of(dims, x.rank) if x.rank else ()
    terms = math.prod(x.static_shape[axis] for axis in axes) if name == "sum" else 1
    if name not in ("sum", "max", "min") or is_exact(x.dtype, terms):
        return _compiled_reduction(arrays, out, attributes, threads)
    check_exact_numbers(arrays[0], terms, "sums" if name == "sum" else "integers", axes if name == "sum" else ())
    return _dispatch_exact()(arrays[0], out, *attributes)


@cache
def _dispatch_exact() -> Any:
    """Return the dispatcher of integers that were checked, which every call's have to be."""
    return dispatched(_OPERANDS, _compiled_reduction)


@cache
def _dispatch_wide() -> Any:
    """Return the dispatcher of variances whose squares, or whose sum of elements, float32 may not hold."""
    return dispatched(_OPERANDS, partial(_compiled_reduction, wide=True))


def _compiled_reduction(
    arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int, *, wide: bool = False
) -> Any:
    """Return the program of a reduction, given its name, correction, whether axes are kept, and axes; or its result.

    ``wide``: a variance is computed in float64.
    """
    given = Given.of(_OPERANDS, arrays, out, takes=_TAKES if attributes[0] in _OF_INTEGERS else {})
    (name, correction, keepdims), dims = attributes[:3], attributes[3:]
    x = given.type(0)
    if name not in _OF_INTEGERS:
        given.check_floats()
    axes = axes_of(dims, x.rank)
    axes = axes if x.rank else ()
    shape: tuple[Dim, ...] = tuple(1 if axis in axes else dim for axis, dim in enumerate(x.shape))
    if not keepdims:
        shape = tuple(dim for axis, dim in enumerate(x.shape) if axis not in axes)
    wanted = TensorType(shape, _result_dtype(name, x.dtype))
    given.check_result_type(wanted)
    is_of_nothing = math.prod(x.static_shape[axis] for axis in axes) == 0
    if is_of_nothing and wanted.elements and name not in _OF_NOTHING:
        raise InvalidShape(
            field="x",
            got=x.static_shape,
            expected="elements along the axes",
            remedy=f"leave empty slabs out: the empty {name}imum has no value",
        )
    if name in _OF_NOTHING if is_of_nothing else wanted.elements == 0:
        return filled(arrays[0], wanted, out, _OF_NOTHING.get(name, 0.0))
    graph = Graph()
    source = graph.add_input(x)
    if x.rank == 0:
        source, axes, keepdims = graph.add_view(ViewKind.RESHAPE, source, shape=(1,)), (0,), False
    stated = TensorType(shape, DType.F64) if wide else given.result or wanted
    reduction = _Reduction(graph=graph, source=source, axes=axes, keepdims=keepdims, out=stated, threads=threads)
    node = reduction.variance(correction, root=name == "std") if name in ("var", "std") else reduction.of(name)
    if wide:
        node = graph.add_pointwise(Input(0), node, out_dtype=wanted.dtype)
    state_result(graph, node, shape, given.result)
    return compile_graph(graph, threads=threads, name=name).program


def _result_dtype(name: str, dtype: DType) -> DType:
    if name in ("any", "all"):
        return DType.BOOL
    return DType.I64 if name == "sum" and not dtype.is_float else dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reduction:
    """Appends one reduction of a source to a graph."""

    graph: Graph
    source: Node
    axes: tuple[int, ...]
    keepdims: bool
    out: TensorType
    threads: int

    def of(self, name: str) -> Node:
        is_truth = name in ("any", "all")
        kind = ReduceKind({"any": "max", "all": "min"}.get(name, name))
        return add_reduction(
            self.graph,
            kind,
            [self.source],
            self.axes,
            prologue=_IS_TRUE if is_truth else None,
            keepdims=self.keepdims,
            out=self.out,
            threads=self.threads,
        )

    def variance(self, correction: float, *, root: bool) -> Node:
        count = math.prod(self.source.type.static_shape[axis] for axis in self.axes)
        divisor = max(0.0, count - correction)

        def result(total: Expr) -> Expr:
            value = total / Constant(divisor)
            return Unary(UnaryFunction.SQRT, value) if root else value

        statistics, squares = squares_about_mean(count)
        op = StatisticsOp(
            x=(self.source.type,),
            axes=self.axes,
            statistics=statistics,
            expr=result(squares),
            reduced=True,
            keepdims=self.keepdims,
            out=self.out,
        )
        enough = op.infer().elements >= 2 * self.threads or self.source.type.elements < 1 << 16
        if enough or self.threads == 1:
            return add_statistics(self.graph, op, [self.source], threads=self.threads)
        shape = tuple(1 if axis in self.axes else dim for axis, dim in enumerate(self.source.type.shape))
        center = TensorType(shape, wide_type(self.source.type.dtype, self.out.dtype))
        mean_ = add_reduction(
            self.graph,
            ReduceKind.MEAN,
            [self.source],
            self.axes,
            keepdims=True,
            out=center,
            threads=self.threads,
        )
        away = Input(0) - Input(1)
        squared, rest = (
            add_reduction(
                self.graph,
                ReduceKind.SUM,
                [self.source, mean_],
                self.axes,
                prologue=each,
                keepdims=self.keepdims,
                out=TensorType(self.out.shape, center.dtype),
                threads=self.threads,
            )
            for each in (away * away, away)
        )
        expr = result(corrected_squares(Input(0), Input(1), count))
        return self.graph.add_pointwise(expr, squared, rest, out_dtype=self.out.dtype)
