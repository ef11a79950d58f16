"""What is slower than in a baseline: the latency of two verdicts, and measurements that say nothing."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tracea.cli import main as cli
from tracea.errors import InvalidOption
from tracea.gates import Check, Verdict
from tracea.gates.baseline import against_baseline, read_evidence

Interval = tuple[float, float] | None


def verdict_of(figure: float, interval: Interval, *, passed: bool = True, library: str = "torch") -> Verdict:
    """A verdict as ``tracea verify --latency --json`` leaves it."""
    right = Check(name="correct on normal", passed=True, figure=0.1, limit=1.0)
    latency = Check(name=f"latency: {library} / ours", passed=passed, figure=figure, limit=1.0, interval=interval)
    return Verdict(subject="gemm_8x8x8_f32 | gemm.direct mr=6", checks=(right, latency), seed=7)


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
