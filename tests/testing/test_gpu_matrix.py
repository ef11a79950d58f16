"""The matrix of CUDA kernels: a fresh even sample in every run, all of it at night, and the page that states it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from tracea.kernels.registry import find
from tracea.runtime.nvrtc import missing
from tracea.targets.gpu import load_gpu
from tracea.testing import gpu_matrix
from tracea.testing.gpu_matrix import (
    COLUMNS,
    ELEMENTS,
    FEATURES,
    NOT_CHECKED,
    RUN,
    Cell,
    Feature,
    Row,
    cells,
    judge_cell,
    judge_feature,
    rejection,
    sample,
)

SAMPLE = 10
FEATURE_SAMPLE = 3
SEED = int(os.environ["TRACEA_SEED"])  # printed by each run, the same in all workers
RUNNING = [cell for cell in cells() if rejection(cell) is None]
CHOSEN = sample(SAMPLE, SEED)
CHOSEN_FEATURES = tuple(
    FEATURES[i] for i in sorted(np.random.default_rng(SEED).permutation(len(FEATURES))[:FEATURE_SAMPLE])
)
PAGE = Path(__file__).parents[2] / "docs" / "gpu-matrix.md"


def passes(row: Row) -> None:
    compilers = ("compiled", "budget") if missing() is not None else ()
    failed = {
        name: row.outcomes[name]
        for name in COLUMNS
        if row.outcomes[name] != "ok" and not (name in compilers and row.outcomes[name].startswith(NOT_CHECKED))
    }
    assert not failed, failed


@pytest.mark.parametrize("cell", CHOSEN, ids=str)
def test_a_sampled_cell_passes_every_checker(cell: Cell) -> None:
    passes(judge_cell(cell))


@pytest.mark.parametrize("feature", CHOSEN_FEATURES, ids=str)
def test_a_sampled_feature_passes_every_checker(feature: Feature) -> None:
    passes(judge_feature(feature))


@pytest.mark.slow
@pytest.mark.parametrize("cell", [cell for cell in RUNNING if cell not in CHOSEN], ids=str)
def test_every_other_cell_passes_every_checker(cell: Cell) -> None:
    passes(judge_cell(cell))


@pytest.mark.slow
@pytest.mark.parametrize("feature", [feature for feature in FEATURES if feature not in CHOSEN_FEATURES], ids=str)
def test_every_other_feature_passes_every_checker(feature: Feature) -> None:
    passes(judge_feature(feature))


@pytest.mark.parametrize("seed", [*range(20), SEED])
def test_any_sample_has_every_variant_architecture_and_element_type(seed: int) -> None:
    chosen = sample(SAMPLE, seed)
    assert {cell.variant for cell in chosen} == {cell.variant for cell in RUNNING}
    assert {cell.architecture for cell in chosen} == {cell.architecture for cell in RUNNING}
    assert {cell.element for cell in chosen} == set(ELEMENTS)
    assert len(set(chosen)) == len(chosen) == SAMPLE


def test_every_architecture_runs_every_element_type_somehow() -> None:
    running = {(cell.architecture, cell.element) for cell in RUNNING}
    wanted = {(cell.architecture, cell.element) for cell in cells() if cell.element != "tf32"}
    assert wanted <= running


@pytest.mark.parametrize("cell", RUNNING, ids=str)
def test_every_cell_takes_one_row_one_column_odd_extents_and_a_short_k(cell: Cell) -> None:
    variant, target = find(cell.variant), load_gpu(cell.architecture)
    taken = [problem for problem in RUN if not variant.unmet(problem.op(cell.element), target)]
    assert any(problem.m == 1 for problem in taken)
    assert any(problem.n == 1 for problem in taken)
    assert any(problem.m % 2 and problem.n % 2 and problem.k % 2 for problem in taken)
    assert variant.default_schedule is not None
    schedules = [variant.default_schedule(problem.op(cell.element), target) for problem in taken]
    reach = [s.integer("bk") * (s.integer("stages") if "stages" in s else 1) for s in schedules]
    assert any(problem.k < depth for problem, depth in zip(taken, reach, strict=True))


def test_the_page_states_exactly_the_cells_and_features_that_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    matrix, features = text.split("\n## Features\n")
    remedy = "the page is stale: run `make gpu-matrix`"
    stated = re.findall(r"^\| (gemm\.\w+) \| (sm_\w+) \| (\w+) \|", matrix, re.MULTILINE)
    assert sorted(stated) == sorted((c.variant, c.architecture, c.element) for c in RUNNING), remedy
    named = re.findall(r"^\| ([^|]+) \| (gemm\.\w+) \| (sm_\w+) \| (\w+) \|", features, re.MULTILINE)
    wanted = [(f.name, f.cell.variant, f.cell.architecture, f.cell.element) for f in FEATURES]
    assert sorted(named) == sorted(wanted), remedy
    missing_cells = {str(cell) for cell in cells()} - {str(cell) for cell in RUNNING}
    reasons = re.findall(r"^- \*\*(gemm\.\w+)\*\*: ((?:sm_\w+ \w+(?:, )?)+):", features, re.MULTILINE)
    explained = {f"{variant} {where}" for variant, wheres in reasons for where in wheres.split(", ")}
    assert explained == missing_cells, remedy


def test_a_wrong_result_is_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(variant="gemm.simt", architecture="sm_80", element="f32")
    monkeypatch.setattr(gpu_matrix, "evaluate", lambda op, inputs: 1.0 + 0.0 * (inputs[0] @ inputs[1]))
    row = judge_cell(cell, runs=RUN[1:2], schedules=(0,))
    assert not row.passed
    assert "wrong, first at (0, 0)" in row.outcomes["float64"]
    assert row.outcomes["emulator"] == "ok"


def test_fewer_ways_than_proved_are_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_matrix, "_MAIN_LOOP", ("copy_async",))
    cell = Cell(variant="gemm.mma_cp_async", architecture="sm_80", element="f16")
    whole = next(feature.runs for feature in FEATURES if feature.name == "no swizzle")
    row = judge_cell(cell, runs=whole, schedules=(0,), changes={"swizzle": 0}, compiled=())
    assert row.outcomes["banks"] == "4 ways proved, 1 observed, must be as many, and more than 1"
