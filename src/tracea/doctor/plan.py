"""Plan: for each op the variant that was chosen, and for each that was not, the requirement that it did not meet."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tracea.errors import InvalidOption
from tracea.profiler.duration import shown_us
from tracea.profiler.sequential import RESOLUTION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tracea.doctor.precision import Precision
    from tracea.semantic.schedule import Schedule

__all__ = [
    "DISTURBED",
    "FOR_NO_WORK",
    "NOT_EXCLUDED",
    "STATED",
    "Candidate",
    "Decision",
    "Flip",
    "Plan",
    "Rejection",
    "told_together",
]

STATED: Final = "stated by the caller"  # the reason of a decision that the caller made
DISTURBED: Final = "other programs disturbed most rounds of its final"  # what a reason in doubt ends with
NOT_EXCLUDED: Final = "not excluded"  # the requirement that a variant does not meet which the caller left out
# Variants for ops without any work: that one with work is not theirs goes without saying.
FOR_NO_WORK: Final = frozenset({"gemm.empty"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A variant that cannot be used: the requirement, what it needs, what was found, and what would change that."""

    variant: str
    requirement: str
    needed: str
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.variant}: {self.reason}"

    @property
    def reason(self) -> str:
        """The requirement that was not met, and what would meet it, without whom it cut."""
        if self.requirement == NOT_EXCLUDED:
            return self.found
        return f"{self.requirement}: needs {self.needed}, found {self.found} ({self.remedy})"


