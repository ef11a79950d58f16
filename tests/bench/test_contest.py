"""Contests: who is faced, what a row says, and who is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracea.bench import contest as contests
from tracea.bench.contest import Rules, contest, heat
from tracea.bench.ours import BASELINES
from tracea.bench.peers import FAMILIES
from tracea.bench.peers.peer import Allocation, Contender, Family, Peer
from tracea.bench.run import render, run_suite
from tracea.bench.suites import face_problem, gemm_problem, problems, row_problem
from tracea.core.op import RowKind
from tracea.errors import InvalidOption, RunError, VerdictFailed
from tracea.profiler.processes import run_in_processes
from tracea.profiler.record import Record, Row, read

TINY = gemm_problem(16, 24, 8, "odd")


def named(suite: str, name: str) -> object:
    return next(problem for problem in problems(suite) if problem.name == name)


def plant(monkeypatch: pytest.MonkeyPatch, change: Callable[[np.ndarray], np.ndarray], name: str = "torch.mm") -> None:
    """Put a family "planted" among the peers, whose one peer runs torch's and changes what it computed."""
    honest = next(peer for peer in FAMILIES["torch"].peers if peer.name == name)

    def build(problem: object, arrays: object, threads: int) -> Contender:
        contender = honest.build(problem, arrays, threads)
        return replace(contender, name="planted", result=lambda: change(contender.result()))

    family = Family(
        peers=(Peer(name="planted.mm", supports=honest.supports, build=build),),
        surroundings=FAMILIES["torch"].surroundings,
    )
    monkeypatch.setitem(FAMILIES, "planted", family)


@pytest.fixture(scope="module")
def row() -> Row:
    rules = Rules(threads=1, against=("torch",), pairs=4, processes=1)
    return contest("gemm", named("gemm", "32x32x32"), rules)


def test_row_holds_both_sides_and_their_ratio(row: Row) -> None:
    ours, peer = row.measurements
    assert ours.name.startswith("tracea gemm.")
    assert peer.name == "torch.mm(out=)"
    ratio = row.ratios["torch.mm(out=)"]
    assert (ratio.pairs, ratio.processes) == (4, 1)
    assert ratio.low <= ratio.median <= ratio.high
    quotients = sorted(theirs / mine for theirs, mine in zip(peer.samples_us, ours.samples_us, strict=True))
    assert ratio.median == pytest.approx((quotients[1] + quotients[2]) / 2)
    assert row.flops == 2 * 32**3


def test_row_states_how_it_was_measured(row: Row) -> None:
    assert row.notes["group"] == "squares"
    assert row.notes["allocation"] == "out"
    assert row.notes["ceiling"] == "peak"
    assert row.notes["library"] == "disabled"
    assert re.fullmatch(r"torch\.mm \S+ µs(, torch\.\S+ \S+ µs)*", row.notes["screened"])
    environment = row.measurements[0].environment
    assert (environment.threads, len(environment.cores)) == (1, 1)
    assert environment.variables["OMP_NUM_THREADS"] == "1"


def test_without_a_peer_ours_is_timed_alone() -> None:
    alone = contest("gemm", named("gemm", "32x32x32"), Rules(threads=1, against=(), pairs=2, processes=1))
    assert alone.ratios == {}
    assert [measurement.name.split()[0] for measurement in alone.measurements] == ["tracea"]


def test_problems_that_were_screened_together_are_not_screened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = Rules(threads=1, against=("torch",), pairs=2, processes=1)
    several = [named("gemm", name) for name in ("32x32x32", "64x64x64")]
    screened = contests.screen("gemm", several, rules)
    assert {name: set(each.measurements) for name, each in screened.items()} == {
        problem.name: {"ours", "torch.mm"} for problem in several
    }
    held: list[str] = []

    def counted(function: str, *arguments: object, **more: object) -> object:
        held.append(function.partition(":")[2])
        return run_in_processes(function, *arguments, **more)

    monkeypatch.setattr(contests, "run_in_processes", counted)
    found = contest("gemm", several[0], rules, screened["32x32x32"])
    assert held == ["time_contenders"]
    assert list(found.ratios) == ["torch.mm(out=)"]
    assert found.notes["screened"].startswith("torch.mm ")


