"""TrialRecord: one finished trial with the identity of what it measured and on what, as it is kept and exchanged.

A record is JSON with a version. Records of older versions load as what they meant; one that does not decode, or does
not hold together, is a typed error and never guessed at.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tracea.errors import InvalidOption
from tracea.optimizer.space import Value
from tracea.optimizer.trial import Outcome

__all__ = [
    "RECORD_VERSION",
    "Facts",
    "StoredTrial",
    "StudyKey",
    "TrialRecord",
    "decode_record",
    "encode_record",
    "fastest",
    "fingerprint",
    "require_credible",
    "require_unique_names",
]

RECORD_VERSION: Final = 2  # 1 had no constants in its key: it counts as of none
_ROUNDING: Final = 1e-6  # by what a mean may be beyond its samples
_CREDIBLE: Final = 1.03  # what two medians of a tie may differ by
_FAR: Final = 1000.0  # no load makes one call so many times as long as another, comparison or not
_MAX_CHARACTERS: Final = 1 << 20  # a record has some hundred; more is no record

Facts = Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyKey:
    """What a trial measured, and on what: trials of the same key may be compared, and resume each other.

    ``op_key`` names the op with its sizes and types, ``variant`` the algorithm family whose space was searched;
    ``constants`` are the operands that may be packed ahead, since with them other variants compete: records from before
    it existed have none. ``hardware`` and ``toolchain`` are the facts that a latency depends on.
    """

    op_key: str
    variant: str = ""
    constants: tuple[int, ...] = ()
    hardware: Facts = field(default_factory=dict[str, Value])
    toolchain: Facts = field(default_factory=dict[str, Value])

    def __post_init__(self) -> None:
        if not self.op_key:
            raise InvalidOption(
                field="op_key", got=self.op_key, expected="a non-empty string", remedy="pass the op's key"
            )
        if list(self.constants) != sorted({index for index in self.constants if index >= 0}):
            raise InvalidOption(
                field="constants",
                got=self.constants,
                expected="operand numbers from 0 on, rising",
                remedy="constants=tuple(sorted(set(constants)))",
            )

    @property
    def hardware_fingerprint(self) -> str:
        """Return a digest of the hardware facts, the same in every process."""
        return fingerprint(self.hardware)

    @property
    def toolchain_fingerprint(self) -> str:
        """Return a digest of the toolchain facts."""
        return fingerprint(self.toolchain)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One finished trial as it is kept: whole, so that it can be exported, replayed and judged without its database.

    Units: ``seconds`` of evaluation; ``recorded_at`` seconds since 1970.
    Raises: InvalidOption for times that are no times, or a version that this release does not know.
    """

    key: StudyKey
    schedule: dict[str, Value]
    outcome: Outcome
    seconds: float
    sampler: str
    seed: int
    recorded_at: float
    schema_version: int = RECORD_VERSION

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds >= 0.0 and math.isfinite(self.recorded_at)):
            raise InvalidOption(
                field="trial record",
                got={"seconds": self.seconds, "recorded_at": self.recorded_at},
                expected="finite times, and not less than 0 seconds",
                remedy="record the trial again",
            )
        samples, latency = self.outcome.samples_ms, self.outcome.latency_ms
        if not all(math.isfinite(sample) and sample > 0.0 for sample in samples):
            raise InvalidOption(
                field="outcome.samples_ms",
                got=samples,
                expected="positive finite numbers of milliseconds",
                remedy="measure it again",
            )
        # Whatever a latency is of its samples, it is no less than their least and no more than their greatest.
        if (
            samples
            and latency is not None
            and not ((1.0 - _ROUNDING) * min(samples) <= latency <= (1.0 + _ROUNDING) * max(samples))
        ):
            raise InvalidOption(
                field="outcome.latency_ms",
                got=latency,
                expected=f"within its samples, {min(samples):g} to {max(samples):g} ms",
                remedy="measure it again",
            )
        if not 1 <= self.schema_version <= RECORD_VERSION:
            raise InvalidOption(
                field="schema_version of a trial record",
                got=self.schema_version,
                expected=f"1 to {RECORD_VERSION}",
                remedy="upgrade tracea",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """A record with its place in the store, and its latency in a later interleaved comparison if it took part.

    ``retimed_ms`` ranks, ``median_ms`` was measured there: below it where a tie was decided for one that is ahead.
    ``comparison`` holds what that rests on, by name: rounds, how many were disturbed, the interval; empty in rows from
    before it was kept. ``is_imported``: it was measured elsewhere, so that it says what to try here and never what is
    fast here.
    """

    id: int
    record: TrialRecord
    retimed_ms: float | None
    median_ms: float | None = None
    is_imported: bool = False
    comparison: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def is_unclear(self) -> bool:
        """Whether the comparison was too noisy to tell it from the winner; of old rows, as far as their times show it.

        They called a tie whatever the interval held 1 in, and let the one ahead keep it.
        """
        if self.comparison:
            return bool(self.comparison.get("is_unclear"))
        return None not in (self.retimed_ms, self.median_ms) and self.rank_ms != self.retimed_ms

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs disturbed more than half of the comparison's rounds that count."""
        return self.comparison.get("rounds_disturbed", 0.0) > 0.5 * self.comparison.get("rounds", 0.0)

    @property
    def rank_ms(self) -> float | None:
        """The latency by which it ranks, None where it took no part; not behind a tie that its own time contradicts."""
        if self.comparison or self.retimed_ms is None or self.median_ms is None:
            return self.retimed_ms
        return self.median_ms if self.retimed_ms > _CREDIBLE * self.median_ms else self.retimed_ms


def fastest(trials: Sequence[StoredTrial]) -> tuple[float, StoredTrial] | None:
    """Return the fastest of trials that may be compared, oldest first, and the latency by which it ranks.

    Where a final timed some of them side by side it is one of those, since a search's own times mis-rank near-equals;
    and none of which the last word is a failure, such as a final's.
    """
    last = {_tried(trial): trial.record.outcome.is_ok for trial in trials}
    good = [trial for trial in trials if trial.record.outcome.is_ok and last[_tried(trial)]]
    ranked = [(trial.rank_ms, trial.id, trial) for trial in good if trial.rank_ms is not None]
    searched = [(trial.record.outcome.latency_ms or math.inf, trial.id, trial) for trial in good]
    found = min(ranked or searched, default=None)
    return None if found is None else (found[0], found[2])


def _tried(trial: StoredTrial) -> tuple[str, frozenset[tuple[str, Value]]]:
    return trial.record.key.variant, frozenset(trial.record.schedule.items())


def fingerprint(facts: Facts) -> str:
    """Return a digest of named facts that does not depend on their order."""
    return hashlib.blake2b(msgspec.json.encode(dict(facts), order="deterministic"), digest_size=16).hexdigest()


def encode_record(record: TrialRecord) -> str:
    """Return a record as one line of JSON, the same for equal records."""
    return msgspec.json.encode(record, order="deterministic").decode()


def decode_record(text: str | bytes) -> TrialRecord:
    """Return the record that a line of JSON says.

    Raises: InvalidOption: it says none, whatever the text is.
    """
    try:
        if len(text) > _MAX_CHARACTERS:
            raise ValueError(f"{len(text)} characters, at most {_MAX_CHARACTERS}")
        record = msgspec.json.decode(text, type=TrialRecord)
        require_unique_names(text)
        return record
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidOption(
            field="trial record",
            got=str(text[:80]),
            expected=f"a record of version 1 to {RECORD_VERSION}: {error}",
            remedy="nothing: it is left out",
        ) from error


def require_unique_names(text: str | bytes) -> None:
    """Refuse JSON that names a field twice: readers differ in which of the two they take.

    Raises: ValueError. RecursionError: it is nested too deeply.
    """
    json.loads(text, object_pairs_hook=_object)


def require_credible(record: TrialRecord, retimed_ms: float | None, median_ms: float | None = None) -> None:
    """Refuse the times of a comparison that a record contradicts: of a failure, no times, or far from its latency.

    Raises: InvalidOption.
    """
    latency = record.outcome.latency_ms
    for name, given in (("retimed_ms", retimed_ms), ("median_ms", median_ms)):
        if given is None:
            continue
        if latency is None:
            expected = f"None: the trial ended as {record.outcome.kind}"
        elif not (math.isfinite(given) and given > 0.0):
            expected = "a positive finite number of milliseconds"
        elif not latency / _FAR <= given <= latency * _FAR:
            expected = f"within a factor of {_FAR:g} of the {latency:g} ms that the trial took"
        else:
            continue
        raise InvalidOption(
            field=name, got=given, expected=expected, remedy="None where it took no part; time it again"
        )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is named twice")
    return found
