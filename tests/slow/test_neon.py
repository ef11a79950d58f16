"""The NEON kernels and headers, run: compiled for AArch64 and executed by an emulator where the machine is another."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.headers.test_headers import HEADERS, ISA_FLAGS, SANITIZE, ULP_LIMITS, compile_driver, run, sections
from tests.headers.test_headers import HERE as DRIVERS
from tests.kernels.cases import (
    all_cases,
    resized,
    tile_cases,
    vector_groups,
)
from tests.kernels.conformance import Case, build, check, random_inputs
from tests.kernels.conformance import run as call
from tests.kernels.row_cases import norm, row
from tests.slow.aarch64 import NEON, EmulatedUnit, compile_binary, missing, run_binary

from tracea.core.op import RowKind
from tracea.kernels.registry import VARIANTS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "all tools are there")]

CASES = {case.name: case for case in all_cases()}
GROUPS = vector_groups()
EXTENTS = ((1, 1, 1), (1, 130, 7), (129, 2, 33), (2, 65, 127), (61, 31, 17))


@cache
def unit_of(group: tuple[Case, ...]) -> EmulatedUnit:
    return EmulatedUnit([build(case, "neon") for case in group])


def compiled(name: str) -> tuple[EmulatedUnit, Case]:
    case = CASES[name]
    return unit_of(next(group for group in GROUPS if case in group)), case


def test_every_variant_of_ours_is_run() -> None:
    ran = {case.variant for case in CASES.values()}
    on_tiles = {case.variant for case in tile_cases()}  # matrix tiles, which no AArch64 kernel of ours has
    assert not ran & on_tiles
    assert ran | on_tiles == {variant.id for variant in VARIANTS if not variant.is_library}


@pytest.mark.parametrize("name", CASES)
def test_kernel_matches_float64_on_one_thread_and_three(name: str, rng: np.random.Generator) -> None:
    unit, case = compiled(name)
    inputs = random_inputs(case.op, rng)
    for threads in (1, 3):
        check(unit, build(case, "neon"), case.op, inputs, threads=threads)


@pytest.mark.parametrize("name", ["stream", "stream_split", "layer_norm_fixed", "gelu_bias_residual_fixed"])
def test_result_has_the_same_bits_whichever_way_the_tasks_are_walked(name: str, rng: np.random.Generator) -> None:
    unit, case = compiled(name)
    inputs = random_inputs(case.op, rng)
    for threads in (1, 3):
        there = call(unit, build(case, "neon"), case.op, inputs, threads=threads)
        back = call(unit, build(case, "neon"), case.op, inputs, threads=threads, backward=True)
        assert there.tobytes() == back.tobytes(), threads


@pytest.mark.parametrize(
    "name", ["packed_default_tile", "packed_columns", "packed_bf16", "packed_transposed", "prepacked_rows"]
)
@pytest.mark.parametrize("extents", EXTENTS)
def test_gemm_built_once_serves_other_extents(
    name: str, extents: tuple[int, int, int], rng: np.random.Generator
) -> None:
    unit, case = compiled(name)
    op = resized(case.op, *extents)
    check(unit, build(case, "neon"), op, random_inputs(op, rng))


@pytest.mark.parametrize("name", ["packed_default_tile", "packed_bf16", "prepacked_rows", "direct_columns", "stream"])
def test_nan_and_infinity_reach_exactly_the_results_that_depend_on_them(name: str, rng: np.random.Generator) -> None:
    unit, case = compiled(name)
    inputs = random_inputs(case.op, rng)
    inputs[0][-1, 3] = np.nan
    inputs[0][0, 0] = np.inf
    inputs[1][5, -1] = -np.inf
    check(unit, build(case, "neon"), case.op, inputs)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm_bf16", "max_rows", "mean_columns"])
def test_rows_with_nan_or_infinity_stay_apart_from_the_others(name: str, rng: np.random.Generator) -> None:
    unit, case = compiled(name)
    inputs = random_inputs(case.op, rng)
    inputs[0][1, 7] = np.nan
    inputs[0][2, 99] = np.inf
    inputs[0][3, :] = -np.inf
    inputs[0][4, 0] = -np.inf
    check(unit, build(case, "neon"), case.op, inputs)


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 7, 8, 9, 31, 64, 65, 129, 1000])
def test_rows_of_every_length_around_a_vector(columns: int, rng: np.random.Generator) -> None:
    for name, op in (
        ("softmax", row(RowKind.SOFTMAX, (5, columns))),
        ("layer_norm", norm((5, columns))),
    ):
        unit, case = compiled(name)
        check(unit, build(case, "neon"), op, random_inputs(op, rng))


@cache
def driver(name: str) -> bytes:
    """Compile and run one of the header drivers; what it wrote. Its own checks end it with an exit code."""
    text = (DRIVERS / f"{name}.cpp").read_text(encoding="utf-8")
    arguments = {"teams": ("20",), "ulp_sweep": ("20011",)}.get(name, ())
    return run_binary(compile_binary(text, f"-I{DRIVERS}", *NEON), *arguments)


@pytest.mark.parametrize("name", ["tiles", "sweeps", "teams"])
def test_header_routines_agree_with_plain_loops_in_double(name: str) -> None:
    driver(name)


def test_every_primitive_gives_the_bits_of_the_plain_build(tmp_path_factory: pytest.TempPathFactory) -> None:
    plain = tmp_path_factory.mktemp("plain") / "primitives"
    # Without the tables of gelu, which NEON does not look up.
    compile_driver(DRIVERS / "primitives.cpp", plain, *ISA_FLAGS["plain"], "-DTRACEA_LOOK_UP=0", *SANITIZE)
    found, wanted = sections(driver("primitives")), sections(run(plain))
    assert len(found) == len(wanted)
    wrong: dict[int, object] = {}
    for number, (have, want) in enumerate(zip(found, wanted, strict=True)):
        bits = np.dtype(f"u{have.dtype.itemsize}")
        different = have.view(bits) != want.view(bits)
        if have.dtype.kind == "f":
            different &= ~(np.isnan(have) & np.isnan(want))
        where = np.flatnonzero(different)
        if where.size:
            wrong[number] = (where.size, int(where[0]), have[where[0]], want[where[0]])
    assert not wrong, f"section: (how many, the first, NEON, plain): {wrong}"


def test_the_stated_error_of_the_elementary_functions_holds() -> None:
    worst = {name: float(ulp) for name, ulp, _ in (line.split() for line in driver("ulp_sweep").decode().splitlines())}
    assert worst.keys() == ULP_LIMITS.keys()
    assert not {name: ulp for name, ulp in worst.items() if ulp > ULP_LIMITS[name]}


@pytest.mark.parametrize("header", HEADERS)
def test_each_header_compiles_alone_without_a_warning(header: str) -> None:
    compile_binary(f'#include "tracea/{header}"\n#include "tracea/{header}"\nint main() {{ return 0; }}\n', *NEON)
