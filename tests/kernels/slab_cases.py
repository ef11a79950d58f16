"""The kernels of statistics that the tests compile: rows, columns and slabs, several axes, strides, element types."""

from __future__ import annotations

from tests.kernels.conformance import Case
from tests.kernels.pairs_cases import pairs_cases, pairs_golden

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Expr, Input, Unary, UnaryFunction, select
from tracea.core.op import (
    CumulativeSumOp,
    Epilogue,
    GatherRowsOp,
    LargestOp,
    PointwiseOp,
    ReduceKind,
    ReduceOp,
    Statistic,
    StatisticsOp,
    SumRowsOp,
    WeightedRowsOp,
)
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


def shifted_maximum(*shape: int) -> StatisticsOp:
    """The largest of each row plus a number of the row: a source that the reduced result reads."""
    rows = tensor(*shape[:-1], 1)
    largest = Statistic(ReduceKind.MAX, X)
    return StatisticsOp(x=(tensor(*shape), rows), axes=(-1,), statistics=(largest,), expr=Input(2) + Y, reduced=True)


def softmax_backward(*shape: int, dtype: DType = F32) -> StatisticsOp:
    x = tensor(*shape, dtype=dtype)
    dot = Statistic(ReduceKind.SUM, X * Y)
    return StatisticsOp(x=(x, x), axes=(-1,), statistics=(dot,), expr=Y * (X - Input(2)))


def layer_norm_backward(rows: int, columns: int) -> StatisticsOp:
    """The gradient for the rows: a root of one statistic is in another one and in the result."""
    x = tensor(rows, columns)
    away = Y - Input(2)
    scale = Unary(UnaryFunction.RSQRT, Input(3) + 1e-5)
    statistics = (
        Statistic(ReduceKind.MEAN, Y),
        Statistic(ReduceKind.MEAN, away * away),
        Statistic(ReduceKind.MEAN, X * (away * scale)),
        Statistic(ReduceKind.MEAN, X),
    )
    slope = X - (away * scale) * Input(4) - Input(5)
    return StatisticsOp(x=(x, x), axes=(-1,), statistics=statistics, expr=slope * scale)


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


def statistics_cases() -> tuple[Case, ...]:
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
        Case.of("rows_normalised", "rows.statistics", norm(tensor(9, 100), tensor(100), axes=(1,)), block=4),
        Case.of("layer_norm_backward", "rows.statistics", layer_norm_backward(7, 90), block=3),
        Case.of("softmax_backward", "rows.statistics", softmax_backward(9, 100), block=2),
        Case.of("softmax_backward_bf16", "rows.statistics", softmax_backward(3, 3, 33, dtype=BF16)),
        Case.of("variance_rows", "rows.statistics", variance(tensor(9, 100), 1), block=2),
        Case.of("variance_columns", "rows.statistics", variance(tensor(9, 100), 0, keepdims=True), block=48),
        Case.of("shifted_maximum", "rows.statistics", shifted_maximum(9, 100), block=2),
        Case.of("shifted_maximum_of_one", "rows.statistics", shifted_maximum(9, 1), block=2),
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


def slab_cases() -> tuple[Case, ...]:
    """All kernels of this file."""
    return (*statistics_cases(), *indexed_cases(), *turned_cases())


def copy(x: TensorType, out: TensorType | None = None, dtype: DType | None = None) -> PointwiseOp:
    return PointwiseOp(expr=X, inputs=(x,), out_dtype=dtype or x.dtype, out=out)


