"""The meaning of each op before its epilogue, in NumPy float64: plain, and free of any kernel's order or blocking.

Infinities and NaN behave as in torch: ``relu(NaN)`` is NaN; a softmax of a row that is all -inf, or that holds +inf or
NaN, is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracea.core.attention_gradient_meaning import attention_gradient_value
from tracea.core.attention_meaning import attention_value
from tracea.core.dtype import round_tf32
from tracea.core.function import Array
from tracea.core.indexed_meaning import indexed_value
from tracea.core.norm_gradient_meaning import norm_gradient_value
from tracea.core.op import (
    AdaptivePool2dOp,
    AttentionGradientOp,
    AttentionOp,
    BlockSparseOp,
    Conv2dOp,
    CumulativeSumOp,
    GatherRowsOp,
    GemmOp,
    GroupedGemmOp,
    JoinOp,
    LargestOp,
    LowRankOp,
    MomentsOp,
    NormGradientOp,
    Op,
    PairsOp,
    PointwiseOp,
    Pool2dOp,
    PoolKind,
    ReduceOp,
    RowKind,
    RowOp,
    SourceOp,
    StatisticsOp,
    SumRowsOp,
    ViewKind,
    ViewOp,
    WeightedRowsOp,
)
from tracea.core.ops.base import Epilogue
from tracea.core.ops.block_sparse import block_sparse_value
from tracea.core.ops.gemm import MatrixMath
from tracea.core.ops.grouped_gemm import grouped_value
from tracea.core.statistics_meaning import reduced, statistics_value
from tracea.core.tensor_type import SymbolicDim, static
from tracea.errors import InvalidInput, InvalidOp, InvalidShape

__all__ = ["bind_op", "epilogue_of", "factors", "main_value", "paired", "row_source", "sources"]

NO_EPILOGUE = Epilogue.identity()


def sources(op: Op, inputs: Sequence[Any]) -> list[Array]:
    """Return an op's inputs as float64 arrays of the operands' shapes.

    Raises:
        InvalidShape: there are more or fewer than operands, or one has another shape.
    """
    operands = op.operands
    if len(inputs) != len(operands):
        raise InvalidShape(
            field=op.name,
            got=f"{len(inputs)} arrays",
            expected=f"{len(operands)} arrays",
            remedy="give one array an operand",
        )
    arrays = [np.asarray(value).astype(np.float64, copy=False) for value in inputs]
    for index, (array, operand) in enumerate(zip(arrays, operands, strict=True)):
        if array.shape != operand.static_shape:
            raise InvalidShape(
                field=f"{op.name}.operands[{index}]",
                got=array.shape,
                expected=operand.shape,
                remedy="give the operand's shape",
            )
    return arrays


def factors(op: GemmOp, arrays: Sequence[Array]) -> tuple[Array, Array]:
    """Return both factors of a GEMM as they enter its products: rounded first where the op's arithmetic is TF32."""
    if op.math is MatrixMath.TF32:
        return round_tf32(arrays[0]), round_tf32(arrays[1])
    return arrays[0], arrays[1]


def bind_op(op: Op, inputs: Sequence[Any]) -> Op:
    """Return the op with its symbolic extents taken from the arrays' shapes.

    Raises:
        InvalidShape: two arrays give one name different extents, or one is out of its bounds.
    """
    values: dict[str, int] = {}
    for operand, value in zip(op.operands, inputs, strict=False):
        for dim, extent in zip(operand.shape, np.shape(value), strict=False):
            if isinstance(dim, SymbolicDim) and values.setdefault(dim.name, extent) != extent:
                raise InvalidShape(
                    field=dim.name,
                    got=(values[dim.name], extent),
                    expected="one extent",
                    remedy="give arrays that agree",
                )
    return op.bind(values) if values else op


def epilogue_of(op: Op) -> Epilogue:
    """Return an op's epilogue; the identity where it has none."""
    return getattr(op, "epilogue", NO_EPILOGUE)


def main_value(op: Op, arrays: Sequence[Array]) -> Array:  # noqa: PLR0911, PLR0912 - one case an op
    """Return the value before the epilogue: what ``Input(0)`` of the epilogue means."""
    with np.errstate(all="ignore"):
        match op:
            case GemmOp():
                a, b = factors(op, arrays)
                return np.broadcast_to(a @ b, op.infer().static_shape)
            case BlockSparseOp():
                return block_sparse_value(op, arrays)
            case GroupedGemmOp():
                return grouped_value(op, arrays)
            case LowRankOp():
                return (arrays[0] @ arrays[1]) @ arrays[2]
            case PointwiseOp(expr=expr):
                return np.broadcast_to(expr.evaluate(arrays), op.infer().static_shape)
            case PairsOp():
                return paired(op, *(each.evaluate(arrays) for each in op.expressions))
            case RowOp():
                return _row(op, row_source(op, arrays))
            case ReduceOp():
                return reduced(op.kind, row_source(op, arrays), op.axes, keepdims=op.keepdims)
            case StatisticsOp():
                return statistics_value(op, arrays)
            case MomentsOp():
                return np.concatenate([statistics_value(part, arrays) for part in op.parts], axis=1)
            case NormGradientOp():
                return norm_gradient_value(op, arrays)
            case CumulativeSumOp() | GatherRowsOp() | SumRowsOp() | WeightedRowsOp() | LargestOp():
                return indexed_value(op, arrays)
            case ViewOp():
                return _view(op, arrays[0])
            case JoinOp():
                return _join(op, arrays)
            case Conv2dOp():
                return _conv2d(op, arrays[0], arrays[1])
            case Pool2dOp() | AdaptivePool2dOp():
                return _pool2d(op, arrays[0])
            case AttentionOp():
                return attention_value(op, arrays)
            case AttentionGradientOp():
                return attention_gradient_value(op, arrays)
            case SourceOp():
                raise InvalidInput(
                    field="op", got="source", expected="a value", remedy="bind the source by its node's id"
                )
            case _:
                raise InvalidOp(
                    field="op", got=type(op).__name__, expected="an op of tracea.core.op", remedy="write its meaning"
                )


