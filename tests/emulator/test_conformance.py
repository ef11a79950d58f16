"""Every primitive in the emulator, bit by bit, as the vendor's tables say, by the texts that hardware will run."""

from __future__ import annotations

import pytest

from tracea.emitters.cuda.primitives import ARCHITECTURES, PRIMITIVES
from tracea.emulator import emulate
from tracea.runtime.nvrtc import compile_cuda, missing
from tracea.testing.conformance import ConformanceCase, compare, conformance_cases

_HOPPER = conformance_cases("sm_90a")


def _run(case: ConformanceCase, schedules: tuple[int, ...]) -> None:
    outputs = case.outputs()
    report = emulate(case.source, {**case.inputs, **outputs}, {}, schedules=schedules, initialised=case.zeroed)
    assert report.clean, str(report)
    assert report.deterministic
    mismatches = compare(case, outputs)
    assert not mismatches, "\n".join(map(str, mismatches))


@pytest.mark.parametrize("case", _HOPPER, ids=lambda case: case.name)
def test_primitive_does_what_the_tables_say(case: ConformanceCase) -> None:
    _run(case, (0, 3))


@pytest.mark.parametrize("architecture", ["sm_75", "sm_89", "sm_120a"])
def test_other_architectures_share_the_texts(architecture: str) -> None:
    for case in conformance_cases(architecture)[::7]:
        _run(case, (0,))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_primitive_of_an_architecture_has_a_case(architecture: str) -> None:
    called = {name for case in conformance_cases(architecture) for name in case.primitives}
    assert called == {primitive.name for primitive in PRIMITIVES if primitive.runs_on(architecture)}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_form_of_a_primitive_has_a_case(architecture: str) -> None:
    texts = "\n".join(case.source.text for case in conformance_cases(architecture))
    for primitive in PRIMITIVES:
        for form, _ in primitive.forms:
            if primitive.runs_on(architecture, form) and primitive.name != "to_float":
                assert f"{primitive.name}<{form}>" in texts or f", {form}" in texts, f"{primitive.name}<{form}>"


@pytest.mark.skipif(missing() is not None, reason=f"not checked: {missing()}")
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90a", "sm_120a"])
def test_sample_of_the_texts_compiles_for_hardware(architecture: str) -> None:
    for case in conformance_cases(architecture)[3::24]:
        assert compile_cuda(case.source).cubin


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=f"not checked: {missing()}")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_text_compiles_for_hardware(architecture: str) -> None:
    for case in conformance_cases(architecture):
        assert compile_cuda(case.source).cubin, case.name


def test_a_wrong_lane_would_be_noticed() -> None:
    case = next(case for case in _HOPPER if case.name == "ldmatrix_x4")
    outputs = case.outputs()
    emulate(case.source, {**case.inputs, **outputs}, {}, schedules=(0,))
    outputs["c"][[5, 9]] = outputs["c"][[9, 5]]
    (mismatch,) = compare(case, outputs)
    assert mismatch.count == 2
    assert mismatch.index == (5,)
