"""Remedies that hold: what a refusal advises is a schedule that is built and proved, the nearest one that is found.

Worked example: ``warps_m=33`` of 128 rows asks for a multiple of 528 rows, which no block can hold; the remedy that is
given is ``use warps_m=32`` or whichever grid of warps is nearest, built and proved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from math import log2, prod
from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import static
from tracea.errors import InvalidSchedule, InvalidShape, ProofFailed, ResourceExceeded
from tracea.kernels.gemm.gpu.operands import MOST_BLOCKS, MULTIPROCESSORS
from tracea.kernels.gemm.operands import merged_batch
from tracea.kernels.space import ScheduleSpace, Value
from tracea.semantic.predicate import And, Compare, Predicate, Relation
from tracea.semantic.proofs import prove
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.gpu import GpuTarget

__all__ = ["changes_of", "with_remedies"]

Build = Callable[[GemmOp, Schedule, GpuTarget], TileKernel]
Refusal = InvalidSchedule | ResourceExceeded

_PAIR: Final = re.compile(r"\b([a-z][a-z_]*)=(\w+)")
_ONE: Final = re.compile(r"\buse (\d+)\b")
_OPPOSITE: Final = {Relation.LT: ">=", Relation.LE: ">", Relation.EQ: "!=", Relation.NE: "="}
_UNITS: Final = (4, 8, 16, 32, 64, 128)
_POWERS: Final = tuple(1 << bit for bit in range(11))
_AROUND: Final = 8  # whole numbers on each side that may become one: stages and shares are no powers of two
_WALKED: Final = 1024  # the numbers that are looked at one by one
_ATTEMPTS: Final = 16  # kernels that are built for one remedy before other numbers are changed
_A_CHANGE: Final = 0.5  # that another number is changed weighs as much as a factor of 1.4


def with_remedies(
    build: Build,
    space: Callable[[GemmOp, GpuTarget], ScheduleSpace],
    holds: Callable[[GemmOp, Schedule, GpuTarget], bool],
    default: Callable[[GemmOp, GpuTarget], Schedule],
) -> Build:
    """Return a builder whose refusals advise what is built and proved; it refuses what the op's sizes rule out.

    Where one number differs from the ``default`` schedule, it is what somebody asked for: its nearest value that can be
    built with all others as they are is advised before any other change. ``holds`` says cheaply of most schedules that
    cannot be built that they cannot.
    """

    def checked(op: GemmOp, schedule: Schedule, target: GpuTarget) -> TileKernel:
        kernel = build(op, schedule, target)
        _check_sizes(kernel, op, target)
        return kernel

    def is_proved(op: GemmOp, schedule: Schedule, target: GpuTarget) -> bool:
        try:
            if _blocks(op, schedule) > MOST_BLOCKS or not holds(op, schedule, target):
                return False
            prove(checked(op, schedule, target))
        except (InvalidSchedule, ResourceExceeded, ProofFailed):
            return False
        return True

    def holds_it(op: GemmOp, target: GpuTarget) -> Callable[[Schedule], bool]:
        def held(schedule: Schedule) -> bool:
            try:
                return holds(op, schedule, target)
            except (InvalidSchedule, ResourceExceeded):
                return False

        return held

    def built(op: GemmOp, schedule: Schedule, target: GpuTarget) -> TileKernel:
        try:
            return checked(op, schedule, target)
        except (InvalidSchedule, ResourceExceeded) as error:
            advised = changes_of(error, schedule)

            def works(changes: Mapping[str, Value]) -> bool:
                return is_proved(op, schedule.with_values(**changes), target)

            listed = space(op, target)
            asked = _asked(schedule, default(op, target))
            near = None if asked is None else _nearest_of(asked, schedule, error, listed, holds_it(op, target), works)
            if near is not None:
                if near != advised:
                    error.remedy = f"use {_spelled(near)}"
            elif not advised or not works(advised):
                found = _nearest(lambda other: is_proved(op, other, target), schedule, error, listed)
                if not found:
                    _refuse_grid(op, schedule)
                error.remedy = f"use {_spelled(found)}" if found else "choose another variant: this one has no schedule"
            raise

    return built


def _blocks(op: GemmOp, schedule: Mapping[str, Value]) -> int:
    """Return how many tiles an op has under a schedule; 0 where not all of its sizes are known."""
    sizes = (op.m, op.n, *op.batch)
    if not all(isinstance(dim, int) for dim in sizes):
        return 0
    m, n, *batch = (static(dim) for dim in sizes)
    bm, bn = (max(1, int(schedule[name])) for name in ("bm", "bn"))
    return prod(batch) * -(-m // bm) * -(-n // bn)


def _refuse_grid(op: GemmOp, schedule: Schedule) -> None:
    """Refuse an op whose tiles are more than a grid has blocks, with the largest extent that it would have them for.

    Raises:
        InvalidShape: it has more; the remedy changes one extent.
    """
    blocks = _blocks(op, schedule)
    if blocks <= MOST_BLOCKS:
        return
    m, n, *batch = (static(dim) for dim in (op.m, op.n, *op.batch))
    bm, bn = schedule.integer("bm"), schedule.integer("bn")
    rows, columns = -(-m // bm), -(-n // bn)
    if (batches := MOST_BLOCKS // (rows * columns)) >= 1:
        remedy = f"use batches of {batches} matrices at most in a call"
    elif (fitting := MOST_BLOCKS // (prod(batch) * columns)) >= 1:
        remedy = f"use m={fitting * bm} at most in a call"
    else:
        remedy = f"use n={max(1, MOST_BLOCKS // (prod(batch) * rows)) * bn} at most in a call"
    raise InvalidShape(
        field="blocks of a grid",
        got=f"{blocks} tiles of {bm}x{bn}",
        expected=f"{MOST_BLOCKS} at most",
        remedy=remedy,
    )


def changes_of(error: Refusal, schedule: Mapping[str, Value]) -> dict[str, Value]:
    """Return the changes of a schedule that a remedy advises: every ``name=value``, or the one value of its field."""
    found: dict[str, Value] = {
        name: int(value) if value.isdigit() else value
        for name, value in _PAIR.findall(error.remedy)
        if name in schedule
    }
    one = _ONE.search(error.remedy)
    field = error.field if isinstance(error, InvalidSchedule) else ""
    if not found and one is not None and field in schedule:
        found = {field: int(one[1])}
    return found


def _spelled(changes: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changes.items())


def _nearest(
    is_proved: Callable[[Schedule], bool], schedule: Schedule, error: Refusal, space: ScheduleSpace
) -> dict[str, Value]:
    """Return the change of one number that is proved, those the error names first; else a schedule of the space."""
    named = re.findall(r"\w+", error.field) if isinstance(error, InvalidSchedule) else []
    listed = {name: space.values[axis] for axis, name in enumerate(space.names)}
    single: list[tuple[bool, float, str, Value]] = []
    for name, value in schedule.items():
        for other in _others(value, listed.get(name, ())):
            single.append((name not in named, _distance(value, other), name, other))
    for _, _, name, other in sorted(single, key=lambda each: each[:3]):
        if is_proved(schedule.with_values(**{name: other})):
            return {name: other}
    # All of these are proved, unless the op's sizes rule one out.
    for other in sorted(space, key=lambda other: _apart(schedule, other)):
        if is_proved(other):
            return {name: value for name, value in other.items() if schedule.get(name) != value}
    return {}


def _asked(schedule: Mapping[str, Value], default: Mapping[str, Value]) -> str | None:
    """Return the only number that is not the default's, which is then what somebody asked for."""
    changed = [name for name, value in schedule.items() if default.get(name) != value]
    return changed[0] if len(changed) == 1 and isinstance(schedule[changed[0]], int) else None


