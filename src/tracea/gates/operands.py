"""The gate of single operands: an operand that changes alone, in the same memory, changes the result.

All inputs of other gates change together from run to run: a kernel that packs its second factor when the first one
changes is right on them, and wrong for a model's weights after a training step. One that knows an operand again by a
sample of it, or by its sum, is right until a single element changes, or two change places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tracea.gates.case import Case, case_of
from tracea.gates.comparison import compare_output
from tracea.gates.distribution import Distribution
from tracea.gates.guarded import Poison
from tracea.gates.inputs import operands_that_change_alone
from tracea.gates.verdict import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracea.core.op import Op
    from tracea.gates.correctness import Bench, Run

__all__ = ["check_operands"]

_PLAIN: Final = (Distribution.NORMAL.value, Distribution.WIDE.value, Distribution.INTEGER.value)
_KEPT_SHARE: Final = 4  # the first quarter of an operand stays: nobody may know it again by its beginning
_SHOWS: Final = 20.0  # beside small integers: it is the largest, of exponents the only one, and a term of any sum
_DRAWS: Final = 40  # of numbers of which about one in ten is prime
_TRIES: Final = 4  # of changes that do not show in the result, such as of an element that is not read

# Of an operand, the number of the attempt and a generator: the operand changed, None where no change is found.
_Change: TypeAlias = "Callable[[NDArray[Any], int, np.random.Generator], NDArray[Any] | None]"


def check_operands(run: Run, bench: Bench, op: Op, cases: Sequence[Case], rng: np.random.Generator) -> Check | None:
    """Run a case, then with one operand changed, for each operand: most of it, one element, and two that change places.

    None where there are no cases. An operand that is the only one changes in its elements alone: other gates change
    all of it.
    """
    alone = operands_that_change_alone(op)
    plain = sorted(cases, key=lambda case: _PLAIN.index(case.name) if case.name in _PLAIN else len(_PLAIN))
    if not alone or not plain:
        return None
    # Sums of integers are the same to the last bit in any order.
    base = next((case for case in plain if case.name == Distribution.INTEGER.value), plain[0])
    chain = _Chain(run=run, bench=bench, op=op, rng=rng, inputs=base.inputs)
    wrong = chain.walk(base, [group[0] for group in alone if len(group) == 1])
    runs = chain.runs
    if len(alone) > 1 and len(plain) > 1:
        runs += 2 * len(alone)
        wrong += _with_tails(run, bench, op, alone, plain)
    return Check(
        name="follows each operand",
        passed=not wrong,
        figure=len(wrong),
        limit=0,
        detail=wrong[0] if wrong else f"wrong runs of {runs}",
    )


def _with_tails(run: Run, bench: Bench, op: Op, alone: tuple[tuple[int, ...], ...], plain: Sequence[Case]) -> list[str]:
    kept, other = plain[:2]
    wrong: list[str] = []
    for group in alone:
        inputs = list(kept.inputs)
        for index in group:
            whole = len(group) > 1 or op.operands[index].overlaps_itself
            inputs[index] = other.inputs[index] if whole else _tail_of(kept.inputs[index], other.inputs[index])
        names = " and ".join(str(index) for index in group)
        changed = case_of(op, tuple(inputs), name=f"operand {names} alone")
        for case in (kept, changed):
            seen = bench.observe(run, case, poison=Poison.NAN, fresh=False)
            if seen.error or not seen.comparison.passed or seen.unwritten:
                wrong.append(f"{changed.name}: {seen.error or seen.comparison.detail or 'elements left unwritten'}")
    return wrong


def _tail_of(kept: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Return ``kept`` with all but its first quarter from ``other``."""
    mixed = kept.copy().reshape(-1)
    first = mixed.size // _KEPT_SHARE
    mixed[first:] = np.ascontiguousarray(other).reshape(-1)[first:]
    return mixed.reshape(kept.shape)