def told_together(reasons: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield what (variant, reason) pairs say: each variant once with all its reasons, those with the same together."""
    of_variant: dict[str, list[str]] = {}
    for variant, reason in reasons:
        of_variant.setdefault(variant, []).append(reason)
    alike: dict[str, list[str]] = {}
    for variant, every in of_variant.items():
        alike.setdefault("; ".join(every), []).append(variant)
    for reason, variants in alike.items():
        yield ", ".join(variants), reason


_SAME: Final = 1e-9
_TIMES: Final = 2.0  # from which on a quotient reads better than a share
BY_TIE: Final = ", behind by the race's rule for what it cannot tell apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A variant that can be used, with its score and, where it was measured, its time. Units: ``latency_us`` is µs.

    ``ranked_us`` is the time by which it ranks where a race decided a tie for another; None: as measured. ``shipped``
    says where and when the time was measured if that was not here; empty where it was. ``is_unclear``: the race was too
    noisy to tell it from its winner. ``is_disturbed``: other programs disturbed most of its rounds.
    """

    variant: str
    score: float
    latency_us: float | None = None
    ranked_us: float | None = None
    shipped: str = ""
    is_unclear: bool = False
    is_disturbed: bool = False

    def ties_with(self, winner: Candidate) -> bool:
        """Whether both were measured and this one is no slower, so that only the race's tie put it behind."""
        if self.latency_us is None or winner.latency_us is None or self.is_in_doubt(winner):
            return False
        # Records from before medians were kept have the winner's time and a last digit more.
        return self.latency_us <= winner.latency_us * (1 + _SAME)

    def is_in_doubt(self, winner: Candidate) -> bool:
        """Whether both were measured, and nobody can say which is faster: what is called a tie lies closer together."""
        if self.latency_us is None or winner.latency_us is None:
            return False
        return self.is_unclear or winner.is_unclear or (1 + RESOLUTION) * self.latency_us < winner.latency_us

    def __str__(self) -> str:
        if self.latency_us is None:
            return f"{self.variant}: score {self.score:g}"
        return f"{self.variant}: {shown_us(self.latency_us)} {'shipped' if self.shipped else 'measured'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """What would have chosen ``variant`` instead."""

    variant: str
    what: str

    def __str__(self) -> str:
        return f"{self.variant}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What runs one op: variant and schedule (None: a library has its own), and all that lost, best first.

    ``constants`` are the operands whose values were known: with another set it would be another decision. ``precision``
    says in which type the factors are multiplied and which had to be passed over; with ``casts`` in it, the op is the
    one after those conversions.
    """

    op: str
    variant: str
    schedule: Schedule | None
    reason: str
    candidates: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]
    constants: tuple[int, ...] = ()
    precision: Precision | None = None

    @property
    def is_stated(self) -> bool:
        """Whether the caller named the variant, so that no other one competed."""
        return self.reason.startswith(STATED)

    @property
    def chosen(self) -> Candidate:
        """The candidate that won."""
        return next(candidate for candidate in self.candidates if candidate.variant == self.variant)

    @property
    def measurement(self) -> Candidate | None:
        """The chosen candidate with its time, measured here or shipped; None where the score decided without one."""
        return self.chosen if self.chosen.latency_us is not None else None

    @property
    def in_spite_of_times(self) -> tuple[str, ...]:
        """The candidates that stand behind one whose measured time is no shorter: a race could not tell them apart."""
        found: list[str] = []
        longest_us = 0.0
        for each in self.candidates:
            if each.latency_us is not None:
                if each.latency_us < longest_us:
                    found.append(each.variant)
                longest_us = max(longest_us, each.latency_us)
        return tuple(found)

    @property
    def flip(self) -> str:
        """What would have chosen another variant."""
        if self.is_stated:
            return "leaving the variant out: it was stated"
        others = [candidate for candidate in self.candidates if candidate.variant != self.variant]
        if not others:
            if not self.told_rejections:
                return "nothing: there is no other variant"
            return f"meeting '{self.told_rejections[0].requirement}' for {self.told_rejections[0].variant}"
        best, won = others[0], self.chosen
        if best.ties_with(won) or best.is_in_doubt(won):
            return f"{best.variant}: {_flip(won, best)}"
        if best.latency_us is not None and won.latency_us is not None:
            if won.shipped:
                return f"a measurement here: the times are shipped ones, {won.shipped}"
            ahead = best.latency_us / won.latency_us
            faster = f"{ahead - 1:.1%} faster than" if ahead < 2 else f"{ahead:.1f} times as fast as"
            return f"{best.variant} {faster} measured"
        return f"a measurement of {best.variant} below one of {won.variant}"

    @property
    def told_rejections(self) -> tuple[Rejection, ...]:
        """The rejections that a reader is told of: all but those of variants for ops without work."""
        return tuple(each for each in self.rejections if each.variant not in FOR_NO_WORK)

    @property
    def rejected_together(self) -> tuple[tuple[str, str], ...]:
        """The rejected variants that a reader is told of, those for the same reasons together, and these reasons."""
        return tuple(told_together((each.variant, each.reason) for each in self.told_rejections))

    @property
    def flips(self) -> tuple[Flip, ...]:
        """What would have chosen each other variant, those that fit first."""
        won = self.chosen
        found = [
            Flip(variant=each.variant, what=_flip(won, each))
            for each in self.candidates
            if each.variant != self.variant
        ]
        unmet: dict[str, list[Rejection]] = {}
        for rejection in self.rejections:
            unmet.setdefault(rejection.variant, []).append(rejection)
        for variant, rejections in unmet.items():
            needs = " and ".join(_needs(each) for each in rejections)
            found.append(Flip(variant=variant, what=f"{needs}; then it would compete"))
        return tuple(found)

    def explain(self, told: Mapping[tuple[str, str], str] = MappingProxyType({})) -> str:
        """Return the decision as text: what was chosen and why, what lost and why, and what would flip it.

        ``told`` are variants with a reason against them that an earlier decision gave, and the node of that one.
        """
        about = f"{self.op} with constant operands {', '.join(map(str, self.constants))}" if self.constants else self.op
        lines = [f"{about}: {self.variant} ({self.reason})"]
        if self.schedule is not None:
            lines.append(f"  schedule: {self.schedule.key}")
        if self.precision is not None and self.precision.is_fallback:
            lines += [f"  precision: {step}" for step in self.precision.steps]
        ties = self.in_spite_of_times
        lines += [
            f"  then {candidate}{BY_TIE if candidate.variant in ties else ''}"
            for candidate in self.candidates
            if candidate.variant != self.variant
        ]
        again: dict[str, list[str]] = {}
        for variants, reason in self.rejected_together:
            if (variants, reason) in told:
                again.setdefault(told[variants, reason], []).append(variants)
            else:
                lines.append(f"  rejected {variants}: {reason}")
        lines += [f"  rejected as for [{node}]: {', '.join(each)}" for node, each in again.items()]
        lines.append(f"  would flip it: {self.flip}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain JSON values."""
        return {
            "op": self.op,
            "constants": list(self.constants),
            "variant": self.variant,
            "schedule": None if self.schedule is None else dict(self.schedule),
            "reason": self.reason,
            "candidates": [
                {"variant": c.variant, "score": c.score, "latency_us": c.latency_us, "shipped": c.shipped}
                for c in self.candidates
            ],
            "rejections": [
                {
                    "variant": r.variant,
                    "requirement": r.requirement,
                    "needed": r.needed,
                    "found": r.found,
                    "remedy": r.remedy,
                }
                for r in self.rejections
            ],
            "flip": self.flip,
            "flips": [{"variant": flip.variant, "what": flip.what} for flip in self.flips],
            "precision": None if self.precision is None else self.precision.to_dict(),
        }


def _needs(rejection: Rejection) -> str:
    if rejection.requirement == NOT_EXCLUDED:
        return f"it is excluded ({rejection.found}), and would have to be allowed"
    return f"it would need {rejection.needed} where there is {rejection.found}"


def _flip(won: Candidate, other: Candidate) -> str:
    if won.latency_us is None:
        return f"a measurement: none was made, and the scores decided, {won.score:g} against {other.score:g}"
    if other.latency_us is None:
        return f"a measurement below {shown_us(won.latency_us)}: it was not measured here"
    if other.is_in_doubt(won):
        times = f"{shown_us(other.latency_us)} against {shown_us(won.latency_us)}"
        return f"a race on a quieter machine: this one was too noisy to tell them apart, {times}"
    if other.ties_with(won):
        times = f"{shown_us(other.latency_us)} against {shown_us(won.latency_us)}"
        return f"being faster beyond the noise: it is a tie with {won.variant}, {times}"
    if won.shipped:
        times = f"{shown_us(other.latency_us)} against {shown_us(won.latency_us)}"
        return f"a measurement here that turns the shipped times round, {times}"
    times = other.latency_us / won.latency_us
    said = f"{times - 1:.1%} faster than" if times < _TIMES else f"{times:.1f} times as fast as"
    return f"{said} it was measured: {shown_us(other.latency_us)} against {shown_us(won.latency_us)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan:
    """The decisions of a graph by node, on one target; printed, it explains them."""

    target: str
    decisions: Mapping[str, Decision]

    def __post_init__(self) -> None:
        object.__setattr__(self, "decisions", MappingProxyType(dict(self.decisions)))

    def __getitem__(self, node: str) -> Decision:
        """Return the decision of a node.

        Raises:
            InvalidOption: nothing was decided for it; the message lists the nodes that there are.
        """
        if node not in self.decisions:
            raise InvalidOption(
                field="node", got=node, expected=tuple(self.decisions), remedy="ask for a node that computes"
            )
        return self.decisions[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self.decisions)

    def __len__(self) -> int:
        return len(self.decisions)

    def __str__(self) -> str:
        """Explain all decisions."""
        return self.explain()

    def __repr__(self) -> str:
        """Name each node's variant."""
        chosen = ", ".join(f"{node}: {decision.variant}" for node, decision in self.decisions.items())
        return f"Plan({chosen})"

    def explain(self) -> str:
        """Return all decisions as text; why variants are rejected is said once, and pointed to from then on."""
        parts: list[str] = []
        told: dict[tuple[str, str], str] = {}
        for node, decision in self.decisions.items():
            parts.append(f"[{node}] {decision.explain(told)}")
            told = {**dict.fromkeys(decision.rejected_together, node), **told}
        return "\n".join([f"plan on {self.target}, {len(self)} ops", *parts])

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return {
            "target": self.target,
            "decisions": {node: decision.to_dict() for node, decision in self.decisions.items()},
        }
