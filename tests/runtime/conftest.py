"""Kernels small enough to read, written against the same C interface as the emitted ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tracea.core.dtype import DType
from tracea.core.tensor_type import TensorType
from tracea.emitters.kernel_source import KernelSource, PointerParameter
from tracea.runtime.compiler import compile as compile_kernels
from tracea.runtime.program import ArenaSlot, Call, ConstantSlot, InputSlot, OutputSlot, Program
from tracea.semantic.index import Const, Index, Param
from tracea.semantic.tile_kernel import BufferRole

SOURCE = Path(__file__).parents[2] / "src"
N = 10_000

HEAD = '#include "tracea/team.h"\n'
# y = a * x, in tasks of 64 elements that the team shares.
SCALE = """
extern "C" void {name}(const tracea_call* call, int32_t rank) {{
    const float* x = static_cast<const float*>(call->pointers[0]);
    float* y = static_cast<float*>(call->pointers[1]);
    const int64_t n = call->integers[0];
    const float a = static_cast<float>(call->scalars[0]);
    for (tracea::TaskLoop loop(call, rank, 0, (n + 63) / 64); loop.next();) {{
        for (int64_t i = 64 * loop.task(); i < n && i < 64 * (loop.task() + 1); ++i) y[i] = a * x[i];
    }}
}}
"""
# Writes the team's size, how many came, whether scratch is aligned and each one's own; all meet at a barrier.
TEAM = """
extern "C" void {name}(const tracea_call* call, int32_t rank) {{
    int32_t* out = static_cast<int32_t*>(call->pointers[0]);
    int64_t* mine = reinterpret_cast<int64_t*>(tracea::thread_scratch(call, rank));
    *mine = rank;
    __atomic_add_fetch(&out[1], 1, __ATOMIC_ACQ_REL);
    tracea::team_barrier(call, rank);
    if (rank != 0) return;
    out[0] = call->team->size;
    const uintptr_t own = reinterpret_cast<uintptr_t>(call->thread_scratch);
    const uintptr_t both = own | reinterpret_cast<uintptr_t>(call->team_scratch);
    out[2] = both % 64 == 0;
    out[3] = 1;
    for (int32_t r = 0; r < call->team->size; ++r) {{
        if (*reinterpret_cast<int64_t*>(call->thread_scratch + r * call->thread_scratch_bytes) != r) out[3] = 0;
    }}
}}
"""
# Waits inside the kernel, with the clock, so that a held GIL would show.
SLEEP = """
#include <time.h>
extern "C" void {name}(const tracea_call* call, int32_t rank) {{
    const timespec pause{{0, call->integers[0] * 1000000}};
    if (rank == 0) nanosleep(&pause, nullptr);
    static_cast<float*>(call->pointers[0])[0] = 1.0f;
}}
"""


def make_source(
    name: str,
    body: str,
    pointers: tuple[tuple[str, DType], ...],
    *,
    integers: tuple[str, ...] = (),
    scalars: tuple[str, ...] = (),
    isa: str = "plain",
    team_scratch: Index | None = None,
    thread_scratch: Index | None = None,
) -> KernelSource:
    return KernelSource(
        name=name,
        text=HEAD + body.format(name=name),
        language="c++",
        isa=isa,
        pointers=tuple(PointerParameter(name=key, dtype=dtype, role=BufferRole.INPUT) for key, dtype in pointers),
        integers=integers,
        scalars=scalars,
        team_scratch_bytes=Const(0) if team_scratch is None else team_scratch,
        thread_scratch_bytes=Const(0) if thread_scratch is None else thread_scratch,
        headers=("tracea/team.h",),
    )


def scale_source(name: str = "scale", isa: str = "plain") -> KernelSource:
    floats = (("x", DType.F32), ("y", DType.F32))
    return make_source(name, SCALE, floats, integers=("n",), scalars=("a",), isa=isa)


def scale_call(x, y, a: float, n: int = N, *, parallel: bool = True) -> Call:
    (kernel,) = compile_kernels([scale_source()])
    return Call.binding(kernel, pointers={"x": x, "y": y}, integers={"n": n}, scalars={"a": a}, parallel=parallel)


def vector(n: int = N) -> TensorType:
    return TensorType((n,), DType.F32)


def sixfold(n: int = N, *, parallel: tuple[bool, bool] = (True, True)) -> Program:
    """y = 3 * (2 * x), with the intermediate in the arena."""
    calls = (
        scale_call(InputSlot(0), ArenaSlot(0), 2.0, n, parallel=parallel[0]),
        scale_call(ArenaSlot(0), OutputSlot(0), 3.0, n, parallel=parallel[1]),
    )
    return Program(calls=calls, inputs=(vector(n),), outputs=(vector(n),), arena_bytes=4 * n, name="sixfold")


def team_program() -> Program:
    """Reports the team as four int32: size, threads that came, aligned scratch, own scratch."""
    source = make_source(
        "report_team",
        TEAM,
        (("out", DType.I32),),
        integers=("bytes",),
        team_scratch=Param("bytes"),
        thread_scratch=Param("bytes"),
    )
    (kernel,) = compile_kernels([source])
    call = Call.binding(kernel, pointers={"out": OutputSlot(0)}, integers={"bytes": 100})
    return Program(calls=(call,), inputs=(), outputs=(TensorType((4,), DType.I32),), name="team")


def sleep_program(milliseconds: int) -> Program:
    source = make_source("sleep_ms", SLEEP, (("out", DType.F32),), integers=("milliseconds",))
    (kernel,) = compile_kernels([source])
    call = Call.binding(kernel, pointers={"out": OutputSlot(0)}, integers={"milliseconds": milliseconds})
    return Program(calls=(call,), inputs=(), outputs=(vector(1),), name="sleep")


class Misses:
    """Answers with y = factor * x for any vector, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __call__(self, arrays: Sequence[Any], out: Any, attributes: tuple[Any, ...], threads: int) -> Program | str:
        self.asked.append(
            (tuple(None if a is None else tuple(a.shape) for a in arrays), out is None, attributes, threads)
        )
        (n,) = arrays[0].shape
        if not isinstance(n, int) or n == 13:
            return "not a program"
        factor = 2.0 if attributes == () else float(attributes[0] if isinstance(attributes[0], float) else 3.0)
        call = scale_call(InputSlot(0), OutputSlot(0), factor, n)
        more = tuple(vector(array.shape[0]) for array in arrays[1:] if array is not None)
        return Program(calls=(call,), inputs=(vector(n), *more), outputs=(vector(n),))


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """The kernels and programs of this file, for tests that import nothing from it."""
    return SimpleNamespace(
        N=N,
        Misses=Misses,
        ConstantSlot=ConstantSlot,
        make_source=make_source,
        scale_source=scale_source,
        scale_call=scale_call,
        vector=vector,
        sixfold=sixfold,
        team_program=team_program,
        sleep_program=sleep_program,
    )


@pytest.fixture
def in_child() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python text in a fresh interpreter, with this file's names at hand as ``kit``."""
    prelude = (
        "import importlib.util, sys, warnings\n"
        f"spec = importlib.util.spec_from_file_location('kit', {str(Path(__file__))!r})\n"
        "kit = importlib.util.module_from_spec(spec); sys.modules['kit'] = kit; spec.loader.exec_module(kit)\n"
    )

    def run(
        text: str, *, timeout: float = 120, check: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        found = {**os.environ, **environment}
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SOURCE), found.get("PYTHONPATH"))))
        done = subprocess.run(
            [sys.executable, "-c", prelude + text],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={key: value for key, value in found.items() if value != "(unset)"},
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run
