"""The CPU device headers: each compiles alone, all instruction sets agree, sanitizers find nothing."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.drawn import drawn
from tests.kernels.native import WITHOUT_GCC_105593

import tracea
from tracea.runtime.toolchain import compilers

HERE = Path(__file__).parent
INCLUDE = Path(tracea.__file__).parent / "emitters" / "cpu" / "include"
HEADERS = sorted(path.name for path in (INCLUDE / "tracea").glob("*.h") if not path.name.startswith("vec_"))
COMPILER = shutil.which("g++") or shutil.which("clang++")
WARNINGS = ("-Wall", "-Wextra", "-Werror", *WITHOUT_GCC_105593)
STRICT = ("-std=c++17", *WARNINGS, "-pthread", f"-I{INCLUDE}", f"-I{HERE}")
AVX512 = ("-DTRACEA_ISA_AVX512", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mf16c")
AVX2 = ("-DTRACEA_ISA_AVX2", "-mavx2", "-mfma", "-mf16c")
ISA_FLAGS = {"avx512": (*AVX512, "-O1"), "avx2": (*AVX2, "-O1"), "plain": ("-DTRACEA_ISA_PLAIN", "-O0")}
SANITIZE = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

# Largest error in units in the last place that math.h states; the deep tails it excepts are bounded apart.
ULP_LIMITS = {
    "exp": 0.9,
    "log": 0.8,
    "log2": 1.0,
    "log10": 1.5,
    "sin": 1.6,
    "cos": 1.6,
    "tanh": 2.5,
    "erf": 2.5,
    "sigmoid": 2.4,
    "gelu": 22.0,
    "silu": 60.0,
    "gelu_tanh": 200.0,
}
BY_TABLE = {"gelu": 9.0}
# The same of math_double.h, while results are above 2^-1000.
DOUBLE_ULP_LIMITS = {"exp": 1.2, "exp2": 1.4, "tanh": 2.7, "erf": 2.7, "sigmoid": 2.6, "silu": 3.4, "gelu": 7.8}

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on the path")


def cpu_flags() -> set[str]:
    """Return the feature names that Linux reports for this processor; empty elsewhere."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return set()
    line = next((text for text in info.read_text().splitlines() if text.startswith("flags")), ":")
    return set(line.split(":", 1)[1].split())


NEEDED = {
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "avx2": {"avx2", "fma", "f16c"},
    "plain": set[str](),
}


def require(isa: str) -> None:
    if not NEEDED[isa] <= cpu_flags():
        pytest.skip(f"this processor lacks {sorted(NEEDED[isa] - cpu_flags())}")


def compile_driver(source: Path, output: Path, *flags: str) -> Path:
    assert COMPILER is not None
    command = [COMPILER, *STRICT, *flags, str(source), "-o", str(output)]
    finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr[:4000]
    return output


def run(binary: Path, *arguments: str) -> bytes:
    finished = subprocess.run([str(binary), *arguments], check=False, capture_output=True, timeout=120)
    assert finished.returncode == 0, finished.stderr.decode()[:4000]
    return finished.stdout


Builds = Callable[[str, str], Path]

SETS = {
    **{isa: (*flags, *(SANITIZE if isa == "plain" else ())) for isa, flags in ISA_FLAGS.items()},
    # Functions without tables, as on AVX2, in the plain build.
    "plain without tables": (*ISA_FLAGS["plain"], "-DTRACEA_LOOK_UP=0", *SANITIZE),
    "threads": ("-DTRACEA_ISA_PLAIN", "-O1", "-g1", "-fsanitize=thread"),
}
# The same text on vectors of two widths, one of which each run draws: their primitives are compared with the plain
# build's, bit for bit, in every run.
PLAIN_AND_ONE = ["plain", *drawn(1, ["avx512", "avx2"], of="headers")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    """Compile a driver for an instruction set when it is first asked for."""
    folder = tmp_path_factory.mktemp("drivers")

    @cache
    def build(driver: str, isa: str) -> Path:
        return compile_driver(HERE / f"{driver}.cpp", folder / f"{driver}_{isa.replace(' ', '_')}", *SETS[isa])

    return build


# With intrinsics it takes twelve seconds; every kernel that is compiled includes them so.
@pytest.mark.parametrize("isa", ["plain", *(pytest.param(isa, marks=pytest.mark.slow) for isa in ("avx512", "avx2"))])
def test_each_header_compiles_alone_without_a_warning(isa: str, tmp_path: Path) -> None:
    assert len(HEADERS) >= 15

    def check(header: str) -> str:
        source = tmp_path / f"{header}.cpp"
        source.write_text(f'#include "tracea/{header}"\n#include "tracea/{header}"\n', encoding="utf-8")
        command = [str(COMPILER), *STRICT, *ISA_FLAGS[isa], "-fsyntax-only", str(source)]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120).stderr

    complaints = {header: check(header) for header in HEADERS}
    assert not {header: text for header, text in complaints.items() if text}


# clang folds fewer of GCC's builtins, and only the nightly run has a clang on each machine.
def test_no_constant_is_a_builtins_result_that_one_compiler_alone_folds() -> None:
    constant = re.compile(r"constexpr[^;]*=[^;]*__builtin_(?!inf|nan|huge_val)")
    assert {path.name for path in (INCLUDE / "tracea").glob("*.h") if constant.search(path.read_text("utf-8"))} == set()


