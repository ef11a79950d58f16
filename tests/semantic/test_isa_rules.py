"""The tables of lane maps against the rules that the PTX ISA prints beside its figures, transcribed independently.

The tables are transcribed from figures; where the document also says in words which row and column an element has, both
must agree. For wgmma's fragments and for ldmatrix the document has figures only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tracea.semantic.lane_tables import read_tables

Rule = Callable[[int, int, int], int]  # groupID = lane >> 2, threadID_in_group = lane % 4, number of the element


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What the document prints for one operand: its section, how many elements a lane has, and both rules."""

    section: str
    instructions: tuple[str, ...]
    operand: str
    elements: int
    row: Rule
    column: Rule


RULES = (
    Printed(
        section="9.7.14.5.3",
        instructions=("mma.m8n8k16.s8",),
        operand="A",
        elements=4,
        row=lambda group, thread, i: group,
        column=lambda group, thread, i: thread * 4 + i,
    ),
    Printed(
        section="9.7.14.5.3",
        instructions=("mma.m8n8k16.s8",),
        operand="B",
        elements=4,
        row=lambda group, thread, i: thread * 4 + i,
        column=lambda group, thread, i: group,
    ),
    Printed(
        section="9.7.14.5.3",
        instructions=("mma.m8n8k16.s8",),
        operand="C",
        elements=2,
        row=lambda group, thread, i: group,
        column=lambda group, thread, i: thread * 2 + i,
    ),
    Printed(
        section="9.7.14.5.6",
        instructions=("mma.m16n8k4.tf32",),
        operand="A",
        elements=2,
        row=lambda group, thread, i: group if i == 0 else group + 8,
        column=lambda group, thread, i: thread,
    ),
    Printed(
        section="9.7.14.5.7",
        instructions=("mma.m16n8k8.f16", "mma.m16n8k8.bf16"),
        operand="A",
        elements=4,
        row=lambda group, thread, i: group if i in (0, 1) else group + 8,
        column=lambda group, thread, i: thread * 2 + (i & 1),
    ),
    Printed(
        section="9.7.14.5.7",
        instructions=("mma.m16n8k8.f16", "mma.m16n8k8.bf16"),
        operand="B",
        elements=2,
        row=lambda group, thread, i: thread * 2 + i,
        column=lambda group, thread, i: group,
    ),
    Printed(
        section="9.7.14.5.7",
        instructions=("mma.m16n8k8.tf32",),
        operand="A",
        elements=4,
        row=lambda group, thread, i: group if i in (0, 2) else group + 8,
        column=lambda group, thread, i: thread if i in (0, 1) else thread + 4,
    ),
    Printed(
        section="9.7.14.5.7",
        instructions=("mma.m16n8k8.tf32",),
        operand="B",
        elements=2,
        row=lambda group, thread, i: thread if i == 0 else thread + 4,
        column=lambda group, thread, i: group,
    ),
    Printed(
        section="9.7.14.5.8",
        instructions=("mma.m16n8k16.f16", "mma.m16n8k16.bf16"),
        operand="A",
        elements=8,
        row=lambda group, thread, i: group if 0 <= i < 2 or 4 <= i < 6 else group + 8,
        column=lambda group, thread, i: thread * 2 + (i & 1) + (0 if i < 4 else 8),
    ),
    Printed(
        section="9.7.14.5.8",
        instructions=("mma.m16n8k16.f16", "mma.m16n8k16.bf16"),
        operand="B",
        elements=4,
        row=lambda group, thread, i: thread * 2 + (i & 1) + (0 if i < 2 else 8),
        column=lambda group, thread, i: group,
    ),
    Printed(
        section="9.7.14.5.10",
        instructions=("mma.m16n8k32.s8", "mma.m16n8k32.e4m3", "mma.m16n8k32.e5m2"),
        operand="A",
        elements=16,
        row=lambda group, thread, i: group if 0 <= i < 4 or 8 <= i < 12 else group + 8,
        column=lambda group, thread, i: thread * 4 + (i & 3) + (0 if i < 8 else 16),
    ),
    Printed(
        section="9.7.14.5.10",
        instructions=("mma.m16n8k32.s8", "mma.m16n8k32.e4m3", "mma.m16n8k32.e5m2"),
        operand="B",
        elements=8,
        row=lambda group, thread, i: thread * 4 + (i & 3) + (0 if i < 4 else 16),
        column=lambda group, thread, i: group,
    ),
    Printed(
        section="9.7.14.5.6 to 9.7.14.5.10",
        instructions=("mma.m16n8k8.f16", "mma.m16n8k8.tf32", "mma.m16n8k16.f16", "mma.m16n8k32.s8"),
        operand="C",
        elements=4,
        row=lambda group, thread, i: group if i < 2 else group + 8,
        column=lambda group, thread, i: thread * 2 + (i & 1),
    ),
)
CASES = [(name, rule) for rule in RULES for name in rule.instructions]


@pytest.mark.parametrize(("name", "rule"), CASES, ids=[f"{name}-{rule.operand}" for name, rule in CASES])
def test_the_table_of_the_figure_follows_the_printed_rule(name: str, rule: Printed) -> None:
    (table,) = (t for t in read_tables() if name in t.instructions and rule.operand in t.operands)
    lanes, elements = np.arange(32), np.arange(rule.elements)
    rows = [[rule.row(lane >> 2, lane % 4, i) for i in elements] for lane in lanes]
    columns = [[rule.column(lane >> 2, lane % 4, i) for i in elements] for lane in lanes]
    assert table.rows.tolist() == rows
    assert table.columns.tolist() == columns
    assert table.source.removeprefix("nvidia.toml: ").startswith(rule.section)


def test_every_operand_that_kernels_load_has_a_printed_rule() -> None:
    loaded = {
        "mma.m8n8k16.s8",
        "mma.m16n8k8.f16",
        "mma.m16n8k8.tf32",
        *(f"mma.m16n8k16.{element}" for element in ("f16", "bf16")),
        *(f"mma.m16n8k32.{element}" for element in ("s8", "e4m3", "e5m2")),
    }
    stated = {(name, rule.operand) for name, rule in CASES}
    assert {(name, operand) for name in loaded for operand in "AB"} <= stated
