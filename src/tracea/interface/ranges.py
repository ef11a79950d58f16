"""Ranges of whole numbers: found before anything is counted with them."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.graph import Graph
from tracea.core.op import ReduceKind, ViewKind
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidInput
from tracea.flow.compile import compile_graph
from tracea.flow.reduction import add_reduction
from tracea.interface.operands import Given, dispatched
from tracea.runtime.buffers import view
from tracea.runtime.index_range import EXACT_INTEGERS

__all__ = ["check_exact_numbers", "is_exact"]

_OPERANDS: Final = ("numbers",)

_LARGEST: Final = {DType.BOOL: 1, DType.U8: 2**8, DType.I8: 2**7, DType.I32: 2**31, DType.I64: 2**63}


def is_exact(dtype: DType, terms: int) -> bool:
    """Tell whether f64 counts sums of so many numbers of a type, whatever they are; sums of floats are rounded."""
    return dtype.is_float or terms * _LARGEST[dtype] <= EXACT_INTEGERS


def check_exact_numbers(x: Any, terms: int, what: str, axes: tuple[int, ...] = (), *, field: str = "x") -> None:
    """Check that kernels, which compute integers in f64, see each of them as it is, and a sum of so many of them.

    Of sums over ``axes`` neither the positive terms nor the negative ones may pass 2^53: then no order of them does.

    Raises: InvalidInput: a number, or what so many of the largest sum up to, is beyond 2^53.
    """
    given = view(x, field)
    if is_exact(given.dtype, terms) or 0 in given.shape:
        return
    largest = max(map(abs, _extremes(x)))
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


def _extremes(numbers: Any) -> tuple[int, int]:
    """Return the smallest number and the largest, beyond 2^53 as f64 has them."""
    low, high = (_dispatch_range()(numbers, None, kind) for kind in ("min", "max"))
    return int(view(low).numpy()), int(view(high).numpy())


@cache
def _dispatch_range() -> Any:
    return dispatched(_OPERANDS, _missed_range)


def _missed_range(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OPERANDS, arrays, out)
    type_ = given.type(0)
    graph = Graph()
    node = graph.add_input(type_)
    if type_.rank == 0:
        node = graph.add_view(ViewKind.RESHAPE, node, shape=(1,))
    result = TensorType((), DType.F64)
    axes = tuple(range(node.type.rank))
    node = add_reduction(graph, ReduceKind(attributes[0]), [node], axes, out=result, threads=threads)
    graph.set_outputs(node)
    return compile_graph(graph, threads=threads, name="range of numbers").program
