"""Kernels of columns' moments: any extents, columns that cancel or are not finite, any team; mistakes are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.conformance import build, check, random_inputs, run, unit_of
from tests.kernels.moments_cases import ID, moments, moments_cases
from tests.kernels.native import host_isas, run_isas
from tests.kernels.planted import assert_refused
from tests.kernels.slab_cases import BF16, F32, tensor
from tests.kernels.test_attention import later
from tests.kernels.test_norm_gradient import loop, within

from tracea.core.op import MomentsOp, from_dict
from tracea.core.reference import evaluate
from tracea.errors import InvalidOp, InvalidShape
from tracea.kernels.registry import candidates, find
from tracea.semantic.nodes import Parallel
from tracea.semantic.nodes_moments import MomentsFold, MomentsTile
from tracea.semantic.printer import print_kernel
from tracea.semantic.proofs import prove
from tracea.targets import load

CASES = {case.name: case for case in moments_cases()}
HOST = host_isas()[0]


@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", ["moments", "moments_plain"])
def test_a_kernel_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, built = unit_of(moments_cases(), isa), build(CASES[name], isa)
    for _ in range(6):
        images, rows, columns = (int(rng.integers(1, most)) for most in (4, 150, 150))
        op = moments(images, rows, columns, graded=name == "moments", pitch=columns + 3)
        check(unit, built, op, random_inputs(op, rng), threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", ["moments", "moments_plain", "moments_f64", "moments_bf16"])
def test_columns_that_cancel_overflow_or_are_not_finite(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, built, op = unit_of(moments_cases(), isa), build(CASES[name], isa), CASES[name].op
    inputs = random_inputs(op, rng)
    x = inputs[0]
    x[..., 0] += 64.0  # far from zero
    x[..., 1] = 3.0  # no spread
    x[:, :8, 2] += 100.0  # the first rows say nothing of the mean
    x[:, -1, 3] -= 100.0
    x[..., 4] *= 1e-20
    check(unit, built, op, inputs, threads=2)
    for operand in range(0, len(inputs), 2):
        for value in (np.nan, np.inf, -np.inf):
            again = [array.copy() for array in inputs]
            again[operand][:, x.shape[1] // 3, 5] = value
            check(unit, built, op, again, threads=2)


def test_a_variance_keeps_the_digits_that_a_far_mean_leaves(rng: np.random.Generator) -> None:
    """What is summed is beyond the rows' own mean, whatever the number that the mean is told about."""
    op = moments(1, 400, 8, graded=False)
    x = (rng.standard_normal((1, 400, 8)) * 1e-2 + 1e4).astype(np.float32)
    for about in (x[:, :1], np.zeros((1, 1, 8), np.float32)):
        found = run(unit_of(moments_cases(), HOST), build(CASES["moments_plain"], HOST), op, [x, about])
        exact = evaluate(op, [x, about])
        np.testing.assert_allclose(found.reshape(exact.shape)[:, 1], exact[:, 1], rtol=2e-5)


def test_the_team_changes_no_bit(rng: np.random.Generator) -> None:
    unit = unit_of(moments_cases(), HOST)
    for name in ("moments", "moments_plain", "moments_wide"):
        op = CASES[name].op
        inputs = random_inputs(op, rng)
        first = run(unit, build(CASES[name], HOST), op, inputs)
        for threads in (1, 2, 3, 5):
            again = run(unit, build(CASES[name], HOST), op, inputs, threads=threads)
            assert first.tobytes() == again.tobytes()


TILE, FOLD = MomentsTile, MomentsFold
MISTAKES: dict[str, tuple[type[Any], Any]] = {
    "no tile": (TILE, lambda n: None),
    "no fold": (FOLD, lambda n: None),
    "no gradient": (TILE, lambda n: replace(n, grads=None)),
    "x for the gradient": (TILE, lambda n: replace(n, grads=n.source, source=n.grads)),
    "another image of x": (TILE, lambda n: replace(n, source=later(n.source, 0, -1))),
    "later rows": (TILE, lambda n: replace(n, source=later(n.source, 1, 1))),
    "other rows of the gradient": (TILE, lambda n: replace(n, grads=later(n.grads, 1, -1))),
    "a row less": (
        TILE,
        lambda n: replace(n, **{name: cut(getattr(n, name), 1) for name in ("source", "grads")}),
    ),
    "another part's place": (TILE, lambda n: replace(n, target=later(n.target, 1, -1))),
    "another step": (FOLD, lambda n: replace(n, step=n.step + 1)),
    "a part less": (FOLD, lambda n: replace(n, states=cut(n.states, 1))),
    "another image's parts": (FOLD, lambda n: replace(n, states=later(n.states, 0, -1))),
    "other columns": (FOLD, lambda n: replace(n, states=later(n.states, 3, -1))),
    "pivots of other columns": (FOLD, lambda n: replace(n, about=later(n.about, 2, -1))),
    "pivots of another image": (FOLD, lambda n: replace(n, about=later(n.about, 0, -1))),
    "the gradient for x": (FOLD, lambda n: replace(n, source=n.grads)),
    "rows of the gradient twice": (Parallel, within("task")),
    "parts too few": (Parallel, loop("task", lambda n: replace(n, extent=n.extent - 1))),
    "columns too few": (Parallel, loop("place", lambda n: replace(n, extent=n.extent - 1))),
}


def cut(region: Any, axis: int) -> Any:
    """A region with one less along an axis."""
    extent = list(region.extent)
    extent[axis] = extent[axis] - 1
    return replace(region, extent=tuple(extent))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_refused(mistake: str) -> None:
    assert_refused(build(CASES["moments"], "avx512").kernel, MISTAKES[mistake])


def test_a_kernel_says_what_it_gives() -> None:
    kernel = build(CASES["moments"], "avx512").kernel
    (fact,) = prove(kernel).about("moments")
    assert fact.statement == "each row is in one part of y over task.1, task.0"
    assert "in parts of 16" in print_kernel(kernel)


def test_what_has_no_meaning_is_refused() -> None:
    target, op = load("avx512"), moments(2, 30, 8)
    assert from_dict(op.to_dict()) == op
    assert [found.id for found in candidates(op, target)] == [ID]
    for wrong in ({"x": tensor(30, 8)}, {"x": tensor(2, 0, 8)}, {"about": tensor(2, 8)}, {"grad": tensor(2, 30, 9)}):
        with pytest.raises(InvalidShape, match="moments"):
            replace(op, **wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidOp, match="float"):
        replace(op, about=tensor(2, 1, 8, dtype=op.x.dtype.I32))
    turned = replace(op, x=tensor(2, 30, 8, strides=(240, 1, 30)))
    narrow = replace(op, about=tensor(2, 1, 8, dtype=BF16))
    many = MomentsOp(x=tensor(1, 2, 1 << 17), about=tensor(1, 1, 1 << 17, dtype=F32))
    for given, name in ((turned, "side by side"), (narrow, "type of pivots"), (many, "counted")):
        assert [rejection for rejection in find(ID).unmet(given, target) if name in str(rejection)]
