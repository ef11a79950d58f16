"""Wrong kernels of every op in NumPy, each with the check meant for it, beside the right one that it comes from.

What the native catalogue (planted.py) shows of a product, this one shows of what a distribution means for an op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.gates.planted_parts import (
    Array,
    F,
    attended,
    finite_within,
    flushed,
    gathered,
    grouped,
    normed,
    peak_of,
    product_of_steps,
    read,
    rows,
    softmax,
    squares,
    variance_of_squares,
    weighted,
)

from tracea.core import reference
from tracea.core.dtype import DType
from tracea.core.expr import Input
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
    LargestOp,
    LowRankOp,
    MomentsOp,
    NormGradientOp,
    Op,
    PairsOp,
    PointwiseOp,
    Pool2dOp,
    PoolKind,
    ReduceKind,
    ReduceOp,
    RowKind,
    RowOp,
    Statistic,
    StatisticsOp,
    SumRowsOp,
    WeightedRowsOp,
)
from tracea.core.tensor_type import TensorType
from tracea.gates import Run


def f32(*shape: int) -> TensorType:
    return TensorType(shape, DType.F32)


GEMM = GemmOp.of(m=21, n=53, k=100)
BIASED = GemmOp.of(m=21, n=7, k=100, bias=True)
SQUARE = GemmOp.of(m=48, n=48, k=48)
CONV = Conv2dOp.of(channels=6, size=(9, 8), filters=10, kernel=(3, 3), padding=(1, 1))
LOW_RANK = LowRankOp.of(m=21, n=33, k=40, r=8)
SPARSE = BlockSparseOp.of(m=17, n=48, k=48, block=16)
GROUPED = GroupedGemmOp.of(m=30, n=40, k=24, groups=3, parts=6)
ATTENTION = AttentionOp(q=f32(1, 2, 9, 16), k=f32(1, 2, 20, 16), v=f32(1, 2, 20, 16))
ATTENTION_GRADIENT = AttentionGradientOp(forward=ATTENTION, grad=f32(1, 2, 9, 16), y=f32(1, 2, 9, 16))
SOFTMAX = RowOp(kind=RowKind.SOFTMAX, x=(f32(32, 100),))
LOG_SOFTMAX = RowOp(kind=RowKind.LOG_SOFTMAX, x=(f32(32, 100),))
LAYER_NORM = RowOp(kind=RowKind.LAYER_NORM, x=(f32(32, 100),), eps=1e-5)
RMS_NORM = RowOp(kind=RowKind.RMS_NORM, x=(f32(32, 100),), eps=1e-6)
AWAY = Input(0) - Input(1)
MEAN = Statistic(ReduceKind.MEAN, Input(0))
NORM_GRADIENT = NormGradientOp(kind=RowKind.LAYER_NORM, grad=f32(32, 100), x=f32(32, 100), weight=f32(100), eps=1e-5)
MOMENTS = MomentsOp(x=f32(1, 100, 32), about=f32(1, 1, 32), grad=f32(1, 100, 32))
VARIANCE = StatisticsOp(
    x=(f32(32, 100),),
    axes=(1,),
    statistics=(MEAN, Statistic(ReduceKind.MEAN, AWAY * AWAY)),
    expr=Input(2),
    reduced=True,
)
MAXIMUM = ReduceOp(kind=ReduceKind.MAX, x=(f32(32, 100),), axes=(1,))
MINIMUM = ReduceOp(kind=ReduceKind.MIN, x=(f32(32, 100),), axes=(1,))
SUM = ReduceOp(kind=ReduceKind.SUM, x=(f32(32, 100),), axes=(1,))
RUNNING = CumulativeSumOp(x=f32(32, 100), axis=1)
LARGEST = LargestOp(x=f32(32, 60), k=5)
POOL = Pool2dOp(kind=PoolKind.MAX, x=f32(2, 8, 9, 8), kernel=(3, 3), stride=(2, 2), padding=(1, 1))
GRID = AdaptivePool2dOp(kind=PoolKind.MAX, x=f32(2, 8, 9, 8), size=(4, 3))
COPY = PointwiseOp(expr=Input(0), inputs=(f32(32, 100),), out_dtype=DType.F32)
PAIRS = PairsOp(
    first=Input(0) * Input(2) - Input(1) * Input(3),
    second=Input(0) * Input(3) + Input(1) * Input(2),
    inputs=(f32(32, 51),) * 4,
    out_dtype=DType.F32,
)
SUM_ROWS = SumRowsOp(x=f32(200, 16), indices=TensorType((200,), DType.I64), rows=60, skipped=7)
WEIGHTED = WeightedRowsOp(table=f32(2, 100, 16), indices=TensorType((70, 3), DType.I64), weights=f32(70, 3))
GATHER = GatherRowsOp(table=f32(1000, 16), indices=TensorType((200,), DType.I64))

Kernel = Callable[[Sequence[Array]], Any]


def summed(x: Array, places: Array, skipped: int | None = 7, begin: Array | None = None) -> Array:
    out = np.zeros((SUM_ROWS.rows, x.shape[1]), F) if begin is None else begin
    known = (places >= 0) & (places < SUM_ROWS.rows) & (places != skipped)
    np.add.at(out, places[known], x[known])
    return out


def overwritten(x: Array, places: Array) -> Array:
    out, known = np.zeros((SUM_ROWS.rows, x.shape[1]), F), (places >= 0) & (places < SUM_ROWS.rows) & (places != 7)
    out[places[known]] = x[known]
    return out


def rows_left_from_the_call_before() -> Kernel:
    kept = np.zeros(SUM_ROWS.infer().static_shape, F)
    return lambda i: summed(i[0], i[1], begin=kept)


def largest(x: Array) -> Array:
    key = np.where(np.isnan(x), -np.inf, -x.astype(np.float64))
    nan_first = np.lexsort((np.broadcast_to(np.arange(x.shape[1]), x.shape), key, ~np.isnan(x)))
    return nan_first[:, : LARGEST.k]


def turned(inputs: Sequence[Array]) -> Array:
    a, b, c, d = inputs
    return np.stack((a * c - b * d, a * d + b * c), axis=-1).reshape(len(a), -1)


def turned_places(inputs: Sequence[Array]) -> Array:
    return np.arange(2 * inputs[0].shape[1])


def by_reference(op: Op) -> Kernel:
    """The meaning itself, rounded once: what a right kernel of any structure may give."""
    return lambda inputs: reference.evaluate(op, inputs, rounded=True)


def softmax_row_of_nothing(inputs: Sequence[Array]) -> Array:
    x = inputs[0]
    peak = peak_of(x)
    e = np.exp(x - np.where(peak == -np.inf, F(0), peak))
    total = rows(e, np.sum)
    return np.where(total == 0, F(0), e / total)


def running_with_clamp(inputs: Sequence[Array]) -> Array:
    return finite_within(np.cumsum(inputs[0], axis=1, dtype=F), 1e6)


def second_kept_while_first_is_the_same() -> Kernel:
    kept: dict[str, Any] = {}

    def run(inputs: Sequence[Array]) -> Array:
        key = inputs[0].tobytes()
        if kept.get("key") != key:
            kept.update(key=key, b=inputs[1].copy())
        return inputs[0] @ kept["b"]

    return run


def known_by_its_beginning() -> Kernel:
    kept: dict[str, Any] = {}

    def run(inputs: Sequence[Array]) -> Array:
        key = inputs[0].tobytes()[:64]
        if kept.get("key") != key:
            kept.update(key=key, result=inputs[0] @ inputs[1])
        return kept["result"]

    return run


def third_alignment(inputs: Sequence[Array]) -> Array:
    result = inputs[0] @ inputs[1]
    if inputs[0].ctypes.data % 64 not in (0, 4):
        result[0, 0] += 1
    return result


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A wrong kernel of an op and the check that must fail; ``make`` gives it a memory of its own."""

    op: Op
    check: str
    make: Callable[[], Kernel]


