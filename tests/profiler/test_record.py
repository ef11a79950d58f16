"""Records: what is written is what is read, and nothing else is read."""

from __future__ import annotations

import json
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
