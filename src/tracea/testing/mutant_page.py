"""The record of who noticed which mutant of the GPU kernels, and docs/gpu-mutants.md, which is made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from tracea.testing.equivalent_mutants import argument_for

__all__ = ["LEAST_NOTICED", "MOST_ARGUED", "STOREYS", "Judged", "KernelScore", "page", "shortfalls"]

LEAST_NOTICED: Final = 0.98
"""Of the mutants that are mistakes."""
MOST_ARGUED: Final = 0.02
"""Of all mutants: those that are none."""
STOREYS: Final = ("IR", "text")

_HEAD = """\
# Mutants of the GPU kernels

Written by `make gpu-mutants`; do not edit. One mechanical mistake each: in the IR, every index, bound, mask, stride,
wait, barrier, arrival, stage, swizzle, role and guard; in the text, every number, sign, comparison, call, swizzle,
width and condition of a line. Checkers are asked in the order of what they cost, and the first that notices counts:

1. **proof: …** one of the kernel's proofs fails; **minimal sync**: a wait is no longer needed.
2. **interpreter**: the IR computes another result, or stops.
3. **emitter**, **register bounds**, **address widths**, **compiler**: the text cannot be printed, indexes registers
   that there are not, computes an address in 32 bits, or does not compile.
4. **emulator: …** a finding of the emulated text; **numbers**: its result is not that of float64; **banks**: more
   conflicts than are certified; **work**: the right result by other primitives than the original's.

The text of an IR mutant is judged as well, if nothing before noticed it. Calls have sizes at which a comparison or a
quotient that is one off shows; one schedule of every call, then three more of the longest.

"""
_BY_TESTS: Final = ("register bounds", "address widths")
"""Checkers of `tracea.testing`: nothing calls them where a kernel is chosen, built or verified."""
_BY_WORK: Final = "work"
_LIMITS = """
What the table does not say:

- The kernels are those of the table alone, of f16 factors: no other element type, no epilogue, no batch, tiles row by
  row (no table of an order), and no split-K. Headers are as they are: what a primitive does is not mutated here.
"""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One mutant: its kernel, its storey (IR or text), its family, what it is, and who noticed it."""

    kernel: str
    storey: str
    family: str
    description: str
    by: str | None

    @property
    def whole(self) -> str:
        """The family and the description."""
        return f"{self.family}: {self.description}"

    @property
    def argued(self) -> str | None:
        """Why it need not be noticed, where nobody did and it is no mistake."""
        argument = argument_for(self.kernel, self.whole) if self.by is None else None
        return None if argument is None else argument.reason


class KernelScore(msgspec.Struct, kw_only=True):
    """All that is known of one kernel: its mutants in their order, and the false alarms about the original.

    ``of`` is how many mutants there are: more than were judged, where a sample was.
    """

    kernel: str
    of: int
    mutants: list[Judged] = []
    alarms: list[str] = []
    schedules: int = 0
    seconds: float = 0.0


def shortfalls(scores: Sequence[KernelScore]) -> list[str]:
    """Return what is not reached: noticed mutants of each kernel, argued ones of all, originals without an alarm."""
    found: list[str] = []
    for score in scores:
        argued = sum(mutant.argued is not None for mutant in score.mutants)
        noticed = sum(mutant.by is not None for mutant in score.mutants)
        if noticed < LEAST_NOTICED * (len(score.mutants) - argued):
            found.append(
                f"{score.kernel}: {noticed} of {len(score.mutants) - argued} noticed, {LEAST_NOTICED:.0%} are due"
            )
        found += [f"{score.kernel}: false alarm: {alarm}" for alarm in score.alarms]
    mutants = [mutant for score in scores for mutant in score.mutants]
    argued = sum(mutant.argued is not None for mutant in mutants)
    if argued > MOST_ARGUED * len(mutants):
        found.append(f"{argued} of {len(mutants)} mutants argued to be equivalent, at most {MOST_ARGUED:.0%} may be")
    return found