def test_screening_that_fails_leaves_it_to_each_contest(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> object:
        raise RunError(kernel="time", detail="killed")

    monkeypatch.setattr(contests, "run_in_processes", fails)
    rules = Rules(threads=1, against=("torch",), pairs=2, processes=1)
    assert contests.screen("gemm", [named("gemm", "32x32x32")], rules) == {}
    with pytest.raises(RunError, match="killed"):
        contest("gemm", named("gemm", "32x32x32"), rules)


@pytest.mark.parametrize(
    ("problem", "peer", "allocation"),
    [
        (TINY, "torch.mm", Allocation.OUT),
        (row_problem(RowKind.RMS_NORM, 5, 40), "torch.rows", Allocation.OUT),
        (face_problem(16), "torch.face", Allocation.FRESH),
    ],
    ids=["product", "rows", "fresh"],
)
def test_results_go_where_the_peers_go(problem: object, peer: str, allocation: Allocation) -> None:
    held = heat(problem, peer_names=[peer], pairs=2, threads=1)
    assert held.allocation is allocation
    assert set(held.measurements) == {"ours", peer}


def test_peer_that_computes_the_same_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda result: result)
    assert set(heat(TINY, peer_names=["planted.mm"], pairs=2, threads=1).measurements) == {"ours", "planted.mm"}


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    "change",
    [lambda result: result * 1.01, lambda result: np.where(result == result[3, 4], np.nan, result)],
    ids=["one percent", "one NaN"],
)
def test_peer_that_computes_something_else_is_refused(
    change: Callable[[np.ndarray], np.ndarray], verify: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, change)
    with pytest.raises(VerdictFailed, match="planted on 16x24x8"):
        heat(TINY, peer_names=["planted.mm"], pairs=2, threads=1, verify=verify)


@pytest.mark.parametrize(
    ("change", "is_refused"),
    [(lambda result: np.where(result < 1.5e-3, 0.0, result), True), (lambda result: result * 1.001, False)],
    ids=["nearly all zero", "less accurate"],
)
def test_results_that_are_all_small_are_held_to_their_own_size(
    change: Callable[[np.ndarray], np.ndarray], is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, change, "torch.rows")
    softmax = row_problem(RowKind.SOFTMAX, 5, 4000)
    with pytest.raises(VerdictFailed, match="planted on softmax") if is_refused else nullcontext():
        heat(softmax, peer_names=["planted.mm"], pairs=2, threads=1)


def test_ours_is_refused_where_float64_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contests, "evaluate", lambda op, arrays: np.zeros((16, 24)))
    with pytest.raises(VerdictFailed, match="tracea gemm"):
        heat(TINY, peer_names=[], pairs=2, threads=1)


def test_refusal_in_a_process_is_a_refusal_here(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"type": "Refused", "contender": "planted on 32x32x32", "error": 0.5, "limit": 0.001}
    monkeypatch.setattr(contests, "run_in_processes", lambda *_, **__: [answer])
    with pytest.raises(VerdictFailed, match=r"planted on 32x32x32: got 0\.5, limit 0\.001"):
        contest("gemm", named("gemm", "32x32x32"), Rules(threads=1, against=("torch",), pairs=2, processes=1))


def test_process_answers_with_the_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda result: result + 1)
    answer = contests.time_contenders(
        suite="gemm", name="32x32x32", peer_names=["planted.mm"], pairs=2, threads=1, verify=True
    )
    assert answer["type"] == "Refused"
    assert answer["error"] == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize(
    ("field", "value"),
    [("pairs", 0), ("processes", 0), ("threads", 0), ("threads", 10_000), ("against", ("nonesuch",))],
)
def test_rules_that_cannot_be_kept_are_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidOption, match=field):
        Rules(**{"threads": 1, "against": ("torch",), field: value})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Path, list[str]]:
    folder = tmp_path_factory.mktemp("results")
    lines: list[str] = []
    records = run_suite(
        "rows",
        against=("torch",),
        threads=(1,),
        only="softmax 512x768",
        pairs=4,
        processes=1,
        output=folder,
        progress=lines.append,
    )
    assert len(records) == 1
    return records[0], folder / "rows-1t.json", lines


def test_record_is_what_the_profiler_reads(recorded: tuple[Record, Path, list[str]]) -> None:
    record, path, _ = recorded
    assert read(path) == record
    assert [row.problem for row in record.rows] == ["softmax 512x768"]


def test_report_states_its_surroundings_and_every_row(recorded: tuple[Record, Path, list[str]]) -> None:
    record, _, lines = recorded
    text = render(record)
    for said in (
        "suite rows · 1 thread ·",
        "torch 2.",
        "onnxruntime ",
        "measured in this run: peak f32 GFLOP/s",
        "copy GB/s",
        "same threads",
        "row-major",
        "memory given",
        "library variants of ours disabled",
        "softmax 512x768",
        "of torch.softmax(out=)",
        "geomean rows: ",
        "geomean all: ",
    ):
        assert said in text, text
    # On a busy machine a warning comes first.
    rows = [line for line in lines if not line.startswith("warning:")]
    assert rows == [line.strip() for line in text.splitlines() if line.strip().startswith("softmax 512x768")]


