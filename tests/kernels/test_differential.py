"""Every variant against float64: its own op, other extents, empty ones, and values that are not finite."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.cases import (
    FUSED,
    all_cases,
    gemm_cases,
    resized,
    vector_groups,
)
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.native import Unit, host_isas, run_isas
from tests.kernels.row_cases import norm, row

from tracea.core.dtype import DType
from tracea.core.op import GemmOp, RowKind
from tracea.errors import InvalidDType, InvalidShape, InvalidStride
from tracea.kernels.arguments import arguments
from tracea.semantic.schedule import Schedule

GROUPS = vector_groups()
NAMES = [case.name for case in all_cases()]
GEMM_NAMES = [case.name for case in gemm_cases() if case.name not in ("empty", "packed_batch_columns")]


def compiled(name: str, isa: str) -> tuple[Unit, Case]:
    """Return a case with the unit that holds its kernel; a unit holds a whole group."""
    for group in GROUPS:
        for case in group:
            if case.name == name:
                return unit_of(group, isa), case
    raise AssertionError(name)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", NAMES)
def test_kernel_matches_float64_on_one_thread_and_three(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = compiled(name, isa)
    inputs = random_inputs(case.op, rng)
    for threads in (1, 3):
        check(unit, build(case, isa), case.op, inputs, threads=threads)


def other_extents(case: Case, schedule: Schedule, rng: np.random.Generator) -> GemmOp:
    """Return random extents that the schedule is for: some tiny, some beyond a block, m and n as its guards say."""
    m, n, k = (int(rng.choice([1, 2, int(rng.integers(3, 30)), int(rng.integers(30, 130))])) for _ in range(3))
    if case.variant.startswith(("gemm.direct", "gemm.narrow")):
        m = int(rng.integers(0, 12)) * schedule.integer("mr") + schedule.integer("tail")
    if case.variant.startswith("gemm.narrow"):
        m, n = m if m > 1 else m + schedule.integer("mr"), min(n, schedule.integer("nc"))
    if case.variant.startswith("gemm.stream") and not case.variant.endswith("_turned"):
        m = case.op.m
    if case.variant.endswith("_turned"):
        n = case.op.n
    elif case.name == "dot_rows":
        n = 1
    elif case.op.n != 1:
        n = max(n, 2)
    return resized(case.op, max(m, 2) if case.op.infer().layout else m, n, k)


@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", GEMM_NAMES)
def test_gemm_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = compiled(name, isa)
    for _ in range(12):
        op = other_extents(case, build(case, isa).kernel.schedule, rng)
        check(unit, build(case, isa), op, random_inputs(op, rng), threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", ["packed_rows", "packed_columns", "packed_bf16", "prepacked_rows", "dot_columns"])
@pytest.mark.parametrize(("m", "n"), [(0, 70), (33, 0), (0, 0)])
def test_gemm_without_rows_or_columns_writes_nothing(
    name: str, isa: str, m: int, n: int, rng: np.random.Generator
) -> None:
    unit, case = compiled(name, isa)
    op = resized(case.op, m, n, case.op.k)
    assert run(unit, build(case, isa), op, random_inputs(op, rng), threads=2).shape == (m, n)


@pytest.mark.parametrize("isa", run_isas())
def test_empty_sum_is_the_epilogue_of_zero(isa: str, rng: np.random.Generator) -> None:
    unit, case = compiled("empty", isa)
    for m, n in ((33, 70), (1, 5), (0, 3)):
        op = resized(case.op, m, n, 0)
        check(unit, build(case, isa), op, random_inputs(op, rng), threads=2)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize(
    "name",
    [
        *("packed_default_tile", "packed_bf16", "prepacked_rows", "direct_columns"),
        *("stream", "stream_split", "stream_turned", "stream_split_turned", "dot_turned", "direct_turned"),
        *("narrow", "narrow_blocks", "narrow_prepacked"),
    ],
)
def test_nan_and_infinity_reach_exactly_the_results_that_depend_on_them(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    unit, case = compiled(name, isa)
    inputs = random_inputs(case.op, rng)
    inputs[0][-1, 3] = np.nan
    inputs[0][0, 0] = np.inf
    inputs[1][5, -1] = -np.inf
    check(unit, build(case, isa), case.op, inputs, threads=2)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm_bf16", "max_rows", "mean_columns"])
def test_rows_with_nan_or_infinity_stay_apart_from_the_others(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = compiled(name, isa)
    inputs = random_inputs(case.op, rng)
    inputs[0][1, 7] = np.nan
    inputs[0][2, 99] = np.inf
    inputs[0][3, :] = -np.inf
    inputs[0][4, 0] = -np.inf
    check(unit, build(case, isa), case.op, inputs, threads=2)


@pytest.mark.parametrize("isa", run_isas()[:2])
def test_rows_of_every_length_around_a_vector(isa: str, rng: np.random.Generator) -> None:
    for name, make in (
        ("softmax", lambda r, c: row(RowKind.SOFTMAX, (r, c))),
        ("layer_norm", lambda r, c: norm((r, c))),
    ):
        unit, case = compiled(name, isa)
        for columns in (2, 3, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 127, 129, 1000):
            op = make(int(rng.integers(2, 12)), columns)
            check(unit, build(case, isa), op, random_inputs(op, rng), threads=2)


@pytest.mark.parametrize("isa", host_isas()[:1])
def test_result_has_the_same_bits_for_a_fixed_team_and_for_any_order_of_tasks(
    isa: str, rng: np.random.Generator
) -> None:
    for name in ("packed_rows", "packed_columns", "direct_columns", "stream", "softmax"):
        unit, case = compiled(name, isa)
        inputs = random_inputs(case.op, rng)
        first = run(unit, build(case, isa), case.op, inputs, threads=1)
        for threads in (1, 2, 3, 3, 5):
            again = run(unit, build(case, isa), case.op, inputs, threads=threads)
            assert first.tobytes() == again.tobytes(), (name, threads)


@pytest.mark.parametrize("isa", host_isas()[:1])
def test_result_has_the_same_bits_whichever_way_the_tasks_are_walked(isa: str, rng: np.random.Generator) -> None:
    for name in ("stream", "stream_split", "layer_norm_fixed", "gelu_bias_residual_fixed"):
        unit, case = compiled(name, isa)
        inputs = random_inputs(case.op, rng)
        for threads in (1, 2, 3):
            there = run(unit, build(case, isa), case.op, inputs, threads=threads)
            back = run(unit, build(case, isa), case.op, inputs, threads=threads, backward=True)
            assert there.tobytes() == back.tobytes(), (name, threads)


def test_binding_refuses_another_layout_another_extent_and_a_false_guard() -> None:
    _, case = compiled("packed_rows", host_isas()[0])
    kernel = build(case, host_isas()[0]).kernel
    transposed = GemmOp.of(m=33, n=70, k=40, transpose_b=True, **FUSED)
    with pytest.raises(InvalidStride):
        arguments(kernel, transposed)
    with pytest.raises(InvalidDType):
        arguments(kernel, GemmOp.of(m=33, n=70, k=40, dtype=DType.BF16, **FUSED))
    direct = build(compiled("direct_columns", host_isas()[0])[1], host_isas()[0]).kernel
    with pytest.raises(InvalidShape, match="m % 4"):
        arguments(direct, resized(case.op, 34, 70, 40))