def page(scores: Sequence[KernelScore], *, when: str, seed: int) -> str:
    """Return the page's text."""
    mutants = [mutant for score in scores for mutant in score.mutants]
    lines = [
        *_summary(scores),
        *_limits(mutants),
        "",
        "## By kind",
        "",
        *_kinds(scores),
        "",
        "## Equivalent, by argument",
        "",
    ]
    argued = [(mutant, mutant.argued) for mutant in mutants if mutant.argued is not None]
    lines += _listed((mutant.kernel, f"{_code(mutant)}: {reason}") for mutant, reason in argued)
    lines += ["", "## Not noticed", ""]
    lines += _listed((m.kernel, _code(m)) for m in mutants if m.by is None and m.argued is None)
    lines += ["", "## False alarms", ""]
    lines += _listed((score.kernel, alarm) for score in scores for alarm in score.alarms)
    schedules = ", ".join(sorted({str(score.schedules) for score in scores}))
    total, judged = sum(score.of for score in scores), len(mutants)
    extent = "all of them" if judged == total else f"{judged} of {total}, a sample of each kernel's kinds, seed {seed}"
    seconds = sum(score.seconds for score in scores)
    lines += [
        "",
        "## This run",
        "",
        f"On {when}: {extent}, {seconds / 60:.0f} minutes of one processor, added up over its processes and compilers. "
        f"Each original ran on {schedules} schedules of every call.",
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _limits(mutants: Sequence[Judged]) -> list[str]:
    """Return what was not judged, and how many mutants only tests would notice."""
    counts = Counter(mutant.by for mutant in mutants)
    by_tests = " and ".join(f"{counts[name]} by {name}" for name in _BY_TESTS)
    return [
        _LIMITS.rstrip("\n"),
        f"- {counts[_BY_WORK]} are noticed by **work** alone, which compares with the original: whoever has only the",
        "  text cannot tell.",
        f"- {by_tests} are noticed by checkers that only tests call: `tracea verify` does not ask them.",
    ]


def _summary(scores: Sequence[KernelScore]) -> list[str]:
    lines = [
        "| kernel | storey | mutants | noticed | share | equivalent | not noticed |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [(score.kernel, storey, _of(score.mutants, storey)) for score in scores for storey in STOREYS]
    rows += [("all", storey, _of([m for score in scores for m in score.mutants], storey)) for storey in STOREYS]
    for kernel, storey, mutants in rows:
        argued = sum(mutant.argued is not None for mutant in mutants)
        noticed = sum(mutant.by is not None for mutant in mutants)
        share = f"{100 * noticed / max(1, len(mutants) - argued):.1f} %"
        missed = len(mutants) - argued - noticed
        lines.append(f"| {kernel} | {storey} | {len(mutants)} | {noticed} | {share} | {argued} | {missed} |")
    return lines


def _kinds(scores: Sequence[KernelScore]) -> list[str]:
    lines = ["| kernel | storey | kind | mutants | noticed by |", "|---|---|---|---|---|"]
    for score in scores:
        for storey in STOREYS:
            mutants = _of(score.mutants, storey)
            for family in sorted({mutant.family for mutant in mutants}):
                those = [mutant for mutant in mutants if mutant.family == family]
                lines.append(f"| {score.kernel} | {storey} | {family} | {len(those)} | {_counts(those)} |")
    return lines


def _counts(mutants: Iterable[Judged]) -> str:
    by: Mapping[str, int] = Counter(
        mutant.by or ("equivalent" if mutant.argued is not None else "nobody") for mutant in mutants
    )
    return "; ".join(f"{who} {count}" for who, count in sorted(by.items(), key=lambda item: (-item[1], item[0])))


def _of(mutants: Iterable[Judged], storey: str) -> list[Judged]:
    return [mutant for mutant in mutants if mutant.storey == storey]


def _code(mutant: Judged) -> str:
    return f"{mutant.storey}: `{mutant.whole}`"


def _listed(items: Iterable[tuple[str, str]]) -> list[str]:
    return [f"- {kernel}: {what}" for kernel, what in items] or ["None."]
