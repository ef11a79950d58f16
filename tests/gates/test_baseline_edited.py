"""Files that were edited or cut: a gate holds them to the baseline's limits, or says what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tracea.cli import main as cli

RIGHT: dict[str, Any] = {"name": "correct on normal", "passed": True, "figure": 0.1, "limit": 1.0, "detail": "e / b"}
FAST: dict[str, Any] = {
    "name": "latency: library.gemm / ours",
    "passed": True,
    "figure": 1.17,
    "limit": 1.0,
    "interval": [1.14, 1.2],
}
SLOW = {**FAST, "figure": 0.5, "interval": [0.45, 1.01]}
BARE = {key: value for key, value in FAST.items() if key != "interval"}
REGISTERS: dict[str, Any] = {"name": "registers", "passed": True, "figure": 90, "limit": 128}
PROOFS: dict[str, Any] = {
    "name": "proofs",
    "passed": True,
    "figure": 18,
    "limit": 1,
    "detail": "facts in the certificate, at least",
}


def gate(tmp_path: Path, fresh: object, *arguments: str, before: object = None, schedule: str = "mr=6") -> int:
    """Gate a fresh file, of these checks or this text, against a baseline of other checks."""
    paths = tmp_path / "fresh.json", tmp_path / "stored.json"
    for path, each, under in zip(paths, (fresh, before or [RIGHT, FAST]), (schedule, "mr=6"), strict=True):
        whole = {"subject": f"gemm_8x8x8_f32 | gemm.direct {under}", "checks": each, "seed": 7, "target": "host"}
        path.write_text(each if isinstance(each, str) else json.dumps(whole), encoding="utf-8")
    return cli.main(["gate", str(paths[0]), "--baseline", str(paths[1]), *arguments])


@pytest.mark.parametrize(
    ("fresh", "before", "schedule", "code", "said"),
    [
        ({**RIGHT, "figure": 50.0, "limit": 100.0}, RIGHT, "mr=6", cli.FAILED, "by the baseline's limit: 100"),
        ({**RIGHT, "figure": 50.0, "limit": 100.0}, RIGHT, "mr=8", cli.FAILED, "by the baseline's limit: 100"),
        ({**RIGHT, "figure": 0.5, "limit": 100.0}, RIGHT, "mr=6", cli.GOOD, "by the baseline's limit: 100"),
        ({**RIGHT, "limit": 0.5}, RIGHT, "mr=6", cli.GOOD, "correct on normal: 0.1 (limit 0.5): e / b"),
        ({**BARE, "figure": 0.5, "limit": 0.1}, FAST, "mr=6", cli.FAILED, "by the baseline's limit: 0.1"),
        ({**FAST, "figure": 0.5, "interval": [0.45, 0.55], "limit": 0.1}, FAST, "mr=6", cli.FAILED, "0.1 of the fresh"),
        ({**PROOFS, "figure": 0, "limit": 0}, PROOFS, "mr=6", cli.FAILED, "by the baseline's limit: 0"),
        ({**REGISTERS, "figure": 200, "limit": 255}, REGISTERS, "mr=6", cli.FAILED, "by the baseline's limit: 255"),
        ({**REGISTERS, "figure": 200, "limit": 255}, REGISTERS, "mr=8", cli.GOOD, "registers: 200 (limit 255)"),
    ],
)
def test_a_limit_that_is_laxer_than_the_baselines_counts_for_nothing(
    *,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fresh: dict[str, Any],
    before: dict[str, Any],
    schedule: str,
    code: int,
    said: str,
) -> None:
    assert gate(tmp_path, [fresh], before=[before], schedule=schedule) == code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("latencies", [(SLOW, FAST), (FAST, SLOW), (FAST, {**SLOW, "name": "latency: numpy / ours"})])
def test_a_second_latency_is_refused_whichever_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], latencies: tuple[dict[str, Any], ...]
) -> None:
    assert gate(tmp_path, [RIGHT, *latencies]) == cli.BAD_USAGE
    assert "2 of latency: latency: library.gemm / ours, latency: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("latency", "said"),
    [
        ({**BARE, "figure": 0.5}, "got passed, with a figure of 0.5, expected at least 1.0, the limit"),
        ({**FAST, "figure": 0.5, "interval": [0.45, 0.55]}, "got passed, with a figure of 0.5, expected at least 1.0"),
    ],
)
def test_a_latency_below_its_own_limit_did_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], latency: dict[str, Any], said: str
) -> None:
    assert gate(tmp_path, [RIGHT, latency]) == cli.BAD_USAGE
    assert said in capsys.readouterr().err
    assert gate(tmp_path, [RIGHT, SLOW], before=[RIGHT, SLOW]) == cli.GOOD  # its interval reaches above the limit


def test_only_is_refused_where_verdicts_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate(tmp_path, [RIGHT, FAST], "--only", "gemm") == cli.BAD_USAGE
    assert "--only: got gemm, expected a suite's record" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"subject": "a", "checks": [{"name": "x", ', "fresh.json: got Input data was truncated"),
        ("", "fresh.json: got Input data was truncated"),
        ("not JSON", "fresh.json: got JSON is malformed"),
        ("[]", "fresh.json: got Expected `object`, got `array`"),
        ("{}", "fresh.json: got an object of no fields"),
        ('{"bogus": 1}', "fresh.json: got an object of bogus"),
        (
            json.dumps({"subject": "a", "seed": 1, "checks": [{**FAST, "figure": 1.1, "interval": "abc"}]}),
            "Expected `array | null`, got `str` - at `$.checks[0].interval`",
        ),
        (json.dumps({"subject": "a", "seed": 1}), "Object missing required field `checks`"),
    ],
)
def test_what_is_malformed_is_named_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "fresh.json").write_text(text, encoding="utf-8")
    stored = tmp_path / "stored.json"
    stored.write_text(json.dumps({"subject": "a", "checks": [RIGHT], "seed": 7}), encoding="utf-8")
    assert cli.main(["gate", str(tmp_path / "fresh.json"), "--baseline", str(stored)]) == cli.BAD_USAGE
    err = capsys.readouterr().err
    assert said in err
    assert "the version of Tracea that wrote it" not in err


def test_a_verdict_and_a_record_are_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = Path(__file__).parents[2] / "benchmarks/results/sapphirerapids/gemm-1t.json"
    assert gate(tmp_path, record.read_text(encoding="utf-8")) == cli.BAD_USAGE
    assert "baseline: got record, verdict, expected two of a kind" in capsys.readouterr().err
