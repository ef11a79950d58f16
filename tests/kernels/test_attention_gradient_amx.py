"""Gradients of attention on matrix tiles against float64: any extents, extremes, what terms do not hold; mistakes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.attention_cases import (
    NEVER,
    attention,
    gradient,
    gradient_tile_cases,
    random_attention,
    random_case,
)
from tests.kernels.conformance import build, check, random_inputs, run, unit_of
from tests.kernels.on_tiles import on_both
from tests.kernels.planted import assert_refused, changed
from tests.kernels.test_attention_amx import narrowed, reading
from tests.kernels.test_attention_gradient import MISTAKES, moved, pack, with_results

from tracea.core.dtype import DType
from tracea.core.op import AttentionGradientOp
from tracea.core.tensor_type import TensorType
from tracea.emitters.cpu.emitter import emit
from tracea.errors import EmitError, InvalidSchedule
from tracea.kernels.registry import candidates, find
from tracea.semantic.nodes import Pack
from tracea.semantic.nodes_attention_gradient import AttentionDeltas, AttentionGradient, AttentionPeaks
from tracea.semantic.proofs import prove
from tracea.targets import load

CASES = {case.name: case for case in gradient_tile_cases()}
NAME = "attention.gradient_amx"


@on_both
@pytest.mark.parametrize("name", CASES)
def test_kernel_matches_float64_on_one_thread_and_three(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = unit_of(gradient_tile_cases(), isa), CASES[name]
    for threads in (1, 3):
        inputs = with_results(case.op, random_inputs(case.op, rng))
        check(unit, build(case, isa), case.op, inputs, threads=threads)


@pytest.mark.costly
@on_both
@pytest.mark.parametrize("name", ["amx_gradient_panels", "amx_gradient_causal_window", "amx_gradient_far_window"])
def test_gradients_built_once_serve_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, built, forward = unit_of(gradient_tile_cases(), isa), build(CASES[name], isa), CASES[name].op.forward
    for _ in range(6):
        batch, kv_heads, sharing = (int(value) for value in rng.integers(1, 4, 3))
        s, t, d, dv = (int(value) for value in rng.integers((0, 0, 1, 1), (280, 280, 80, 80)))
        mask = {"causal": forward.causal, "window": forward.window, "scale": forward.softmax_scale}
        op = gradient(attention(batch, kv_heads * sharing, kv_heads, s, t, d, dv, **mask))
        check(unit, built, op, with_results(op, random_inputs(op, rng)), threads=int(rng.integers(1, 4)))


@pytest.mark.costly
@on_both
def test_random_problems_and_schedules_of_the_space(isa: str, rng: np.random.Generator) -> None:
    cases = [random_case(number, gradient(random_attention(number, rng)), NAME, rng) for number in range(6)]
    unit = unit_of(tuple(cases), isa)
    for case in cases:
        inputs = with_results(case.op, random_inputs(case.op, rng))
        check(unit, build(case, isa), case.op, inputs, threads=int(rng.integers(1, 4)))


@on_both
def test_what_sees_nothing_and_what_is_not_seen_have_zero_gradients(isa: str, rng: np.random.Generator) -> None:
    unit = unit_of(gradient_tile_cases(), isa)
    for name, hides in (("amx_gradient_far_window", False), ("amx_gradient_allowed", True)):
        op = CASES[name].op
        assert isinstance(op, AttentionGradientOp)
        inputs = random_inputs(op, rng)
        if hides:
            inputs[-1][...] = True
            inputs[-1][5], inputs[-1][:, 3] = False, False
        got = run(unit, build(CASES[name], isa), op, inputs)
        dq, dk, dv = (
            got[first : first + np.prod(shape, dtype=int)].reshape(shape)
            for first, shape in zip(op.offsets, op.parts, strict=True)
        )
        assert all(np.isfinite(part).all() for part in (dq, dk, dv))
        assert (dq[:, :, 5 if hides else slice(50, None)] == 0).all()
        assert not hides or all((part[:, :, 3] == 0).all() for part in (dk, dv))
        assert (dq[:, :, 6:28] != 0).any()


@on_both
@pytest.mark.parametrize("size", [1e4, 1e9, 1e30])
def test_extreme_scores_choose_the_largest(isa: str, size: float, rng: np.random.Generator) -> None:
    unit, name = unit_of(gradient_tile_cases(), isa), "amx_gradient_added"
    inputs = random_inputs(CASES[name].op, rng)
    inputs[-1] = np.where(rng.random(inputs[-1].shape) < 0.5, -size, size).astype(np.float32)
    inputs[-1][3], inputs[-1][4] = NEVER, -size
    check(unit, build(CASES[name], isa), CASES[name].op, with_results(CASES[name].op, inputs), threads=2)


@on_both
@pytest.mark.parametrize(
    ("far", "size"), [(20.0, 1.0), (20.0, 1e-9), (20.0, 1e-25), (60.0, 1.0), (60.0, 1e-9), (75.0, 1.0), (85.0, 1.0)]
)
def test_weights_and_slopes_below_their_terms_keep_the_bound(
    isa: str, far: float, size: float, rng: np.random.Generator
) -> None:
    """Whole blocks of weights of e^-far, whose slopes terms do not hold, where the gradient is small or is not."""
    unit, name = unit_of(gradient_tile_cases(), isa), "amx_gradient_added"
    inputs = random_inputs(CASES[name].op, rng)
    inputs[-1] = rng.uniform(-1.0, 1.0, inputs[-1].shape).astype(np.float32)
    inputs[-1][:, 4:] -= np.float32(far)
    inputs[0] = (inputs[0] * size).astype(np.float32)
    check(unit, build(CASES[name], isa), CASES[name].op, with_results(CASES[name].op, inputs), threads=2)


@on_both
@pytest.mark.parametrize("name", ["amx_gradient_causal", "amx_gradient_bf16"])
@pytest.mark.parametrize("size", [1e-39, 1e-20, 1e18])
def test_operands_beyond_the_range_of_terms_are_multiplied_in_float(
    isa: str, size: float, name: str, rng: np.random.Generator
) -> None:
    unit, op = unit_of(gradient_tile_cases(), isa), CASES[name].op
    for operand in (0, 2, 3, 4):
        inputs = random_inputs(op, rng)
        scaled = np.where(rng.random(inputs[operand].shape) < 0.02, np.float32(size), np.float32(1.0))
        inputs[operand] = (inputs[operand] * scaled).astype(inputs[operand].dtype)
        check(unit, build(CASES[name], isa), op, with_results(op, inputs), threads=2)


@on_both
def test_nan_and_infinity_reach_only_what_sees_them(isa: str, rng: np.random.Generator) -> None:
    """A query that is not finite reaches its own gradient and those of the keys that it sees; no other query's."""
    unit, name = unit_of(gradient_tile_cases(), isa), "amx_gradient_causal"
    op = CASES[name].op
    assert isinstance(op, AttentionGradientOp)
    for value in (np.nan, np.inf):
        inputs = with_results(op, random_inputs(op, rng))
        inputs[2][1, 2, 70, 3] = value  # y is that of another query, and finite
        got = run(unit, build(CASES[name], isa), op, inputs)
        dq, dk, _ = (
            got[first : first + np.prod(shape, dtype=int)].reshape(shape)
            for first, shape in zip(op.offsets, op.parts, strict=True)
        )
        others = np.ones(dq.shape[:3], dtype=bool)
        others[1, 2, 70] = False
        assert np.isfinite(dq[others]).all()
        assert np.isnan(dq[1, 2, 70]).all()
        assert np.isfinite(dk[0]).all()
        assert np.isfinite(np.delete(dk[1, 1, 71:], 3, axis=-1)).all()  # zero times what is not finite may be NaN
        assert np.isnan(dk[1, 1, :71, 0]).all()


