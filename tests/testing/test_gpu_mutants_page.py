"""The page about mutants of the GPU kernels: as the tool writes it, of the kernels that there are, and enough."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.testing import mutant_page
from tracea.testing.equivalent_mutants import ARGUMENTS, Argument
from tracea.testing.gpu_cases import gpu_cases
from tracea.testing.mutant_page import LEAST_NOTICED, MOST_ARGUED, STOREYS, Judged, KernelScore, page, shortfalls

PAGE = Path(__file__).parents[2] / "docs" / "gpu-mutants.md"
REMEDY = "the page is stale: run `make gpu-mutants`"
NAMES = [case.name for case in gpu_cases()]
SUMMARY = re.compile(r"^\| (.+?) \| (IR|text) \| (\d+) \| (\d+) \| ([\d.]+) % \| (\d+) \| (\d+) \|$", re.MULTILINE)
KIND = re.compile(r"^\| (.+?) \| (IR|text) \| (\w+) \| (\d+) \| (.+) \|$", re.MULTILINE)


def summaries(text: str) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    """Return mutants, noticed, equivalent and not noticed, by kernel and storey."""
    rows = SUMMARY.findall(text.split("## By kind", maxsplit=1)[0])
    return {(row[0], row[1]): (int(row[2]), int(row[3]), int(row[5]), int(row[6])) for row in rows}


def kinds(text: str) -> dict[tuple[str, str], Counter[str]]:
    """Return by kernel and storey how many each checker noticed, from the table by kind."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for kernel, storey, _, count, by in KIND.findall(text.split("## By kind")[1]):
        counts = {who: int(number) for who, number in (entry.rsplit(" ", 1) for entry in by.split("; "))}
        assert sum(counts.values()) == int(count)
        found.setdefault((kernel, storey), Counter()).update(counts)
    return found


def listed(text: str, title: str) -> list[str]:
    """Return the entries of a section."""
    section = text.split(f"\n## {title}\n")[1].split("\n## ", maxsplit=1)[0]
    return [line for line in section.splitlines() if line.startswith("- ")]


def test_the_page_states_every_kernel_and_its_tables_agree() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows, by = summaries(text), kinds(text)
    assert list(rows) == [(name, storey) for name in (*NAMES, "all") for storey in STOREYS], REMEDY
    for (name, storey), (total, noticed, equivalent, missed) in rows.items():
        assert total == noticed + equivalent + missed
        if name == "all":
            assert total == sum(rows[other, storey][0] for other in NAMES)
            continue
        found = by[name, storey]
        assert found.total() == total
        assert found["equivalent"] == equivalent
        assert found["nobody"] == missed
    assert len(listed(text, "Equivalent, by argument")) == sum(rows["all", storey][2] for storey in STOREYS)
    assert len(listed(text, "Not noticed")) == sum(rows["all", storey][3] for storey in STOREYS)


def test_the_page_is_of_all_mutants_and_reaches_what_is_due() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = summaries(text)
    for name in NAMES:
        total, noticed, equivalent, _ = map(sum, zip(*(rows[name, storey] for storey in STOREYS), strict=True))
        assert noticed >= LEAST_NOTICED * (total - equivalent), name
    total, _, equivalent, _ = map(sum, zip(*(rows["all", storey] for storey in STOREYS), strict=True))
    assert equivalent <= MOST_ARGUED * total
    assert equivalent == sum(argument.count for argument in ARGUMENTS), REMEDY
    assert listed(text, "False alarms") == []
    assert ": all of them, " in text
    assert "16 schedules of every call" in text


def _argue(monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    argument = Argument(kernel=NAMES[0], pattern=pattern, reason="it is the same")
    found = {True: argument, False: None}
    monkeypatch.setattr(mutant_page, "argument_for", lambda _, what: found[bool(re.fullmatch(pattern, what))])


def _entry(number: int, storey: str, by: str | None) -> Judged:
    return Judged(kernel=NAMES[0], storey=storey, family="bound", description=f"number {number}", by=by)


def test_the_tool_writes_what_the_page_is_read_as(monkeypatch: pytest.MonkeyPatch) -> None:
    _argue(monkeypatch, "bound: number 98")
    mutants = [_entry(number, "IR" if number < 60 else "text", "proof: bounds") for number in range(98)]
    mutants += [_entry(98, "text", None), _entry(99, "text", None)]
    score = KernelScore(kernel=NAMES[0], of=200, mutants=mutants, schedules=16, seconds=60.0)
    text = page([score], when="2026-01-02", seed=3)
    assert summaries(text)[NAMES[0], "IR"] == (60, 60, 0, 0)
    assert summaries(text)["all", "text"] == (40, 38, 1, 1)
    assert kinds(text)[NAMES[0], "text"] == {"proof: bounds": 38, "equivalent": 1, "nobody": 1}
    assert listed(text, "Equivalent, by argument") == [f"- {NAMES[0]}: text: `bound: number 98`: it is the same"]
    assert listed(text, "Not noticed") == [f"- {NAMES[0]}: text: `bound: number 99`"]
    assert listed(text, "False alarms") == []
    assert "On 2026-01-02: 100 of 200, a sample of each kernel's kinds, seed 3, 1 minutes" in text
    assert shortfalls([score]) == []


def test_the_tool_counts_what_only_tests_or_the_original_show() -> None:
    found = ["work"] * 5 + ["register bounds"] * 3 + ["address widths"] * 2 + ["numbers"] * 7
    mutants = [_entry(number, "text", by) for number, by in enumerate(found)]
    text = page([KernelScore(kernel=NAMES[0], of=17, mutants=mutants, schedules=16)], when="2026-01-02", seed=3)
    assert "- 5 are noticed by **work** alone" in text
    assert "- 3 by register bounds and 2 by address widths are noticed by checkers that only tests call" in text
    assert "no epilogue, no batch" in text
    assert {"register bounds", "address widths"} <= set(kinds(text)[NAMES[0], "text"])


def test_the_kernels_are_what_the_page_says_of_them() -> None:
    for case in gpu_cases():
        kernel = case.kernel()
        assert isinstance(kernel.op, GemmOp)
        assert kernel.op.a.dtype is kernel.op.b.dtype is DType.F16
        assert kernel.op.epilogue.is_identity
        assert not kernel.op.batch
        assert not kernel.tables
        assert kernel.schedule.get("split_k", 1) == 1


def test_what_is_not_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    _argue(monkeypatch, "bound: number [0-2]")
    mutants = [_entry(number, "IR", None if number < 6 else "numbers") for number in range(100)]
    score = KernelScore(kernel=NAMES[0], of=100, mutants=mutants, alarms=["race"], schedules=16)
    assert shortfalls([score]) == [
        f"{NAMES[0]}: 94 of 97 noticed, 98% are due",
        f"{NAMES[0]}: false alarm: race",
        "3 of 100 mutants argued to be equivalent, at most 2% may be",
    ]
