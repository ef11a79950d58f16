"""Run the emitted text of a GPU kernel on the host, under several hostile schedules, and report what went wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tracea.emitters.kernel_source import GpuLaunch, KernelSource
from tracea.emulator.native import (
    compile_kernel,
    core,
)
from tracea.emulator.report import Report
from tracea.emulator.session import Session
from tracea.emulator.source_text import check_text, mark_statements
from tracea.errors import InvalidOption

__all__ = ["DEFAULT_SCHEDULES", "emulate"]

DEFAULT_SCHEDULES: Final = (0, 1, 2, 3)
_MOST_STATEMENTS: Final = 100_000_000

Array = np.ndarray[Any, Any]


def emulate(
    source: KernelSource,
    arrays: Mapping[str, Array],
    integers: Mapping[str, int],
    *,
    scalars: Mapping[str, float] | None = None,
    schedules: Sequence[int] = DEFAULT_SCHEDULES,
    initialised: Sequence[str] = (),
    find_superfluous: bool = False,
    statistics: bool = True,
    traced_line: int = 0,
    resident_blocks: int = 4,
    capacity: int = 132,
    most_statements: int = _MOST_STATEMENTS,
) -> Report:
    """Run a CUDA kernel once for each schedule and return what was found; the first schedule's outputs are stored.

    ``arrays`` has the source's pointers and tables by name; workspaces are made here. Outputs and workspaces start
    poisoned and uninitialised, but those in ``initialised`` (and the launch's ``zeroed``). A schedule is a seed: 0 runs
    warps and blocks in order, 1 in reverse, others at random; the same seed repeats the same run exactly. At most
    ``capacity`` blocks are resident at once; beyond ``resident_blocks`` one is started only where no other can go on.

    ``find_superfluous`` repeats the runs once for each synchronising call, which then orders nothing: one that nothing
    misses is superfluous.

    A thread that executes more than ``most_statements`` of them, or of primitives, is taken to run for ever.

    ``traced_line`` is a line of the text whose accesses are kept, address by address, the first 4096 of them.

    Raises:
        InvalidOption: an argument is missing or not the source's. EmitError: the text reaches memory without a
            primitive. CompileError: it is no C++.
    """
    launch = source.launch
    if launch is None:
        raise InvalidOption(field="source", got=source.language, expected="a launch", remedy="emit for a GPU target")
    check_text(source.text)
    kernel = compile_kernel(source, _unit(source, launch))
    session = Session(
        core(),
        kernel,
        source,
        launch,
        dict(arrays),
        dict(integers),
        dict(scalars or {}),
        set(initialised),
        traced_line,
        most_statements,
    )
    begin = time.perf_counter()
    with session.core.lock:
        report = session.report(
            schedules, statistics=statistics, superfluous=find_superfluous, resident=resident_blocks, capacity=capacity
        )
    return replace(report, seconds=time.perf_counter() - begin)


def _unit(source: KernelSource, launch: GpuLaunch) -> str:
    """Return the translation unit: the text with marked statements, an entry for threads, and the core's binding."""
    name = source.name
    export = 'extern "C" __attribute__((visibility("default"))) void'
    return (
        f'#line 1 "{name}.cu"\n{mark_statements(source.text).rstrip()}\n\n'
        f'static_assert(sizeof({name}_args) == {launch.argument_bytes}, "the arguments as the launch lays them out");\n'
        f"{export} {name}_emulated(const void* arguments) {{ {name}(*static_cast<const {name}_args*>(arguments)); }}\n"
        f"{export} tracea_emulator_bind(const tracea::emulator::Core* table) {{ tracea::emulator::core = table; }}\n"
    )
