"""Fork-join: how long all cores take to start on something and to be waited for, through the launcher that runs use."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tracea.emitters.kernel_source import KernelSource
from tracea.runtime.compiler import compile
from tracea.runtime.native import launcher
from tracea.runtime.program import Call, Program
from tracea.semantic.index import Const

if TYPE_CHECKING:
    from tracea.runtime.toolchain import Compiler
    from tracea.targets import Isa

__all__ = ["fork_join_us"]

_NAME: Final = "tracea_idle"
_REPEATS: Final = 2_000
_SECONDS: Final = 0.25  # where others use the cores, a region may take as long as their time slices: then fewer repeats


def fork_join_us(threads: int, isa: Isa, compiler: Compiler) -> float | None:
    """Return the least time of one parallel region in which nothing is done, in µs; None for one thread.

    The threads are those that runs have: torch's where it is loaded, else the launcher's own.

    Raises:
        CompileError: the compiler failed.
    """
    if threads < 2:
        return None
    source = KernelSource(
        name=_NAME,
        text=f'#include "tracea/abi.h"\nextern "C" void {_NAME}(const tracea_call*, int32_t) {{}}\n',
        language="c++",
        isa=isa,
        pointers=(),
        integers=(),
        scalars=(),
        team_scratch_bytes=Const(0),
        thread_scratch_bytes=Const(0),
        headers=("tracea/abi.h",),
    )
    (loaded,) = compile((source,), compiler=compiler)
    alone, together = (
        _least_us(
            Program(calls=(Call(kernel=loaded, pointers=(), parallel=parallel),), inputs=(), outputs=(), name=_NAME),
            threads,
        )
        for parallel in (False, True)
    )
    return max(0.0, together - alone)  # the way from Python is part of both


def _least_us(program: Program, threads: int) -> float:
    run, handle = launcher().run, program.handle
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while not times or (len(times) < _REPEATS and time.perf_counter() < end):
        started = time.perf_counter()
        run(handle, [], [], threads, _NAME)
        times.append(time.perf_counter() - started)
    return 1e6 * min(times)
