"""Trials from elsewhere: what no search could use is refused when it comes, and what an op does not have is said."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tracea
from tracea.core.op import GemmOp
from tracea.doctor import host
from tracea.flow.advice import why_refused
from tracea.flow.history import store, study_key
from tracea.flow.tuning import search_space
from tracea.kernels.registry import find
from tracea.optimizer import Budget
from tracea.optimizer.exchange import export_trials, import_trials
from tracea.optimizer.storage import StudyKey, TrialRecord, TrialStore
from tracea.optimizer.trial import Outcome, OutcomeKind
from tracea.targets.target import for_threads

OP = GemmOp.of(m=24, n=40, k=28)


def trial(variant: str = "gemm.direct", op_key: str = OP.key, **schedule: Any) -> TrialRecord:
    return TrialRecord(
        key=StudyKey(op_key=op_key, variant=variant, hardware={"fingerprint": "elsewhere", "threads": 1}),
        schedule=schedule,
        outcome=Outcome(kind=OutcomeKind.OK, latency_ms=1e-6),
        seconds=0.1,
        sampler="random",
        seed=0,
        recorded_at=time.time(),
    )


@pytest.mark.parametrize(
    ("record", "because"),
    [
        (trial(mr=-6), "mr'.*got -6, expected a word or a whole number from 0 to 2147483647"),
        (trial(mr=2**40), "from 0 to 2147483647"),
        (trial(mr=1.5), "got 1.5"),
        (trial(mr=True), "got True"),
        (trial(mr=None), "got None"),
        (trial(split="rows; rm -rf"), "a word of letters"),
        (replace(trial(), schedule={"MR": 6}), "a lower-case name"),
        (replace(trial(), schedule={"x" * 200 + "\x1b[31m": -1}), r"xxx\.\.\."),
        (trial("gemm.diret", mr=6), r"no variant 'gemm.diret' \(use gemm.direct"),
        (trial("\x1b[31m", mr=6), r"no variant '\\x1b"),
        (trial("library.gemm", mr=6), "has no schedule of ours"),
        (trial(op_key="a b", mr=6), "the key of no op"),
    ],
)
def test_what_no_search_could_use_is_refused_with_the_reason(record: TrialRecord, because: str) -> None:
    import re

    found = why_refused(record)
    assert re.search(because, found), found
    assert found.isprintable()


def test_what_a_search_wrote_is_taken() -> None:
    variant = find("gemm.direct")
    space = search_space(OP, variant, for_threads(host(), 1))
    for index in (0, len(space) // 2, len(space) - 1):
        assert why_refused(trial(**space.decode(space.row(index)))) == ""
    assert why_refused(trial("library.gemm")) == ""
    assert why_refused(trial("")) == ""  # before a trial said its variant


def test_the_sound_trials_of_a_file_are_kept_and_the_others_named(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "from.sqlite") as elsewhere:
        for record in (trial(mr=6), trial(mr=-6), trial("gemm.none", mr=6)):
            elsewhere.add(record)
        export_trials(elsewhere.find(), tmp_path / "trials.jsonl")
    with TrialStore(tmp_path / "to.sqlite") as here:
        found = import_trials(here, tmp_path / "trials.jsonl", why_refused=why_refused)
        assert (found.added, found.known, len(found.refused)) == (1, 0, 2)
        assert [each.record.schedule for each in here.find(imported=True)] == [{"mr": 6}]


@pytest.mark.costly
@pytest.mark.usefixtures("empty_cache")
def test_an_imported_schedule_that_the_op_does_not_have_is_left_out_and_said(empty_cache: Path) -> None:
    empty_cache.mkdir(mode=0o700)
    key = replace(study_key(OP, "gemm.direct", 1), hardware={"fingerprint": "another machine", "threads": 1})
    store().merge([(replace(trial(mr=7777, evil=1), key=key), None)])
    heard: list[str] = []
    tuned = tracea.tune(
        OP,
        budget=Budget(trials=2),
        variant="gemm.direct",
        library=False,
        on_guidance=lambda guidance: heard.extend(guidance.dropped),
    )
    said = "Left out: an earlier or imported schedule that gemm.direct does not have for this op: evil=1,mr=7777."
    assert heard == [said]
    assert said in tuned.guidance["gemm.direct"].reasons
    assert all("evil" not in each.schedule for each in tuned.trials["gemm.direct"])
