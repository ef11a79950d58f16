"""The kernels of statistics that the tests compile: rows, columns and slabs, several axes, strides, element types."""

from __future__ import annotations

from tests.kernels.conformance import Case

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Expr, Input, Unary, UnaryFunction, select
from tracea.core.op import Epilogue, ReduceKind, ReduceOp, Statistic, StatisticsOp
from tracea.core.tensor_type import StridedLayout, TensorType

F32, F64, BF16 = DType.F32, DType.F64, DType.BF16
X, Y = Input(0), Input(1)


def tensor(*shape: int, dtype: DType = F32, strides: tuple[int, ...] | None = None) -> TensorType:
    return TensorType(shape, dtype, None if strides is None else StridedLayout(strides))


def moments(sources: int) -> tuple[Statistic, Statistic]:
    """Mean and variance of the first source."""
    away = X - Input(sources)
    return Statistic(ReduceKind.MEAN, X), Statistic(ReduceKind.MEAN, away * away)


def normalised(sources: int) -> Expr:
    return (X - Input(sources)) * Unary(UnaryFunction.RSQRT, Input(sources + 1) + 1e-5)


def norm(*types: TensorType, axes: tuple[int, ...], out: TensorType | None = None) -> StatisticsOp:
    """A group or batch norm with a weight."""
    return StatisticsOp(x=types, axes=axes, statistics=moments(2), expr=normalised(2) * Y, out=out)


def variance(x: TensorType, *axes: int, keepdims: bool = False) -> StatisticsOp:
    return StatisticsOp(
        x=(x,), axes=axes, statistics=moments(1), expr=Input(2), reduced=True, keepdims=keepdims, out=None
    )


def softmax_backward(*shape: int, dtype: DType = F32) -> StatisticsOp:
    x = tensor(*shape, dtype=dtype)
    dot = Statistic(ReduceKind.SUM, X * Y)
    return StatisticsOp(x=(x, x), axes=(-1,), statistics=(dot,), expr=Y * (X - Input(2)))


def first_largest(rows: int, columns: int) -> StatisticsOp:
    """The place of a row's largest element, the first one, NaN being the largest."""
    is_it = select(Binary(BinaryFunction.EQ, X, Input(2)), 1.0, Binary(BinaryFunction.NE, X, X))
    places = Statistic(ReduceKind.MIN, select(is_it, Y, float("inf")))
    return StatisticsOp(
        x=(tensor(rows, columns), tensor(columns)),
        axes=(1,),
        statistics=(Statistic(ReduceKind.MAX, X), places),
        expr=Input(3),
        reduced=True,
    )


def slab_cases() -> tuple[Case, ...]:
    """Statistics, and reductions built as statistics."""
    last = tensor(2, 70, 5, strides=(350, 1, 70))
    product = ReduceOp(
        kind=ReduceKind.PRODUCT,
        x=(tensor(4, 6, 30),),
        axes=(0, 2),
        epilogue=Epilogue(Input(0) * Input(1), (tensor(6),)),
    )
    return (
        Case.of("group_norm", "rows.statistics", norm(tensor(2, 3, 4, 50), tensor(3, 4, 1), axes=(2, 3)), streaming=1),
        Case.of("batch_norm", "rows.statistics", norm(tensor(2, 3, 50), tensor(3, 1), axes=(0, 2))),
        Case.of("batch_norm_last", "rows.statistics", norm(last, tensor(70, 1), axes=(0, 2), out=last), block=32),
        Case.of("batch_norm_across", "rows.statistics", norm(last, tensor(70, 1), axes=(0, 2))),
        Case.of("softmax_backward", "rows.statistics", softmax_backward(9, 100), block=2),
        Case.of("softmax_backward_bf16", "rows.statistics", softmax_backward(3, 3, 33, dtype=BF16)),
        Case.of("variance_rows", "rows.statistics", variance(tensor(9, 100), 1), block=2),
        Case.of("variance_columns", "rows.statistics", variance(tensor(9, 100), 0, keepdims=True), block=48),
        Case.of("variance_all", "rows.statistics", variance(tensor(9, 100), 0, 1)),
        Case.of("variance_f64", "rows.statistics", variance(tensor(4, 6, 30, dtype=F64), 0, 2)),
        Case.of("first_largest", "rows.statistics", first_largest(9, 100), block=4),
        Case.of("product_slabs", "rows.reduce_slabs", product),
        Case.of(
            "sum_transposed",
            "rows.reduce_slabs",
            ReduceOp(kind=ReduceKind.SUM, x=(tensor(30, 40, strides=(1, 30)),), axes=(1,)),
            block=16,
        ),
        Case.of(
            "maximum_of_outer_axes",
            "rows.reduce_slabs",
            ReduceOp(kind=ReduceKind.MAX, x=(tensor(5, 6, 7, dtype=BF16),), axes=(0,), keepdims=True),
        ),
        Case.of(
            "product_rows", "rows.reduce", ReduceOp(kind=ReduceKind.PRODUCT, x=(tensor(9, 100),), axes=(1,)), rows=4
        ),
        Case.of("product_columns", "rows.reduce", ReduceOp(kind=ReduceKind.PRODUCT, x=(tensor(9, 100),), axes=(0,))),
    )


def slab_golden() -> tuple[Case, ...]:
    """What a user's kernel looks like: a group norm, and the mean of each channel of images."""
    images = tensor(8, 32, 8, 3136)
    return (
        Case.of("rows.statistics", "rows.statistics", norm(images, tensor(32, 8, 1), axes=(2, 3))),
        Case.of(
            "rows.reduce_slabs",
            "rows.reduce_slabs",
            ReduceOp(kind=ReduceKind.MEAN, x=(tensor(8, 256, 3136),), axes=(0, 2)),
        ),
    )
