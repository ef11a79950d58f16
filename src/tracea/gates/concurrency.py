"""The gate of callers at once: two threads that run one kernel on inputs of their own each get their own results.

A kernel that builds its result, or packs an operand, in storage of its program rather than of its call is right in any
sequence of calls, and wrong for a server that has two requests.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.gates.comparison import compare_output
from tracea.gates.guarded import Poison
from tracea.gates.verdict import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracea.gates.case import Case
    from tracea.gates.correctness import Bench, Run
    from tracea.gates.guarded import GuardedArray

__all__ = ["check_concurrency"]

_TOGETHER, _FEW = 48, 4  # runs of each thread within which the other one had begun
_ENOUGH_S: Final = 0.01  # of runs together, but for the few at least: long ones are side by side almost throughout
_MOST_S: Final = 0.05  # for which they try to meet; a loaded machine runs them one after the other
_LEAST: Final = 2  # runs of each, however long one takes
_SWITCH_S: Final = 1e-5  # between Python's threads meanwhile: what is Python in a run is interleaved too


@dataclass(slots=True, kw_only=True)
class _Caller:
    """One thread's inputs, what it gets alone, and what it got in company."""

    case: Case
    inputs: list[NDArray[Any]]
    output: GuardedArray
    alone: bytes = b""
    seconds: float = 0.0
    begun: int = 0
    runs: int = 0
    together: int = 0
    is_inside: bool = False
    wrong: list[str] = field(default_factory=list[str])

    def run(self, run: Run) -> None:
        with np.errstate(all="ignore"):
            run(self.inputs, self.output.array)

    def run_beside(self, run: Run, other: _Caller) -> None:
        """Run, and note whether the other one was in a run of its own then, or began one."""
        self.output.poison(Poison.NAN)  # else what a run leaves out would be right by the run before
        inside, begun = other.is_inside, other.begun
        self.begun += 1
        self.is_inside = True
        try:
            self.run(run)
        finally:
            self.is_inside = False
        self.runs += 1
        self.together += inside or other.begun != begun

    def look(self) -> None:
        """Note a result that is neither the one that the thread got alone, nor right."""
        if self.output.content() == self.alone:
            return
        case = self.case
        found = compare_output(self.output.array, case.expected, case.bound, signed_zeros=case.signed_zeros)
        if not found.passed:
            self.wrong.append(f"run {self.runs} on {case.name}: {found.detail}")


def check_concurrency(run: Run, benches: tuple[Bench, Bench], cases: Sequence[Case]) -> Check:
    """Run two cases in two threads, each on its own bench, again and again for a short while, and count wrong results.

    A window without a fault is no proof: it is a fault's chance to be seen, which is good where a kernel keeps what it
    computes with throughout a run.
    """
    callers: list[_Caller] = []
    for bench, case in zip(benches, (cases[0], cases[1 % len(cases)]), strict=True):
        inputs, output = bench.laid_out(case)
        callers.append(_Caller(case=case, inputs=inputs, output=output))
    turn, barrier = threading.Lock(), threading.Barrier(len(callers))

    def call(caller: _Caller, other: _Caller) -> None:
        # Alone too in a thread of its own, with which whatever a run does to a thread's state ends.
        try:
            with turn:
                started = time.monotonic()
                caller.run(run)
                caller.seconds = time.monotonic() - started
                caller.look()  # by itself it has to be right too: it is in a thread of its own
                caller.alone = caller.output.content()
            barrier.wait()
            until = time.monotonic() + _MOST_S
            needed = max(_FEW, min(_TOGETHER, int(_ENOUGH_S / max(caller.seconds, 1e-6))))
            while caller.runs < _LEAST or (
                time.monotonic() < until
                and min(caller.together, other.together) < needed
                and not caller.wrong
                and not other.wrong
            ):
                caller.run_beside(run, other)
                caller.look()
        except Exception as raised:  # as in any other run of a candidate: a finding about it
            barrier.abort()
            caller.wrong.append(f"{type(raised).__name__}: {raised}")

    threads = [threading.Thread(target=call, args=pair) for pair in (callers, callers[::-1])]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    wrong = [finding for caller in callers for finding in caller.wrong]
    return Check(
        name="right for two callers at once",
        passed=not wrong,
        figure=len(wrong),
        limit=0,
        detail=wrong[0] if wrong else f"wrong runs of {sum(caller.runs for caller in callers)}",
    )
