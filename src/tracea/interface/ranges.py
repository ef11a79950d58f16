"""Ranges of index tensors and of other whole numbers: found before anything is read, or counted, with them."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Constant, Input, select
from tracea.core.graph import Graph
from tracea.core.op import ReduceKind, ViewKind
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidIndex, InvalidInput
from tracea.flow.compile import compile_graph
from tracea.flow.reduction import add_reduction
from tracea.interface.operands import Given
from tracea.runtime.buffers import view
from tracea.runtime.extension import dispatcher

__all__ = ["EXACT_INTEGERS", "Named", "check_exact_numbers", "check_indices", "is_exact", "unknown_index"]

EXACT_INTEGERS: Final = 2**53  # up to here f64, in which kernels compute integers, tells every two of them apart
Named: TypeAlias = Literal["rows", "classes", "places"]  # what an index names
_REMEDIES: Final[dict[Named, str]] = {
    "rows": "count from 0; give the table a row for each index",
    "classes": "count from 0; give the logits a class for each target, or name by ignore_index what does not count",
    "places": "count from 0; give the table, or the axis, a place for each index",
}
_LARGEST: Final = {DType.BOOL: 1, DType.U8: 2**8, DType.I8: 2**7, DType.I32: 2**31, DType.I64: 2**63}


def check_indices(name: str, indices: Any, count: int, *, ignored: int | None = None, what: Named = "rows") -> None:
    """Check that indices name one of ``count`` rows, or of ``what`` there is, or are the ``ignored`` number.

    Raises: InvalidIndex: one does not; the error says it, and how many there are.
    """
    if 0 in view(indices).shape or (count == 0 and _are_ignored(indices, ignored)):
        return
    for found in _extremes(indices, None if count == 0 else ignored):
        if not 0 <= found < count:
            exactly = found if abs(found) < EXACT_INTEGERS else _exactly(indices, count, ignored)
            raise unknown_index(name, exactly, count, what)


def unknown_index(name: str, got: int, count: int, what: Named) -> InvalidIndex:
    """Return the error of an index that names none of ``count``, with the remedy for what it should name."""
    named = {"rows": "row", "classes": "class", "places": "place"}[what] if count == 1 else what
    return InvalidIndex(
        field=name,
        got=got,
        expected=f"0 to {count - 1}, of {count} {named}" if count else f"none: there are no {what}",
        remedy=_REMEDIES[what],
    )


def is_exact(dtype: DType, terms: int) -> bool:
    """Tell whether f64 counts sums of so many numbers of a type, whatever they are; sums of floats are rounded."""
    return dtype.is_float or terms * _LARGEST[dtype] <= EXACT_INTEGERS


def check_exact_numbers(x: Any, terms: int, what: str, axes: tuple[int, ...] = (), *, field: str = "x") -> None:
    """Check that kernels, which compute integers in f64, see each of them as it is, and a sum of so many of them.

    Of sums over ``axes`` neither the positive terms nor the negative ones may pass 2^53: then no order of them does.

    Raises: InvalidInput: a number, or what so many of the largest sum up to, is beyond 2^53.
    """
    if is_exact(view(x).dtype, terms) or 0 in view(x).shape:
        return
    largest = max(map(abs, _extremes(x, None)))
    if terms * largest >= EXACT_INTEGERS and not (axes and _sums_are_exact(x, axes)):  # 2^53 + 1 is 2^53 in f64
        raise InvalidInput(
            field=field,
            got=f"numbers up to {largest}, {terms} of them" if terms > 1 else f"a number of {largest}",
            expected=f"{what} below 2^53, up to which f64 counts",
            remedy="keep integers smaller, sum fewer of them at once, or use torch for these",
        )


def _sums_are_exact(x: Any, axes: tuple[int, ...]) -> bool:
    values: np.ndarray[Any, Any] = view(x).numpy()
    for part in (np.maximum(values, 0), np.minimum(values, 0)):
        about = np.abs(part.sum(axis=axes, dtype=np.float64))  # of 2^60 and less, the sum of integers does not wrap
        if np.max(about) > 2.0**60 or np.max(np.abs(part.sum(axis=axes, dtype=np.int64))) > EXACT_INTEGERS:
            return False
    return True


def _extremes(numbers: Any, ignored: int | None) -> tuple[int, int]:
    """Return the smallest number and the largest, beyond 2^53 as f64 has them."""
    low, high = (_dispatch_range()(numbers, None, kind, ignored) for kind in ("min", "max"))
    return int(view(low).numpy()), int(view(high).numpy())


def _are_ignored(indices: Any, ignored: int | None) -> bool:
    return ignored is not None and bool((view(indices).numpy() == ignored).all())


def _exactly(indices: Any, count: int, ignored: int | None) -> int:
    """Return the first index that names no row, of those that f64 rounds."""
    found: np.ndarray[Any, Any] = view(indices).numpy().reshape(-1)
    wrong = (found < 0) | (found >= count)
    return int(found[wrong if ignored is None else wrong & (found != ignored)][0])


@cache
def _dispatch_range() -> Any:
    return dispatcher(1, _missed_range)


def _missed_range(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(("indices",), arrays, out)
    kind, ignored = attributes
    type_ = given.type(0)
    graph = Graph()
    node = graph.add_input(type_)
    if type_.rank == 0:
        node = graph.add_view(ViewKind.RESHAPE, node, shape=(1,))
    expr = Input(0)
    if ignored is not None:
        expr = select(Binary(BinaryFunction.EQ, Input(0), Constant(ignored)), 0.0, Input(0))
    result = TensorType((), DType.F64)
    axes = tuple(range(node.type.rank))
    node = add_reduction(graph, ReduceKind(kind), [node], axes, prologue=expr, out=result, threads=threads)
    graph.set_outputs(node)
    return compile_graph(graph, threads=threads, name="range of indices").program