def turned_cases() -> tuple[Case, ...]:
    """Copies between tensors whose contiguous axes differ: tails, merged axes on both sides, element types."""
    heads = tensor(2, 5, 30, 4, 16, strides=(9600, 16, 320, 80, 1)).permuted((0, 4, 1, 2, 3))
    into = tensor(33, 40, dtype=F64, strides=(41, 1))
    return (
        Case.of("turned", "pointwise.transpose", copy(tensor(70, 90, strides=(1, 71)))),
        Case.of("turned_streaming", "pointwise.transpose", copy(tensor(70, 96, strides=(1, 71))), streaming=1),
        Case.of("turned_images", "pointwise.transpose", copy(tensor(3, 20, 9, 8, strides=(1440, 1, 160, 20)))),
        Case.of("turned_few", "pointwise.transpose", copy(tensor(70, 5, 3, strides=(1, 70, 360)))),
        Case.of("turned_heads", "pointwise.transpose", copy(heads)),
        Case.of("turned_bf16", "pointwise.transpose", copy(tensor(33, 40, dtype=BF16, strides=(1, 33)), dtype=F32)),
        Case.of("turned_halves", "pointwise.transpose", copy(tensor(70, 90, dtype=BF16, strides=(1, 71)))),
        Case.of(
            "turned_few_halves", "pointwise.transpose", copy(tensor(70, 5, 3, dtype=DType.F16, strides=(1, 70, 360)))
        ),
        Case.of("turned_bytes", "pointwise.transpose", copy(tensor(75, 90, dtype=DType.I8, strides=(1, 77)))),
        Case.of("turned_flags", "pointwise.transpose", copy(tensor(2, 11, 40, dtype=DType.BOOL, strides=(440, 1, 11)))),
        Case.of("turned_pixels", "pointwise.transpose", copy(tensor(3, 21, 5, dtype=DType.U8, strides=(1, 15, 3)))),
        Case.of("turned_channels", "pointwise.transpose", copy(tensor(45, 3, dtype=DType.U8, strides=(1, 49)))),
        Case.of("turned_short", "pointwise.transpose", copy(tensor(7, 45, dtype=DType.U8, strides=(1, 9)))),
        Case.of(
            "turned_f64", "pointwise.transpose", copy(tensor(33, 40, dtype=F64, strides=(1, 50)), out=into), block=16
        ),
    )


def indexed_cases() -> tuple[Case, ...]:
    """Cumulative sums along rows, down columns and in the middle; rows by index; the places of the largest."""
    places = tensor(50, dtype=DType.I64)
    narrow = GatherRowsOp(
        table=tensor(120, 13, dtype=BF16, strides=(1, 121)),
        indices=tensor(50, dtype=DType.I32, strides=(2,)),
        out=tensor(50, 13, dtype=BF16, strides=(20, 1)),
    )
    apart = tensor(2, 9, 4, dtype=DType.I64, strides=(2000, 1, 20))
    return (
        Case.of("sums_along_rows", "rows.scan", CumulativeSumOp(x=tensor(40, 101), axis=1), block=17),
        Case.of("sums_down_columns", "rows.scan", CumulativeSumOp(x=tensor(40, 101), axis=0), block=48),
        Case.of("sums_in_the_middle_f64", "rows.scan", CumulativeSumOp(x=tensor(3, 40, 7, dtype=F64), axis=1)),
        Case.of("sums_strided", "rows.scan", CumulativeSumOp(x=tensor(30, 41, strides=(1, 31)), axis=0)),
        Case.of("sums_along_rows_backward", "rows.scan", CumulativeSumOp(x=tensor(40, 101), axis=1, backward=True)),
        Case.of("sums_down_columns_backward", "rows.scan", CumulativeSumOp(x=tensor(40, 101), axis=0, backward=True)),
        Case.of("sums_of_long_rows", "rows.scan", CumulativeSumOp(x=tensor(2, 333), axis=1)),
        Case.of("sums_of_a_long_row_backward", "rows.scan", CumulativeSumOp(x=tensor(333), axis=0, backward=True)),
        Case.of("sums_of_long_rows_f64", "rows.scan", CumulativeSumOp(x=tensor(2, 77, dtype=F64), axis=1)),
        Case.of("sums_across_short_rows", "rows.scan", CumulativeSumOp(x=tensor(7, 9, 3), axis=2)),
        Case.of(
            "sums_across_short_rows_backward", "rows.scan", CumulativeSumOp(x=tensor(70, 2), axis=1, backward=True)
        ),
        Case.of(
            "sums_across_turned_rows", "rows.scan", CumulativeSumOp(x=tensor(5, 20, 4, strides=(4, 20, 1)), axis=2)
        ),
        Case.of("sums_bf16", "rows.scan", CumulativeSumOp(x=tensor(50, dtype=BF16), axis=0)),
        Case.of("rows_of_a_table", "rows.gather", GatherRowsOp(table=tensor(120, 13), indices=places), block=7),
        Case.of("rows_of_a_table_bf16", "rows.gather", narrow),
        *row_sum_cases(),
        *weighted_row_cases(),
        *pairs_cases(),
        Case.of("largest", "rows.largest", LargestOp(x=tensor(9, 100), k=5), block=4),
        Case.of("largest_across", "rows.largest", LargestOp(x=tensor(50, 12), k=3), block=32, across=1),
        Case.of("largest_across_many", "rows.largest", LargestOp(x=tensor(21, 37), k=11), across=1),
        Case.of(
            "smallest_across_turned",
            "rows.largest",
            LargestOp(x=tensor(3, 37, 9, strides=(333, 1, 37)), k=4, smallest=True),
            across=1,
        ),
        Case.of("largest_across_f64", "rows.largest", LargestOp(x=tensor(19, 6, dtype=F64), k=6), across=1),
        Case.of("largest_one_f64", "rows.largest", LargestOp(x=tensor(33, dtype=F64), k=1)),
        Case.of(
            "smallest_bf16", "rows.largest", LargestOp(x=tensor(2, 9, 70, dtype=BF16), k=4, smallest=True, out=apart)
        ),
        *sorted_row_cases(),
    )


