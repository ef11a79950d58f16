"""What the distributions draw for the ops of all kernels of ours: tables that hold, and results that are claimed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.gates.planted_ops import COPY, GATHER, GEMM, GROUPED, LARGEST, MAXIMUM, SPARSE, SUM, SUM_ROWS, f32
from tests.kernels.cases import tile_groups, vector_groups

from tracea.core.contract import Accuracy
from tracea.core.dtype import DType
from tracea.core.op import AttentionOp, Conv2dOp, GemmOp, Op, PairSpans, ReduceKind, ReduceOp, SumRowsOp
from tracea.core.ops.attention import SPAN_FIELDS
from tracea.core.tensor_type import TensorType
from tracea.gates import ALL, Bench, Distribution, Poison, build_cases, check_correctness, generate
from tracea.gates.inputs import RULES, has_meaning, operands_that_change_alone
from tracea.semantic.index import Const
from tracea.semantic.nodes_spans import SpanTables, spans_fault
from tracea.semantic.nodes_sparse import Runs, runs_fault


def ops_of_all_kernels() -> dict[str, Op]:
    groups = (*vector_groups(), *tile_groups())
    return {case.name: case.op for group in groups for case in group if case.op.infer().elements > 64}


@pytest.mark.parametrize("distribution", [Distribution.EXTREME, Distribution.OFFSET, Distribution.SPECIAL])
def test_most_of_what_is_drawn_is_claimed(distribution: Distribution, rng: np.random.Generator) -> None:
    """An infinite bound, or a result that is all NaN, would let every kernel pass."""
    empty: list[str] = []
    for name, op in ops_of_all_kernels().items():
        for case in build_cases(op, rng, [distribution]):
            finite = np.isfinite(case.expected)
            seen = np.isfinite(case.bound) & (finite | (case.bound == 0.0))
            if seen.mean() < 0.5 or (distribution is not Distribution.SPECIAL and finite.mean() < 0.5):
                empty.append(f"{name}: claimed {seen.mean():.2f}, finite {finite.mean():.2f}")
    assert not empty, empty


def test_every_op_with_kernels_has_its_row_in_each_distribution_of_some_ops() -> None:
    kinds = {type(op) for op in ops_of_all_kernels().values()}
    for distribution in (Distribution.EXTREME, Distribution.SPECIAL):
        assert kinds <= RULES[distribution].keys()
    assert not has_meaning(GEMM, Distribution.OFFSET)
    assert all(has_meaning(GEMM, kind) for kind in Distribution if kind is not Distribution.OFFSET)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16, DType.BF16])
def test_extreme_products_come_next_to_both_ends(dtype: DType, rng: np.random.Generator) -> None:
    op = GemmOp.of(m=21, n=53, k=100, dtype=dtype)
    (case,) = build_cases(op, rng, [Distribution.EXTREME])
    size = np.abs(case.expected)
    assert dtype.largest / 16 < size.max() < dtype.largest
    assert 0.0 < size.min() < dtype.smallest / dtype.eps
    assert np.isfinite(case.bound).all()


@pytest.mark.parametrize("op", [SUM, MAXIMUM, LARGEST, COPY], ids=lambda op: op.summary)
def test_extreme_slabs_reach_both_ends_of_the_type(op: Op, rng: np.random.Generator) -> None:
    (x,) = generate(op, Distribution.EXTREME, rng)
    size = np.abs(x[x != 0].astype(np.float64))
    assert size.min() < np.finfo(np.float32).tiny
    assert size.max() > np.finfo(np.float32).max / 4096


def test_offset_slabs_lie_on_either_side_and_the_first_against_the_kind(rng: np.random.Generator) -> None:
    for kind, sign in ((ReduceKind.MAX, -1), (ReduceKind.MIN, 1)):
        (x,) = generate(ReduceOp(kind=kind, x=(f32(6, 5, 4),), axes=(1,)), Distribution.OFFSET, rng)
        slabs = np.moveaxis(x, 1, 2).reshape(24, 5)
        assert (np.sign(slabs) == np.resize([sign, -sign], (24, 1))).all()


def test_row_numbers_reach_every_end(rng: np.random.Generator) -> None:
    _, numbers = generate(GATHER, Distribution.NORMAL, rng)
    info = np.iinfo(np.int64)
    assert {0, 999, 1000, -1} <= set(numbers.tolist())
    assert numbers.min() == info.min
    assert numbers.max() > 2**62
    assert ((numbers > 127) & (numbers < 1000)).sum() > 100


def test_rows_of_sums_are_repeated_one_in_order_and_none(rng: np.random.Generator) -> None:
    drawn = {kind: generate(SUM_ROWS, kind, rng)[1] for kind in ALL}
    beyond = drawn[Distribution.NORMAL]
    assert {0, 59, 60, -1, 7} <= set(beyond.tolist())
    assert 0 <= beyond[-1] < 60  # a dropped end shows
    assert np.unique(drawn[Distribution.LARGE]).size == 1
    assert np.unique(drawn[Distribution.INTEGER]).size <= 7
    steps = np.diff(drawn[Distribution.WIDE])
    assert steps.min() == 0 < steps.max()
    assert np.diff(drawn[Distribution.EDGES]).max() == 0
    nothing = SumRowsOp(x=f32(0, 3), indices=TensorType((0,), DType.I32), rows=2)
    assert [generate(nothing, kind, rng)[1].shape for kind in ALL] == [(0,)] * len(ALL)


def test_tables_are_what_the_ops_say(rng: np.random.Generator) -> None:
    for distribution in ALL:
        inputs = generate(SPARSE, distribution, rng)
        runs = Runs(lines=Const(SPARSE.lines), steps=Const(SPARSE.steps), chunk=SPARSE.chunk)
        tables = dict(zip((runs.first, runs.line, runs.step), inputs[2:], strict=True))
        assert runs_fault(runs, tables) == ""
        *_, first, number = generate(GROUPED, distribution, rng)
        assert (first[0], first[-1], int(np.diff(first).min())) == (0, GROUPED.m, 0)
        assert 0 <= number.min() <= number.max() <= GROUPED.groups
    seen: set[int] = set()
    for each in (False, True):
        op = AttentionOp(
            q=f32(2, 3, 50, 8),
            k=f32(2, 3, 40, 8),
            v=f32(2, 3, 40, 8),
            spans=PairSpans(rows=16, room=64, each=each),
        )
        for _ in range(20):
            first, spans = generate(op, Distribution.NORMAL, rng)[-2:]
            described = SpanTables(
                rows=16, queries=Const(50), keys=Const(40), lists=Const(first.size - 1), room=Const(64)
            )
            assert spans_fault(described, {described.first: first, described.spans: spans}) == ""
            seen |= set(np.diff(first).tolist())
        assert spans.size == 64 * SPAN_FIELDS
    assert seen == {0, 1, 2}, "lists of no span, of one, of two"


def test_tables_that_belong_together_change_together() -> None:
    assert operands_that_change_alone(GEMM) == ((0,), (1,))
    assert operands_that_change_alone(SPARSE) == ((0,), (1,), (2, 3, 4))
    assert operands_that_change_alone(GROUPED) == ((0,), (1,), (2, 3))


def test_fresh_buffers_start_elsewhere_each_time_and_beside_each_other(rng: np.random.Generator) -> None:
    bench, (case,) = Bench(GEMM), build_cases(GEMM, rng, [Distribution.NORMAL])
    seen: list[tuple[int, ...]] = []

    def run(inputs, out) -> None:
        seen.append(tuple(array.ctypes.data % 64 for array in (*inputs, out)))
        np.matmul(*inputs, out=out)

    for fresh in (False, *[True] * 40):
        bench.observe(run, case, poison=Poison.NAN, fresh=fresh)
    assert seen[0] == (0, 0, 0)
    for operand in zip(*seen[1:], strict=True):
        assert set(operand) == set(range(0, 64, 4)), "every place in a cache line"
    together = [starts for starts in seen[1:] if len(set(starts)) == 1]
    assert {starts[0] for starts in together} == {8, 16, 32, 48, 60}, "all alike: in 4 bytes, 8, 16 and 32"
    assert len(together) == 12
    assert all(len(set(starts)) == 3 for starts in seen[1:] if starts not in together)
    assert all(before != after for before, after in itertools.pairwise(seen))


@pytest.mark.parametrize("dtype", [DType.F64, DType.F32, DType.BF16])
def test_sixteen_fresh_runs_see_each_operand_all_over_a_line(dtype: DType, rng: np.random.Generator) -> None:
    op = GemmOp.of(m=5, n=6, k=7, dtype=dtype)
    bench, (case,) = Bench(op), build_cases(op, rng, [Distribution.NORMAL])
    seen: list[tuple[int, ...]] = []

    def run(inputs, out) -> None:
        seen.append(tuple(array.ctypes.data % 64 for array in (*inputs, out)))

    for _ in range(16):
        bench.observe(run, case, poison=Poison.NAN, fresh=True)
    for operand in zip(*seen, strict=True):
        if dtype is not DType.BF16:
            assert set(operand) == set(range(0, 64, dtype.nbytes))
        assert {start // 8 for start in operand} == set(range(8))
        assert {start % 8 for start in operand} == set(range(0, 8, dtype.nbytes))


def test_the_cases_of_one_judgement_see_an_output_at_most_places_of_a_line(rng: np.random.Generator) -> None:
    cases = build_cases(GEMM, rng)
    starts: set[int] = set()

    def run(inputs, out) -> None:
        starts.add(out.ctypes.data % 64)
        np.matmul(*inputs, out=out)

    check_correctness(run, Bench(GEMM), cases)
    assert len(starts) >= 11
    assert 60 in starts


@pytest.mark.parametrize(
    ("accuracy", "said"), [("elementwise", "error / bound"), ("normwise", "error / bound, by norm")]
)
def test_a_verdict_says_by_which_contract_errors_were_bound(accuracy: str, said: str, rng: np.random.Generator) -> None:
    op = Conv2dOp.of(channels=2, size=(4, 5), filters=3, kernel=(3, 3), padding=(1, 1), accuracy=Accuracy.of(accuracy))
    cases = build_cases(op, rng, [Distribution.NORMAL])

    def right(inputs: Sequence[NDArray[Any]], out: NDArray[Any]) -> None:
        x, w = (torch.from_numpy(np.ascontiguousarray(array)) for array in inputs)
        out[...] = torch.nn.functional.conv2d(x, w, padding=1).numpy()

    (check,) = (each for each in check_correctness(right, Bench(op), cases) if each.name == "correct on normal")
    assert check.passed
    assert check.detail == said
