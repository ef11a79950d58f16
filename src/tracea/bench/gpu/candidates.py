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
    """Return what to screen for a contest: this op's heroes, each variant's default, and without the former others'.

    A hero counts where it was found on this target, and only where its schedule is legal here and now.
    """
    here = [hero for hero in heroes if hero.record.hardware.get("target") == target.name]
    variants = fitting(op, target)
    own = _legal([hero for hero in here if hero.op_key == op.key], variants, op, target)
    borrowed = [] if own else _legal(here, variants, op, target)
    found = list(own)
    for variant in variants:
        assert variant.default_schedule is not None
        found.append((variant.id, variant.default_schedule(op, target)))
        found += [(name, schedule) for name, schedule in borrowed if name == variant.id]
    return tuple(dict.fromkeys(found))


def _legal(
    heroes: Sequence[Hero], variants: Sequence[Variant], op: GemmOp, target: GpuTarget
) -> list[tuple[str, Schedule]]:
    """Return the heroes' variants and schedules, of these variants and in their spaces."""
    found: list[tuple[str, Schedule]] = []
    for variant in variants:
        assert variant.space is not None
        schedules = [schedule_of(hero.schedule) for hero in heroes if hero.variant == variant.id]
        if schedules:  # a space takes a while
            legal = set(variant.space(op, target))
            found += [(variant.id, schedule) for schedule in schedules if schedule in legal]
    return found
