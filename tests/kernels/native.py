"""Compiles emitted kernels with plain g++ and calls them: the tests' own way to the machine, without the runtime.

A unit holds several kernels and a small runner that starts the team's threads: a test pays for one compiler call.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.drawn import drawn

import tracea.emitters.cpu
from tracea.emitters.kernel_source import KernelSource

INCLUDE = Path(tracea.emitters.cpu.__file__).parent / "include"
CXX = shutil.which("g++") or shutil.which("clang++")
# gcc bug 105593: the intrinsics' own undefined registers.
WITHOUT_GCC_105593 = ("-Wno-uninitialized", "-Wno-maybe-uninitialized")
COMMON_FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-Wall",
    "-Wextra",
    *WITHOUT_GCC_105593,
    "-fno-exceptions",
    "-fno-rtti",
    "-ffp-contract=off",
    f"-I{INCLUDE}",
)
ISA_FLAGS: Mapping[str, tuple[str, ...]] = {
    "avx512": (
        "-DTRACEA_ISA_AVX512",
        "-mavx512f",
        "-mavx512bw",
        "-mavx512dq",
        "-mavx512vl",
        "-mavx2",
        "-mfma",
        "-mf16c",
    ),
    "amx": (
        "-DTRACEA_ISA_AVX512",
        "-DTRACEA_AMX",
        "-mavx512f",
        "-mavx512bw",
        "-mavx512dq",
        "-mavx512vl",
        "-mavx2",
        "-mfma",
        "-mf16c",
        "-mamx-tile",
        "-mamx-bf16",
    ),
    "avx2": ("-DTRACEA_ISA_AVX2", "-mavx2", "-mfma", "-mf16c"),
    "neon": ("-DTRACEA_ISA_NEON",),
    "plain": ("-DTRACEA_ISA_PLAIN",),
}
ALIGNMENT = 64

RUNNER = """
#include <string.h>
#include <new>
#include <thread>
#include <vector>
#include "tracea/abi.h"
#include "tracea/amx_grant.h"
#ifdef __AVX__
#include <cpuid.h>
// Upper halves of ymm and zmm that are in use (bits 2 and 6, by xgetbv of 1); -1 where the processor does not say.
static int upper_halves() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(0xd, 1, &a, &b, &c, &d) || !(a & 4)) return -1;
  __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(1));
  return static_cast<int>(a & 0x44);
}
#endif
static int left_behind;
extern "C" int tracea_test_left_behind() { return left_behind; }
// At -O1 gcc leaves the upper halves of vectors as they are, and all code without VEX prefixes, Python's own and the
// plain build's, runs at a twentieth of its speed from then on. What ships is compiled at -O3, which clears them.
static void run_rank(tracea_kernel kernel, const tracea_call* call, int32_t rank) {
  kernel(call, rank);
#ifdef __AVX__
  if (rank == 0) left_behind = upper_halves();
  __builtin_ia32_vzeroupper();
#endif
}
extern "C" int tracea_test_tiles() { return tracea_amx_granted(); }
extern "C" void tracea_test_run(tracea_kernel kernel, const tracea_call* call, int32_t threads) {
  alignas(128) static thread_local tracea_team team;
  memset(&team, 0, sizeof team);
  team.size = threads;
  tracea_call bound = *call;
  bound.team = &team;
  std::vector<std::thread> others;
  for (int32_t rank = 1; rank < threads; ++rank) {
    others.emplace_back([&bound, kernel, rank] { run_rank(kernel, &bound, rank); });
  }
  run_rank(kernel, &bound, 0);
  for (std::thread& other : others) other.join();
}
"""


class CallBlock(ctypes.Structure):
    """``tracea_call`` of abi.h."""

    _fields_ = [
        ("pointers", ctypes.POINTER(ctypes.c_void_p)),
        ("integers", ctypes.POINTER(ctypes.c_int64)),
        ("scalars", ctypes.POINTER(ctypes.c_double)),
        ("team_scratch", ctypes.c_void_p),
        ("thread_scratch", ctypes.c_void_p),
        ("thread_scratch_bytes", ctypes.c_int64),
        ("team", ctypes.c_void_p),
        ("backward", ctypes.c_int64),
    ]


@cache
def has_tiles() -> bool:
    """Return whether this machine has AMX with bf16 products and the system grants it to this process."""
    flags = set(Path("/proc/cpuinfo").read_text(encoding="ascii").split()) if Path("/proc/cpuinfo").exists() else set()
    if not {"avx512f", "avx512bw", "avx512dq", "avx512vl", "amx_tile", "amx_bf16"} <= flags:
        return False
    return bool(ctypes.CDLL(str(compile_text(RUNNER, "plain"))).tracea_test_tiles())


@cache
def host_isas() -> tuple[str, ...]:
    """Return the instruction sets that this machine can execute, best first; "amx" stands beside "avx512"."""
    flags = set(Path("/proc/cpuinfo").read_text(encoding="ascii").split()) if Path("/proc/cpuinfo").exists() else set()
    found = ["plain"]
    if {"avx2", "fma", "f16c"} <= flags:
        found.insert(0, "avx2")
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        found.insert(0, "avx512")
    return tuple(found)


def run_isas() -> list[Any]:
    """Return this machine's instruction sets as parameters, the widest first; the others are the nightly run's.

    Compiling every kernel for one of them takes the better part of a minute. Each run compares their primitives with
    the plain build's bit for bit (tests/headers), and draws one of them for convolutions and for the golden texts.
    """
    widest, *others = host_isas()
    return [pytest.param(widest), *(pytest.param(isa, marks=pytest.mark.slow) for isa in others)]


def one_of_the_isas(of: str, *, vectors: bool = False) -> list[Any]:
    """Return this machine's instruction sets, of which a run draws one; with ``vectors`` without the plain build."""
    every = [isa for isa in host_isas() if not vectors or isa != "plain"] or ["plain"]
    return drawn(1, every, of=of) if len(every) > 1 else every


