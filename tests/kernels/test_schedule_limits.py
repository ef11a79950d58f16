"""Numbers of a schedule far out of what anybody means: refused by name, or the text compiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kernels.cases import Case, all_cases, tile_cases

from tracea.emitters.kernel_source import KernelSource
from tracea.errors import InvalidSchedule, ProofFailed
from tracea.flow.kernel import build
from tracea.kernels.registry import find
from tracea.runtime.compiler import include_directory
from tracea.runtime.compiler_process import run_compiler
from tracea.runtime.toolchain import compile_flags, find_compiler
from tracea.runtime.unit import unit_text
from tracea.semantic.schedule import Schedule
from tracea.targets import load

NUMBERS = (-1, 0, 2**24, 2**31 + 7, 10**17)
SECONDS = 60.0
ISA = {case.variant: "amx" for case in tile_cases()} | {case.variant: "avx512" for case in all_cases()}
CASES = {case.variant: case for case in (*tile_cases(), *all_cases())}


def accepted(case: Case, field: str) -> list[KernelSource]:
    """Return the texts of a case's variant with each number in one field, but for those that are refused."""
    target, variant = load(ISA[case.variant]), find(case.variant)
    assert variant.default_schedule is not None
    default = variant.default_schedule(case.op, target)
    texts = []
    for number in NUMBERS:
        try:
            texts.append(build(case.op, case.variant, default.with_values(**{field: number}), target).source)
        except InvalidSchedule as error:
            assert error.remedy  # noqa: PT017
        except ProofFailed as error:  # scratch of so many bytes has no address
            assert "do not fit" in str(error) or "code for" in str(error)  # noqa: PT017
    return texts


@pytest.mark.costly
@pytest.mark.parametrize("name", CASES)
def test_every_number_is_refused_or_compiles(name: str, tmp_path: Path) -> None:
    case, target, variant = CASES[name], load(ISA[name]), find(name)
    assert variant.default_schedule is not None
    default = variant.default_schedule(case.op, target)
    fields = [field for field, value in default.items() if not isinstance(value, str)]
    sources = {source.name: source for field in fields for source in accepted(case, field)}
    if not sources:
        return
    compiler, text = find_compiler(), tmp_path / "kernels.cpp"
    text.write_text(unit_text(tuple(sources.values())))
    flags = [*compile_flags(compiler, target.isa), f"-I{include_directory()}", "-fsyntax-only"]
    run_compiler((*compiler.command, *flags, str(text)), SECONDS, tmp_path)


@pytest.mark.parametrize(
    ("name", "field", "least", "most"),
    [
        ("gemm.direct", "prefetch_b", 0, 2**24),
        ("gemm.stream", "steps", 1, 64),
        ("gemm.dot", "rows", 1, 64),
        ("pointwise.chain", "prefetch", 0, 2**24),
        ("gemm.empty", "mc", 1, 2**40),
    ],
)
def test_a_number_out_of_its_range_is_refused_with_the_nearest(name: str, field: str, least: int, most: int) -> None:
    case, target, variant = CASES[name], load("avx512"), find(name)
    assert variant.default_schedule is not None
    default = variant.default_schedule(case.op, target)
    for number, nearest in ((least - 1, least), (10**17, most)):
        with pytest.raises(InvalidSchedule, match=f"{field}: got {number}, expected {least} to {most}") as caught:
            build(case.op, name, default.with_values(**{field: number}), target)
        assert caught.value.remedy == f"{field}={nearest}, the nearest"


def test_a_number_in_place_of_a_word_names_the_words() -> None:
    with pytest.raises(InvalidSchedule, match=r"split: got 1, expected rows \| columns") as caught:
        Schedule(split=1).choice("split", "rows", "columns")
    assert caught.value.remedy == "split=rows"