@on_both
def test_the_team_changes_no_bit(isa: str, rng: np.random.Generator) -> None:
    unit = unit_of(gradient_tile_cases(), isa)
    for name in ("amx_gradient_causal", "amx_gradient_panels"):
        inputs = random_inputs(CASES[name].op, rng)
        first = run(unit, build(CASES[name], isa), CASES[name].op, inputs)
        for threads in (1, 2, 3, 5):
            again = run(unit, build(CASES[name], isa), CASES[name].op, inputs, threads=threads)
            assert first.tobytes() == again.tobytes()


def of_terms(field: str, change: Any) -> tuple[type, Any]:
    """Return a mistake in what gradients on tiles have beside."""
    return AttentionGradient, lambda n: replace(n, terms=replace(n.terms, **{field: change(n.terms)}))


PACKED = {
    "one term": (Pack, pack("query_rows", lambda n: replace(n, terms=1, granule=1))),
    "the other factor": (Pack, pack("grad_panels", lambda n: replace(n, turned=not n.turned))),
    "columns as the other factor": (Pack, pack("key_columns", lambda n: replace(n, turned=False))),
    "columns of other keys": (Pack, pack("key_columns", moved("source"))),
    "columns of another head": (Pack, pack("key_columns", moved("source", 1))),
    "gradients of other queries": (Pack, pack("grad_panels", moved("source"))),
    "deltas of other queries": (Pack, pack("grads", moved("source"))),
    "one term of f32": (AttentionGradient, lambda n: replace(n, intrinsic=reading(1, n.intrinsic))),
    "two terms of f32 for peaks": (AttentionPeaks, lambda n: replace(n, intrinsic=reading(2, n.intrinsic))),
    "no room for slopes": (AttentionGradient, lambda n: replace(n, terms=None)),
    "peaks of other keys": (Pack, pack("peak_keys", moved("source"))),
    "another count of keys": (AttentionGradient, lambda n: replace(n, count=n.count - 1)),
    "another count of keys for peaks": (AttentionPeaks, lambda n: replace(n, count=n.count - 1)),
    "no count of keys": (AttentionGradient, lambda n: replace(n, count=None)),
    "room for one panel": (AttentionGradient, lambda n: replace(n, scores=narrowed(n.scores, 0))),
    "slopes of one panel": (AttentionGradient, lambda n: replace(n, slopes=narrowed(n.slopes, 0))),
    "weights of fewer panels": of_terms("weights", lambda terms: narrowed(terms.weights, 0)),
    "slopes of fewer keys": of_terms("slopes", lambda terms: narrowed(terms.slopes, 1)),
    "turned slopes of one panel": of_terms("turned", lambda terms: narrowed(terms.turned, 0)),
    "columns of queries for keys": of_terms("key_columns", lambda terms: terms.weights),
    "results for gradients": (AttentionDeltas, lambda n: replace(n, results=n.grads)),
}
_IN_PLACE = {"other keys", "other values", "keys of another head"}  # where rows lie, not in panels


