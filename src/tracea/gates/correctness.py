"""The correctness gate: poisoned outputs between canaries, inputs that change from run to run, float64 as the judge."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tracea.errors import CacheError, ToolchainMissing
from tracea.gates.comparison import Comparison, compare_output
from tracea.gates.guarded import GuardedArray, Poison
from tracea.gates.verdict import Check

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.op import Op
    from tracea.gates.case import Case

__all__ = ["Bench", "Observation", "Run", "check_correctness"]

# Elements from a 64-byte boundary: of f32 all there are, odd ones and those that keep 8 to 32 bytes aligned by turns.
_OFFSETS: Final = (1, 7, 2, 13, 15, 4, 3, 8, 10, 5, 12, 11, 6, 9, 14, 0)
_TOGETHER: Final = 5  # of so many fresh allocations one starts all operands at one odd offset; the first at 15

# Fills its second argument from the arrays of the first, which it must leave alone.
Run: TypeAlias = Callable[[Sequence["NDArray[Any]"], "NDArray[Any]"], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one run did: its output against the meaning, and the memory that it should not have touched.

    Units: ``damage`` is bytes beside the output, ``input_damage`` elements of inputs and bytes
    beside them, ``unwritten`` elements of the output.
    """

    comparison: Comparison
    unwritten: int
    damage: int
    input_damage: int
    digest: str = ""
    error: str = ""


class Bench:
    """The memory that a kernel under judgement runs on: one set of buffers that is refilled, and a fresh one on demand.

    A kernel that remembers results by address is caught when the same buffers hold other values, one that remembers
    addresses when the buffers move.
    """

    def __init__(self, op: Op) -> None:
        self._op = op
        self._kept = self._allocate([0])
        self._fresh = 0

    def observe(self, run: Run, case: Case, *, poison: Poison, fresh: bool, digest: bool = False) -> Observation:
        """Run once on the case's inputs and report; ``fresh`` uses new buffers that start some elements off alignment.

        What a run left beside an input stays and is reported again: a kernel gets no second chance there.

        Raises:
            ToolchainMissing, CacheError: the machine could not run it.
        """
        inputs, output = self._misaligned() if fresh else self._kept
        for guarded, values in zip(inputs, case.inputs, strict=True):
            guarded.fill(values)
        output.poison(poison)
        error = ""
        try:
            with np.errstate(all="ignore"):  # some of the inputs are meant to overflow
                run([guarded.array for guarded in inputs], output.array)
        except (ToolchainMissing, CacheError):  # says what this machine lacks, and nothing of the candidate
            raise
        except Exception as raised:  # any failure of a candidate is a finding about it, kept in the verdict
            error = f"{type(raised).__name__}: {raised}"
        return Observation(
            comparison=compare_output(output.array, case.expected, case.bound),
            unwritten=output.unwritten(poison, possible=case.expected),
            damage=output.damage(),
            input_damage=sum(
                guarded.differing(values) + guarded.damage()
                for guarded, values in zip(inputs, case.inputs, strict=True)
            ),
            digest=hashlib.blake2b(output.content(), digest_size=8).hexdigest() if digest else "",
            error=error,
        )

    def _misaligned(self) -> tuple[list[GuardedArray], GuardedArray]:
        """Return buffers each of which starts elsewhere in its cache line than before, and most times than the others.

        Some kernels choose a path by whether all addresses agree: every fifth time all start alike.
        """
        self._fresh += 1
        turned = np.roll(_OFFSETS, 1 - self._fresh).tolist()
        together = self._fresh % _TOGETHER == 0
        return self._allocate([next(offset for offset in turned if offset % 2)] if together else turned)

    def _allocate(self, offsets: Sequence[int]) -> tuple[list[GuardedArray], GuardedArray]:
        """Return buffers for all operands and the result, of which each takes the next offset, in elements."""
        count = len(offsets)
        kinds = (*self._op.operands, self._op.infer())
        arrays = [GuardedArray.of(kind, misaligned=offsets[i % count]) for i, kind in enumerate(kinds)]
        return arrays[:-1], arrays[-1]


def check_correctness(run: Run, bench: Bench, cases: Sequence[Case]) -> tuple[Check, ...]:
    """Run every case twice, with two poisons and in kept and fresh buffers, and report each finding as a check."""
    seen: list[tuple[str, Observation]] = []
    for index, case in enumerate(cases):
        poisons = (Poison.NAN, Poison.FINITE) if index % 2 == 0 else (Poison.FINITE, Poison.NAN)
        for poison, fresh in zip(poisons, (False, True), strict=True):
            observation = bench.observe(run, case, poison=poison, fresh=fresh)
            if observation.error:
                return (Check(name="runs", passed=False, figure=observation.error, limit="no error", detail=case.name),)
            # A number of the finite poison may be a right result; the other poison is a NaN that no arithmetic makes.
            unwritten = observation.unwritten if poison is Poison.NAN else 0
            seen.append((case.name, _with_unwritten(observation, unwritten)))
    names = dict.fromkeys(case.name for case in cases)
    worst = [_worst_of(each, [o for name, o in seen if name == each]) for each in names]
    return (
        *worst,
        _sum_check("every output written", "elements left unwritten", [(n, o.unwritten) for n, o in seen]),
        _sum_check("nothing written beside the output", "bytes", [(n, o.damage) for n, o in seen]),
        _sum_check("inputs untouched", "elements and bytes", [(n, o.input_damage) for n, o in seen]),
    )


def _with_unwritten(observation: Observation, unwritten: int) -> Observation:
    return Observation(
        comparison=observation.comparison,
        unwritten=unwritten,
        damage=observation.damage,
        input_damage=observation.input_damage,
    )


def _worst_of(case: str, observations: Sequence[Observation]) -> Check:
    """Report a case by its worst run: the largest error as a share of its bound."""
    worst = max(observations, key=lambda seen: (not seen.comparison.passed, seen.comparison.worst)).comparison
    return Check(
        name=f"correct on {case}",
        passed=worst.passed,
        figure=worst.worst,
        limit=1.0,
        detail=worst.detail or "error / bound",
    )


def _sum_check(name: str, unit: str, figures: Sequence[tuple[str, int]]) -> Check:
    total = sum(figure for _, figure in figures)
    where = ", ".join(dict.fromkeys(case for case, figure in figures if figure))
    return Check(name=name, passed=total == 0, figure=total, limit=0, detail=f"{unit} on {where}" if total else unit)
