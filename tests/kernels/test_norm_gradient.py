"""Kernels of norms' gradients: any extents, rows that cancel or are extreme, any team; and mistakes are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.native import host_isas, run_isas
from tests.kernels.norm_gradient_cases import ID, norm_gradient, norm_gradient_cases
from tests.kernels.planted import assert_refused
from tests.kernels.slab_cases import BF16, F64, tensor
from tests.kernels.test_attention import later

from tracea.core.op import GemmOp, NormGradientOp, RowKind
from tracea.core.reference import evaluate
from tracea.errors import InvalidOp, InvalidSchedule, InvalidShape
from tracea.kernels.registry import candidates, find
from tracea.semantic.nodes import For, Parallel, ReduceTile
from tracea.semantic.nodes_norm_gradient import NormGradientTile
from tracea.semantic.printer import print_kernel
from tracea.semantic.proofs import prove
from tracea.targets import load

CASES = {case.name: case for case in norm_gradient_cases()}
HOST = host_isas()[0]


@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", ["norm_gradient", "norm_gradient_rms"])
def test_a_kernel_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, built = unit_of(norm_gradient_cases(), isa), build(CASES[name], isa)
    for _ in range(6):
        rows, columns = int(rng.integers(1, 60)), int(rng.integers(1, 300))
        op = norm_gradient(rows, columns, rms=name == "norm_gradient_rms", pitch=columns + 7)
        check(unit, built, op, random_inputs(op, rng), threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", ["norm_gradient", "norm_gradient_f64", "norm_gradient_rms"])
def test_rows_that_cancel_overflow_or_are_not_finite(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, op = unit_of(norm_gradient_cases(), isa), CASES[name].op
    assert isinstance(op, NormGradientOp)
    inputs = random_inputs(op, rng)
    grad, x = inputs[:2]
    columns = x.shape[-1]
    x[0] += 1e4  # far from zero
    x[1, :] = 3.0  # no spread
    x[2, : columns // 2] += 1e3  # the first elements say nothing of the mean
    x[3] *= 1e-30  # squares that are nothing
    x[4] *= 1e18  # products with the gradient beyond f32, what is normalised is not
    grad[4] *= 1e24
    grad[5] *= 1e-30
    x[6] = 0.0
    grad[6] = 0.0
    check(unit, build(CASES[name], isa), op, inputs, threads=2)
    for bad, row in ((x, 7), (grad, 8)):
        for value in (np.nan, np.inf, -np.inf):
            again = [array.copy() for array in inputs]
            again[0 if bad is grad else 1][row, columns // 3] = value
            check(unit, build(CASES[name], isa), op, again, threads=2)


EXTREME_CASES = tuple(
    Case.of(f"extreme_{columns}_{'rms' if rms else 'norm'}", ID, norm_gradient(37, columns, rms=rms, eps=eps), rows=20)
    for columns, rms, eps in ((90, False, 0.0), (90, True, 0.0), (600, False, 1e-5), (600, True, 1e-5))
)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("case", EXTREME_CASES, ids=lambda case: case.name)
def test_finite_rows_whose_squares_leave_the_range_give_what_float64_gives(
    case: Case, isa: str, rng: np.random.Generator
) -> None:
    op = case.op
    assert isinstance(op, NormGradientOp)
    inputs = random_inputs(op, rng)
    x = inputs[1]
    x[0] *= 1e25  # first in the sums
    x[3] *= 1e20
    x[4] = rng.uniform(0.5, 1, x.shape[-1]) * 3e38  # their sum leaves it too
    x[30] = np.where(np.arange(x.shape[-1]) % 2, 3e38, -3e38)
    x[36] *= 1e30  # in a group that is not full
    if op.eps == 0.0:
        x[5] *= 1e-25
        x[31] *= 1e-30
    unit, built = unit_of(EXTREME_CASES, isa), build(case, isa)
    check(unit, built, op, inputs, threads=2)
    expected, found = evaluate(op, inputs)[-op.x.static_shape[-1] :], run(unit, built, op, inputs)
    assert np.all(np.abs(found[-op.x.static_shape[-1] :] - expected) <= 1e-4 * (1 + np.abs(expected)))
    inputs[0][3, 7], x[4, 5] = np.inf, np.nan
    check(unit, built, op, inputs)


LOST_CASES = tuple(
    Case.of(f"lost_{columns}", ID, norm_gradient(20, columns, weighted=False, eps=1e-300), rows=20)
    for columns in (90, 600)
)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("case", LOST_CASES, ids=lambda case: case.name)
def test_rows_without_spread_add_nothing_however_small_the_epsilon(
    case: Case, isa: str, rng: np.random.Generator
) -> None:
    op, columns = case.op, case.op.operands[1].static_shape[-1]
    grad, x = random_inputs(op, rng)
    x[:7] = np.float32([0.0, 3.0, -1e-30, 1e38, -3e38, 1e-40, 7e5])[:, None]
    found = run(unit_of(LOST_CASES, isa), build(case, isa), op, [grad, x])[-2 * columns : -columns]
    normal = (x[7:] - x[7:].mean(axis=1, keepdims=True, dtype=np.float64)) / x[7:].std(
        axis=1, keepdims=True, dtype=np.float64
    )
    np.testing.assert_allclose(found, (grad[7:] * normal).sum(axis=0), rtol=1e-4, atol=1e-4)


def test_the_team_changes_no_bit(rng: np.random.Generator) -> None:
    unit = unit_of(norm_gradient_cases(), HOST)
    for name in ("norm_gradient", "norm_gradient_far"):
        op = CASES[name].op
        inputs = random_inputs(op, rng)
        first = run(unit, build(CASES[name], HOST), op, inputs)
        for threads in (1, 2, 3, 5):
            again = run(unit, build(CASES[name], HOST), op, inputs, threads=threads, backward=threads == 2)
            assert first.tobytes() == again.tobytes()


def folds(change: Any, index: int = 1) -> Any:
    return lambda node: change(node) if node.target.buffer == ("grad_weight", "grad_bias")[index] else node


def loop(name: str, change: Any) -> Any:
    return lambda node: change(node) if node.var.name == name else node


def within(name: str) -> Any:
    """A second run of the same rows, inside of their own loop."""
    from tracea.semantic.index import Const, Var
    from tracea.semantic.nodes import Block

    again = Var("again")
    return loop(name, lambda n: replace(n, body=Block(nodes=(For(var=again, extent=Const(2), body=n.body),))))


# What may be wrong with the sums of what tasks left, whatever left it.
FOLD_MISTAKES: dict[str, tuple[type[Any], Any]] = {
    "columns too few": (Parallel, loop("start", lambda n: replace(n, extent=n.extent - 1))),
    "a fold too few": (ReduceTile, folds(lambda n: None)),
    "the other sum": (ReduceTile, folds(lambda n: replace(n, inputs=(later(n.inputs[0], -2, -1),)))),
    "parts too few": (
        ReduceTile,
        folds(lambda n: replace(n, inputs=(replace(n.inputs[0], extent=(1, *n.inputs[0].extent[1:])),))),
    ),
    "other columns": (ReduceTile, folds(lambda n: replace(n, inputs=(later(n.inputs[0], -1, -1),)))),
    "twice a sum": (ReduceTile, folds(lambda n: replace(n, prologue=n.prologue * 2.0))),
}
TILE = NormGradientTile
MISTAKES: dict[str, tuple[type[Any], Any]] = {
    "no rows": (TILE, lambda n: None),
    "another kind": (TILE, lambda n: replace(n, kind=RowKind.RMS_NORM)),
    "another eps": (TILE, lambda n: replace(n, eps=1e-6)),
    "no weight": (TILE, lambda n: replace(n, weight=None)),
    "x for the gradient": (TILE, lambda n: replace(n, grads=n.source, source=n.grads)),
    "other rows of x": (TILE, lambda n: replace(n, source=later(n.source, -2, -1))),
    "other rows of the gradient": (TILE, lambda n: replace(n, grads=later(n.grads, -2, -1))),
    "fewer columns": (
        TILE,
        lambda n: replace(n, target=replace(n.target, extent=(n.target.extent[0], n.target.extent[1] - 1))),
    ),
    "sums of another part": (TILE, lambda n: replace(n, sums=later(n.sums, -3, -1))),
    "rows twice": (Parallel, within("first")),
    "rows too few": (Parallel, loop("first", lambda n: replace(n, extent=n.extent - 1))),
    **FOLD_MISTAKES,
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_refused(mistake: str) -> None:
    assert_refused(build(CASES["norm_gradient"], "avx512").kernel, MISTAKES[mistake])


def test_a_kernel_says_what_it_gives() -> None:
    kernel = build(CASES["norm_gradient"], "avx512").kernel
    (fact,) = prove(kernel).about("norm gradient")
    assert fact.statement == "each row gives to grad_x, grad_weight, grad_bias once over first/8"
    assert "of layer_norm, eps 1e-05" in print_kernel(kernel)


def test_what_it_is_not_built_for_is_refused() -> None:
    target, variant = load("avx512"), find(ID)
    op = norm_gradient(6, 8)
    with pytest.raises(InvalidOp, match="kind"):
        replace(op, kind=RowKind.SOFTMAX)
    with pytest.raises(InvalidOp, match="eps"):
        replace(op, eps=-1.0)
    with pytest.raises(InvalidShape, match="grad"):
        replace(op, grad=tensor(8, 6))
    with pytest.raises(InvalidShape, match="weight"):
        replace(op, weight=tensor(6))
    turned = replace(op, x=tensor(6, 8, strides=(1, 6)))
    apart = NormGradientOp(kind=RowKind.LAYER_NORM, grad=tensor(2, 3, 8), x=tensor(2, 3, 8, strides=(100, 8, 1)))
    for given, name in ((turned, "rows along memory"), (apart, "one axis of rows"), (norm_gradient(0, 8), "to sum")):
        assert [rejection for rejection in variant.unmet(given, target) if name in str(rejection)]
        assert not candidates(given, target)
    assert candidates(norm_gradient(6, 8, dtype=BF16), target) == candidates(norm_gradient(8, dtype=F64), target)
    assert not candidates(GemmOp.of(m=1, n=1, k=1), target, [variant])
    assert variant.build is not None
    assert variant.default_schedule is not None
    with pytest.raises(InvalidSchedule, match="together"):
        variant.build(op, variant.default_schedule(op, target).with_values(together=0), target)
