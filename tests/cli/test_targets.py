"""``tracea targets``: every entry is listed and shown with its sources, as text and as JSON."""

from __future__ import annotations

import json

import pytest

from tracea import targets
from tracea.cli import main as cli

NAMES = (*targets.names(), *targets.gpu_names(), *targets.product_names())


def test_every_entry_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["targets", "ls", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert tuple(rows) == NAMES
    assert rows["h200"] == {
        "name": "h200",
        "title": "NVIDIA H200 SXM 141 GB",
        "kernels": "sm_90a",
        "units": 132,
        "clock_mhz": 1830,
        "f16_matrix_tflops": 989.0,
        "memory_gb_per_s": 4800.0,
    }
    assert rows["mi300x"]["kernels"] == ""
    assert rows["zen3"]["kernels"] == "avx2"
    assert cli.main(["targets", "ls"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["targets", "show", name]) == 0
    assert name in capsys.readouterr().out


def test_a_product_is_shown_with_its_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["targets", "show", "h100", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    reading = shown["readings"]["gpu.compute_units"]
    assert reading["value"] == 132
    assert "132 SMs" in reading["figure"]
    assert shown["sources"][reading["source"]]["url"].startswith("https://")
    assert cli.main(["targets", "show", "h100"]) == 0
    assert "tracea targets show sm_90a" in capsys.readouterr().out


def test_an_architecture_and_a_generic_core_are_shown_with_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["targets", "show", "sm_90a", "--json"]) == 0
    assert "132 SMs" in json.loads(capsys.readouterr().out)["facts"]["sm_count"]["figure"]
    assert cli.main(["targets", "show", "avx2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["cores"]["assumption"]
    assert cli.main(["targets", "show", "avx2"]) == 0
    assert "assumed: one thread" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["h1000", "../h100", ""])
def test_an_unknown_name_is_bad_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["targets", "show", name]) == cli.BAD_USAGE
    assert "tracea targets ls" in capsys.readouterr().err


def test_a_kernel_is_printed_for_a_product_and_refused_for_what_is_described_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gemm = ["emit", "gemm", "-m", "64", "-n", "64", "-k", "64", "--target"]
    assert cli.main([*gemm, "zen3"]) == 0
    assert "zen3, avx2" in capsys.readouterr().out.splitlines()[0]
    assert cli.main([*gemm, "mi300x"]) == cli.BAD_USAGE
    assert "tracea targets show mi300x" in capsys.readouterr().err