def test_ratio_to_the_yardstick_is_recorded_beside_the_fastest_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = next(peer for peer in FAMILIES["torch"].peers if peer.name == "torch.rows")
    faced: list[list[str]] = []
    real = contests._heats

    def heats(suite: str, problem: object, rules: Rules, names: list[str], **more: bool) -> object:
        held = real(suite, problem, rules, names, **more)
        if not more["screening"]:
            faced.append(list(names))
            return held
        # Torch came in last, whatever the clock said.
        times = {**held[0].measurements}
        slow = times[honest.name]
        times[honest.name] = replace(slow, samples_us=tuple(1e3 * sample for sample in slow.samples_us))
        return [contests.Heat(allocation=held[0].allocation, measurements=times)]

    monkeypatch.setattr(contests, "_heats", heats)
    rules = Rules(threads=1, against=("torch", "onnxruntime"), pairs=2, processes=1)
    row = contest("rows", named("rows", "softmax 512x768"), rules)
    assert faced == [["onnxruntime.rows", "torch.rows"]]
    assert list(row.ratios) == ["onnxruntime", "torch.softmax(out=)"]
    ours = row.measurements[0]
    for peer in row.measurements[1:]:
        quotients = [theirs / mine for theirs, mine in zip(peer.samples_us, ours.samples_us, strict=True)]
        assert row.ratios[peer.name].median == pytest.approx(sum(quotients) / 2)


def test_rows_are_rated_by_the_copy_bandwidth_on_both_sides(recorded: tuple[Record, Path, list[str]]) -> None:
    record, _, _ = recorded
    row = record.rows[0]
    moved = 2 * 512 * 768 * 4
    assert row.nbytes == moved
    shares = [moved / each.median_us / 1e3 / record.ceilings["copy GB/s"] for each in row.measurements]
    assert len(shares) >= 2
    line = next(line for line in render(record).splitlines() if "softmax 512x768" in line)
    assert all(f"{share:.0%} of copy" in line for share in shares), line
    assert "of peak" not in line


@pytest.mark.parametrize(
    ("suite", "name", "baseline"),
    [
        ("rows", "rms_norm 512x768", "copy"),
        ("gemm", "512x3072x768 bias+gelu+residual", "plain product"),
        ("gemm", "64x64x64", ""),
    ],
)
def test_what_ours_is_measured_by_runs_in_its_turns(tmp_path: Path, suite: str, name: str, baseline: str) -> None:
    (record,) = run_suite(suite, against=("torch",), threads=(1,), only=name, pairs=2, processes=1, output=tmp_path)
    (row,) = record.rows
    assert [each for each in BASELINES if each in row.notes] == ([baseline] if baseline else [])
    assert len(row.measurements) == 2, "a baseline is no contender"
    said = re.search(r"; (\S+) \[.*?\] of the rate of a (.*) in the same turns", render(record))
    assert (said[2] if said else "") == baseline
    assert said is None or row.notes[baseline].startswith(said[1])


def test_report_without_a_ceiling_says_so(recorded: tuple[Record, Path, list[str]]) -> None:
    import msgspec

    text = render(msgspec.structs.replace(recorded[0], ceilings={}))
    assert "no ceiling for 1 thread" in text
    assert "of copy" not in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"suite": "nonesuch"}, "suite"),
        ({"against": ("nonesuch",)}, "against"),
        ({"only": "nonesuch"}, "only"),
        ({"only": "2048|nonesuch"}, "only: got nonesuch"),
        ({"pairs": 0}, "pairs"),
        ({"threads": (len(os.sched_getaffinity(0)) + 1,)}, "threads"),
    ],
    ids=["suite", "peer", "problem", "one of two problems", "pairs", "threads"],
)
def test_suite_that_cannot_run_is_refused_before_anything_is_measured(
    change: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracea.bench.run.probe_machine", lambda: pytest.fail("measured"))
    with pytest.raises(InvalidOption, match=said):
        run_suite(**{"suite": "gemm", "threads": (1,), **change})


@pytest.mark.parametrize(("slower", "images"), [("ours", "in rows"), (contests._OTHER, "channels last")])
def test_the_faster_order_of_an_image_is_timed_and_named(
    slower: str, images: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = contests._heats
    later: list[bool] = []

    def heats(suite: str, problem: object, rules: Rules, names: list[str], **more: bool) -> object:
        held = real(suite, problem, rules, names, **more)
        if not more["screening"]:
            later.append(more["other"])
            return held
        times = {**held[0].measurements}
        assert {"ours", contests._OTHER} <= times.keys()
        slow = times[slower]
        times[slower] = replace(slow, samples_us=tuple(1e3 * sample for sample in slow.samples_us))
        return [contests.Heat(allocation=held[0].allocation, measurements=times)]

    monkeypatch.setattr(contests, "_heats", heats)
    rules = Rules(threads=1, against=("torch",), pairs=2, processes=1)
    row = contest("conv", named("conv", "17-19 5x5@56"), rules)
    assert row.notes["images"] == images
    assert later == [slower == "ours"]