@dataclass(slots=True, kw_only=True)
class _Chain:
    """Inputs that change from run to run by an element or two of one operand, in the same memory.

    A result of the very same bits was computed from the inputs before, unless the change does not show: only then is
    the reference asked. At the end the first inputs are there again, of which the right result is known.
    """

    run: Run
    bench: Bench
    op: Op
    rng: np.random.Generator
    inputs: tuple[NDArray[Any], ...]
    digest: str = ""
    runs: int = 0

    def walk(self, base: Case, operands: Sequence[int]) -> list[str]:
        """Return what was wrong."""
        self.digest, error = self._run_on(self.inputs)
        wrong = [error] if error else []
        for index in operands:
            if self.op.operands[index].overlaps_itself or self.inputs[index].size < 2 or error:
                continue
            for name, change in _CHANGES.items():
                if found := self._follows(index, change):
                    wrong.append(f"{name} of operand {index}: {found}")
        seen = self.bench.observe(self.run, base, poison=Poison.NAN, fresh=False)
        self.runs += 1
        if seen.error or not seen.comparison.passed or seen.unwritten:
            found = seen.error or seen.comparison.detail or "elements left unwritten"
            wrong.append(f"{base.name} after inputs that differ in a few elements: {found}")
        return wrong

    def _follows(self, index: int, change: _Change) -> str:
        """Return what is wrong with a run on inputs one of whose operands was changed, "" if nothing."""
        for attempt in range(_TRIES):
            values = change(self.inputs[index], attempt, self.rng)
            if values is None:
                break
            inputs = (*self.inputs[:index], values, *self.inputs[index + 1 :])
            digest, error = self._run_on(inputs)
            if error:
                return error
            if digest != self.digest:
                self.inputs, self.digest = inputs, digest
                break
            if self._shows(inputs):
                return "the result of the inputs before"
        return ""

    def _run_on(self, inputs: tuple[NDArray[Any], ...]) -> tuple[str, str]:
        self.runs += 1
        return self.bench.digest_of(self.run, inputs)

    def _shows(self, inputs: tuple[NDArray[Any], ...]) -> bool:
        """Whether right results of these inputs and of those before differ for certain."""
        before, after = (case_of(self.op, each, name="") for each in (self.inputs, inputs))
        with np.errstate(all="ignore"):
            apart = before.bound + after.bound
        return not compare_output(after.expected, before.expected, apart).passed


def _with_one_changed(values: NDArray[Any], attempt: int, rng: np.random.Generator) -> NDArray[Any] | None:
    """Put a number that shows, or an integer of another place, in the place of one element."""
    changed = values.copy().reshape(-1)
    place = _prime_below(changed.size, rng)
    if changed.dtype.kind in "iub":  # row numbers stay row numbers
        if (other := _unlike(changed, place, changed.size, rng)) is None:
            return None
        changed[place] = changed[other]
    else:
        changed[place] = -_SHOWS if attempt % 2 else _SHOWS
    return changed.reshape(values.shape)


def _with_two_exchanged(values: NDArray[Any], attempt: int, rng: np.random.Generator) -> NDArray[Any] | None:
    """Let two elements change places: their sum is what it was."""
    changed = values.copy().reshape(-1)
    # The largest of all, which was changed before, shows where another may not: in a maximum.
    place = int(np.argmax(changed)) if attempt % 2 else _prime_below(changed.size, rng)
    if (other := _unlike(changed, place, changed.size // 2, rng)) is None:
        return None
    changed[[place, other]] = changed[[other, place]]
    return changed.reshape(values.shape)


_CHANGES: Final[Mapping[str, _Change]] = {
    "one element changed": _with_one_changed,
    "two elements exchanged": _with_two_exchanged,
}


def _unlike(flat: NDArray[Any], place: int, below: int, rng: np.random.Generator) -> int | None:
    """Return the place, below a limit, of an element of another value than the one at ``place``; None: none found."""
    drawn = [_prime_below(below, rng) for _ in range(_TRIES)] + rng.integers(max(1, below), size=_TRIES).tolist()
    return next((other for other in drawn if flat[other] != flat[place]), None)


def _prime_below(count: int, rng: np.random.Generator) -> int:
    """Draw a place whose number is prime, in the upper half: who samples every n-th element misses it."""
    for number in rng.integers(count // 2, max(1, count), _DRAWS).tolist():
        if number > 1 and all(number % factor for factor in range(2, math.isqrt(number) + 1)):
            return number
    return count - 1
