"""Kernels of gradients of group and batch norms: any extents, extreme planes, any team; mistakes are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.native import host_isas, run_isas
from tests.kernels.norm_gradient_cases import ID, PLANES_ID, norm_gradient, plane_gradient, plane_gradient_cases
from tests.kernels.planted import assert_refused
from tests.kernels.slab_cases import tensor
from tests.kernels.test_attention import later
from tests.kernels.test_norm_gradient import FOLD_MISTAKES, loop, within

from tracea.core.op import NormGradientOp, RowKind
from tracea.core.reference import evaluate
from tracea.errors import InvalidOp, InvalidShape, ProofFailed
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import candidates, find
from tracea.semantic.nodes import Parallel
from tracea.semantic.nodes_norm_gradient import PlaneGradientTile
from tracea.semantic.printer import print_kernel
from tracea.semantic.proofs import prove
from tracea.targets import load

CASES = {case.name: case for case in plane_gradient_cases()}
HOST = host_isas()[0]


@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", ["plane_gradient", "plane_gradient_batch"])
def test_a_kernel_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, built = unit_of(plane_gradient_cases(), isa), build(CASES[name], isa)
    for _ in range(6):
        sizes = [int(rng.integers(1, most)) for most in (5, 7, 6, 200)]
        shape = sizes if name == "plane_gradient" else sizes[:2] + sizes[3:]
        op = plane_gradient(*shape, pitch=shape[-1] + 3)
        check(unit, built, op, random_inputs(op, rng), threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", ["plane_gradient_each", "plane_gradient_f64", "plane_gradient_batch"])
def test_planes_that_cancel_overflow_or_are_not_finite(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, op = unit_of(plane_gradient_cases(), isa), CASES[name].op
    assert isinstance(op, NormGradientOp)
    inputs = random_inputs(op, rng)
    grad, x = inputs[:2]

    def group(array: np.ndarray, number: int) -> np.ndarray:
        """Return the planes of a group: of one image, or of all."""
        return array[:, number] if op.x.rank == 3 else array[divmod(number, array.shape[1])]

    group(x, 0)[...] += 1e4  # far from zero
    group(x, 1)[...] = 3.0  # no spread
    group(x, 2)[..., : x.shape[-1] // 2] += 1e3  # the first elements say nothing of the mean
    check(unit, build(CASES[name], isa), op, inputs, threads=2)
    group(x, 0)[...] *= 1e-30  # squares that are nothing
    group(x, 1)[...] = rng.standard_normal(group(x, 1).shape) * 1e18  # sums of products beyond f32
    group(grad, 1)[...] *= 1e20
    group(grad, 2)[...] *= 1e-30
    group(x, 3)[...] = 0.0
    group(grad, 3)[...] = 0.0
    check(unit, build(CASES[name], isa), op, inputs, threads=2)
    for bad in (0, 1):
        for value in (np.nan, np.inf, -np.inf):
            again = [array.copy() for array in inputs]
            group(again[bad], 2)[..., x.shape[-1] // 3] = value
            check(unit, build(CASES[name], isa), op, again, threads=2)


EXTREME_CASES = tuple(
    Case.of(f"extreme_planes_{len(shape)}_{eps}", PLANES_ID, plane_gradient(*shape, eps=eps))
    for shape in ((4, 6, 2, 90), (4, 11, 70))
    for eps in (0.0, 1e-5)
)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("case", EXTREME_CASES, ids=lambda case: case.name)
def test_finite_groups_whose_squares_leave_the_range_give_what_float64_gives(
    case: Case, isa: str, rng: np.random.Generator
) -> None:
    op = case.op
    assert isinstance(op, NormGradientOp)
    inputs = random_inputs(op, rng)
    x = inputs[1]
    x[:, 0] *= 1e25
    x[:, 1] = rng.uniform(0.5, 1, x[:, 1].shape) * 3e38  # their sum leaves it too
    x[:, 2] = np.where(np.arange(x.shape[-1]) % 2, 3e38, -3e38)
    if op.eps == 0.0:
        x[:, 3] *= 1e-25
    unit, built = unit_of(EXTREME_CASES, isa), build(case, isa)
    check(unit, built, op, inputs, threads=2)
    expected, found = (values[op.x.elements :] for values in (evaluate(op, inputs), run(unit, built, op, inputs)))
    assert np.all(np.abs(found - expected) <= 1e-4 * (1 + np.abs(expected)))
    inputs[0][1, 0].flat[7], x[1, 1].flat[5] = np.inf, np.nan
    check(unit, built, op, inputs)


def test_the_team_changes_no_bit(rng: np.random.Generator) -> None:
    unit = unit_of(plane_gradient_cases(), HOST)
    for name in ("plane_gradient", "plane_gradient_batch", "plane_gradient_far"):
        op = CASES[name].op
        inputs = random_inputs(op, rng)
        first = run(unit, build(CASES[name], HOST), op, inputs)
        for threads in (1, 2, 3, 5):
            again = run(unit, build(CASES[name], HOST), op, inputs, threads=threads, backward=threads == 2)
            assert first.tobytes() == again.tobytes()


TILE = PlaneGradientTile
MISTAKES: dict[str, tuple[type[Any], Any]] = {
    "no planes": (TILE, lambda n: None),
    "another eps": (TILE, lambda n: replace(n, eps=1e-6)),
    "no weight": (TILE, lambda n: replace(n, weight=None)),
    "x for the gradient": (TILE, lambda n: replace(n, grads=n.source, source=n.grads)),
    "another group of x": (TILE, lambda n: replace(n, source=later(n.source, 1, -1))),
    "another image of the gradient": (TILE, lambda n: replace(n, grads=later(n.grads, 0, -1))),
    "another group's weights": (TILE, lambda n: replace(n, weight=later(n.weight, 1, -1))),
    "fewer pixels": (
        TILE,
        lambda n: replace(n, target=replace(n.target, extent=(*n.target.extent[:3], n.target.extent[3] - 1))),
    ),
    "a weight for all": (TILE, lambda n: replace(n, weight=replace(n.weight, extent=(1, 1, 1, 1)))),
    "one sum for all": (TILE, lambda n: replace(n, sums=replace(n.sums, extent=(1, 2, 1)))),
    "sums of another image": (TILE, lambda n: replace(n, sums=later(n.sums, 0, -1))),
    "sums of another group": (TILE, lambda n: replace(n, sums=later(n.sums, -1, -1))),
    "groups twice": (Parallel, within("task")),
    "groups too few": (Parallel, loop("task", lambda n: replace(n, extent=n.extent - 1))),
    **FOLD_MISTAKES,
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_refused(mistake: str) -> None:
    assert_refused(build(CASES["plane_gradient"], "avx512").kernel, MISTAKES[mistake])


def test_sums_of_a_batch_norm_are_not_taken_for_those_of_planes() -> None:
    kernel = build(CASES["plane_gradient_batch"], "avx512").kernel
    assert prove(kernel).facts
    with pytest.raises(ProofFailed):
        prove(replace(kernel, op=CASES["plane_gradient_each"].op))


def test_a_kernel_says_what_it_gives() -> None:
    kernel = build(CASES["plane_gradient"], "avx512").kernel
    (fact,) = prove(kernel).about("norm gradient")
    assert fact.statement == "each group gives to grad_x, grad_weight, grad_bias once over task.1, task.0"
    assert "of planes, eps 1e-05" in print_kernel(kernel)


def test_what_it_is_not_built_for_is_refused() -> None:
    target, variant = load("avx512"), find(PLANES_ID)
    op = plane_gradient(2, 3, 4, 8)
    with pytest.raises(InvalidOp, match="axes"):
        replace(op, axes=(3, 2))
    with pytest.raises(InvalidShape, match="parameter"):
        replace(op, parameter=(5, 1))
    with pytest.raises(InvalidShape, match="weight"):
        replace(op, weight=tensor(3, 4))
    rms = replace(op, kind=RowKind.RMS_NORM)
    others = replace(op, weight=None, parameter=(3, 1, 1))
    turned = replace(op, x=tensor(2, 3, 4, 8, strides=(96, 32, 1, 4)))
    rows = norm_gradient(6, 8)
    for given, name in ((rms, "of planes"), (others, "of planes"), (rows, "of planes"), (turned, "along memory")):
        assert [rejection for rejection in variant.unmet(given, target) if name in str(rejection)]
    assert [found.id for found in candidates(op, target)] == [PLANES_ID]
    assert [found.id for found in candidates(rows, target)] == [ID]
    with pytest.raises(InvalidOp, match="axes"):
        arguments(build(CASES["plane_gradient"], "avx512").kernel, plane_gradient(2, 3, 8))
