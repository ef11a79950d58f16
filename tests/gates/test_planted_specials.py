"""NaN in tails and in company, rows of one number, hidden keys, one part with all rows, exponents next to overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.gates.planted_ops import (
    GEMM,
    LARGEST,
    LAYER_NORM,
    MAXIMUM,
    RIGHT,
    SOFTMAX,
    SUM,
    F,
    Planted,
    as_run,
    f32,
    flushed,
    largest,
    peak_of,
    plant,
    softmax,
)

from tracea.core import reference
from tracea.core.dtype import DType
from tracea.core.expr import Input, exp
from tracea.core.op import (
    AttentionOp,
    BlockSparseOp,
    Epilogue,
    GroupedGemmOp,
    LargestOp,
    Op,
    PointwiseOp,
    ReduceKind,
    Statistic,
    StatisticsOp,
)
from tracea.gates import Distribution, judge

Array = np.ndarray[Any, Any]
Kernel = Callable[[Sequence[Array]], Any]

FIRST = LargestOp(x=f32(32, 60), k=1)
EXP = PointwiseOp(expr=exp(Input(0)), inputs=(f32(32, 100),), out_dtype=DType.F32)
KEYS = f32(1, 2, 64, 16)
ROUTED = GroupedGemmOp.of(m=64, n=40, k=24, groups=4, parts=8)
BLOCKS = BlockSparseOp.of(m=17, n=128, k=128, block=16)
MEANS, PEAKS = (
    StatisticsOp(x=(f32(32, 100),), axes=(1,), statistics=(Statistic(kind, Input(0)),), expr=Input(1), reduced=True)
    for kind in (ReduceKind.MEAN, ReduceKind.MAX)
)
MASKED = AttentionOp(q=f32(1, 2, 9, 16), k=KEYS, v=KEYS, score=Epilogue(Input(0) + Input(1), (f32(1, 2, 9, 64),)))


def last_of_several_nan(x: Array) -> Array:
    places = largest(x)
    several = np.isnan(x).sum(1) > 1
    places[several] = x.shape[1] - 1 - largest(np.ascontiguousarray(x[several, ::-1]))
    return places


def place_of_largest(x: Array) -> Array:
    """NumPy's takes the first of several NaN, as the op does; this one the last."""
    backward = x.shape[1] - 1 - np.argmax(x[:, ::-1], axis=1)
    return np.where(np.isnan(x).any(1), backward, np.argmax(x, axis=1))[:, None]


def of_one_number(x: Array) -> Array:
    return (x == x[:, :1]).all(axis=1, keepdims=True) & np.isfinite(x[:, :1]) & (x[:, :1] != 0)


def without_nan(x: Array) -> Array:
    return np.where(np.isnan(x), F(0), x)


def with_clean(x: Array, *places: Any) -> Array:
    changed = x.copy()
    for place in places:
        changed[place] = without_nan(changed[place])
    return changed


def walked(i: Sequence[Array], *, tile: int, guarded: bool) -> Array:
    """Attention by blocks of keys with a running maximum, of which the first ones may all be hidden."""
    q, k, v, mask = i
    scores = q @ k.swapaxes(-1, -2) / F(4) + mask
    peak = np.full((*scores.shape[:-1], 1), -np.inf, F)
    total, found = np.zeros_like(peak), np.zeros((*scores.shape[:-1], v.shape[-1]), F)
    for first in range(0, scores.shape[-1], tile):
        part = scores[..., first : first + tile]
        higher = np.maximum(peak, part.max(-1, keepdims=True))
        base = np.where(higher == -np.inf, F(0), higher) if guarded else higher
        weights, kept = np.exp(part - base), np.exp(peak - base)
        total = total * kept + weights.sum(-1, keepdims=True)
        found = found * kept + weights @ v[..., first : first + tile, :]
        peak = higher
    nothing = np.isneginf(scores).all(-1, keepdims=True)
    return np.where(nothing, F(0), found / total)


def cut(i: Sequence[Array], most: int) -> Array:
    """A grouped product whose groups have room for so many rows of all their parts."""
    x, weights, first, number = i
    out, used = np.zeros((x.shape[0], weights.shape[2]), F), np.zeros(len(weights), np.int64)
    for begin, end, group in zip(first[:-1], first[1:], number, strict=True):
        if group < len(weights):
            rows = min(int(end - begin), int(most - used[group]))
            used[group] += rows
            out[begin : begin + rows] = x[begin : begin + rows] @ weights[group]
    return out


def listed(i: Sequence[Array], change: Callable[[Array, int, Array], None]) -> Array:
    """A right sparse product, changed by the number of blocks that are listed and of those of each line."""
    found, total = np.array(reference.evaluate(BLOCKS, i, rounded=True)), int(i[2][-1])
    change(found, total, np.bincount(i[3][:total], minlength=BLOCKS.lines))
    return found


def without_many(found: Array, total: int, of_lines: Array) -> None:
    found *= total <= 0.75 * BLOCKS.steps * BLOCKS.lines


def of_nothing(found: Array, total: int, of_lines: Array) -> None:
    found += not total


def empty_lines(found: Array, total: int, of_lines: Array) -> None:
    for line in np.flatnonzero(of_lines == 0) if total else ():
        found[:, line * BLOCKS.block : (line + 1) * BLOCKS.block] = 7


def maximum(x: Array) -> Array:
    return x.max(axis=1)


