"""Products of groups of rows as a function: a routing becomes tables, which one kernel reads for every routing."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.op import Epilogue, GroupedGemmOp
from tracea.errors import InvalidDType, InvalidInput, InvalidShape
from tracea.flow.compile import compile_op
from tracea.interface.operands import FLOATS, INDICES, Given, check_same_dtype, dispatched
from tracea.interface.whole_numbers import read_wholes
from tracea.kernels.gemm.grouped import PART_ROWS, part_tables, parts_of
from tracea.runtime.buffers import empty, view
from tracea.semantic.tile_builders import ragged_tiles

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["grouped_gemm"]

_OPERANDS: Final = ("x", "weights", "bias")
_TABLES: Final = ("first rows", "numbers")
_MOST_ROWS: Final = 2**24  # whose tables are made within a second
_KEPT_ROUTINGS: Final = 64  # whose tables are remembered: an expert's layers share one


def grouped_gemm(
    x: Any, weights: Any, offsets: Any, *, bias: Any = None, activation: str | None = None, out: Any = None
) -> Any:
    """Return ``activation(x[rows of g] @ weights[g] + bias[g])`` for each group g of rows, as experts take tokens.

    Rows are sorted by group: group g has the rows from ``offsets[g − 1]`` (0 for the first) up to ``offsets[g]``, none
    where both are equal. Rows from the last offset on are of no group: their results are zero, without bias and
    activation. What a matrix without rows holds is not read.

    Shapes: x is (rows, k), weights (groups, k, n) in any strides, as ``linear.transpose(1, 2)``; offsets (groups,),
    int64 or int32, or a list of whole numbers; bias (groups, n).

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidInput: offsets that
    descend or lie beyond the rows; InvalidOp for an unknown activation.
    """
    rows, groups, depth, columns = _extents(x, weights)
    first, number = _tables(_ends(offsets, groups, rows), rows)
    if depth == 0:
        x, weights = (_zeros(like, shape) for like, shape in ((x, (rows, 1)), (weights, (groups, 1, columns))))
    return _dispatch()(x, weights, bias, first, number, out, activation)


def _extents(x: Any, weights: Any) -> tuple[int, int, int, int]:
    """Return rows, groups, depth and columns: what is wrong is said before tables are made of so many rows."""
    given = {name: view(array, name, FLOATS) for name, array in (("x", x), ("weights", weights))}
    for name, each in given.items():
        if not each.dtype.is_float:
            raise InvalidDType(field=name, got=each.dtype.value, expected=FLOATS, remedy="cast it")
    shapes = {name: each.shape for name, each in given.items()}
    fits = len(shapes["x"]) == 2 and len(shapes["weights"]) == 3 and shapes["x"][1] == shapes["weights"][1]
    if not fits:
        raise InvalidShape(
            field="grouped_gemm",
            got=shapes,
            expected="(rows, k) @ (groups, k, n)",
            remedy="merge leading axes of x into its rows, and make the inner extents agree",
        )
    rows, groups = shapes["x"][0], shapes["weights"][0]
    if rows > _MOST_ROWS or groups > _MOST_ROWS:
        raise InvalidShape(
            field="grouped_gemm",
            got=shapes,
            expected=f"{_MOST_ROWS} rows and groups at most",
            remedy="multiply the rows of some groups at a time",
        )
    _, depth, columns = shapes["weights"]
    return rows, groups, depth, columns


def _ends(offsets: Any, groups: int, rows: int) -> bytes:
    """Return the row behind each group's last one, as the bytes of int64.

    Raises: InvalidDType, InvalidShape, InvalidDevice. InvalidInput: they descend, or lie beyond the rows.
    """
    given = view(_as_array(offsets), "offsets", INDICES)
    if given.dtype not in (DType.I64, DType.I32):
        raise InvalidDType(
            field="offsets", got=given.dtype.value, expected=INDICES, remedy="give the row behind each group's last"
        )
    if given.shape != (groups,):
        raise InvalidShape(
            field="offsets", got=given.shape, expected=(groups,), remedy="give one offset for each matrix of weights"
        )
    ends = given.numpy().astype(np.int64)
    before = np.concatenate([[0], ends[:-1]])
    wrong = np.flatnonzero((ends < before) | (ends > rows))
    if len(wrong):
        group = int(wrong[0])
        raise InvalidInput(
            field=f"offsets[{group}]",
            got=int(ends[group]),
            expected=f"{before[group]} .. {rows}: offsets ascend from 0, and none lies beyond the rows of x",
            remedy="sort the rows by group, and give the cumulative sum of the groups' counts",
        )
    return ends.tobytes()


def _as_array(offsets: Any) -> Any:
    """Return offsets given as a list or tuple of whole numbers as an array, and all else as it is."""
    numbers = read_wholes(offsets) if type(offsets) in (list, tuple) else None
    if numbers is None:
        return offsets
    try:
        return np.array(numbers, dtype=np.int64)
    except OverflowError:  # no row has such a number
        raise InvalidInput(
            field="offsets",
            got=max(numbers, key=abs),
            expected="numbers of rows",
            remedy="give the cumulative sum of the groups' counts",
        ) from None


@lru_cache(maxsize=_KEPT_ROUTINGS)
def _tables(ends: bytes, rows: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    counts = np.diff(np.frombuffer(ends, np.int64), prepend=0)
    groups = len(counts)
    # Of tiles the width is the kernel's own matter, and so is the depth: a part is all of both.
    table = ragged_tiles([*counts.tolist(), rows - int(counts.sum())], 1, depth=1, tile_rows=PART_ROWS, tile_columns=1)
    return part_tables(table, groups, parts_of(rows, groups))


def _zeros(like: Any, shape: tuple[int, ...]) -> Any:
    """Return zeros of an array's kind and type: one step of them is a sum over nothing."""
    given = view(like)
    result = empty(shape, given.dtype, given.kind)
    view(result).numpy()[...] = 0
    return result


@cache
def _dispatch() -> Any:
    return dispatched((*_OPERANDS, *_TABLES), _missed)


def _missed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OPERANDS, arrays[: len(_OPERANDS)], out)
    (activation,) = attributes
    given.check_floats(one_arithmetic=True)
    x, weights, bias = given.type(0), given.type(1), given.optional(2)
    check_same_dtype("grouped_gemm", x, weights)
    (rows, depth), (groups, _, columns) = x.static_shape, weights.static_shape
    if bias is not None and bias.shape != (groups, columns):
        raise InvalidShape(
            field="bias", got=bias.shape, expected=(groups, columns), remedy="give one value for each group and column"
        )
    op = GroupedGemmOp(
        m=rows,
        n=columns,
        k=depth,
        groups=groups,
        parts=parts_of(rows, groups),
        x=x,
        weights=weights,
        bias=bias,
        expr=Epilogue.of(bias=bias, activation=activation).expr,
        out=given.result,
    )
    given.check_result(op)
    return compile_op(op, threads=threads)
