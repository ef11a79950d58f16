"""The README's table is what the committed records say."""

from __future__ import annotations

import runpy
from pathlib import Path

import msgspec
import pytest

from tracea.bench.doubt import DOUBT
from tracea.profiler import Measurement, Ratio, Record, Row, capture
from tracea.profiler.record import write

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "benchmarks" / "readme_table.py"))
ROWS = runpy.run_path(str(ROOT / "benchmarks" / "recorded_rows.py"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_is_that_of_the_records() -> None:
    assert TOOL["with_table"](README) == README, "python benchmarks/readme_table.py"


def test_a_ratio_that_no_record_holds_is_seen() -> None:
    cell = TOOL["cell"]("zen4", TOOL["LINES"]["tracea bench --suite gemm"][0])
    assert TOOL["with_table"](README.replace(cell, "9.99 (9.99) · 9.99 (9.99)")) == README


def test_a_readme_without_the_marks_is_refused() -> None:
    with pytest.raises(SystemExit, match="README"):
        TOOL["with_table"]("# Tracea\n")


def row(disturbed: int, samples: tuple[float, ...] = (10.0,) * 30) -> Row:
    """Return a row as the benchmarks beside the suites have written it so far: without a note of doubt."""
    where = capture(threads=1)
    ours, theirs = (
        Measurement(name=name, samples_us=times, calls_per_sample=1, environment=where, disturbed=disturbed)
        for name, times in (("tracea", (10.0,) * 30), ("torch", samples))
    )
    ratios = {"torch": Ratio.of(theirs, ours)}
    return Row(problem="layer", measurements=(ours, theirs), ratios=ratios, notes={"group": "rows-grad"})


@pytest.mark.parametrize(
    ("found", "said"),
    [(row(14), False), (row(15), True), (row(0, (4.0, 10.0, 25.0) * 10), True)],
    ids=["quiet", "disturbed", "wide"],
)
def test_a_row_that_notes_no_doubt_is_judged_by_what_it_measured(tmp_path: Path, found: Row, said: bool) -> None:
    (line,) = TOOL["LINES"]["python benchmarks/time_row_gradients.py"]
    record = tmp_path / "rows-grad-1t.json"
    write(record, Record(suite="rows-grad", command="c", environment=capture(threads=1), rows=(found,)))
    ((_, doubtful),) = TOOL["ratios"](record, line)
    assert doubtful is said


def test_a_row_notes_what_disturbed_any_of_its_processes() -> None:
    def result(disturbed: int) -> list[object]:
        sides = row(disturbed).measurements
        return ["layer", {each.name: msgspec.to_builtins(each) for each in sides}]

    noted = ROWS["with_doubt"](row(0), [result(20), result(0)]).notes
    assert noted == {"group": "rows-grad", DOUBT: "20 of 30 rounds disturbed"}
    assert ROWS["with_doubt"](row(0), [result(0), result(0)]).notes[DOUBT] == ""
