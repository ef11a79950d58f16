"""Trial and Outcome: one tried schedule, and what came of it."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from tracea.errors import CompileError, InvalidOption, RunError, TraceaError, VerdictFailed
from tracea.optimizer.space import Row, Value

# How records from before KILLED said the same: a child that did not start, or was killed from outside.
_KILLED_BEFORE: Final = re.compile(r"RunError: [\w.]+:\w+: |ended by SIGKILL\b")


class NotStarted(RunError):
    """The process that evaluates did not start: no candidate was in it, so none is to blame."""


class OutcomeKind(enum.StrEnum):
    """How an evaluation ended; only ``ok`` has a latency.

    ``killed`` says nothing of the schedule: SIGKILL is sent from outside, by another program or by the machine for want
    of memory, or a compiler does not start for want of what the machine or a limit allows. It counts in the run that
    saw it, is not kept, and a later run tries the schedule again.
    """

    OK = "ok"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG = "wrong"
    INVALID = "invalid"
    KILLED = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one evaluation.

    ``detail`` says why it failed; ``samples_ms`` are the repeats behind the latency; ``metrics`` holds further
    numbers by name.
    Units: milliseconds.
    Raises: InvalidOption where a success has no positive finite latency, or a failure has one.
    """

    kind: OutcomeKind
    latency_ms: float | None = None
    detail: str = ""
    samples_ms: tuple[float, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        if self.kind is OutcomeKind.OK:
            if self.latency_ms is None or not math.isfinite(self.latency_ms) or self.latency_ms <= 0.0:
                raise InvalidOption(
                    field="outcome.latency_ms",
                    got=self.latency_ms,
                    expected="a positive finite number of milliseconds",
                    remedy="report a failed evaluation under its own kind",
                )
        elif self.latency_ms is not None:
            raise InvalidOption(
                field="outcome.latency_ms",
                got=self.latency_ms,
                expected=f"None, since the outcome is {self.kind}",
                remedy="only a verified run has a latency",
            )

    @classmethod
    def of_error(cls, error: Exception) -> Self:
        """Record what was raised: a refused schedule is invalid, a refused result wrong, anything else a crash."""
        kind = OutcomeKind.CRASHED
        match error:
            case VerdictFailed():
                kind = OutcomeKind.WRONG
            case CompileError(exit_code=CompileError.NOT_STARTED):  # for want of processes, files or memory
                kind = OutcomeKind.KILLED
            case RunError():
                kind = OutcomeKind.CRASHED
            case TraceaError():
                kind = OutcomeKind.INVALID
            case MemoryError():
                kind = OutcomeKind.OUT_OF_MEMORY
            case TimeoutError():
                kind = OutcomeKind.TIMED_OUT
            case _:
                pass
        detail = f"{type(error).__name__}: {error}"
        return cls(kind=kind, detail=detail)

    @property
    def is_ok(self) -> bool:
        """Tell whether the evaluation succeeded."""
        return self.kind is OutcomeKind.OK

    @property
    def was_killed(self) -> bool:
        """Tell whether it was ended from outside, as old records say it too: that says nothing of the schedule."""
        is_old = self.kind is OutcomeKind.CRASHED and _KILLED_BEFORE.match(self.detail) is not None
        return self.kind is OutcomeKind.KILLED or is_old


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One schedule of a study: before its evaluation ``outcome`` is None.

    ``incumbent`` is the best trial when this one began: an evaluation that times both interleaved is not misled by a
    machine whose speed drifts. ``retimed_ms`` is the latency by which it ranks after the final interleaved comparison,
    which outranks the outcome's own; ``median_ms`` is what was measured there, which may be below the rank's.
    Units: ``seconds`` is what the evaluation took in all.
    """

    number: int
    row: Row
    schedule: Mapping[str, Value]
    outcome: Outcome | None = None
    seconds: float = 0.0
    retimed_ms: float | None = None
    median_ms: float | None = None
    is_resumed: bool = False
    incumbent: Trial | None = None

    @property
    def is_ok(self) -> bool:
        """Tell whether the trial was evaluated and succeeded."""
        return self.outcome is not None and self.outcome.is_ok

    @property
    def latency_ms(self) -> float | None:
        """Return the best-founded latency: of the final comparison, else of the evaluation, else None."""
        if self.retimed_ms is not None:
            return self.retimed_ms
        return self.outcome.latency_ms if self.outcome is not None else None

    @property
    def measured_ms(self) -> float | None:
        """Return the latency that was measured last: what ``latency_ms`` says but for one that lost a tie."""
        return self.latency_ms if self.median_ms is None else self.median_ms