def compile_text(
    text: str, isa: str, *, extra: Sequence[str] = ("-O2", "-shared"), suffix: str = ".so", cxx: str | None = None
) -> Path:
    """Compile one unit and return the binary; equal text and flags are compiled once per session."""
    compiler = cxx or CXX
    assert compiler is not None, "the tests need g++ or clang++"
    command = [compiler, *COMMON_FLAGS, *ISA_FLAGS[isa], *extra]
    digest = hashlib.sha256("\0".join((text, *command, _headers_digest())).encode()).hexdigest()[:24]
    binary = folder() / f"{digest}{suffix}"
    if not binary.exists():
        unit = folder() / f"{digest}-{os.getpid()}.cpp"
        unit.write_text(text, encoding="utf-8")
        first = () if compiler != CXX or isa in ("plain", "neon") else ("-include", prelude(tuple(command)))
        translate([*command, *first, str(unit)], binary)
        unit.unlink()
    return binary


@cache
def folder() -> Path:
    """Return where this user's compiled units are kept between runs."""
    place = Path(tempfile.gettempdir()) / f"tracea-tests-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    return place


def translate(command: Sequence[str], output: Path) -> None:
    """Run the compiler, which may not warn, and put what it made in place at once."""
    partial = output.with_name(f"{os.getpid()}-{output.name}")
    result = subprocess.run(
        [*command, "-o", str(partial), "-pthread"], capture_output=True, text=True, check=False, cwd=folder()
    )
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stderr[:1500]}"
    assert "warning" not in result.stderr, result.stderr[:1500]
    partial.rename(output)


@cache
def prelude(command: tuple[str, ...]) -> str:
    """Return a header of the intrinsics, precompiled for these flags: they are most of what a small unit reads."""
    flags = [flag for flag in command if flag not in ("-shared", "-c")]
    digest = hashlib.sha256("\0".join(flags).encode()).hexdigest()[:24]
    header = folder() / f"prelude-{digest}.h"
    if not header.with_suffix(".h.gch").exists():
        header.write_text("#include <immintrin.h>\n", encoding="utf-8")
        translate([*flags, "-x", "c++-header", str(header)], header.with_suffix(".h.gch"))
    return str(header)


@cache
def _headers_digest() -> str:
    digest = hashlib.sha256()
    for header in sorted(INCLUDE.rglob("*.h")):
        digest.update(header.read_bytes())
    return digest.hexdigest()


class Unit:
    """Several kernels compiled together and loaded."""

    def __init__(self, sources: Sequence[KernelSource], isa: str, *, extra: Sequence[str] = ("-O2", "-shared")) -> None:
        self.path = compile_text("\n".join(source.text for source in sources) + RUNNER, isa, extra=extra)
        self._library = ctypes.CDLL(str(self.path))
        self._sources = {source.name: source for source in sources}

    def call(
        self,
        name: str,
        pointers: Sequence[int],
        integers: Mapping[str, int],
        *,
        threads: int = 1,
        scratch: tuple[int, int] | None = None,
        backward: bool = False,
    ) -> None:
        """Call kernel ``name``; ``scratch`` overrides the addresses of team and thread scratch (for guard pages)."""
        source = self._sources[name]
        values = [integers[key] for key in source.integers]
        thread_bytes = round_up(int(source.thread_scratch_bytes.evaluate(integers)))
        team_bytes = round_up(int(source.team_scratch_bytes.evaluate(integers)))
        team_memory, team_address = poisoned(team_bytes)
        thread_memory, thread_address = poisoned(thread_bytes * threads)
        if scratch is not None:
            team_address, thread_address = scratch
        block = CallBlock(
            (ctypes.c_void_p * max(1, len(pointers)))(*pointers),
            (ctypes.c_int64 * max(1, len(values)))(*values),
            (ctypes.c_double * 1)(),
            team_address,
            thread_address,
            thread_bytes,
            None,
            backward,
        )
        self._library.tracea_test_run(ctypes.cast(self._library[name], ctypes.c_void_p), ctypes.byref(block), threads)
        del team_memory, thread_memory


def upper_halves_left_by(unit: Unit) -> int:
    """Return which upper halves of vectors the last call left in use, 0 for none; -1 where nothing says so."""
    return int(ctypes.CDLL(str(unit.path)).tracea_test_left_behind())


def round_up(value: int, multiple: int = ALIGNMENT) -> int:
    """Round up to a multiple."""
    return (value + multiple - 1) // multiple * multiple


def poisoned(count: int) -> tuple[np.ndarray, int]:
    """Return memory of ``count`` bytes filled with 0xFF (NaN in every float type) and its 64-byte aligned address."""
    memory = np.full(count + 2 * ALIGNMENT, 0xFF, np.uint8)
    return memory, round_up(memory.ctypes.data)
