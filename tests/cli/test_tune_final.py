"""What ``tracea tune`` says of a final: who ties with the first, what that rests on, and how disturbed it was."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tracea.cli import tune as tune_verb
from tracea.core.op import GemmOp
from tracea.doctor.plan import NOT_EXCLUDED, Candidate, Decision, Rejection
from tracea.flow.final import FinalTime
from tracea.flow.tuning import Tuned
from tracea.optimizer.trial import Outcome, OutcomeKind, Trial
from tracea.semantic.schedule import Schedule

FIRST = FinalTime(
    variant="gemm.packed",
    schedule={"mr": 6},
    latency_ms=0.1379,
    ranked_ms=0.1379,
    comparison={"rounds": 60.0, "rounds_disturbed": 12.0, "busy_cores": 0.1},
)
TIE = FinalTime(
    variant="gemm.direct",
    schedule={"mr": 8},
    latency_ms=0.1385,
    ranked_ms=0.1385,
    comparison={**FIRST.comparison, "is_tie": 1.0, "low": 0.99, "high": 1.004},
)
SLOWER = replace(TIE, variant="library.gemm", comparison={**TIE.comparison, "is_tie": 0.0, "low": 0.5, "high": 0.6})
UNCLEAR = replace(TIE, is_unclear=True, comparison={**FIRST.comparison, "is_unclear": 1.0})


def tuned(*final: FinalTime) -> Tuned:
    """A finished search with this final."""
    decision = Decision(
        op="gemm_8x8x8_f32_0",
        variant=final[0].variant,
        schedule=Schedule(mr=6),
        reason="the fastest measured: 137.9 µs",
        candidates=(Candidate(variant=final[0].variant, score=50, latency_us=137.9),),
        rejections=(),
    )
    return Tuned(op=GemmOp.of(m=8, n=8, k=8), trials={}, decision=decision, fresh=0, seconds=1.0, final=final)


def test_whoever_ties_with_the_first_is_called_so_whichever_median_is_lower(capsys: pytest.CaptureFixture[str]) -> None:
    tune_verb._print(tuned(FIRST, TIE, SLOWER, UNCLEAR), 5)
    rows = [line for line in capsys.readouterr().out.splitlines() if " µs " in f"{line} " and "mr=" in line]
    assert ["a tie with the first" in row for row in rows[:4]] == [False, True, False, False]
    assert "too noisy to tell" in rows[3]


def test_times_out_of_order_are_said_to_be_the_races_order(capsys: pytest.CaptureFixture[str]) -> None:
    said = "where times are out of order, the race could not tell them apart"
    tune_verb._print(tuned(FIRST, TIE), 5)
    assert said not in capsys.readouterr().out
    tune_verb._print(tuned(FIRST, replace(TIE, latency_ms=0.1371)), 5)
    assert said in capsys.readouterr().out


def test_json_says_how_each_stands_and_on_what_that_rests() -> None:
    final = tune_verb._as_dict(tuned(FIRST, TIE, SLOWER, UNCLEAR))["final"]
    assert [each["standing"] for each in final] == ["first", "tie", "decided", "unclear"]
    assert [each["first_over_it"] for each in final] == [None, (0.99, 1.004), (0.5, 0.6), None]
    assert {(each["rounds"], each["rounds_disturbed"], each["busy_cores"]) for each in final} == {(60.0, 12.0, 0.1)}


@pytest.mark.parametrize(("disturbed", "said"), [(30.0, False), (31.0, True)])
def test_a_final_of_which_most_rounds_were_disturbed_is_in_doubt(
    capsys: pytest.CaptureFixture[str], disturbed: float, said: bool
) -> None:
    comparison = {"rounds": 60.0, "rounds_disturbed": disturbed, "busy_cores": 1.3}
    tune_verb._print(tuned(replace(FIRST, comparison=comparison), TIE), 5)
    text = "in doubt: 31 of the final's 60 rounds were disturbed by other programs, and others used 1.3 cores meanwhile"
    assert (text in capsys.readouterr().out) is said


def test_a_row_from_before_comparisons_were_kept_says_nothing_of_them() -> None:
    old = replace(FIRST, comparison={})
    (found,) = tune_verb._as_dict(tuned(old))["final"]
    assert (old.is_disturbed, found["standing"], found["rounds"]) == (False, "first", None)


def trial(number: int, schedule: dict[str, int], outcome: Outcome, **final: float) -> Trial:
    return Trial(number=number, row=(number,), schedule=schedule, outcome=outcome, is_resumed=True, **final)


def test_the_search_shows_what_was_measured_and_not_the_time_by_which_a_tie_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ok = Outcome(kind=OutcomeKind.OK, latency_ms=0.05)
    lost = trial(0, {"nv": 2, "mr": 8}, ok, retimed_ms=0.03505, median_ms=0.03451)
    found = replace(tuned(FIRST), trials={"gemm.packed": (lost,)})
    tune_verb._print(found, 5)
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "34.51 µs" in line)
    assert " mr=8,nv=2 " in row  # in one order, whoever wrote the schedule
    (said,) = tune_verb._as_dict(found)["trials"]["gemm.packed"]
    assert said["latency_ms"] == 0.03451


def test_a_trial_killed_from_outside_is_not_called_refused(capsys: pytest.CaptureFixture[str]) -> None:
    killed = trial(0, {"mr": 8}, Outcome(kind=OutcomeKind.KILLED, detail="ended by SIGKILL from outside"))
    wrong = trial(1, {"mr": 6}, Outcome(kind=OutcomeKind.WRONG, detail="zeros"))
    tune_verb._print(replace(tuned(FIRST), trials={"gemm.packed": (killed, wrong)}), 5)
    out = capsys.readouterr().out
    assert "not judged gemm.packed mr=8: killed: ended by SIGKILL from outside; a later run tries it" in out
    assert "refused gemm.packed mr=6: wrong: zeros" in out


def raced(first: str, second: str) -> Tuned:
    """A search whose final had ours and a library, which is not loaded here, in this order."""
    packed = Schedule(kc=64, mr=6)
    decision = Decision(
        op="gemm_8x8x8_f32_0",
        variant="gemm.packed",
        schedule=packed,
        reason="the fastest measured: 2 µs",
        candidates=(Candidate(variant="gemm.packed", score=50, latency_us=2.0),),
        rejections=tuple(
            Rejection(variant=name, requirement=NOT_EXCLUDED, needed="n", found=found, remedy="r")
            for name, found in (("gemm.prepacked", "not constant"), ("library.gemm", "PyTorch is not loaded"))
        ),
    )
    times = {"gemm.packed": (dict(packed), 2e-3), "library.gemm": ({}, 3e-3)}
    final = tuple(
        FinalTime(variant=name, schedule=times[name][0], latency_ms=times[name][1], ranked_ms=ranked)
        for name, ranked in ((first, times[first][1]), (second, 4e-3))
    )
    return Tuned(op=GemmOp.of(m=8, n=8, k=8), trials={}, decision=decision, fresh=0, seconds=1.0, final=final)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("gemm.packed", "library.gemm", "library.gemm was timed in a process of its own; it competes"),
        ("library.gemm", "gemm.packed", "and runs there: it was first, in a tie\n"),
    ],
)
def test_tune_says_which_times_decide_and_rejects_nobody_who_took_part(
    first: str, second: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tune_verb._print(raced(first, second), 5)
    text = capsys.readouterr().out
    _, _, final = text.partition("the final, best first, judged by all gates and timed in turns; these times decide")
    assert re.search(r"kc=64,mr=6 +2 µs ", final)
    assert re.search(r"its own +3 µs ", final)
    assert final.index(first) < final.index(second)
    assert "a tie with the first" in final.partition(second)[2].splitlines()[0]
    assert "rejected gemm.prepacked: not constant" in final
    assert "rejected library.gemm" not in text
    assert said in final
    assert ("the fastest measured: 2 µs" in final) is (first == "gemm.packed")


def test_a_tie_has_one_first_and_nobody_is_called_the_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    alike = replace(TIE, variant="gemm.packed")
    tune_verb._print(tuned(FIRST, alike), 5)
    text = capsys.readouterr().out
    assert "gemm.packed (137.9 µs, a tie with gemm.packed mr=8 (138.5 µs): the race could not tell them apart)" in text
    assert "the fastest measured" not in text


def test_tune_says_which_gates_refused_a_library(capsys: pytest.CaptureFixture[str]) -> None:
    found = replace(
        raced("gemm.packed", "library.gemm"), refused_libraries={"library.gemm": "FAIL correct on denormal"}
    )
    tune_verb._print(replace(found, final=found.final[:1]), 5)
    text = capsys.readouterr().out
    assert "library.gemm was not timed: in the final it failed: FAIL correct on denormal" in text
    assert "PyTorch is not loaded" not in text


def test_fewer_trials_than_variants_are_said_to_be_more(capsys: pytest.CaptureFixture[str]) -> None:
    trials = {name: (Trial(number=0, row=(), schedule={}),) for name in ("gemm.packed", "gemm.direct")}
    tune_verb._print(replace(raced("gemm.packed", "library.gemm"), trials=trials), 1)
    assert "more than the 1 asked for: each of the 2 variants that fit" in capsys.readouterr().out
    tune_verb._print(replace(raced("gemm.packed", "library.gemm"), trials=trials), 2)
    assert "asked for" not in capsys.readouterr().out
