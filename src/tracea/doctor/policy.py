"""Policy: (target, op, history) becomes a tiling, a narrower space and the schedules to try first, each with reasons.

It guides a search and decides nothing: what runs is what was measured. The same question has the same answer in every
process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2
from typing import TYPE_CHECKING, Any, Final

from tracea.doctor.pruning import rules_of
from tracea.doctor.tiling import Structure, Tiling, choose_tiling, is_tiled
from tracea.errors import InvalidOption
from tracea.profiler.duration import shown_us
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_order import TileOrder

if TYPE_CHECKING:
    from tracea.core.op import Op
    from tracea.kernels.space import ScheduleSpace, Value
    from tracea.kernels.variant import Variant

__all__ = ["Guidance", "Narrowing", "Winner", "guide", "similarity"]

_SIMILAR: Final = 3.0  # doublings of all extents together up to which another shape's winner is worth a trial
_SEEDS: Final = 2
_SHOWN: Final = 120  # characters of a schedule from elsewhere
# kind and whatever names it, extents, element type, digest: ``gemm_512x768x768_f32_0212ed9c8837698c``.
_KEY: Final = re.compile(r"(?P<kind>\D\w*?)_(?P<dims>\d+(?:x\d+)*)_(?P<dtype>[a-z]\w*?)_(?P<digest>[0-9a-f]{16})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The fastest schedule of one variant for one op that was measured on this hardware, or, ``shipped``, elsewhere."""

    op_key: str
    variant: str
    schedule: Mapping[str, Value]
    latency_us: float
    shipped: str = ""  # where and when, of a time that came with Tracea


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What one rule did: how many schedules it left of those that came to it, and why."""

    rule: str
    because: str
    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.rule}: {self.after} of {self.before} are left. {_sentence(self.because)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """Where a search of one variant should look: ``rows`` of its space, and ``seeds`` among them to begin with.

    ``space`` is the whole space, ``kept`` the reasons for schedules that are in whatever a rule said of them.
    ``dropped`` says which advice was none: earlier or imported schedules that the space does not hold.
    ``is_tiled`` False: the op has rows or elements and no tiles, of which nothing is said.
    """

    variant: str
    tiling: Tiling
    space: ScheduleSpace
    rows: tuple[tuple[int, ...], ...]
    narrowings: tuple[Narrowing, ...] = ()
    seeds: tuple[Schedule, ...] = ()
    kept: tuple[str, ...] = field(default=())
    dropped: tuple[str, ...] = ()
    is_tiled: bool = True

    def with_advice(self, schedules: Iterable[Schedule]) -> Guidance:
        """Return the guidance with a reason for each of these schedules that the space does not hold."""
        space = frozenset(self.space)
        strange = dict.fromkeys(each.key for each in schedules if each not in space)
        return replace(
            self,
            dropped=tuple(
                f"Left out: an earlier or imported schedule that {self.variant} does not have for this op: "
                f"{key if len(key) <= _SHOWN else key[:_SHOWN] + '...'}."
                for key in strange
            ),
        )

    @property
    def factor(self) -> float:
        """How many times fewer schedules are left to search."""
        return len(self.space) / len(self.rows)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason as a sentence, the narrowing first."""
        count = f"{len(self.rows)} of {len(self.space)} schedules of {self.variant} may be tried"
        if not self.narrowings:
            count += ": no rule is known that leaves some out and surely keeps the best"
        return (
            f"{count}.",
            *map(str, self.narrowings),
            *map(_sentence, self.kept),
            *self.dropped,
            *self._tile_sentences(),
        )

    def _tile_sentences(self) -> tuple[str, ...]:
        if not self.is_tiled:
            return ()
        return f"Tiles are {self.tiling.kind.value}: {self.tiling.because}.", self._order_sentence()

    def _order_sentence(self) -> str:
        """Say whose order it is: a schedule's own is what runs, and the policy's only what it would begin with."""
        order, because = self.tiling.order, self.tiling.order_because
        if "order" not in self.space.names:
            if order is TileOrder.ROW:
                return f"Tiles are taken in row order: {because}."
            return f"Tiles are taken in row order, the only one of this variant; best were {order.value}: {because}."
        searched = self.space.values[self.space.names.index("order")]
        left = "" if order.value in searched else f", which {self.variant} is not searched in"
        return f"The best order of tiles, were it only for their reads, is {order.value}{left}: {because}."

    def to_dict(self) -> dict[str, Any]:
        """Return the guidance as plain JSON values, without the rows themselves."""
        return {
            "variant": self.variant,
            "tiling": self.tiling.kind.value,
            "share": self.tiling.share,
            "order": self.tiling.order.value,
            "schedules": len(self.space),
            "searched": len(self.rows),
            "factor": round(self.factor, 2),
            "seeds": [dict(seed) for seed in self.seeds],
            "reasons": list(self.reasons),
        }


