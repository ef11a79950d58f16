"""Remedies that hold: what a refusal advises is a schedule that is built and proved, the nearest one that is found.

Worked example: ``warps_m=33`` of 128 rows asks for a multiple of 528 rows, which no block can hold; the remedy that is
given is ``use warps_m=32`` or whichever grid of warps is nearest, built and proved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
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
_A_CHANGE: Final = 0.5  # that another number is changed weighs as much as a factor of 1.4


def with_remedies(
    build: Build,
    space: Callable[[GemmOp, GpuTarget], ScheduleSpace],
    holds: Callable[[GemmOp, Schedule, GpuTarget], bool],
) -> Build:
    """Return a builder whose refusals advise what is built and proved; it refuses what the op's sizes rule out.

    ``holds`` says cheaply of most schedules that cannot be built that they cannot.
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

    def built(op: GemmOp, schedule: Schedule, target: GpuTarget) -> TileKernel:
        try:
            return checked(op, schedule, target)
        except (InvalidSchedule, ResourceExceeded) as error:
            advised = changes_of(error, schedule)
            if not advised or not is_proved(op, schedule.with_values(**advised), target):
                found = _nearest(lambda other: is_proved(op, other, target), schedule, error, space(op, target))
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
