"""Cross-entropy and its gradient as functions: one pass over the logits each, without a tensor of probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Constant, Expr, Input, Unary, UnaryFunction, exp, select
from tracea.core.graph import Graph, Node
from tracea.core.op import PointwiseOp, ReduceKind, Statistic, StatisticsOp, ViewKind
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidDType, InvalidOp, InvalidShape
from tracea.flow.compile import compile_graph
from tracea.flow.reduction import add_reduction, wide_type
from tracea.interface.operands import FLOATS, INDICES, Given, dispatched, number, word
from tracea.interface.results import filled, state_result
from tracea.interface.whole_numbers import read_whole
from tracea.runtime.index_range import EXACT_INTEGERS, IndexRange, Named

if TYPE_CHECKING:
    pass

__all__ = ["cross_entropy", "cross_entropy_backward"]

_OPERANDS: Final = ("logits", "target", "grad")
_REDUCTIONS: Final = ("mean", "sum", "none")
_NO_CLASS: Final = -1.0  # what an ignored target becomes


def cross_entropy(
    logits: Any,
    target: Any,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    out: Any = None,
) -> Any:
    """Return ``-log softmax(logits)[target]``, its sum, or its mean over the targets that are not ignored, as torch.

    With ``label_smoothing`` s it is (1 - s) times that, plus s times the mean over all classes.

    Shapes: logits are (n, classes, ...) or (classes,); target is (n, ...) or (), int64 or int32; the result is a
    number, or, with ``reduction="none"``, has the target's shape.

    Raises: InvalidIndex: a target is no class. InvalidShape, InvalidDType, InvalidDevice, InvalidStride,
    OverlappingOutput; InvalidOp: an unknown reduction, a smoothing outside of 0 to 1.
    """
    return _dispatch(1)(logits, target, None, out, *_numbers(ignore_index, label_smoothing, reduction))


def cross_entropy_backward(
    grad: Any,
    logits: Any,
    target: Any,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    out: Any = None,
) -> Any:
    """Return the gradient of :func:`cross_entropy` for the logits, given that of its result.

    Shapes: grad is that of the result; the gradient that of logits.

    Raises: as :func:`cross_entropy`.
    """
    return _dispatch(2)(logits, target, grad, out, *_numbers(ignore_index, label_smoothing, reduction))


def _numbers(ignore_index: Any, label_smoothing: Any, reduction: Any) -> tuple[int, float, str]:
    ignored = read_whole(ignore_index)
    if ignored is None or abs(ignored) >= EXACT_INTEGERS:
        raise InvalidOp(
            field="ignore_index",
            got=ignore_index,
            expected="a whole number within 2^53, which f64 tells from others",
            remedy="ignore_index=-100",
        )
    smoothing = number("label_smoothing", label_smoothing, example=0.1)
    if not 0.0 <= smoothing <= 1.0:
        raise InvalidOp(field="label_smoothing", got=smoothing, expected="0 to 1", remedy="label_smoothing=0.1")
    return ignored, smoothing, word("reduction", reduction, _REDUCTIONS)


def _classes_named(given: Given, ignore_index: int) -> IndexRange:
    """Check the shapes; return which targets are classes, or ignored, as all of these are."""
    x, t = given.type(0), given.type(1)
    if not x.dtype.is_float:
        raise InvalidDType(field="logits", got=x.dtype.value, expected=FLOATS, remedy="convert it to floats first")
    if x.rank == 0 or t.shape != (*x.shape[: min(1, x.rank - 1)], *x.shape[2:]):
        raise InvalidShape(
            field="target",
            got={"logits": x.shape, "target": t.shape},
            expected="logits (n, classes, ...) and target (n, ...), or (classes,) and ()",
            remedy="give one class for each row of logits",
        )
    return given.index_range(1, x.static_shape[min(1, x.rank - 1)], Named.CLASSES, ignored=ignore_index)


@cache
def _dispatch(outputs: int) -> Any:
    return dispatched(_OPERANDS, _missed if outputs == 1 else _missed_backward)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The nodes of a loss: logits as (n, classes, ...), the class of each row as a number, and the classes' numbers."""

    graph: Graph
    logits: Node
    target: Node  # (n, 1, ...): -1 where it is ignored
    classes: Node  # (classes, 1, ...)
    values: dict[str, np.ndarray[Any, Any]]
    compute: DType

    @classmethod
    def of(cls, x: TensorType, t: TensorType, ignore_index: int) -> _Rows:
        graph, values = Graph(), dict[str, np.ndarray[Any, Any]]()
        logits, given = graph.add_input(x, name="logits"), graph.add_input(t, name="target")
        if x.rank == 1:
            logits = graph.add_view(ViewKind.RESHAPE, logits, shape=(1, *x.shape))
        count = logits.type.static_shape[1]
        # Numbers of classes are exact in f32 up to 2^24.
        compute = DType.F64 if x.dtype is DType.F64 or count > 1 << 24 else DType.F32
        seen = select(Binary(BinaryFunction.EQ, Input(0), Constant(ignore_index)), _NO_CLASS, Input(0))
        named = graph.add(PointwiseOp(expr=seen, inputs=(t,), out_dtype=compute), [given])
        shape = (logits.type.shape[0], 1, *logits.type.shape[2:])
        target = graph.add_view(ViewKind.RESHAPE, named, shape=shape)
        places = TensorType((count, *(1,) * (logits.type.rank - 2)), compute)
        values["classes"] = np.arange(count, dtype=compute.numpy).reshape(places.static_shape)
        return cls(
            graph=graph,
            logits=logits,
            target=target,
            classes=graph.add_constant(places, name="classes"),
            values=values,
            compute=compute,
        )

    @property
    def count(self) -> int:
        return self.logits.type.static_shape[1]

    @property
    def sources(self) -> list[Node]:
        return [self.logits, self.target, self.classes]

    def total(self, kind: ReduceKind, node: Node, expr: Expr, threads: int) -> Node:
        """Append a sum over all rows, as a number."""
        out = TensorType((), self.compute)
        axes = range(node.type.rank)
        return add_reduction(self.graph, kind, [node], tuple(axes), prologue=expr, out=out, threads=threads)


