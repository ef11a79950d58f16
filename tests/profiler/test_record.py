"""Records: what is written is what is read, and nothing else is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracea.errors import InvalidOption
from tracea.profiler import Measurement, Ratio, Record, Row, capture, read, write

ENVIRONMENT = capture(threads=2, toolchain={"gcc": "12.2.0"})


def record() -> Record:
    peer, ours = (
        Measurement(name=name, samples_us=(1.0, 2.0), calls_per_sample=3, environment=ENVIRONMENT)
        for name in ("torch", "tracea")
    )
    row = Row(
        problem="gemm 32x32x32 f32",
        measurements=(ours, peer),
        ratios={"torch": Ratio.of(peer, ours)},
        flops=65_536,
        nbytes=12_288,
        notes={"allocation": "out="},
    )
    return Record(
        suite="gemm", command="tracea bench --suite gemm", environment=ENVIRONMENT, ceilings={"peak": 1.5}, rows=(row,)
    )


def test_a_record_survives_writing_and_reading(tmp_path: Path) -> None:
    path = tmp_path / "results" / "cpu.json"
    write(path, record())
    assert read(path) == record()
    assert [file.name for file in path.parent.iterdir()] == ["cpu.json"]
    assert json.loads(path.read_text())["schema_version"] == 1


def test_the_environment_names_what_changes_a_time() -> None:
    assert ENVIRONMENT.toolchain["gcc"] == "12.2.0"
    assert {"python", "numpy"} <= set(ENVIRONMENT.toolchain)
    assert ENVIRONMENT.threads == 2
    assert ENVIRONMENT.cores
    assert ENVIRONMENT.date.endswith("+00:00")
    assert ENVIRONMENT.comparable_key == capture(threads=2, toolchain={"gcc": "12.2.0"}).comparable_key
    assert ENVIRONMENT.comparable_key != capture(threads=2, toolchain={"gcc": "13.1.0"}).comparable_key


def mutated(change: Any) -> dict[str, Any]:
    import msgspec

    data = msgspec.to_builtins(record())
    change(data)
    return data


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(schema_version=2),
        lambda data: data.update(schema_version="1"),
        lambda data: data.pop("suite"),
        lambda data: data.update(unknown=1),
        lambda data: data["rows"][0].update(flops=1.5),
        lambda data: data["rows"][0]["measurements"][0].update(samples_us=[]),
        lambda data: data["rows"][0]["measurements"][0].update(samples_us=["1"]),
    ],
)
def test_a_record_that_is_not_of_this_schema_is_refused(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(mutated(change)), encoding="utf-8")
    with pytest.raises(InvalidOption, match="schema version 1"):
        read(path)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_record_are_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("record") / "r.json"
    path.write_bytes(data)
    with pytest.raises(InvalidOption):
        read(path)


def several(*, processes: int) -> Record:
    """A record of ratios over processes, the last of which has its samples in it: torch takes 1.5 of our time there."""
    heats = []
    for number in range(processes):
        peer, ours = (
            Measurement(name=name, samples_us=samples, calls_per_sample=3, environment=ENVIRONMENT)
            for name, samples in (
                ("torch", (1.4 + 0.1 * (processes - 1 - number), 1.5 + 0.1 * (processes - 1 - number), 3.0)),
                ("tracea", (1.0, 1.0, 1.5)),
            )
        )
        heats.append((peer, ours))
    row = Row(problem="p", measurements=(ours, peer), ratios={"torch": Ratio.merge(heats)})
    return Record(suite="s", command="c", environment=ENVIRONMENT, rows=(row,))


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda row: row["ratios"]["torch"].update(median=2.5, low=2.4, high=2.6), "2.500 [2.400, 2.600] from"),
        (lambda row: row["ratios"]["torch"].update(pairs=1), "from 1 pairs"),
        (lambda row: row["measurements"][0].update(samples_us=[0.5, 0.5, 0.75]), "the samples give 3.000"),
        (lambda row: row["measurements"][1].update(samples_us=[1.0] * 3), "the samples give 1.000"),
        (lambda row: row["measurements"][1].update(samples_us=[1.5] * 4), "no pairs: 3 of ours, 4 of torch"),
        (lambda row: row["measurements"].pop(1), "no pairs: there are none of torch"),
        (lambda row: row["measurements"][1].update(name="other"), "no pairs: there are none of torch"),
    ],
)
def test_a_ratio_that_its_samples_contradict_is_refused(tmp_path: Path, processes: int, edit: Any, said: str) -> None:
    path = tmp_path / "r.json"
    write(path, several(processes=processes))
    assert read(path) == several(processes=processes)
    data = json.loads(path.read_text(encoding="utf-8"))
    edit(data["rows"][0])
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(InvalidOption, match=re.escape(said)) as refused:
        read(path)
    assert "rows[0] (p): torch / ours" in str(refused.value)


def test_a_median_of_one_process_that_its_samples_do_not_give_is_refused_within_the_interval_too(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.json"
    write(path, several(processes=1))
    data = json.loads(path.read_text(encoding="utf-8"))
    data["rows"][0]["ratios"]["torch"]["median"] = 1.9
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(InvalidOption, match="torch / ours"):
        read(path)


RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


SUITES = ("attention", "conv", "gemm", "rows", "sparse")


@pytest.mark.parametrize("path", [path for suite in SUITES for path in sorted(RESULTS.glob(f"*/{suite}-[12]t.json"))])
def test_the_records_that_we_keep_hold_together(path: Path) -> None:
    assert all(row.ratios for row in read(path).rows)
