"""The log of a search: one line a trial, written as it ends, as CSV or as JSON lines."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from tracea.errors import InvalidOption

if TYPE_CHECKING:
    from tracea.doctor.policy import Guidance
    from tracea.optimizer.study import Progress

__all__ = ["COLUMNS", "POLICY", "TrialLog"]

POLICY: Final = "policy"  # the outcome of a line that is no trial but a reason of the policy

COLUMNS: Final = (
    "time",
    "op",
    "variant",
    "number",
    "schedule",
    "outcome",
    "latency_ms",
    "best_ms",
    "seconds",
    "elapsed_s",
    "detail",
)


class TrialLog:
    """A listener of ``flow.tuning.tune`` that appends each trial to a file; what was written survives a kill.

    Raises:
        InvalidOption: the name ends neither in .csv nor in .jsonl, or the file cannot be written.
    """

    def __init__(self, path: Path, op_key: str) -> None:
        if path.suffix not in (".csv", ".jsonl"):
            raise InvalidOption(
                field="--log", got=str(path), expected="a name that ends in .csv or .jsonl", remedy="--log trials.csv"
            )
        self._op = op_key
        try:
            self._file = path.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise InvalidOption(
                field="--log",
                got=f"{path}: {error.strerror}",
                expected="a file that can be written",
                remedy="name one in a directory that exists and is yours",
            ) from error
        self._csv = csv.writer(self._file) if path.suffix == ".csv" else None
        if self._csv is not None and self._file.tell() == 0:
            self._csv.writerow(COLUMNS)
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def guided(self, guidance: Guidance) -> None:
        """Write a line for each reason of the policy: what it left out of a variant's space, and what comes first."""
        for reason in guidance.reasons:
            self._write(guidance.variant, {"outcome": POLICY, "detail": reason})

    def __call__(self, variant: str, progress: Progress) -> None:
        """Write the trial that ended."""
        trial, best = progress.trial, progress.best
        outcome = trial.outcome
        line: dict[str, Any] = {
            "number": trial.number,
            "schedule": dict(trial.schedule),
            "outcome": None if outcome is None else outcome.kind.value,
            "latency_ms": trial.latency_ms,
            "best_ms": None if best is None else best.latency_ms,
            "seconds": trial.seconds,
            "elapsed_s": progress.seconds,
            "detail": "" if outcome is None else outcome.detail,
        }
        self._write(variant, line)

    def _write(self, variant: str, values: dict[str, Any]) -> None:
        line: dict[str, Any] = dict.fromkeys(COLUMNS)
        line |= {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "op": self._op,
            "variant": variant,
            **values,
        }
        if self._csv is None:
            self._file.write(json.dumps(line) + "\n")
        else:
            schedule: dict[str, Any] = line["schedule"] or {}
            line["schedule"] = ",".join(f"{key}={value}" for key, value in schedule.items())
            self._csv.writerow(["" if line[name] is None else line[name] for name in COLUMNS])
        self._file.flush()