@pytest.mark.slow
@pytest.mark.parametrize("isa", [isa for isa in ISA_FLAGS if isa == "plain" or platform.machine() == "x86_64"])
def test_every_compiler_here_takes_all_headers(isa: str, tmp_path: Path) -> None:
    source = tmp_path / "all.cpp"
    source.write_text("".join(f'#include "tracea/{header}"\n' for header in HEADERS), encoding="utf-8")
    for compiler in compilers():
        command = [*compiler.command, *STRICT, *ISA_FLAGS[isa], "-c", str(source), "-o", str(tmp_path / "all.o")]
        finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
        assert finished.returncode == 0, f"{compiler.version}: {finished.stderr[:4000]}"


def test_a_translation_unit_without_an_instruction_set_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "none.cpp"
    source.write_text('#include "tracea/vec.h"\n', encoding="utf-8")
    command = [str(COMPILER), *STRICT, "-fsyntax-only", str(source)]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    assert finished.returncode != 0
    assert "define exactly one of TRACEA_ISA_AVX512" in finished.stderr


@pytest.mark.parametrize("isa", PLAIN_AND_ONE)
def test_tiles_agree_with_plain_loops_in_double(isa: str, built: Builds) -> None:
    require(isa)
    run(built("tiles", isa))


@pytest.mark.parametrize("isa", [pytest.param("plain", marks=pytest.mark.slow), *PLAIN_AND_ONE[1:]])
def test_sweeps_agree_with_plain_loops_in_double(isa: str, built: Builds) -> None:
    require(isa)
    run(built("sweeps", isa))


@pytest.mark.parametrize("isa", PLAIN_AND_ONE)
def test_windows_agree_with_plain_loops_whatever_is_left_out(isa: str, built: Builds, rng: np.random.Generator) -> None:
    require(isa)
    run(built("windows", isa), str(int(rng.integers(2**32))))


def test_barriers_and_task_loops_are_free_of_races(built: Builds) -> None:
    run(built("teams", "threads"), "100")


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_every_primitive_gives_the_bits_of_the_plain_build(isa: str, built: Builds) -> None:
    require(isa)
    found = sections(run(built("primitives", isa)))
    wanted = sections(run(built("primitives", "plain" if isa == "avx512" else "plain without tables")))
    assert len(found) == len(wanted)
    for number, (have, want) in enumerate(zip(found, wanted, strict=True)):
        bits = np.dtype(f"u{have.dtype.itemsize}")
        different = have.view(bits) != want.view(bits)
        if have.dtype.kind == "f":
            different &= ~(np.isnan(have) & np.isnan(want))
        where = np.flatnonzero(different)
        first = [(have[i], want[i]) for i in where[:1]]
        assert where.size == 0, f"section {number}: {where.size} differ, the first {first} at {where[0]}"


@pytest.mark.parametrize("isa", drawn(1, ["avx512", "avx2"], of="elementary functions"))
def test_the_stated_error_of_the_elementary_functions_holds(isa: str, built: Builds) -> None:
    require(isa)
    lines = run(built("ulp_sweep", isa), "1009").decode().split("\n")
    worst = {name: float(ulp) for name, ulp, _ in (line.split() for line in lines if line)}
    limits = ULP_LIMITS | (BY_TABLE if isa == "avx512" else {})
    assert worst.keys() == limits.keys()
    assert not {name: ulp for name, ulp in worst.items() if ulp > limits[name]}


@pytest.mark.parametrize("isa", drawn(1, ["avx512", "avx2"], of="double functions"))
def test_the_stated_error_of_the_double_functions_holds(isa: str, built: Builds, rng: np.random.Generator) -> None:
    require(isa)
    lines = run(built("ulp_sweep_double", isa), "400000", str(int(rng.integers(2**32)))).decode().split("\n")
    worst = {name: float(ulp) for name, ulp, _ in (line.split() for line in lines if line)}
    assert worst.keys() == DOUBLE_ULP_LIMITS.keys()
    assert not {name: ulp for name, ulp in worst.items() if ulp > DOUBLE_ULP_LIMITS[name]}


@pytest.mark.parametrize("name", ["expm1_rest", "erf_near", "erfcx"])
def test_the_polynomials_of_doubles_are_those_derived(name: str) -> None:
    pytest.importorskip("mpmath")
    from tests.headers.double_polynomials import derived

    text = re.sub(r"\s+", " ", (INCLUDE / "tracea" / "math_double.h").read_text("utf-8"))
    coefficients, error = derived(name)
    assert error < 2**-53
    assert ", ".join(number.hex() for number in coefficients) in text


def sections(output: bytes) -> list[np.ndarray]:
    """Split what primitives.cpp wrote: 28 results in float, 28 in double, 18 in float, then both 16-bit types."""
    kinds = [(np.float32, 4096)] * 28 + [(np.float64, 4096)] * 28 + [(np.float32, 4096)] * 18
    kinds += [(np.uint16, 4096), (np.float32, 65536)] * 2
    arrays: list[np.ndarray] = []
    start = 0
    for kind, count in kinds:
        arrays.append(np.frombuffer(output, kind, count, start))
        start += count * np.dtype(kind).itemsize
    assert start == len(output)
    return arrays
