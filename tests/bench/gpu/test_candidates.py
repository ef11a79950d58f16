"""Which schedules a contest begins with: the heroes of this target that are legal, and the defaults."""

from __future__ import annotations

import pytest

from tracea.bench.gpu.candidates import first_schedules, fitting
from tracea.bench.gpu.problems import GpuProblem, contest_problems
from tracea.optimizer.priors import Hero, Provenance
from tracea.semantic.schedule import Schedule
from tracea.targets.gpu import GpuTarget, load_gpu

HOPPER, AMPERE = load_gpu("sm_90a"), load_gpu("sm_80")


def problem(name: str) -> GpuProblem:
    return next(each for each in contest_problems() if each.name == name)


SQUARE, OTHER = problem("bf16 4096x4096x4096"), problem("bf16 2048x2048x2048")


def another_schedule(of: GpuProblem, target: GpuTarget) -> tuple[str, Schedule]:
    """Return a legal schedule of the most promising variant that is not its default."""
    variant = fitting(of.op, target)[0]
    assert variant.space is not None
    assert variant.default_schedule is not None
    default = variant.default_schedule(of.op, target)
    return variant.id, next(schedule for schedule in variant.space(of.op, target) if schedule != default)


def hero(of: GpuProblem, target: GpuTarget, variant: str, schedule: Schedule) -> Hero:
    record = Provenance(
        hardware={"gpu": f"a GPU of {target.name}", "target": target.name},
        toolchain={"driver": "13.0"},
        latency_ms=0.2,
        trials=9,
        recorded_at=0.0,
    )
    return Hero(op_key=of.op.key, variant=variant, schedule=dict(schedule), record=record)


def test_this_problems_hero_is_screened_first_and_no_other_is_borrowed() -> None:
    own = another_schedule(SQUARE, HOPPER)
    foreign = another_schedule(OTHER, HOPPER)
    assert own[0] == foreign[0]
    plain = first_schedules(SQUARE.op, HOPPER, ())
    assert len(plain) == len(fitting(SQUARE.op, HOPPER))
    assert first_schedules(SQUARE.op, HOPPER, (hero(SQUARE, HOPPER, *own),)) == (own, *plain)
    borrowed = first_schedules(SQUARE.op, HOPPER, (hero(OTHER, HOPPER, *foreign),))
    assert set(borrowed) == {*plain, foreign}


@pytest.mark.parametrize("found_for", [SQUARE, OTHER], ids=["the same op", "another op"])
def test_a_hero_of_another_target_is_none(found_for: GpuProblem) -> None:
    there = hero(found_for, HOPPER, *another_schedule(found_for, HOPPER))
    assert first_schedules(SQUARE.op, AMPERE, (there,)) == first_schedules(SQUARE.op, AMPERE, ())


def test_what_another_targets_hero_takes_away_is_still_borrowed() -> None:
    foreign = another_schedule(OTHER, AMPERE)
    heroes = (hero(SQUARE, HOPPER, *another_schedule(SQUARE, HOPPER)), hero(OTHER, AMPERE, *foreign))
    assert foreign in first_schedules(SQUARE.op, AMPERE, heroes)


def test_a_hero_that_is_no_longer_legal_or_known_is_none() -> None:
    variant, schedule = another_schedule(SQUARE, HOPPER)
    plain = first_schedules(SQUARE.op, HOPPER, ())
    for stale in (
        hero(SQUARE, HOPPER, variant, schedule.with_values(bm=8)),
        hero(SQUARE, HOPPER, variant, Schedule({"bm": 64})),
        hero(SQUARE, HOPPER, "gemm.of_another_release", schedule),
    ):
        assert first_schedules(SQUARE.op, HOPPER, (stale,)) == plain
