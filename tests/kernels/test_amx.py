"""GEMM on matrix tiles: float32 accuracy from bf16 terms, values that terms cannot hold, the hot loop."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.cases import amx_cases, resized
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.native import Unit, compile_text
from tests.kernels.on_tiles import needs_tiles, on_both
from tests.kernels.test_attention import changed
from tests.kernels.test_disassembly import OBJDUMP, STACK, VECTOR, loops

from tracea.core.accuracy import error_bound
from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.core.reference import evaluate
from tracea.emitters.cpu.emitter import emit
from tracea.errors import InvalidSchedule, ProofFailed
from tracea.kernels.registry import candidates, find
from tracea.semantic.index import Const
from tracea.semantic.nodes import MicroKernel
from tracea.semantic.proofs import prove
from tracea.semantic.tile_kernel import BufferRole
from tracea.targets import load

CASES = {case.name: case for case in amx_cases()}
ISAS = ("amx", "plain")

Values = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def compiled(name: str, isa: str) -> tuple[Unit, Case]:
    return unit_of(amx_cases(), isa), CASES[name]


@on_both
@pytest.mark.parametrize("name", CASES)
def test_kernel_matches_float64_on_one_thread_and_three(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = compiled(name, isa)
    for threads in (1, 3):
        check(unit, build(case, isa), case.op, random_inputs(case.op, rng), threads=threads)


@on_both
@pytest.mark.parametrize("name", [name for name in CASES if name != "amx_batch"])
def test_kernel_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = compiled(name, isa)
    for _ in range(12 if isa == "amx" else 3):
        m, n, k = (int(rng.choice([2, int(rng.integers(3, 40)), int(rng.integers(40, 150))])) for _ in range(3))
        op = resized(case.op, m, n, k)
        check(unit, build(case, isa), op, random_inputs(op, rng), threads=int(rng.integers(1, 4)))


@on_both
@pytest.mark.parametrize("k", [31, 160, 400])
@pytest.mark.parametrize("name", ["amx_default", "amx_rows"])
def test_edges_have_half_a_tile_or_a_whole_one(name: str, k: int, isa: str, rng: np.random.Generator) -> None:
    """Sums go from the tiles to C (no epilogue, few steps), through vectors, or onto what C holds (more K blocks)."""
    unit, case = compiled(name, isa)
    for m in (33, 48, 49):
        for n in (33, 48, 49):
            op = resized(case.op, m, n, k)
            inputs = random_inputs(op, rng)
            check(unit, build(case, isa), op, inputs)
            inputs[0][-1, -1] = np.inf
            check(unit, build(case, isa), op, inputs)


@on_both
def test_error_is_within_the_contract_of_independent_roundings(isa: str, rng: np.random.Generator) -> None:
    unit, case = compiled("amx_rows", isa)
    for k in (1, 7, 32, 33, 200):
        op = resized(case.op, 64, 64, k)
        inputs = random_inputs(op, rng)
        got = run(unit, build(case, isa), op, inputs).astype(np.float64)
        assert (np.abs(got - evaluate(op, inputs)) <= error_bound(op, inputs)).all(), k


def placed(values: dict[tuple[int, int], float]) -> Values:
    def make(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        array = rng.standard_normal(shape).astype(np.float32)
        for place, value in values.items():
            array[place] = value
        return array

    return make


def scaled(scale: float) -> Values:
    return lambda rng, shape: (rng.standard_normal(shape) * scale).astype(np.float32)


def single(place: tuple[int, int], value: float) -> Values:
    def make(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        del rng
        array = np.zeros(shape, np.float32)
        array[place] = value
        return array

    return make


def ones(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    del rng
    return np.ones(shape, np.float32)


ALL_DIGITS = np.array(0x7FFFE000, np.uint32).view(np.float32)[()]  # so is the f16 that it becomes

EXTREMES: dict[str, tuple[Values, Values]] = {
    "infinity_times_numbers": (placed({(3, 40): np.inf}), placed({})),
    "infinity_times_one": (placed({(0, 0): -np.inf}), ones),
    "infinity_times_zero": (placed({(3, 40): np.inf}), placed({(40, 5): 0.0})),
    "nan_in_a": (placed({(65, 2): np.nan}), placed({})),
    "nan_in_b": (placed({}), placed({(70, 95): np.nan})),
    "nan_of_all_digits": (placed({(3, 40): ALL_DIGITS, (68, 1): -ALL_DIGITS}), placed({(70, 95): ALL_DIGITS})),
    "both_infinite": (placed({(3, 40): np.inf}), placed({(40, 5): -np.inf})),
    "products_that_underflow": (scaled(1e-30), scaled(1e-30)),
    "denormal_operand": (scaled(1e-40), scaled(1e20)),
    "denormal_result_among_zeros": (single((1, 1), 1e-30), single((1, 1), 1e-10)),
    "denormal_result_of_two_blocks": (single((1, 70), 1e-30), single((70, 1), 1e-10)),
    "huge": (placed({(5, 5): 3e38}), scaled(1e-3)),
    "huge_times_tiny": (scaled(5e37), scaled(1e-38)),
    "edge_of_the_safe_range": (scaled(2.0**-48), scaled(2.0**58)),
    "below_the_safe_range": (scaled(2.0**-60), scaled(1.0)),
    "wide_range_in_a_granule": (
        lambda rng, shape: (rng.standard_normal(shape) * 10.0 ** rng.integers(-36, 5, shape)).astype(np.float32),
        lambda rng, shape: (rng.standard_normal(shape) * 10.0 ** rng.integers(-30, 15, shape)).astype(np.float32),
    ),
    "marks": (lambda rng, shape: np.full(shape, -np.nan, np.float32), ones),
}


NARROW = [name for name in CASES if name.startswith(("amx_bf16", "amx_f16"))]


@on_both
@pytest.mark.parametrize(
    "name",
    [*NARROW, "amx_default", "amx_strided", "amx_rows", "amx_columns", "amx_prepacked_columns", "amx_transposed"],
)
@pytest.mark.parametrize("extreme", EXTREMES)
def test_values_that_terms_cannot_hold_give_what_float32_gives(
    extreme: str, name: str, isa: str, rng: np.random.Generator
) -> None:
    unit, case = compiled(name, isa)
    inputs = random_inputs(case.op, rng)
    for operand, make in enumerate(EXTREMES[extreme]):
        with np.errstate(over="ignore"):
            inputs[operand] = make(rng, inputs[operand].shape).astype(inputs[operand].dtype)
    with np.errstate(all="ignore"):
        check(unit, build(case, isa), case.op, inputs, threads=2)


@pytest.mark.parametrize("isa", [pytest.param("amx", marks=needs_tiles), pytest.param("plain", marks=pytest.mark.slow)])
def test_result_has_the_same_bits_for_any_team(isa: str, rng: np.random.Generator) -> None:
    for name in ("amx_rows", "amx_columns", "amx_prepacked_rows"):
        unit, case = compiled(name, isa)
        inputs = random_inputs(case.op, rng)
        first = run(unit, build(case, isa), case.op, inputs, threads=1)
        for threads in (1, 2, 3, 5):
            again = run(unit, build(case, isa), case.op, inputs, threads=threads)
            assert first.tobytes() == again.tobytes(), (name, threads)


@needs_tiles
def test_tiles_and_their_plain_meaning_agree_bit_for_bit(rng: np.random.Generator) -> None:
    for name, case in CASES.items():
        inputs = random_inputs(case.op, rng)
        if case.op.epilogue.operands and name != "amx_strided":
            continue  # GELU differs between instruction sets by its own error
        real, plain = (run(unit_of(amx_cases(), isa), build(case, isa), case.op, inputs) for isa in ISAS)
        assert real.tobytes() == plain.tobytes(), name


@pytest.mark.skipif(OBJDUMP is None, reason="objdump is not here")
def test_hot_loop_is_24_products_of_a_granule_and_no_spilled_tile() -> None:
    assert OBJDUMP is not None
    case = Case.of("amx", "gemm.amx", GemmOp.of(m=1024, n=1024, k=1024))
    binary = compile_text(build(case, "amx").source.text, "amx", extra=("-O3", "-c"), suffix=".o")
    listing = subprocess.run(
        [OBJDUMP, "-d", "-C", "--no-show-raw-insn", str(binary)], capture_output=True, text=True, check=True
    ).stdout
    functions = [text for text in re.split(r"\n\n", listing) if "tdpbf16ps" in text]
    function = next(text for text in functions if "::amx_block" in text.splitlines()[0])
    # Apart from it: tiles at edges, of halves and a quarter, and the loop for few steps, with the same 24.
    assert sorted(text.count("tdpbf16ps") for text in functions if text is not function) == [24, 6 + 12 + 12]
    lines = [line for line in function.splitlines() if "tdpbf16ps" in line]
    assert len(lines) == 24
    assert function.count("tileloadd") == 14
    # Four sums leave at the end of a tile; the fifth store keeps the path awake. Nothing else of a tile touches memory.
    assert function.count("tilestored") == 5
    body = function[function.index("tileloadd") : function.rindex("tdpbf16ps")]
    assert not [line for line in body.splitlines() if VECTOR.search(line)]
    assert not any(STACK.search(line) for loop in loops(listing) for line in loop if "tdpbf16ps" in line)


@pytest.mark.skipif(OBJDUMP is None, reason="objdump is not here")
@pytest.mark.parametrize(("dtype", "products", "loads"), [(DType.BF16, 4, 4), (DType.F16, 16, 10)])
def test_hot_loop_of_narrow_numbers_multiplies_the_terms_that_hold_them(
    dtype: DType, products: int, loads: int
) -> None:
    assert OBJDUMP is not None
    case = Case.of("amx", "gemm.amx", GemmOp.of(m=1024, n=1024, k=1024, dtype=dtype))
    binary = compile_text(build(case, "amx").source.text, "amx", extra=("-O3", "-c"), suffix=".o")
    listing = subprocess.run(
        [OBJDUMP, "-d", "-C", "--no-show-raw-insn", str(binary)], capture_output=True, text=True, check=True
    ).stdout
    functions = [text for text in re.split(r"\n\n", listing) if "::amx_block" in text.splitlines()[0]]
    (function,) = [text for text in functions if "tdpbf16ps" in text]
    copies = function.count("tdpbf16ps") // products  # a compiler may write a short loop twice
    assert copies in (1, 2)
    assert (function.count("tdpbf16ps"), function.count("tileloadd")) == (copies * products, copies * loads)
    assert not any(STACK.search(line) for loop in loops(listing) for line in loop if "tdpbf16ps" in line)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("variant", ["rows", "prepacked"])
def test_fewer_terms_than_hold_a_type_or_no_marks_are_refused(variant: str, dtype: str) -> None:
    kernel = build(CASES[f"amx_{dtype}_{variant}"], "amx").kernel
    assert prove(kernel).about("routines")
    for said in ({"marks": 0}, {"terms": 1}) if dtype == "f16" else ({"marks": 0},):

        def changed_node(node: MicroKernel, said: dict[str, int] = said) -> MicroKernel:
            attributes = tuple((name, said.get(name, value)) for name, value in node.intrinsic.attributes)
            return replace(node, intrinsic=replace(node.intrinsic, attributes=attributes))

        with pytest.raises(ProofFailed):
            prove(changed(kernel, MicroKernel, changed_node))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_panels_without_room_for_what_a_step_holds_are_refused(dtype: str) -> None:
    kernel = build(CASES["amx_prepacked_rows" if dtype == "f32" else f"amx_{dtype}_prepacked"], "amx").kernel
    panels = kernel.buffer("b")
    assert panels.role is BufferRole.CONSTANT
    width = panels.shape[-1]
    assert isinstance(width, Const)
    narrow = replace(panels, shape=(*panels.shape[:-1], Const(width.value - 1)))
    buffers = tuple(narrow if each == panels else each for each in kernel.buffers)
    with pytest.raises(ProofFailed, match=f"{width.value} are read"):
        prove(replace(kernel, buffers=buffers))


@pytest.mark.parametrize("variant", ["gemm.amx", "gemm.amx_prepacked"])
@pytest.mark.parametrize("shape", [(2048, 2048, 2048), (128, 3072, 768), (33, 70, 40)])
@pytest.mark.parametrize("isa", ISAS)
def test_schedules_of_the_space_build_prove_and_emit(
    isa: str, shape: tuple[int, int, int], variant: str, rng: np.random.Generator
) -> None:
    m, n, k = shape
    op, target, found = GemmOp.of(m=m, n=n, k=k), load(isa), find(variant)
    assert found.build is not None
    assert found.space is not None
    assert found.default_schedule is not None
    space = found.space(op, target)
    assert found.default_schedule(op, target) in space
    for row in rng.integers(0, len(space), 3):
        kernel = found.build(op, space.schedule(space.rows[int(row)]), target)
        assert prove(kernel).facts
        assert emit(kernel, target.isa).isa == isa


def test_kernel_is_refused_where_there_are_no_tiles_or_no_float32() -> None:
    op = GemmOp.of(m=64, n=64, k=64)
    unmet = dict((requirement.name, why) for requirement, why in find("gemm.amx").unmet(op, load("avx512")))
    assert unmet["matrix tiles"].needed == "amx_bf16"
    wrong = GemmOp.of(m=64, n=64, k=64, dtype=DType.F64)
    assert "factors that terms hold" in {
        requirement.name for requirement, _ in find("gemm.amx").unmet(wrong, load("amx"))
    }
    assert "gemm.amx" not in [variant.id for variant in candidates(op, load("avx512"))]


@pytest.mark.parametrize(
    ("rows", "by_columns", "first"), [(16, True, "library.gemm"), (16, False, "gemm.amx"), (512, True, "gemm.amx")]
)
def test_few_rows_leave_a_bf16_weight_by_columns_to_the_library(rows: int, by_columns: bool, first: str) -> None:
    op = GemmOp.of(m=rows, n=768, k=768, dtype=DType.BF16, transpose_b=by_columns)
    assert next(each.id for each in candidates(op, load("amx")) if each.constant_operand is None) == first


def test_schedule_that_is_none_is_an_error_with_its_numbers() -> None:
    found, target, op = find("gemm.amx"), load("amx"), GemmOp.of(m=64, n=64, k=64)
    assert found.build is not None
    assert found.default_schedule is not None
    good = found.default_schedule(op, target)
    for bad in ({"kc": 40}, {"kc": 0}, {"split": "diagonal"}, {"mc": 0}):
        with pytest.raises(InvalidSchedule):
            found.build(op, good.with_values(**bad), target)  # type: ignore[arg-type]
