"""The README's table is what the committed records say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "benchmarks" / "readme_table.py"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_is_that_of_the_records() -> None:
    assert TOOL["with_table"](README) == README, "python benchmarks/readme_table.py"


def test_a_ratio_that_no_record_holds_is_seen() -> None:
    cell = TOOL["cell"]("zen4", TOOL["LINES"]["tracea bench --suite gemm"][0])
    assert TOOL["with_table"](README.replace(cell, "9.99 (9.99) · 9.99 (9.99)")) == README


def test_a_readme_without_the_marks_is_refused() -> None:
    with pytest.raises(SystemExit, match="README"):
        TOOL["with_table"]("# Tracea\n")