def guide(
    op: Op,
    target: Any,
    variant: Variant,
    *,
    history: Iterable[Winner] = (),
    keep: Iterable[Mapping[str, Value]] = (),
    structure: Structure | None = None,
    space: ScheduleSpace | None = None,
    prune: bool = True,
) -> Guidance:
    """Return where to search one variant's schedules for an op.

    ``keep`` are schedules that stay whatever a rule says: the default, and what was measured before. ``space`` is the
    variant's own unless given. ``prune`` False leaves nothing out.

    Raises:
        InvalidOption: the variant is a library's, which has no schedules of ours.
    """
    whole = space if space is not None else _own_space(op, target, variant)
    schedules = [whole.schedule(row) for row in whole.rows]
    left = list(range(len(schedules)))
    narrowings: list[Narrowing] = []
    for rule in rules_of(variant.id, op, target, schedules) if prune else ():
        passing = [index for index in left if rule.keeps(schedules[index])]
        because = rule.because if passing else f"{rule.because}; no schedule is left so, and the rule is not applied"
        narrowings.append(Narrowing(rule=rule.name, because=because, before=len(left), after=len(passing or left)))
        left = passing or left
    seeds, kept = _from_history(op, variant.id, whole, schedules, tuple(history))
    wanted = [*map(Schedule, keep), *seeds]
    places = {schedule: index for index, schedule in enumerate(schedules)}
    stay = {places[schedule] for schedule in wanted if schedule in places} - set(left)
    if stay:
        kept = (*kept, f"{len(stay)} that rules would leave out stay, since they were measured or won before")
    rows = tuple(whole.rows[index] for index in sorted({*left, *stay}))
    return Guidance(
        variant=variant.id,
        tiling=choose_tiling(op, target, structure),
        space=whole,
        rows=rows,
        narrowings=tuple(narrowings),
        seeds=seeds,
        kept=kept,
        is_tiled=is_tiled(op),
    )


def similarity(key: str, other: str) -> float | None:
    """Return how many doublings of extents are between two ops by their keys; None: they are not of one kind and type.

    Epilogues do not count: they change what a store does, not how a product is blocked.
    """
    mine, its = _KEY.match(key), _KEY.match(other)
    if mine is None or its is None or (mine["kind"], mine["dtype"]) != (its["kind"], its["dtype"]):
        return None
    own, theirs = ([int(part) for part in found["dims"].split("x")] for found in (mine, its))
    if len(own) != len(theirs) or min(*own, *theirs) < 1:
        return None
    return sum(abs(log2(a / b)) for a, b in zip(own, theirs, strict=True))


def _own_space(op: Op, target: Any, variant: Variant) -> ScheduleSpace:
    if variant.space is None:
        raise InvalidOption(
            field="variant", got=variant.id, expected="one with schedules", remedy="a library has none of ours"
        )
    return variant.space(op, target)


def _from_history(
    op: Op, variant: str, space: ScheduleSpace, schedules: Sequence[Schedule], history: tuple[Winner, ...]
) -> tuple[tuple[Schedule, ...], tuple[str, ...]]:
    """Return the schedules nearest to what won for similar shapes, the most similar first, and what to say of them."""
    near = [
        (distance, winner.latency_us, winner.op_key, winner)
        for winner in history
        if winner.variant == variant
        and (distance := similarity(op.key, winner.op_key)) is not None
        and distance <= _SIMILAR
    ]
    seeds: dict[Schedule, str] = {}
    for distance, _, key, winner in sorted(near, key=lambda item: item[:3]):
        seed = _nearest(winner, space, schedules)
        if seed is None or seed in seeds:
            continue
        away = "its own shape" if distance == 0.0 else f"{distance:.1f} doublings away"
        origin = f" (shipped with Tracea, {winner.shipped})" if winner.shipped else ""
        best = f"the best of {shown_us(winner.latency_us)}{origin}"
        seeds[seed] = f"tried early: {seed.key}, nearest to {best} for {key}, {away}"
        if len(seeds) == _SEEDS:
            break
    return tuple(seeds), tuple(seeds.values())


def _nearest(winner: Winner, space: ScheduleSpace, schedules: Sequence[Schedule]) -> Schedule | None:
    """Return the schedule of this space that is most like another shape's: fewest other words, then nearest numbers."""
    # What the other extents leave over has code of its own and says nothing about blocks.
    shared = [name for name in space.names if name in winner.schedule and name != "tail"]
    if not shared:
        return None

    def distance(schedule: Schedule) -> tuple[int, float]:
        other, far = 0, 0.0
        for name in shared:
            mine, its = schedule[name], winner.schedule[name]
            if isinstance(mine, int) and isinstance(its, int):
                far += abs(log2((max(mine, 0) + 1) / (max(its, 0) + 1)))
            else:
                other += mine != its
        return other, far

    return min(schedules, key=distance)  # the first of equals, in the space's order


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
