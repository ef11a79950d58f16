"""What a trial says of itself holds together, or it is refused: by whoever writes it, and again when it is read."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.optimizer.test_storage import a_record

from tracea.errors import CacheCorrupt, InvalidOption
from tracea.optimizer import Outcome, OutcomeKind, TrialStore
from tracea.optimizer.exchange import _checksum, import_trials, read_trials
from tracea.optimizer.records import decode_record, encode_record
from tracea.optimizer.schema import COLUMNS, digest_of

GOOD = encode_record(a_record())  # 1.5 ms of 1.5 and 1.25
FAILED = a_record(outcome=Outcome(kind=OutcomeKind.WRONG, detail="differs"))


def with_outcome(**changed: Any) -> str:
    fields = json.loads(GOOD)
    fields["outcome"] |= changed
    return json.dumps(fields)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (with_outcome(samples_ms=[100.0, 200.0]), "within its samples"),
        (with_outcome(samples_ms=[0.5, 1.0]), "within its samples"),
        (with_outcome(samples_ms=[-1.0, 2.0]), "positive finite"),
        (with_outcome(samples_ms=[0.0, 2.0]), "positive finite"),
        (GOOD.replace('"latency_ms":1.5', '"latency_ms":1.5,"latency_ms":1.4'), "named twice"),
        (GOOD.replace('"op_key":"gemm"', '"op_key":"gemm","op_key":"other"'), "named twice"),
        (GOOD.replace('"tile":16', '"tile":16,"tile":32'), "named twice"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(text: str, said: str) -> None:
    assert text != GOOD
    with pytest.raises(InvalidOption, match=said):
        decode_record(text)
    with pytest.raises(InvalidOption, match=said):
        decode_record(text.encode())


@pytest.mark.parametrize("samples", [[], [1.5], [1.0, 2.0], [1.5 * (1 + 1e-9)]])
def test_a_latency_may_be_any_of_or_between_its_samples(samples: list[float]) -> None:
    assert decode_record(with_outcome(samples_ms=samples)).outcome.samples_ms == tuple(samples)


IMPOSSIBLE = [0.0, -1.0, math.inf, -math.inf, math.nan, 1e-9, 1e9]


@pytest.mark.parametrize(
    ("latency_ms", "others"),
    [(bad, {}) for bad in IMPOSSIBLE]
    + [(1.25, {"median_ms": bad}) for bad in IMPOSSIBLE]
    + [(1.25, {"comparison": {"high": bad}}) for bad in (math.inf, math.nan)],
)
def test_times_that_are_none_are_refused_and_what_was_there_is_kept(
    tmp_path: Path, latency_ms: float, others: Mapping[str, Any]
) -> None:
    with TrialStore(tmp_path / "trials.db") as store:
        trial_id = store.add(a_record())
        store.retime(trial_id, 1.25, median_ms=1.2)
        before = store.find()
        with pytest.raises(InvalidOption):
            store.retime(trial_id, latency_ms, **others)
        assert store.find() == before


def test_a_failure_has_no_time_of_a_comparison(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "trials.db") as store:
        trial_id = store.add(FAILED)
        store.retime(trial_id, None)
        with pytest.raises(InvalidOption, match="ended as wrong"):
            store.retime(trial_id, 1.0)
        with pytest.raises(InvalidOption, match="ended as wrong"):
            store.merge([(FAILED, 1.0)])
        assert len(store.find(imported=None)) == 1


@pytest.mark.parametrize("retimed_ms", [0.0, -1.0, math.inf, 1e-9])
def test_a_row_with_an_impossible_time_is_skipped_though_its_digest_is_right(tmp_path: Path, retimed_ms: float) -> None:
    path = tmp_path / "trials.db"
    with TrialStore(path) as store:
        store.add(a_record())
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute(f"SELECT {COLUMNS} FROM trial").fetchone()
        digest = digest_of((*row[1:8], retimed_ms, *row[9:11]))
        connection.execute("UPDATE trial SET retimed_ms = ?, digest = ?", (retimed_ms, digest))
        connection.commit()
    with TrialStore(path) as store, pytest.warns(CacheCorrupt, match="1 of 1 records do not decode"):
        assert store.find() == []


def exported(path: Path, text: str, retimed_ms: float | None, also: str = "") -> Path:
    header = {"format": "tracea-trials", "schema_version": 1, "tracea": "1.0", "trials": 1}
    line = f'{{"sha256":"{_checksum(retimed_ms, text.encode())}","retimed_ms":{json.dumps(retimed_ms)}{also},"record":'
    (path / "trials.jsonl").write_text(f"{json.dumps(header)}\n{line}{text}}}\n")
    return path / "trials.jsonl"


@pytest.mark.parametrize(
    ("text", "retimed_ms", "also", "said"),
    [
        (GOOD, 1e-9, "", "within a factor"),
        (GOOD, 1e9, "", "within a factor"),
        (GOOD, -1.0, "", "positive finite"),
        (encode_record(FAILED), 1.0, "", "ended as wrong"),
        (GOOD, 1.25, ',"retimed_ms":1.25', "named twice"),
        (with_outcome(samples_ms=[100.0, 200.0]), None, "", r"outcome\.latency_ms"),
    ],
)
def test_an_exported_file_that_contradicts_itself_is_refused_whole(
    tmp_path: Path, text: str, retimed_ms: float | None, also: str, said: str
) -> None:
    assert len(read_trials(exported(tmp_path, GOOD, 1.25))) == 1
    path = exported(tmp_path, text, retimed_ms, also)
    with TrialStore(tmp_path / "trials.db") as store:
        with pytest.raises(InvalidOption, match=said):
            import_trials(store, path)
        assert store.find(imported=None) == []