def plant(op: Op, check: str, kernel: Kernel) -> Planted:
    return Planted(op=op, check=check, make=lambda: kernel)


PLANTED: dict[str, Planted] = {
    # About a mean far from zero.
    "variance_of_squares": plant(VARIANCE, "correct on offset", lambda i: variance_of_squares(i[0])[:, 0]),
    "layer_norm_of_squares": plant(
        LAYER_NORM, "correct on offset", lambda i: normed(i[0] - rows(i[0], np.mean), variance_of_squares(i[0]), 1e-5)
    ),
    "rms_norm_saturates": plant(RMS_NORM, "correct on offset", lambda i: normed(i[0], squares(i[0]), 1e-6)),
    "softmax_without_maximum": plant(SOFTMAX, "correct on offset", lambda i: softmax(i[0], F(0))),
    "softmax_maximum_from_zero": plant(
        SOFTMAX, "correct on offset", lambda i: softmax(i[0], np.maximum(peak_of(i[0]), F(0)))
    ),
    "softmax_maximum_clamped": plant(
        SOFTMAX, "correct on offset", lambda i: softmax(i[0], np.minimum(peak_of(i[0]), F(80)))
    ),
    "log_softmax_maximum_from_zero": plant(
        LOG_SOFTMAX, "correct on offset", lambda i: softmax(i[0], np.maximum(peak_of(i[0]), F(0)), log=True)
    ),
    "attention_maximum_from_zero": plant(ATTENTION, "correct on offset", lambda i: attended(i[0], i[1], i[2], 0.0)),
    "maximum_from_zero": plant(MAXIMUM, "correct on offset", lambda i: np.maximum(i[0].max(1), F(0))),
    "maximum_from_minus_1000": plant(MAXIMUM, "correct on offset", lambda i: np.maximum(i[0].max(1), F(-1000))),
    "minimum_from_zero": plant(MINIMUM, "correct on offset", lambda i: np.minimum(i[0].min(1), F(0))),
    "pool_pads_with_zero": plant(
        POOL, "correct on offset", lambda i: np.maximum(reference.evaluate(POOL, i, rounded=True), 0.0)
    ),
    "grid_from_zero": plant(
        GRID, "correct on offset", lambda i: np.maximum(reference.evaluate(GRID, i, rounded=True), 0.0)
    ),
    # Next to the ends of the type.
    "sum_clamped": plant(SUM, "correct on extreme", lambda i: finite_within(i[0].sum(1), 1e6)),
    "running_sum_clamped": plant(RUNNING, "correct on extreme", running_with_clamp),
    "copy_clamped": plant(COPY, "correct on extreme", lambda i: finite_within(i[0], 1e6)),
    "copy_flushes": plant(COPY, "correct on extreme", lambda i: flushed(i[0])),
    "maximum_flushes": plant(MAXIMUM, "correct on extreme", lambda i: flushed(i[0]).max(1)),
    "product_clamped": plant(GEMM, "correct on extreme", lambda i: finite_within(i[0] @ i[1], 1e36)),
    "product_scaled_on_its_way": plant(GEMM, "correct on extreme", lambda i: i[0] @ (i[1] * F(1e4)) * F(1e-4)),
    "subnormal_results_flushed": plant(GEMM, "correct on extreme", lambda i: flushed(i[0] @ i[1])),
    "subnormals_of_the_second_flushed": plant(GEMM, "correct on denormal", lambda i: i[0] @ flushed(i[1])),
    "convolution_clamped": plant(
        CONV, "correct on extreme", lambda i: finite_within(reference.evaluate(CONV, i), 1e30)
    ),
    "convolution_flushes": plant(CONV, "correct on extreme", lambda i: flushed(reference.evaluate(CONV, i))),
    "low_rank_clamps_between": plant(LOW_RANK, "correct on extreme", lambda i: finite_within(i[0] @ i[1], 1e30) @ i[2]),
    "attention_clamps_values": plant(
        ATTENTION, "correct on extreme", lambda i: attended(i[0], i[1], finite_within(i[2], 1e30), -np.inf)
    ),
    # Infinities, zeros that face them, NaN in few elements.
    "row_of_nothing_is_zero": plant(SOFTMAX, "correct on special", softmax_row_of_nothing),
    "maximum_from_lowest": plant(MAXIMUM, "correct on special", lambda i: np.maximum(i[0].max(1), np.finfo(F).min)),
    "infinity_is_largest": plant(
        LARGEST, "correct on special", lambda i: largest(np.where(i[0] == np.inf, np.finfo(F).max, i[0]))
    ),
    "last_of_equals": plant(
        LARGEST, "correct on special", lambda i: i[0].shape[1] - 1 - largest(np.ascontiguousarray(i[0][:, ::-1]))
    ),
    "zeros_skipped": plant(GEMM, "correct on special", lambda i: product_of_steps(i[0], i[1], True)),
    "blocks_unlisted_are_read": plant(SPARSE, "correct on normal", lambda i: i[0] @ i[1]),
    "rows_of_no_group_take_the_last": plant(GROUPED, "correct on normal", lambda i: grouped(i, none=2)),
    "groups_one_further": plant(GROUPED, "correct on normal", lambda i: grouped(i, further=1)),
    "last_row_of_each_part_left_out": plant(GROUPED, "correct on normal", lambda i: grouped(i, left_out=1)),
    "few_nan_swallowed": plant(
        BIASED, "correct on special", lambda i: i[0] @ i[1] + np.nan_to_num(i[2], nan=0.0, posinf=0.0, neginf=0.0)
    ),
    # Row numbers.
    "row_numbers_of_8_bits": plant(
        GATHER, "correct on normal", lambda i: gathered(i[0], i[1].astype(np.int8).astype(np.int64), 1000)
    ),
    "row_numbers_of_32_bits": plant(
        GATHER, "correct on normal", lambda i: gathered(i[0], i[1].astype(np.int32).astype(np.int64), 1000)
    ),
    "row_numbers_clamped": plant(GATHER, "correct on normal", lambda i: read(i[0], np.minimum(i[1], 999), i[1] < 0)),
    "row_numbers_from_behind": plant(
        GATHER, "correct on normal", lambda i: gathered(i[0], np.where(i[1] == -1, 999, i[1]), 1000)
    ),
    "last_row_is_missing": plant(GATHER, "correct on normal", lambda i: gathered(i[0], i[1], 999)),
    "last_index_is_dropped": plant(SUM_ROWS, "correct on normal", lambda i: summed(i[0][:-1], i[1][:-1])),
    "rows_overwritten_not_added": plant(SUM_ROWS, "correct on integer", lambda i: overwritten(*i)),
    "rows_are_not_zeroed": Planted(op=SUM_ROWS, check="correct on integer", make=rows_left_from_the_call_before),
    "skipped_row_is_summed": plant(SUM_ROWS, "correct on normal", lambda i: summed(*i, skipped=None)),
    "sums_of_row_numbers_of_32_bits": plant(
        SUM_ROWS, "correct on normal", lambda i: summed(i[0], i[1].astype(np.int32).astype(np.int64))
    ),
    "sums_of_row_numbers_from_behind": plant(
        SUM_ROWS, "correct on normal", lambda i: summed(i[0], np.where(i[1] == -1, 59, i[1]))
    ),
    "sums_of_rows_clamped": plant(SUM_ROWS, "correct on extreme", lambda i: finite_within(summed(*i), 1e6)),
    # Two results a place.
    "parts_exchanged": plant(PAIRS, "correct on normal", lambda i: turned(i)[:, turned_places(i) ^ 1]),
    "conjugated": plant(PAIRS, "correct on normal", lambda i: turned((i[0], i[1], i[2], -i[3]))),
    "halves_side_by_side": plant(
        PAIRS, "correct on normal", lambda i: np.hstack((turned(i)[:, ::2], turned(i)[:, 1::2]))
    ),
    "last_pair_is_missing": plant(PAIRS, "correct on normal", lambda i: turned(i) * (turned_places(i) < 100)),
    "parts_clamped": plant(PAIRS, "correct on extreme", lambda i: finite_within(turned(i), 1e6)),
    "last_weight_is_dropped": plant(WEIGHTED, "correct on normal", lambda i: weighted(i[0], i[1][:, :2], i[2][:, :2])),
    "weights_are_one": plant(WEIGHTED, "correct on normal", lambda i: weighted(i[0], i[1], np.ones_like(i[2]))),
    "weights_of_another_sum": plant(WEIGHTED, "correct on normal", lambda i: weighted(i[0], i[1], i[2][::-1])),
    "first_table_for_all": plant(WEIGHTED, "correct on normal", lambda i: weighted(i[0][:1].repeat(2, 0), *i[1:])),
    "weighted_row_numbers_of_32_bits": plant(
        WEIGHTED, "correct on normal", lambda i: weighted(i[0], i[1].astype(np.int32).astype(np.int64), i[2])
    ),
    "weighted_row_numbers_clamped": plant(
        WEIGHTED, "correct on normal", lambda i: weighted(i[0], np.clip(i[1], 0, 99), i[2])
    ),
    "last_weighted_row_is_missing": plant(WEIGHTED, "correct on normal", lambda i: weighted(*i, last=99)),
    "weighted_sums_clamped": plant(WEIGHTED, "correct on extreme", lambda i: finite_within(weighted(*i), 1e6)),
    # One operand alone, one alignment alone.
    "second_kept_while_first_is_the_same": Planted(
        op=SQUARE, check="follows each operand", make=second_kept_while_first_is_the_same
    ),
    "known_by_its_beginning": Planted(op=SQUARE, check="follows each operand", make=known_by_its_beginning),
    "third_alignment": plant(GEMM, "correct on integer", third_alignment),
}

