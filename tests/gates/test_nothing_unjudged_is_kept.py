"""Nothing enters the cache without a passed verdict: not a verdict, not a trial with a latency, nothing to be timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.gates import planted
from tests.gates.planted import PLANTED

from tracea.doctor import host
from tracea.errors import VerdictFailed
from tracea.flow import evaluate, verdicts
from tracea.flow.compile import decision_for
from tracea.flow.evaluate import Candidate, Request
from tracea.flow.verdicts import recorded_verdict
from tracea.gates import Run, Verdict, judge
from tracea.optimizer.trial import Outcome, OutcomeKind
from tracea.targets.target import for_threads


@pytest.fixture(scope="module")
def kernels() -> dict[str, Run]:
    return {name: planted.run_of(program, PLANTED[name].threads) for name, program in planted.programs().items()}


@pytest.mark.parametrize("name", PLANTED)
def test_no_verdict_is_kept_on_a_planted_kernel(
    kernels: dict[str, Run], name: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    op = PLANTED[name].op

    def judged(*args: Any, **options: Any) -> Verdict:
        return judge(kernels[name], op, subject=name, seed=seed)

    monkeypatch.setattr(verdicts, "judge_candidate", judged)
    # What is decided stands for the planted kernel; the gates get that one to run.
    decision = decision_for(planted.PLAIN, for_threads(host(), 1), threads=1, library=False)
    with pytest.raises(VerdictFailed):
        recorded_verdict(planted.PLAIN, decision, constants=(), threads=1)
    assert not list(empty_cache.rglob("verdict.json"))


def test_a_right_kernels_verdict_is_kept_so_that_the_test_above_can_fail(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decision = decision_for(planted.PLAIN, for_threads(host(), 1), threads=1, library=False)
    assert recorded_verdict(planted.PLAIN, decision, constants=(), threads=1).passed
    assert len(list(empty_cache.rglob("verdict.json"))) == 1


def test_a_kernel_is_judged_again_where_headers_or_gates_are_others(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decision = decision_for(planted.PLAIN, for_threads(host(), 1), threads=1, library=False)
    for digest, kept in (("these", 1), ("these", 1), ("others", 2)):
        monkeypatch.setattr(verdicts, "code_digest", lambda packages, digest=digest: digest)
        assert recorded_verdict(planted.PLAIN, decision, constants=(), threads=1).passed
        assert len(list(empty_cache.rglob("verdict.json"))) == kept


@pytest.mark.parametrize("name", [name for name in PLANTED if name != "wrong_now_and_then"])
def test_a_planted_candidate_has_no_latency_to_record(
    kernels: dict[str, Run], name: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    op = PLANTED[name].op

    def judged(self: Any, candidate: Candidate, *, quick: bool) -> Verdict:
        return judge(kernels[name], op, subject=name, seed=seed)

    def timed(self: Any, candidate: Candidate) -> None:
        pytest.fail("a wrong kernel was about to be timed")

    monkeypatch.setattr(evaluate._Bench, "judge", judged)
    monkeypatch.setattr(evaluate._Bench, "timed", timed)
    candidate = Candidate(variant="gemm.packed")
    request = Request(op=op.to_dict(), constants=(), threads=1, seed=seed, candidates=(candidate,))
    with pytest.raises(VerdictFailed) as refused:
        evaluate.evaluate(msgspec.to_builtins(request))
    outcome = Outcome.of_error(refused.value)
    assert (outcome.kind, outcome.latency_ms) == (OutcomeKind.WRONG, None)
    (ranked,) = evaluate.rank(msgspec.to_builtins(request))
    assert ranked["kind"] == "wrong"
    assert "latency_ms" not in ranked