@pytest.mark.parametrize("mistake", sorted({*MISTAKES, *PACKED} - _IN_PLACE))
def test_a_planted_mistake_is_refused(mistake: str) -> None:
    assert_refused(build(CASES["amx_gradient_causal"], "amx").kernel, {**MISTAKES, **PACKED}[mistake])


def test_a_kernel_of_gradients_says_what_it_sums() -> None:
    kernel = build(CASES["amx_gradient_causal"], "amx").kernel
    assert [fact.statement for fact in prove(kernel).about("attention")] == [
        "every visible key of k is taken once over peak_offset/32",
        "every visible key of k is taken once over slope_offset/32",
        "all queries of a key head give to its gradients once, in sequence",
    ]


def test_panels_without_their_count_are_not_printed() -> None:
    kernel = build(CASES["amx_gradient_dense"], "amx").kernel
    with pytest.raises(EmitError, match="how many keys"):
        emit(changed(kernel, AttentionGradient, lambda node: replace(node, count=None)), "avx512")


def test_numbers_of_a_schedule_are_checked() -> None:
    case, target = CASES["amx_gradient_dense"], load("amx")
    variant = find(NAME)
    assert variant.build is not None
    assert variant.default_schedule is not None
    with pytest.raises(InvalidSchedule, match="bq: got 0, expected 1 to"):
        variant.build(case.op, variant.default_schedule(case.op, target).with_values(bq=0), target)


@pytest.mark.parametrize(
    ("queries", "depth", "rows"), [(4096, 64, 512), (4096, 128, 256), (4096, 256, 128), (40, 64, 64)]
)
def test_blocks_of_queries_stay_in_the_second_level_cache(queries: int, depth: int, rows: int) -> None:
    x = TensorType((1, 8, queries, depth), DType.F32)
    default = find(NAME).default_schedule
    assert default is not None
    found = default(gradient(replace(attention(), q=x, k=x, v=x)), replace(load("amx"), l2_bytes=2 << 20))
    assert found.integer("bq") == rows


@pytest.mark.parametrize(
    ("queries", "dtype", "target", "first"),
    [
        (512, DType.F32, "amx", NAME),
        (33, DType.F32, "amx", NAME),
        (32, DType.F32, "amx", "attention.gradient"),
        (512, DType.BF16, "amx", NAME),
        (512, DType.F64, "amx", "attention.gradient"),
        (512, DType.F32, "avx512", "attention.gradient"),
    ],
)
def test_tiles_are_taken_where_they_are_faster(queries: int, dtype: DType, target: str, first: str) -> None:
    x = TensorType((1, 8, queries, 64), dtype)
    op = gradient(replace(attention(), q=x, k=x, v=x))
    assert candidates(op, load(target))[0].id == first
