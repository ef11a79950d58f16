"""The correctness gate: poisoned outputs between canaries, inputs that change from run to run, float64 as the judge."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tracea.core.contract import Accuracy
from tracea.core.op import Conv2dOp
from tracea.errors import CacheError, ToolchainMissing
from tracea.gates.comparison import Comparison, compare_output
from tracea.gates.control import read_control
from tracea.gates.guarded import ALIGNMENT_BYTES, GuardedArray, Poison
from tracea.gates.verdict import Check

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.op import Op
    from tracea.gates.case import Case

__all__ = ["Bench", "Observation", "Run", "check_correctness"]

# Elements from a 64-byte boundary, of operands that start apart; with those below, all places of f32 in 16 allocations.
_APART: Final = (1, 7, 13, 3, 10, 5, 11, 6, 9, 14, 0)
_TOGETHER: Final = (-1, 16, 32, 8, 48)  # bytes, of operands that all start alike; below zero: at the last element
_TURN: Final = 3  # of so many fresh allocations one starts all operands alike
_CYCLE: Final = len(_APART) + len(_TOGETHER)
_PLACES: Final = 16  # of f32 in a line; of narrower elements there are more, which further rounds reach

# Fills its second argument from the arrays of the first, which it must leave alone.
Run: TypeAlias = Callable[[Sequence["NDArray[Any]"], "NDArray[Any]"], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one run did: its output against the meaning, and the memory that it should not have touched.

    Units: ``damage`` is bytes beside the output, ``input_damage`` elements of inputs and bytes
    beside them, ``unwritten`` elements of the output. ``control_changed``: the run left the thread another rounding
    mode, flush of subnormals or mask of exceptions; it is set again before anything else is computed.
    """

    comparison: Comparison
    unwritten: int
    damage: int
    input_damage: int
    control_changed: bool = False
    digest: str = ""
    error: str = ""