def row_source(op: RowOp | ReduceOp, arrays: Sequence[Array]) -> Array:
    """Return the prologue's value over the whole shape."""
    shape = op.infer().static_shape if isinstance(op, RowOp) else tuple(static(dim) for dim in op.source_shape)
    return np.broadcast_to(op.prologue.evaluate(arrays[: len(op.x)]), shape)


def _row(op: RowOp, v: Array) -> Array:
    if v.size == 0:
        return v
    match op.kind:
        case RowKind.SOFTMAX:
            e = np.exp(v - v.max(axis=-1, keepdims=True))
            return e / e.sum(axis=-1, keepdims=True)
        case RowKind.LOG_SOFTMAX:
            d = v - v.max(axis=-1, keepdims=True)
            return d - np.log(np.exp(d).sum(axis=-1, keepdims=True))
        case RowKind.LAYER_NORM:
            d = v - v.mean(axis=-1, keepdims=True)
            return d / np.sqrt((d * d).mean(axis=-1, keepdims=True) + op.eps)
        case RowKind.RMS_NORM:
            return v / np.sqrt((v * v).mean(axis=-1, keepdims=True) + op.eps)


def _view(op: ViewOp, x: Array) -> Array:
    shape = op.infer().static_shape
    match op.kind:
        case ViewKind.RESHAPE:
            return x.reshape(shape)
        case ViewKind.PERMUTE:
            return x.transpose(op.axes)
        case ViewKind.EXPAND:
            return np.broadcast_to(x, shape)
        case ViewKind.SLICE:
            for axis, (start, step, size) in enumerate(zip(op.starts, op.steps, shape, strict=True)):
                x = np.take(x, start + step * np.arange(size), axis=axis)
            return x
        case ViewKind.WINDOWS:
            (axis,), (step,) = op.axes, op.steps
            windows = np.lib.stride_tricks.sliding_window_view(x, shape[-1], axis)
            return np.take(windows, step * np.arange(shape[axis]), axis=axis)


def paired(op: PairsOp, first: Any, second: Any) -> Array:
    """Return the two results of each place where the op says that they lie."""
    half = tuple(static(dim) for dim in op.half_shape)
    both = [np.broadcast_to(each, half) for each in (first, second)]
    whole = np.concatenate(both, axis=-1) if op.halves else np.stack(both, axis=-1)
    return whole.reshape(*half[:-1], 2 * half[-1])


def _join(op: JoinOp, parts: Sequence[Array]) -> Array:
    whole = np.full(op.shape, np.nan)
    for part, starts, steps in zip(parts, op.starts, op.steps, strict=True):
        axes = zip(part.shape, starts, steps, strict=True)
        whole[tuple(slice(start, start + size * step, step) for size, start, step in axes)] = part
    return whole


def _conv2d(op: Conv2dOp, x: Array, w: Array) -> Array:
    n, k, p, q = op.infer().static_shape
    filters, channels, rows, columns = w.shape
    (up, left), (down, right), (gap_r, gap_s) = op.padding, op.stride, op.dilation
    # As many zeros after the image as the last window reaches: its size may be stated.
    below = max(0, (p - 1) * down + (rows - 1) * gap_r + 1 - up - x.shape[2])
    beside = max(0, (q - 1) * right + (columns - 1) * gap_s + 1 - left - x.shape[3])
    padded = np.pad(x, ((0, 0), (0, 0), (up, below), (left, beside)))
    image = padded.reshape(n, op.groups, channels, *padded.shape[2:])
    turned = w[:, :, ::-1, ::-1] if op.turned else w
    weight = turned.reshape(op.groups, filters // op.groups, channels, rows, columns)
    taps = np.ascontiguousarray(np.moveaxis(weight, (3, 4), (0, 1)))  # products of strided matrices do without BLAS
    total = np.zeros((n, op.groups, filters // op.groups, p, q))
    for r in range(rows):
        for s in range(columns):
            top, side = r * gap_r, s * gap_s
            tap = image[..., top : top + down * (p - 1) + 1 : down, side : side + right * (q - 1) + 1 : right]
            if channels == 1:
                total += tap * taps[r, s][..., None]
            else:
                total += (taps[r, s] @ tap.reshape(*tap.shape[:3], p * q)).reshape(total.shape)
    return total.reshape(n, k, p, q)


def _pool2d(op: Pool2dOp | AdaptivePool2dOp, x: Array) -> Array:
    result = np.empty(op.infer().static_shape)
    for p in range(result.shape[2]):
        top, bottom, rows = op.window(0, p)
        for q in range(result.shape[3]):
            left, right, columns = op.window(1, q)
            window = x[:, :, top:bottom, left:right]
            if op.kind is PoolKind.MAX:
                result[:, :, p, q] = window.max(axis=(2, 3))
            else:
                result[:, :, p, q] = window.sum(axis=(2, 3)) / (rows * columns)
    return result
