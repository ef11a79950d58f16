"""A row whose rounds were disturbed, or whose interval says nothing, is called doubtful, and so is its geomean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracea.bench.doubt import DOUBT, why_row_in_doubt
from tracea.bench.run import render
from tracea.profiler import Measurement, Ratio, Record, Row, capture

ENVIRONMENT = replace(capture(threads=1), cores=(0, 1))


def measured(name: str, *, disturbed: int = 0, busy: float | None = 0.0) -> Measurement:
    return Measurement(
        name=name,
        samples_us=(10.0,) * 30,
        calls_per_sample=1,
        environment=ENVIRONMENT,
        disturbed=disturbed,
        busy_cores=busy,
    )


def row(
    problem: str, *, low: float = 0.99, high: float = 1.01, notes: dict[str, str] | None = None, **side: int
) -> Row:
    ratio = Ratio(median=(low * high) ** 0.5, low=low, high=high, pairs=30)
    sides = (measured("ours"), measured("torch", **side))
    return Row(problem=problem, measurements=sides, ratios={"torch": ratio}, notes={"group": "g", **(notes or {})})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (row("a"), ""),
        (row("a", disturbed=14), ""),
        (row("a", disturbed=30), "30 of 30 rounds disturbed"),
        (row("a", busy=1), "others used 1.0 of 2 cores"),
        (row("a", low=1.0, high=1.5), ""),
        (row("a", low=0.27, high=9.2), "the interval spans a factor of 34.1"),
        (row("a", notes={DOUBT: "22 of 30 rounds disturbed"}), "22 of 30 rounds disturbed"),
        (
            row("a", low=0.27, high=9.2, disturbed=30),
            "30 of 30 rounds disturbed; the interval spans a factor of 34.1",
        ),
    ],
)
def test_the_table_says_why_a_row_is_doubtful(found: Row, said: str) -> None:
    assert why_row_in_doubt(found) == said
    record = Record(suite="gemm", command="c", environment=ENVIRONMENT, rows=(found, row("b")))
    lines = render(record).splitlines()
    (line,) = (each for each in lines if each.startswith("  a "))
    assert line.endswith(f"; doubtful: {said}") is bool(said)
    means = [each for each in lines if each.startswith("  geomean")]
    assert [", in doubt: 1 of its 2 rows is doubtful" in each for each in means] == [bool(said)] * 2
    assert lines[-1].startswith("  doubtful times may be too long") is bool(said)