def _nearest_of(  # noqa: PLR0917 - what a search is over, and by
    name: str,
    schedule: Schedule,
    error: Refusal,
    space: ScheduleSpace,
    holds: Callable[[Schedule], bool],
    works: Callable[[Mapping[str, Value]], bool],
) -> dict[str, Value] | None:
    """Return the nearest value of one number that is proved with all others as they are, the lower one of two.

    Where the error says that it contradicts other numbers, those are changed instead: to drop what was asked for, as 0
    does, is no neighbour of it. None where a few attempts find nothing.
    """
    listed = {key: space.values[axis] for axis, key in enumerate(space.names)}
    field = error.field if isinstance(error, InvalidSchedule) else ""
    ordered: list[dict[str, Value]]
    others = [key for key in field.split(", ") if key in schedule and key != name]
    if others and name in field.split(", "):
        changes = [(_distance(schedule[key], value), key, value) for key in others for value in listed.get(key, ())]
        ordered = [{key: value} for _, key, value in sorted(changes, key=lambda each: each[:2])]
    else:
        asked = schedule.integer(name)
        advised = changes_of(error, schedule)
        values = {*_others(asked, listed.get(name, ())), *range(1, min(2 * max(asked, 1), _WALKED) + 1)}
        values |= {advised[name]} if advised.keys() == {name} else set()
        numbers = [value for value in values if isinstance(value, int) and value != asked and (value or asked < 0)]
        ordered = [{name: value} for value in sorted(numbers, key=lambda value: (abs(value - asked), value))]
    held = (changes for changes in ordered if holds(schedule.with_values(**changes)))
    return next((changes for changes in islice(held, _ATTEMPTS) if works(changes)), None)