_IS_SEEN: Final = Binary(BinaryFunction.GE, Input(1), Constant(0.0))
_IS_TARGET: Final = Binary(BinaryFunction.EQ, Input(1), Input(2))


def _exponents(first: int) -> tuple[Statistic, Statistic]:
    """Return the statistics of a softmax, the first of which is ``Input(first)``."""
    return Statistic(ReduceKind.MAX, Input(0)), Statistic(ReduceKind.SUM, exp(Input(0) - Input(first)))


def _missed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OPERANDS, arrays, out, takes={"target": INDICES})
    ignore_index, smoothing, reduction = attributes
    x, t = given.type(0), given.type(1)
    named = _classes_named(given, ignore_index)
    rows = _Rows.of(x, t, ignore_index)
    at_target = Statistic(ReduceKind.SUM, select(_IS_TARGET, Input(0), 0.0))
    statistics = [*_exponents(3), at_target]
    # What is small beside the largest logit is added last: it would be lost in it.
    logarithm = Unary(UnaryFunction.LOG, Input(4))
    loss = Input(3) - Input(5) + logarithm
    if smoothing:
        statistics.append(Statistic(ReduceKind.MEAN, Input(0)))
        loss = loss * (1.0 - smoothing) + (Input(3) - Input(6) + logarithm) * smoothing
    is_whole = reduction == "none"
    wanted = TensorType(t.shape if is_whole else (), x.dtype)
    given.check_result_type(wanted)
    if x.elements == 0:  # no row, or rows without a class, which are ignored
        return filled(arrays[0], wanted, out, math.nan if reduction == "mean" else 0.0)
    kind = x.dtype if is_whole else wide_type(x.dtype)
    shape = (rows.logits.type.shape[0], *rows.logits.type.shape[2:])
    each = StatisticsOp(
        x=tuple(node.type for node in rows.sources),
        axes=(1,),
        statistics=tuple(statistics),
        expr=select(_IS_SEEN, loss, 0.0),
        reduced=True,
        out=given.result if is_whole and given.result is not None and t.rank else TensorType(shape, kind),
    )
    node = losses = rows.graph.add(each, rows.sources)
    if not is_whole:
        node = rows.total(ReduceKind.SUM, losses, Input(0), threads)
        ratio: Expr = Input(0)
        nodes = [node]
        if reduction == "mean":
            nodes.append(
                rows.total(ReduceKind.SUM, rows.target, Binary(BinaryFunction.GE, Input(0), Constant(0.0)), threads)
            )
            ratio = Input(0) / Input(1)
        node = rows.graph.add_pointwise(ratio, *nodes, out_dtype=x.dtype)
    state_result(rows.graph, node, wanted.shape, given.result)
    program = compile_graph(rows.graph, rows.values, threads=threads, name="cross_entropy").program
    return replace(program, index_ranges=(named,))


def _missed_backward(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OPERANDS, arrays, out, takes={"target": INDICES})
    ignore_index, smoothing, reduction = attributes
    x, t, g = given.type(0), given.type(1), given.type(2)
    named = _classes_named(given, ignore_index)
    wanted = t.shape if reduction == "none" else ()
    if not g.dtype.is_float:
        raise InvalidDType(
            field="grad", got=g.dtype.value, expected="floats", remedy="convert it, as grad.float() does"
        )
    if g.shape != wanted:
        raise InvalidShape(field="grad", got=g.shape, expected=wanted, remedy="give the gradient of the result")
    like_x = TensorType(x.shape, x.dtype)
    given.check_result_type(like_x)
    if x.elements == 0:
        return filled(arrays[0], like_x, out, 0.0)
    rows = _Rows.of(x, t, ignore_index)
    graph = rows.graph
    scale = graph.add_input(g, name="grad")
    rank = rows.logits.type.rank
    if reduction == "none":
        scale = graph.add_view(
            ViewKind.RESHAPE, scale, shape=(rows.logits.type.shape[0], 1, *rows.logits.type.shape[2:])
        )
    elif reduction == "mean":
        counted = Binary(BinaryFunction.GE, Input(0), Constant(0.0))
        seen = rows.total(ReduceKind.SUM, rows.target, counted, threads)
        scale = graph.add_pointwise(Input(0) / Input(1), scale, seen, out_dtype=rows.compute)
    if scale.type.rank < rank:
        scale = graph.add_view(ViewKind.RESHAPE, scale, shape=(1,) * rank)
    share = exp(Input(0) - Input(4)) / Input(5)
    meant = select(_IS_TARGET, 1.0 - smoothing, 0.0) + Constant(smoothing / rows.count)
    is_given = given.result is not None and given.result.shape == rows.logits.type.shape
    op = StatisticsOp(
        x=(*(node.type for node in rows.sources), scale.type),
        axes=(1,),
        statistics=_exponents(4),
        expr=select(_IS_SEEN, (share - meant) * Input(3), 0.0),
        out=given.result if is_given else TensorType(rows.logits.type.shape, x.dtype),
    )
    state_result(graph, graph.add(op, [*rows.sources, scale]), x.shape, given.result)
    program = compile_graph(graph, rows.values, threads=threads, name="cross_entropy_backward").program
    return replace(program, index_ranges=(named,))