def sorted_row_cases() -> tuple[Case, ...]:
    """Rows sorted by counting, by digits of 8 and of 11 bits; first ones of many; keys of all sizes; strides."""
    apart = tensor(2, 300, 9, dtype=DType.I64, strides=(2708, 9, 1)).permuted((0, 2, 1))
    return (
        Case.of("sorted_few", "rows.sorted", LargestOp(x=tensor(9, 37), k=37, smallest=True), block=4),
        Case.of("sorted", "rows.sorted", LargestOp(x=tensor(5, 300), k=300), block=2),
        Case.of("sorted_many", "rows.sorted", LargestOp(x=tensor(2, 2100), k=2100, smallest=True)),
        Case.of("first_of_many", "rows.sorted", LargestOp(x=tensor(2, 3000), k=140)),
        Case.of("first_of_many_f64", "rows.sorted", LargestOp(x=tensor(2500, dtype=F64), k=300, smallest=True)),
        Case.of("sorted_f64", "rows.sorted", LargestOp(x=tensor(3, 201, dtype=F64), k=200)),
        Case.of("sorted_many_f64", "rows.sorted", LargestOp(x=tensor(1500, dtype=F64), k=1500, smallest=True)),
        Case.of(
            "sorted_bf16",
            "rows.sorted",
            LargestOp(x=tensor(2, 9, 300, dtype=BF16, strides=(2700, 1, 9)), k=300, smallest=True, out=apart),
        ),
        Case.of("sorted_f16", "rows.sorted", LargestOp(x=tensor(4, 97, dtype=DType.F16), k=90)),
        Case.of("sorted_i64", "rows.sorted", LargestOp(x=tensor(4, 170, dtype=DType.I64), k=170)),
        Case.of("sorted_i32", "rows.sorted", LargestOp(x=tensor(4, 170, dtype=DType.I32), k=80, smallest=True)),
        Case.of("sorted_i8", "rows.sorted", LargestOp(x=tensor(4, 30, dtype=DType.I8, strides=(1, 5)), k=30)),
        Case.of("sorted_u8", "rows.sorted", LargestOp(x=tensor(2, 1200, dtype=DType.U8), k=1200)),
    )