def _others(value: Value, listed: tuple[Value, ...]) -> Iterator[Value]:
    """Yield what a number may become: its neighbours among multiples and powers of two, and what the space has."""
    found: set[Value] = set(listed)
    if isinstance(value, int) and any(isinstance(each, int) for each in listed):
        found |= set(range(max(0, value - _AROUND), value + _AROUND + 1))
        found |= {max(0, value) // unit * unit + up for unit in _UNITS for up in (0, unit)}
        found |= {0, *_POWERS}
    yield from (each for each in found if each != value)


def _distance(value: Value, other: Value) -> float:
    if isinstance(value, str) or isinstance(other, str):
        return 0.0 if value == other else 1.0
    if value == other:
        return 0.0
    return abs(log2(max(0, value) + 1) - log2(max(0, other) + 1)) + _A_CHANGE


def _apart(schedule: Mapping[str, Value], other: Mapping[str, Value]) -> float:
    return sum(_distance(schedule.get(name, 0), value) for name, value in other.items())


def _check_sizes(kernel: TileKernel, op: GemmOp, target: GpuTarget) -> None:
    """Check the guards of a launch that speak of sizes alone, where the op says all of its sizes.

    Raises:
        InvalidSchedule: with the two numbers of the guard that does not hold.
    """
    dims = {"m": op.m, "n": op.n, "k": op.k, **{f"batch{i}": dim for i, dim in enumerate(merged_batch(op))}}
    sizes = {name: dim for name, dim in dims.items() if isinstance(dim, int)}
    sizes[MULTIPROCESSORS.name] = target.sm_count
    for guard in _guards(kernel.assumptions):
        names = {*guard.left.names(), *guard.right.names()}
        if names <= sizes.keys() and not guard.evaluate(sizes):
            left, right = (int(side.evaluate(sizes)) for side in (guard.left, guard.right))
            raise InvalidSchedule(
                field="sizes of the op under this schedule",
                got=f"{left} {_OPPOSITE[guard.relation]} {right}",
                expected=str(guard),
                remedy="choose another tile",
            )


def _guards(assumptions: Predicate) -> Iterator[Compare]:
    parts = assumptions.parts if isinstance(assumptions, And) else (assumptions,)
    yield from (part for part in parts if isinstance(part, Compare))
