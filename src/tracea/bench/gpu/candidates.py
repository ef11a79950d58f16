"""Which schedules of which variants are tried on a problem: known before the search, so that all are compiled first."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracea.core.op import GemmOp
from tracea.flow.history import schedule_of
from tracea.kernels.registry import candidates
from tracea.kernels.variant import Variant
from tracea.optimizer.priors import Hero
from tracea.optimizer.space import SearchSpace
from tracea.semantic.schedule import Schedule

if TYPE_CHECKING:
    from tracea.targets.gpu import GpuTarget

__all__ = ["first_schedules", "fitting", "tried_schedules", "tried_space"]

_VARIANTS = 2  # of ours, the most promising ones


def fitting(op: GemmOp, target: GpuTarget) -> tuple[Variant, ...]:
    """Return the variants of ours to try on an op, the most promising one first."""
    return tuple(each for each in candidates(op, target) if not each.is_library)[:_VARIANTS]


def tried_schedules(op: GemmOp, variant: Variant, target: GpuTarget, *, trials: int, seed: int) -> tuple[Schedule, ...]:
    """Return the schedules of one variant that a search may try: its default, then others, always the same."""
    assert variant.space is not None
    assert variant.default_schedule is not None
    default = variant.default_schedule(op, target)
    others = [schedule for schedule in variant.space(op, target) if schedule != default]
    random.Random(f"{seed} {op.key} {variant.id}").shuffle(others)
    return (default, *others[: max(0, trials - 1)])


def tried_space(schedules: Sequence[Schedule]) -> SearchSpace:
    """Return these schedules as the optimizer's space."""
    names = tuple(schedules[0])
    axes = tuple(tuple(dict.fromkeys(schedule[name] for schedule in schedules)) for name in names)
    rows = tuple(
        tuple(axis.index(schedule[name]) for name, axis in zip(names, axes, strict=True)) for schedule in schedules
    )
    return SearchSpace.enumerated(names, axes, rows)


def first_schedules(op: GemmOp, target: GpuTarget, heroes: Sequence[Hero]) -> tuple[tuple[str, Schedule], ...]:
    """Return what to screen for a contest: this op's hero, each variant's default, and other ops' heroes that fit."""
    own = [(hero.variant, schedule_of(hero.schedule)) for hero in heroes if hero.op_key == op.key]
    found = list(own)
    for variant in fitting(op, target):
        assert variant.space is not None
        assert variant.default_schedule is not None
        found.append((variant.id, variant.default_schedule(op, target)))
        if own:
            continue
        legal = set(variant.space(op, target))
        borrowed = [schedule_of(hero.schedule) for hero in heroes if hero.variant == variant.id]
        found += [(variant.id, schedule) for schedule in borrowed if schedule in legal]
    return tuple(dict.fromkeys(found))