norm = RIGHT["layer norm"][1]
PLANTED: dict[str, Planted] = {
    "of several nan the last": plant(LARGEST, "correct on special", lambda i: last_of_several_nan(i[0])),
    "place of the last nan": plant(FIRST, "correct on special", lambda i: place_of_largest(i[0])),
    "row of nan is zero": plant(
        SOFTMAX,
        "correct on special",
        lambda i: np.where(np.isnan(i[0]).all(1, keepdims=True), F(0), softmax(i[0], peak_of(i[0]))),
    ),
    "maximum without the first": plant(
        MAXIMUM,
        "correct on special",
        lambda i: np.where(np.isnan(i[0][:, 1:]).any(1), F(np.nan), maximum(with_clean(i[0], np.s_[:, 0]))),
    ),
    "maximum of a tail": plant(
        MAXIMUM, "correct on special", lambda i: np.maximum(maximum(i[0][:, :96]), np.fmax.reduce(i[0][:, 96:], axis=1))
    ),
    "sum of a tail": plant(SUM, "correct on special", lambda i: with_clean(i[0], np.s_[:, 96:]).sum(1)),
    "norm of the last row": plant(LAYER_NORM, "correct on special", lambda i: norm([with_clean(i[0], -1)])),
    "norm of one number": plant(
        LAYER_NORM, "correct on special", lambda i: np.where(of_one_number(i[0]), F(np.nan), norm(i))
    ),
    "softmax of one number": plant(
        SOFTMAX, "correct on special", lambda i: np.where(of_one_number(i[0]), F(0.5), softmax(i[0], peak_of(i[0])))
    ),
    "last steps of the sum": plant(
        GEMM, "correct on nonfinite", lambda i: with_clean(i[0], np.s_[:, 96:]) @ with_clean(i[1], np.s_[96:])
    ),
    "last row of the product": plant(GEMM, "correct on nonfinite", lambda i: with_clean(i[0], -1) @ i[1]),
    "last columns of the product": plant(
        GEMM,
        "correct on nonfinite",
        lambda i: np.concatenate([i[0] @ i[1][:, :48], i[0] @ without_nan(i[1][:, 48:])], axis=1),
    ),
    "first keys are hidden": plant(MASKED, "correct on special", lambda i: walked(i, tile=32, guarded=False)),
    "room for 48 rows of a group": plant(ROUTED, "correct on integer", lambda i: cut(i, 48)),
    "room for 60 rows of a group": plant(ROUTED, "correct on integer", lambda i: cut(i, 60)),
    "room for 63 rows of a group": plant(ROUTED, "correct on large", lambda i: cut(i, 63)),
    "room for most blocks": plant(BLOCKS, "correct on integer", lambda i: listed(i, without_many)),
    "no block at all": plant(BLOCKS, "correct on zero", lambda i: listed(i, of_nothing)),
    "a line without a block": plant(BLOCKS, "correct on normal", lambda i: listed(i, empty_lines)),
    "norm of flushed elements": plant(LAYER_NORM, "correct on extreme", lambda i: norm([flushed(i[0])])),
    "mean of flushed elements": plant(MEANS, "correct on extreme", lambda i: flushed(i[0]).mean(1)),
    "flushed maximum": plant(PEAKS, "correct on extreme", lambda i: flushed(i[0]).max(1)),
    "exp is infinite from 88 on": plant(EXP, "correct on extreme", lambda i: np.exp(np.where(i[0] > 88, np.inf, i[0]))),
    "exp ends at 87": plant(
        EXP, "correct on extreme", lambda i: np.exp(np.where(i[0] < 88.7, np.minimum(i[0], F(87)), i[0]))
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_kernel_is_refused_by_the_check_meant_for_it(name: str, rng: np.random.Generator) -> None:
    planted = PLANTED[name]
    for _ in range(3):
        seed, kind = int(rng.integers(2**32)), Distribution(planted.check.removeprefix("correct on "))
        verdict = judge(as_run(planted.make()), planted.op, subject=name, seed=seed, distributions=[kind])
        assert [failure.name for failure in verdict.failures] == [planted.check], str(verdict)


@pytest.mark.parametrize("op", [GEMM, SOFTMAX], ids=lambda op: op.name)
@pytest.mark.parametrize("place", range(4, 64, 4))
def test_a_kernel_that_is_wrong_at_one_place_of_a_line_is_refused(op: Op, place: int, rng: np.random.Generator) -> None:
    def run(inputs: Sequence[Array], out: Array) -> None:
        if inputs[0].ctypes.data % 64 != place:
            out[...] = inputs[0] @ inputs[1] if op is GEMM else softmax(inputs[0], peak_of(inputs[0]))

    assert not judge(run, op, seed=int(rng.integers(2**32))).passed


@pytest.mark.parametrize("place", [8, 16, 32, 48, 60])
def test_a_product_that_is_wrong_where_both_factors_start_alike_is_refused(
    place: int, rng: np.random.Generator
) -> None:
    def run(inputs: Sequence[Array], out: Array) -> None:
        if any(array.ctypes.data % 64 != place for array in inputs):
            np.matmul(*inputs, out=out)

    assert not judge(run, GEMM, seed=int(rng.integers(2**32))).passed


def test_the_right_kernels_pass(rng: np.random.Generator) -> None:
    right: tuple[tuple[Any, Kernel], ...] = (
        (MASKED, lambda i: walked(i, tile=32, guarded=True)),
        (EXP, lambda i: np.exp(i[0])),
        (FIRST, lambda i: np.argmax(i[0], axis=1)[:, None]),
        (ROUTED, lambda i: cut(i, 64)),
        (MEANS, lambda i: i[0].mean(1)),
        (PEAKS, lambda i: i[0].max(1)),
        (BLOCKS, lambda i: reference.evaluate(BLOCKS, i, rounded=True)),
    )
    for op, kernel in right:
        verdict = judge(as_run(kernel), op, subject=op.summary, seed=int(rng.integers(2**32)))
        assert verdict.passed, str(verdict)
