"""What is slower than in a baseline: the latency of two verdicts, and measurements that say nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tracea.cli import main as cli
from tracea.cli.gate import INCONCLUSIVE
from tracea.errors import InvalidOption
from tracea.gates import Check, Verdict
from tracea.gates.baseline import against_baseline, read_evidence
from tracea.profiler import Measurement, Ratio, Record, Row, capture, write
from tracea.profiler.load import Load

ENVIRONMENT = capture(threads=1)
Interval = tuple[float, float] | None


def verdict_of(figure: float, interval: Interval, *, passed: bool = True, library: str = "torch") -> Verdict:
    """A verdict as ``tracea verify --latency --json`` leaves it."""
    right = Check(name="correct on normal", passed=True, figure=0.1, limit=1.0)
    latency = Check(name=f"latency: {library} / ours", passed=passed, figure=figure, limit=1.0, interval=interval)
    return Verdict(subject="gemm_8x8x8_f32 | gemm.direct mr=6", checks=(right, latency), seed=7)


def record(
    ratio: tuple[float, float, float],
    *,
    peer: str = "torch",
    us: tuple[float, ...] = (10.0,) * 30,
    busy_cores: float | None = None,
) -> Record:
    """A record of one problem with this median, low and high of its ratio."""
    ours = Measurement(name="ours", samples_us=us, calls_per_sample=1, environment=ENVIRONMENT, busy_cores=busy_cores)
    theirs = replace(ours, name=peer, samples_us=tuple(ratio[0] * each for each in us))
    found = Ratio(median=ratio[0], low=ratio[1], high=ratio[2], pairs=30)
    row = Row(problem="a", measurements=(ours, theirs), ratios={peer: found})
    return Record(suite="s", command="c", environment=ENVIRONMENT, rows=(row,))


def kept(path: Path, verdict: Verdict) -> Path:
    """The verdict's file."""
    path.write_text(json.dumps({**verdict.to_dict(), "target": "host"}), encoding="utf-8")
    return path


BASELINE = verdict_of(1.462, (1.425, 1.502))


@pytest.mark.parametrize(
    ("figure", "interval", "margin", "code"),
    [
        (1.020, (1.010, 1.030), 0.05, cli.FAILED),  # still as fast as the library, and slower than it was
        (1.400, (1.360, 1.440), 0.05, cli.GOOD),
        (1.400, (1.360, 1.410), 0.0, cli.FAILED),
        (1.600, (1.590, 1.610), 0.05, cli.GOOD),
    ],
)
def test_a_verdict_whose_latency_fell_beyond_noise_and_margin_is_a_regression(
    *,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    figure: float,
    interval: tuple[float, float],
    margin: float,
    code: int,
) -> None:
    stored = kept(tmp_path / "stored.json", BASELINE)
    fresh = kept(tmp_path / "fresh.json", verdict_of(figure, interval))
    assert cli.main(["gate", str(fresh), "--baseline", str(stored), "--margin", str(margin)]) == code
    text = capsys.readouterr().out
    assert f"now {figure:.3f} [{interval[0]:.3f}, {interval[1]:.3f}], baseline 1.462 [1.425, 1.502]" in text
    assert ("FAIL latency: torch / ours" in text) is (code == cli.FAILED)


def test_what_was_slower_than_the_library_before_is_compared_all_the_same() -> None:
    slow = verdict_of(0.90, (0.88, 0.92), passed=False)
    assert against_baseline(verdict_of(0.89, (0.87, 0.91), passed=False), slow).passed
    (check,) = against_baseline(verdict_of(0.50, (0.49, 0.51), passed=False), slow).failures
    assert check.detail.startswith("failed in the baseline too; now 0.500")


def test_another_library_may_be_the_fastest_now() -> None:
    assert against_baseline(verdict_of(1.46, (1.42, 1.50), library="b"), BASELINE).passed
    (check,) = against_baseline(verdict_of(1.1, (1.0, 1.2), library="b"), BASELINE).failures
    assert "the fastest library was that of torch / ours" in check.detail


@pytest.mark.parametrize(("now", "before"), [((1.01, 1.03), None), (None, (1.425, 1.502))])
def test_a_latency_without_an_interval_is_not_checked_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], now: Interval, before: Interval
) -> None:
    stored = kept(tmp_path / "stored.json", verdict_of(1.462, before))
    fresh, out = kept(tmp_path / "fresh.json", verdict_of(1.02, now)), tmp_path / "gate.xml"
    assert cli.main(["gate", str(fresh), "--baseline", str(stored), "--junit", str(out)]) == cli.GOOD
    side = "baseline" if before is None else "fresh verdict"
    assert f"??   not checked: latency: torch / ours against the baseline: the {side} has no" in capsys.readouterr().out
    assert len(list(ElementTree.parse(out).getroot().iter("skipped"))) == 1
    assert cli.main(["gate", str(fresh), "--baseline", str(stored), "--json"]) == cli.GOOD
    assert len(json.loads(capsys.readouterr().out)["not_checked"]) == 1


