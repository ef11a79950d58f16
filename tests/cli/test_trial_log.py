"""The log of a search: every trial, in both formats, appended."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from tracea import targets
from tracea.cli import main as cli
from tracea.cli.trial_log import COLUMNS, POLICY, TrialLog
from tracea.core.op import GemmOp
from tracea.doctor.policy import guide
from tracea.errors import InvalidOption
from tracea.kernels.registry import find
from tracea.optimizer.study import Progress
from tracea.optimizer.trial import Outcome, OutcomeKind, Trial


def progress(number: int, outcome: Outcome) -> Progress:
    trial = Trial(number=number, row=(0, 1), schedule={"mr": 14, "split": "rows"}, outcome=outcome, seconds=0.5)
    return Progress(trial=trial, best=trial if outcome.is_ok else None, done=number + 1, total=2, seconds=1.0)


TRIALS = (
    progress(0, Outcome(kind=OutcomeKind.OK, latency_ms=1.25)),
    progress(1, Outcome(kind=OutcomeKind.WRONG, detail='a "detail",\nof two lines')),
)


def test_csv_has_a_header_once_and_a_row_a_trial(tmp_path: Path) -> None:
    path = tmp_path / "trials.csv"
    for _ in range(2):
        with TrialLog(path, "op") as log:
            for each in TRIALS:
                log("gemm.packed", each)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert tuple(rows[0]) == COLUMNS
    assert (rows[0]["latency_ms"], rows[0]["best_ms"], rows[0]["schedule"]) == ("1.25", "1.25", "mr=14,split=rows")
    assert (rows[1]["outcome"], rows[1]["latency_ms"], rows[1]["detail"]) == ("wrong", "", 'a "detail",\nof two lines')


def test_json_lines_are_there_as_soon_as_a_trial_ends(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    with TrialLog(path, "op") as log:
        log("gemm.packed", TRIALS[0])
        (line,) = path.read_text(encoding="utf-8").splitlines()
        assert json.loads(line)["schedule"] == {"mr": 14, "split": "rows"}
        log("gemm.packed", TRIALS[1])
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["outcome"] for line in lines] == ["ok", "wrong"]
    assert lines[1]["latency_ms"] is None


def test_a_name_that_says_no_format_or_no_place_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "trials.txt", tmp_path / "no such" / "trials.csv"):
        with pytest.raises(InvalidOption, match="--log"):
            TrialLog(path, "op")
    assert cli.main(["tune", "gemm", "-m", "8", "-n", "8", "-k", "8", "--log", "trials.txt"]) == 2


def test_the_policys_reasons_are_lines_of_the_log_that_are_no_trials(tmp_path: Path) -> None:
    op, target, variant = GemmOp.of(m=512, n=768, k=768), targets.load("amx"), find("gemm.packed")
    guidance = guide(op, target, variant)
    for name in ("trials.csv", "trials.jsonl"):
        with TrialLog(tmp_path / name, op.key) as log:
            log.guided(guidance)
            log("gemm.packed", TRIALS[0])
    with (tmp_path / "trials.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text(encoding="utf-8").splitlines()]
    for found in (rows, lines):
        assert [row["detail"] for row in found if row["outcome"] == POLICY] == list(guidance.reasons)
        assert {row["variant"] for row in found} == {"gemm.packed"}
        assert found[-1]["outcome"] == "ok"
    assert re.match(r"\d+ of \d+ schedules of gemm.packed may be tried", rows[0]["detail"])