RIGHT: dict[str, tuple[Op, Kernel]] = {
    "product": (GEMM, lambda i: product_of_steps(i[0], i[1], False)),
    "square product": (SQUARE, lambda i: i[0] @ i[1]),
    "product with a bias": (BIASED, lambda i: i[0] @ i[1] + i[2]),
    "low rank": (LOW_RANK, lambda i: (i[0] @ i[1]) @ i[2]),
    "sparse product": (SPARSE, by_reference(SPARSE)),
    "grouped product": (GROUPED, grouped),
    "convolution": (CONV, by_reference(CONV)),
    "attention": (ATTENTION, lambda i: attended(i[0], i[1], i[2], -np.inf)),
    "attention's gradient": (ATTENTION_GRADIENT, by_reference(ATTENTION_GRADIENT)),
    "columns' moments": (MOMENTS, by_reference(MOMENTS)),
    "norm's gradients": (NORM_GRADIENT, by_reference(NORM_GRADIENT)),
    "softmax": (SOFTMAX, lambda i: softmax(i[0], peak_of(i[0]))),
    "log softmax": (LOG_SOFTMAX, lambda i: softmax(i[0], peak_of(i[0]), log=True)),
    "rms norm": (RMS_NORM, lambda i: normed(i[0], rows(i[0] * i[0], np.mean), 1e-6)),
    "layer norm": (LAYER_NORM, lambda i: _layer_norm(i[0])),
    "variance": (VARIANCE, lambda i: i[0].var(axis=1)),
    "maximum": (MAXIMUM, lambda i: i[0].max(1)),
    "minimum": (MINIMUM, lambda i: i[0].min(1)),
    "sum": (SUM, lambda i: i[0].sum(1)),
    "running sum": (RUNNING, lambda i: np.cumsum(i[0], axis=1, dtype=F)),
    "largest": (LARGEST, lambda i: largest(i[0])),
    "pool": (POOL, by_reference(POOL)),
    "grid": (GRID, by_reference(GRID)),
    "copy": (COPY, lambda i: i[0]),
    "pairs": (PAIRS, turned),
    "sums of rows": (SUM_ROWS, lambda i: summed(*i)),
    "weighted rows": (WEIGHTED, lambda i: weighted(*i)),
    "rows of a table": (GATHER, lambda i: gathered(i[0], i[1], 1000)),
}


def as_run(kernel: Kernel) -> Run:
    """Return a kernel as the gates run one."""

    def run(inputs: Sequence[Array], out: Array) -> None:
        out[...] = kernel(inputs)

    return run


def _layer_norm(x: Array) -> Array:
    away = x - rows(x, np.mean)
    return normed(away, rows(away * away, np.mean), 1e-5)
