"""The GPU suite without a GPU: every stage up to the driver; wrong results are items' outcomes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracea.bench.gpu.candidates import fitting, tried_schedules, tried_space
from tracea.bench.gpu.conformance import run_case
from tracea.bench.gpu.correctness import judge_on_device
from tracea.bench.gpu.one_kernel import OneKernel
from tracea.bench.gpu.problems import contest_problems, correctness_cells, correctness_problems, hero_problems
from tracea.bench.gpu.run import render, run_gpu_suite
from tracea.bench.gpu.session import open_session
from tracea.bench.gpu.settings import STAGES, Settings
from tracea.bench.gpu.timed import row_check
from tracea.bench.gpu.vendor_tools import Counters, predicted_counters, shared_costs
from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.errors import InvalidOption
from tracea.flow.gpu import compile_for_gpu
from tracea.flow.kernel import build, choose_for_gpu
from tracea.flow.phases import telling
from tracea.kernels.registry import find
from tracea.runtime.nvrtc import compile_cuda, missing
from tracea.targets.gpu import load_gpu
from tracea.testing.conformance import compare, conformance_cases

needs_nvrtc = pytest.mark.skipif(missing() is not None, reason="no NVRTC: tracea[cuda] is not installed")
SMALL = {"bm": 32, "bn": 64, "bk": 32, "warps_m": 1, "warps_n": 2, "stages": 3}
SETTINGS = Settings(target="sm_80", driver="null", workers=1, trials=2)


def test_the_stages_fit_into_ten_minutes() -> None:
    assert sum(STAGES.values()) <= 585


def test_hero_problems_are_contested() -> None:
    names = [problem.name for problem in contest_problems()]
    assert len(set(names)) == len(names)
    assert len(hero_problems()) == 7
    assert {"bf16 8192x8192x8192", "f16 4096x4096x4096"} <= set(names)


def test_a_dry_run_is_not_written_among_results(tmp_path: Path) -> None:
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    with pytest.raises(InvalidOption, match=r"--output: .*Remedy: --output build/gpu-dry-run"):
        run_gpu_suite(driver="null", target="sm_80", stages=("sanitizer",), output=results)
    assert not list(results.iterdir())


def test_a_dry_record_says_that_it_has_no_time(tmp_path: Path) -> None:
    notes: list[str] = []
    phases: list[str] = []
    with telling(phases.append):
        record = run_gpu_suite(
            driver="null",
            target="sm_80",
            stages=("sanitizer",),
            every=40,
            workers=1,
            output=tmp_path,
            progress=notes.append,
        )
    assert record.failures == [], record.failures
    assert notes[0].startswith("dry run of the GPU suite, the emulator in the place of a device, sm_80: 1 stage (")
    assert f"the record goes to {tmp_path / 'dry-run-sm_80-part.json'}, until then dry-run-sm_80-part.unf" in notes[0]
    assert phases == ["stage 1/1, sanitizer: at most 200 s"]
    assert record.stages["sanitizer"].counts == {"not checked": 4}
    assert not record.measured
    assert [path.name for path in tmp_path.iterdir()] == ["dry-run-sm_80-part.json"]
    kept = json.loads((tmp_path / "dry-run-sm_80-part.json").read_text(encoding="utf-8"))
    assert kept["measured"] is False
    assert kept["device"]["driver_version"] == "none"
    assert "nothing here is a time" in render(record)
    assert not (tmp_path / "heroes").exists()


@pytest.mark.slow
@needs_nvrtc
def test_a_dry_run_goes_through_stages_and_claims_nothing(tmp_path: Path) -> None:
    stages = tuple(STAGES)
    record = run_gpu_suite(driver="null", target="sm_80", stages=stages, every=40, workers=1, trials=1, output=tmp_path)
    assert record.failures == [], record.failures
    assert list(record.stages) == list(stages)
    for name, stage in record.stages.items():
        assert stage.reason == "", (name, stage.reason)
        assert stage.items, name
        assert set(stage.counts) <= {"dry", "not checked"}, (name, stage.counts)
    assert record.stages["banks"].counts == {"dry": 1}
    assert not record.measured
    text = (tmp_path / "dry-run-sm_80-part.json").read_text(encoding="utf-8")
    assert "samples_us" not in text
    assert "nothing here is a time" in render(record)
    assert "TFLOP" not in render(record)
    assert not (tmp_path / "heroes").exists()


@pytest.mark.slow
@needs_nvrtc
def test_a_wrong_bit_fails_conformance() -> None:
    session = open_session(SETTINGS, seconds=60)
    case = next(case for case in conformance_cases("sm_80") if case.name == "shuffles")
    assert compare(case, run_case(session, case)) == ()
    text = case.source.text.replace("shuffle_xor(mine, mask)", "shuffle_xor(mine, mask ^ 1)")
    changed = replace(case, source=replace(case.source, text=text))
    assert compare(changed, run_case(session, changed))


@pytest.mark.slow
@needs_nvrtc
def test_a_wrong_kernel_fails_on_the_device() -> None:
    session = open_session(SETTINGS, seconds=60)
    op = GemmOp.of(m=40, n=72, k=50, dtype=DType.F16)
    variant, schedule = choose_for_gpu(op, load_gpu("sm_80"), variant="gemm.mma_cp_async", schedule=dict(SMALL))
    good = session.know_compiled(compile_for_gpu(op, variant, schedule, load_gpu("sm_80")))
    assert judge_on_device(session, good, op) == []
    source = good.built.source
    line = next(line for line in source.text.splitlines() if "k_step < " in line)
    text = source.text.replace(line, line.replace("k_step < ", "k_step < -1 + "))
    assert text != source.text
    source = replace(source, text=text)
    broken = replace(good, built=replace(good.built, source=source), binary=compile_cuda(source))
    assert judge_on_device(session, session.know_compiled(broken), op)


def test_rows_are_compared_with_float64() -> None:
    op = GemmOp.of(m=100, n=48, k=64, dtype=DType.F16, transpose_b=True)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(kind.static_shape).astype(np.float16) for kind in op.operands]
    product = (inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)).astype(np.float16)
    rows = [0, 17, 99]
    assert row_check(op, inputs, product[rows], rows) == ""
    wrong = product[rows].copy()
    wrong[1, 5] += 1
    assert "(17, 5)" in row_check(op, inputs, wrong, rows)
    wrong[1, 5] = np.nan
    assert "1 of 144" in row_check(op, inputs, wrong, rows)


def test_conflicts_are_foretold_for_an_unswizzled_kernel() -> None:
    def predicted(**changes: int) -> tuple[int, Counters]:
        asked = OneKernel(
            target="sm_80", variant="gemm.mma_cp_async", element="f16", m=64, n=64, k=64, changes={**SMALL, **changes}
        )
        built = build(asked.op(), asked.variant, asked.schedule(), load_gpu("sm_80"))
        main_loop = [cost for cost in shared_costs(built, asked) if cost.place.primitive.startswith("ldmatrix")]
        assert main_loop
        return sum(cost.conflicts for cost in main_loop), predicted_counters(built, asked)

    swizzled, of_swizzled = predicted()
    unswizzled, of_unswizzled = predicted(swizzle=0)
    assert swizzled == 0
    assert unswizzled > 0
    # Both epilogues are the same: what ncu counts differs by what the main loop costs.
    assert of_unswizzled.load_conflicts - of_swizzled.load_conflicts == unswizzled
    assert of_unswizzled.store_conflicts == of_swizzled.store_conflicts


def test_a_search_tries_the_default_first_and_the_same_schedules_always() -> None:
    op, target = contest_problems()[2].op, load_gpu("sm_80")
    variant = fitting(op, target)[0]
    first = tried_schedules(op, variant, target, trials=6, seed=1)
    assert first == tried_schedules(op, variant, target, trials=6, seed=1)
    assert first[0] == variant.default_schedule(op, target)
    space = tried_space(first)
    assert len(space) == len(set(first)) == 6


def test_bad_flags_are_refused() -> None:
    with pytest.raises(InvalidOption, match="conformance"):
        run_gpu_suite(driver="null", stages=("conform",))
    with pytest.raises(InvalidOption, match="nearest"):
        run_gpu_suite(driver="null", target="sm_91")
    with pytest.raises(InvalidOption, match="at least 1"):
        run_gpu_suite(driver="null", every=0)
    with pytest.raises(InvalidOption, match="null"):
        run_gpu_suite(driver="rocm")


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_120a"])
def test_no_variant_is_given_a_shape_that_it_does_not_take(name: str) -> None:
    target = load_gpu(name)
    whole = list(correctness_problems(target, every=1, is_dry=False))
    assert {cell for cell, _ in whole} == set(correctness_cells(name))
    for cell, problem in whole:
        assert not find(cell.variant).unmet(problem.op(cell.element), target), (cell, problem)
    # A product whose rows are not along k is there for those that take it, and for no other.
    across = {cell.variant for cell, problem in whole if not problem.transpose_b}
    assert {"gemm.mma_cp_async", "gemm.simt"} <= across
    assert not {"gemm.mma_tma", "gemm.wgmma"} & across
    dry = list(correctness_problems(target, every=1, is_dry=True))
    assert [cell for cell, _ in dry] == list(correctness_cells(name))
    assert set(dry) <= set(whole)


def test_every_variant_of_a_target_has_correctness_cells() -> None:
    assert {"gemm.wgmma", "gemm.mma_cp_async", "gemm.simt"} <= {cell.variant for cell in correctness_cells("sm_90a")}