def row_sum_cases() -> tuple[Case, ...]:
    """Sums of rows by index: blocks of rows and columns, tails of both, long lists, a skipped row."""
    narrow = SumRowsOp(
        x=tensor(300, 13, dtype=BF16, strides=(1, 301)),
        indices=tensor(300, dtype=DType.I32, strides=(2,)),
        rows=50,
        out=tensor(50, 13, dtype=BF16, strides=(20, 1)),
    )
    places = tensor(400, dtype=DType.I64)
    return (
        Case.of(
            "row_sums", "rows.sum_by_index", SumRowsOp(x=tensor(400, 85), indices=places, rows=90), rows=37, columns=32
        ),
        Case.of("row_sums_wide", "rows.sum_by_index", SumRowsOp(x=tensor(400, 600), indices=places, rows=20)),
        Case.of("row_sums_bf16", "rows.sum_by_index", narrow, rows=7),
        Case.of(
            "row_sums_streaming",
            "rows.sum_by_index",
            SumRowsOp(x=tensor(400, 64), indices=places, rows=130, skipped=3),
            streaming=1,
        ),
        Case.of(
            "row_sums_turned_f64",
            "rows.sum_by_index",
            SumRowsOp(
                x=tensor(60, 9, dtype=F64, strides=(1, 61)),
                indices=tensor(60, dtype=DType.I64),
                rows=110,
                out=tensor(110, 9, dtype=F64, strides=(1, 110)),
            ),
            rows=32,
        ),
    )


def weighted_row_cases() -> tuple[Case, ...]:
    """Weighted sums of rows: of several tables, of one row and of many, tails, other strides and types."""
    places = tensor(50, 2, dtype=DType.I64)
    return (
        Case.of(
            "weighted_rows",
            "rows.weighted",
            WeightedRowsOp(table=tensor(3, 40, 85), indices=places, weights=tensor(50, 2)),
            block=7,
        ),
        Case.of(
            "weighted_rows_of_few_columns",
            "rows.weighted",
            WeightedRowsOp(table=tensor(60, 9, 3), indices=places, weights=tensor(50, 2)),
            tasks=0,
        ),
        Case.of(
            "weighted_rows_bf16",
            "rows.weighted",
            WeightedRowsOp(
                table=tensor(1, 120, 13, dtype=BF16, strides=(0, 1, 121)),
                indices=tensor(20, 9, dtype=DType.I32, strides=(1, 20)),
                weights=tensor(20, 9, strides=(1, 30)),
                out=tensor(1, 20, 13, dtype=BF16, strides=(400, 20, 1)),
            ),
        ),
        Case.of(
            "weighted_rows_f64",
            "rows.weighted",
            WeightedRowsOp(
                table=tensor(2, 30, 70, dtype=F64),
                indices=tensor(33, 1, dtype=DType.I64),
                weights=tensor(33, 1),
            ),
        ),
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
        Case.of("rows.scan", "rows.scan", CumulativeSumOp(x=tensor(512, 768), axis=1)),
        Case.of(
            "rows.gather",
            "rows.gather",
            GatherRowsOp(table=tensor(50257, 768), indices=tensor(1024, dtype=DType.I64)),
        ),
        Case.of(
            "rows.sum_by_index",
            "rows.sum_by_index",
            SumRowsOp(x=tensor(4096, 768), indices=tensor(4096, dtype=DType.I64), rows=50257),
        ),
        Case.of(
            "rows.weighted",
            "rows.weighted",
            WeightedRowsOp(table=tensor(1, 56, 3584), indices=tensor(112, 2, dtype=DType.I64), weights=tensor(112, 2)),
        ),
        Case.of("pointwise.transpose", "pointwise.transpose", copy(tensor(768, 512, strides=(1, 768)))),
        *pairs_golden(),
        Case.of("rows.largest", "rows.largest", LargestOp(x=tensor(512, 768), k=8)),
        Case.of("rows.largest_across", "rows.largest", LargestOp(x=tensor(512, 12), k=3)),
        Case.of("rows.sorted", "rows.sorted", LargestOp(x=tensor(512, 768), k=768, smallest=True)),
    )