class Bench:
    """The memory that a kernel under judgement runs on: one set of buffers that is refilled, and a fresh one on demand.

    A kernel that remembers results by address is caught when the same buffers hold other values, one that remembers
    addresses when the buffers move.
    """

    def __init__(self, op: Op) -> None:
        self._op = op
        self._kept = self._allocate(lambda index, itemsize: 0)
        self._fresh = 0

    @property
    def contract(self) -> str:
        """What the bound of an error is, where it is not an element's own: as an addition to a figure."""
        by_norm = isinstance(self._op, Conv2dOp) and self._op.accuracy is Accuracy.NORMWISE
        return ", by norm" if by_norm else ""

    def observe(self, run: Run, case: Case, *, poison: Poison, fresh: bool, digest: bool = False) -> Observation:
        """Run once on the case's inputs and report; ``fresh`` uses new buffers that start some elements off alignment.

        What a run left beside an input stays and is reported again: a kernel gets no second chance there.

        Raises:
            ToolchainMissing, CacheError: the machine could not run it.
        """
        inputs, output = self._misaligned() if fresh else self._kept
        _fill(inputs, output, case.inputs, poison)
        error, control_changed = _attempt(run, inputs, output)
        return Observation(
            comparison=compare_output(output.array, case.expected, case.bound, signed_zeros=case.signed_zeros),
            unwritten=output.unwritten(poison, possible=case.expected),
            damage=output.damage(),
            input_damage=sum(
                guarded.differing(values) + guarded.damage()
                for guarded, values in zip(inputs, case.inputs, strict=True)
            ),
            control_changed=control_changed,
            digest=_digest(output) if digest else "",
            error=error,
        )

    def digest_of(self, run: Run, values: Sequence[NDArray[Any]]) -> tuple[str, str]:
        """Run once in the kept buffers and return the result's digest, and what was raised: nothing is compared."""
        inputs, output = self._kept
        _fill(inputs, output, values, Poison.NAN)
        error, _ = _attempt(run, inputs, output)
        return _digest(output), error

    def laid_out(self, case: Case) -> tuple[list[NDArray[Any]], GuardedArray]:
        """Return the kept buffers, filled with a case's inputs, for whoever runs a kernel in them himself."""
        inputs, output = self._kept
        _fill(inputs, output, case.inputs, Poison.NAN)
        return [guarded.array for guarded in inputs], output

    def _misaligned(self) -> tuple[list[GuardedArray], GuardedArray]:
        """Return buffers each of which starts elsewhere in its cache line than before, and most times than the others.

        Some kernels choose a path by whether all addresses agree, in 16 bytes or 32: every third time all start alike.
        """
        cycle, step = divmod(self._fresh, _CYCLE)
        self._fresh += 1
        turn, within = divmod(step, _TURN)
        if within == _TURN - 1:
            return self._allocate(lambda _, itemsize: max(-1, _TOGETHER[turn] // itemsize))
        first = step - turn

        def apart(index: int, itemsize: int) -> int:
            places = ALIGNMENT_BYTES // itemsize
            spread = 5 if places > _PLACES else 1
            return (_APART[(first + index) % len(_APART)] * spread + cycle * _PLACES) % places

        return self._allocate(apart)

    def _allocate(self, offset: Callable[[int, int], int]) -> tuple[list[GuardedArray], GuardedArray]:
        """Return buffers for all operands and the result; ``offset`` says of a number and a size where in a line."""
        kinds = (*self._op.operands, self._op.infer())
        arrays = [
            GuardedArray.of(kind, misaligned=offset(index, kind.dtype.nbytes)) for index, kind in enumerate(kinds)
        ]
        return arrays[:-1], arrays[-1]


def _fill(inputs: Sequence[GuardedArray], output: GuardedArray, values: Sequence[NDArray[Any]], poison: Poison) -> None:
    for guarded, each in zip(inputs, values, strict=True):
        guarded.fill(each)
    output.poison(poison)


def _attempt(run: Run, inputs: Sequence[GuardedArray], output: GuardedArray) -> tuple[str, bool]:
    """Run, and return what was raised, and whether the thread's control was changed, which is set again.

    Raises:
        ToolchainMissing, CacheError: the machine could not run it.
    """
    before, error = read_control(), ""
    try:
        with np.errstate(all="ignore"):  # some of the inputs are meant to overflow
            run([guarded.array for guarded in inputs], output.array)
    except (ToolchainMissing, CacheError):  # says what this machine lacks, and nothing of the candidate
        raise
    except Exception as raised:  # any failure of a candidate is a finding about it, kept in the verdict
        error = f"{type(raised).__name__}: {raised}"
    changed = read_control().registers != before.registers
    if changed:
        before.restore()
    return error, changed


def _digest(output: GuardedArray) -> str:
    return hashlib.blake2b(output.content(), digest_size=8).hexdigest()


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
            seen.append((case.name, replace(observation, unwritten=unwritten)))
    names = dict.fromkeys(case.name for case in cases)
    worst = [_worst_of(each, [o for name, o in seen if name == each], bench.contract) for each in names]
    return (
        *worst,
        _sum_check("every output written", "elements left unwritten", [(n, o.unwritten) for n, o in seen]),
        _sum_check("nothing written beside the output", "bytes", [(n, o.damage) for n, o in seen]),
        _sum_check("inputs untouched", "elements and bytes", [(n, o.input_damage) for n, o in seen]),
        _sum_check(
            "rounding and flushing as before", "runs that changed them", [(n, int(o.control_changed)) for n, o in seen]
        ),
    )


def _worst_of(case: str, observations: Sequence[Observation], contract: str) -> Check:
    """Report a case by its worst run: the largest error as a share of its bound, which is the contract's."""
    worst = max(observations, key=lambda seen: (not seen.comparison.passed, seen.comparison.worst)).comparison
    return Check(
        name=f"correct on {case}",
        passed=worst.passed,
        figure=worst.worst,
        limit=1.0,
        detail=worst.detail or f"error / bound{contract}",
    )


def _sum_check(name: str, unit: str, figures: Sequence[tuple[str, int]]) -> Check:
    total = sum(figure for _, figure in figures)
    where = ", ".join(dict.fromkeys(case for case, figure in figures if figure))
    return Check(name=name, passed=total == 0, figure=total, limit=0, detail=f"{unit} on {where}" if total else unit)
