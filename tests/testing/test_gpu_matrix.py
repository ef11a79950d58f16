"""The matrix of CUDA kernels: an even sample in every run, all of it at night."""

from __future__ import annotations

import pytest

from tracea.runtime.nvrtc import missing
from tracea.testing import gpu_matrix
from tracea.testing.gpu_matrix import COLUMNS, ELEMENTS, NOT_CHECKED, Cell, cells, judge_cell, rejection, sample

SAMPLE = 12
RUNNING = [cell for cell in cells() if rejection(cell) is None]
CHOSEN = sample(SAMPLE)


def judged(cell: Cell) -> None:
    row = judge_cell(cell)
    unchecked = {name for name, outcome in row.outcomes.items() if outcome.startswith(NOT_CHECKED)}
    if missing() is not None:
        unchecked -= {"compiled", "budget"}
    assert not unchecked, row.outcomes
    failed = {name: row.outcomes[name] for name in COLUMNS if row.outcomes[name] not in ("ok",)}
    if missing() is not None:
        failed = {name: outcome for name, outcome in failed.items() if not outcome.startswith(NOT_CHECKED)}
    assert not failed, failed


@pytest.mark.parametrize("cell", CHOSEN, ids=str)
def test_a_sampled_cell_passes_every_checker(cell: Cell) -> None:
    judged(cell)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [cell for cell in RUNNING if cell not in CHOSEN], ids=str)
def test_every_other_cell_passes_every_checker(cell: Cell) -> None:
    judged(cell)


def test_the_sample_has_every_variant_architecture_and_element_type() -> None:
    assert {cell.variant for cell in CHOSEN} == {cell.variant for cell in RUNNING}
    assert {cell.architecture for cell in CHOSEN} == {cell.architecture for cell in RUNNING}
    assert {cell.element for cell in CHOSEN} == set(ELEMENTS)
    assert len(set(CHOSEN)) == len(CHOSEN) == SAMPLE


def test_every_architecture_runs_every_element_type_somehow() -> None:
    running = {(cell.architecture, cell.element) for cell in RUNNING}
    wanted = {(cell.architecture, cell.element) for cell in cells() if cell.element != "tf32"}
    assert wanted <= running


def test_a_wrong_result_is_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(variant="gemm.simt", architecture="sm_80", element="f32")
    monkeypatch.setattr(gpu_matrix, "evaluate", lambda op, inputs: 1.0 + 0.0 * (inputs[0] @ inputs[1]))
    row = judge_cell(cell, runs=gpu_matrix.RUN[1:2], schedules=(0,))
    assert not row.passed
    assert "wrong, first at (0, 0)" in row.outcomes["float64"]
    assert row.outcomes["emulator"] == "ok"