@pytest.mark.parametrize("interval", [(1.5, 1.6), (0.0, 2.0), (1.3, 1.4), (1.6, 1.3)])
def test_an_interval_that_does_not_hold_its_figure_is_refused(tmp_path: Path, interval: tuple[float, float]) -> None:
    with pytest.raises(InvalidOption, match=r"latency: torch / ours: got 1\.462 in \["):
        read_evidence(kept(tmp_path / "edited.json", verdict_of(1.462, interval)))


@pytest.mark.parametrize(
    ("ratio", "result"),
    [
        ((5.545, 0.369, 12.919), "??"),  # says nothing, though the median is above the limit
        ((1.030, 0.980, 1.080), "??"),
        ((1.000, 0.900, 1.022), "??"),
        ((1.000, 0.900, 1.020), "FAIL"),
        ((1.030, 0.995, 1.080), "ok"),  # reaches less than 3 % below the limit of 1.021
        ((5.545, 1.100, 12.919), "ok"),  # wide, and no slower for certain
    ],
)
def test_what_is_neither_slower_nor_no_slower_is_inconclusive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ratio: tuple[float, float, float], result: str
) -> None:
    stored, fresh, out = (tmp_path / name for name in ("stored.json", "fresh.json", "gate.xml"))
    write(stored, record((1.103, 1.072, 1.121)))
    write(fresh, record(ratio, busy_cores=1.4))
    code = {"??": INCONCLUSIVE, "FAIL": cli.FAILED, "ok": cli.GOOD}[result]
    assert cli.main(["gate", str(fresh), "--baseline", str(stored), "--junit", str(out)]) == code
    head, line, *rest = capsys.readouterr().out.splitlines()
    assert line.split()[0] == result
    assert ("other programs used 1.4 cores meanwhile" in line) is (result == "??")
    assert ("inconclusive, 1 of 1 check too noisy to tell" in head) is (result == "??")
    assert bool(rest) is (result == "??")
    root = ElementTree.parse(out).getroot()
    assert (root.get("failures"), len(list(root.iter("skipped")))) == (str(int(result == "FAIL")), int(result == "??"))


def test_times_without_a_peer_that_are_too_wide_are_inconclusive() -> None:
    before = record((1.1, 1.0, 1.2), peer="a")
    now = record((1.1, 1.0, 1.2), peer="b", us=(5.0,) * 15 + (20.0,) * 15)
    (check,) = against_baseline(now, before).checks
    assert (check.passed, check.is_unclear) == (False, True)


def test_a_live_gate_measures_what_is_unclear_again_and_names_the_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, asked = tmp_path / "stored.json", list[str | None]()
    write(stored, record((1.103, 1.072, 1.121)))

    def run_suite(_suite: str, *, only: str | None, **_: object) -> list[Record]:
        asked.append(only)
        return [record((5.545, 0.369, 12.919))]

    monkeypatch.setattr("tracea.bench.run.run_suite", run_suite)
    monkeypatch.setattr("tracea.profiler.load.measure_load", lambda: Load(busy_cores=1.2, cores=2))
    assert cli.main(["gate", "--baseline", str(stored)]) == INCONCLUSIVE
    assert asked == [None, "a"]
    assert "Other programs use 1.2 of the 2 cores" in capsys.readouterr().out
    monkeypatch.setattr("tracea.profiler.load.measure_load", lambda: Load(busy_cores=0.0, cores=2))
    assert cli.main(["gate", "--baseline", str(stored), "--json"]) == INCONCLUSIVE
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is False
    assert found["inconclusive"].startswith("intervals are too wide to tell")


def test_a_regression_beside_what_is_unclear_is_a_regression() -> None:
    slow = Check(name="a", passed=False, figure=1.0, limit=2.0)
    noisy = Check(name="b", passed=False, figure=1.0, limit=2.0, is_unclear=True)
    verdict = Verdict(subject="s", checks=(slow, noisy), seed=None)
    assert not verdict.is_unclear
    assert verdict.lines[0] == "s: FAILED, 1 of 2 checks failed, 1 too noisy to tell"


@pytest.mark.parametrize(
    ("peer", "family"),
    [
        ("torch.mm(out=)", "torch"),
        ("torch addmm, gelu, add", "torch"),
        ("onnxruntime prepacked", "onnxruntime"),
        ("openvino f32", "openvino"),
        ("Inductor flex_attention", "inductor"),
    ],
)
def test_a_baseline_is_measured_beside_the_peers_that_it_names(
    *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: str, family: str
) -> None:
    stored, asked = tmp_path / "stored.json", list[tuple[str, ...]]()
    write(stored, record((1.1, 1.0, 1.2), peer=peer))

    def run_suite(_suite: str, *, against: tuple[str, ...], **_: object) -> list[Record]:
        asked.append(against)
        return [record((1.1, 1.0, 1.2), peer=peer)]

    monkeypatch.setattr("tracea.bench.run.run_suite", run_suite)
    assert cli.main(["gate", "--baseline", str(stored)]) == 0
    assert asked[0] == (family,)
