"""What a program takes beside its operands: told with its numbers where this machine does not have it, never tried."""

from __future__ import annotations

import pytest

from tracea.errors import ResourceExceeded, RunError
from tracea.runtime.native import launcher
from tracea.runtime.shortage import memory_bytes

# Programs of one kernel with scratch for each thread, and of two with an arena between them; neither touches any of it.
MAKE = """
import numpy as np
from tracea.core.dtype import DType
from tracea.errors import ResourceExceeded
from tracea.runtime.compiler import compile
from tracea.runtime.native import launcher
from tracea.runtime.program import ArenaSlot, Call, InputSlot, OutputSlot, Program
from tracea.runtime.shortage import memory_bytes
from tracea.semantic.index import Param

floats = (("x", DType.F32), ("y", DType.F32))
scratch = kit.make_source(
    "scratch", kit.SCALE, floats, integers=("n", "bytes"), scalars=("a",), thread_scratch=Param("bytes")
)
(kernel,) = compile([scratch])
x = np.ones(16, np.float32)

def with_scratch(count):
    bound = {"pointers": {"x": InputSlot(0), "y": OutputSlot(0)}, "scalars": {"a": 2.0}}
    call = Call.binding(kernel, integers={"n": 16, "bytes": count}, **bound)
    return Program(calls=(call,), inputs=(kit.vector(16),), outputs=(kit.vector(16),), name="scratch")

def with_arena(count):
    calls = kit.sixfold(16).calls
    return Program(calls=calls, inputs=(kit.vector(16),), outputs=(kit.vector(16),), arena_bytes=count, name="arena")

def refusal(run):
    try:
        run()
    except ResourceExceeded as error:
        return error
    raise SystemExit("it was not refused")
"""


def test_scratch_of_more_threads_than_there_is_memory_for_is_told_with_its_numbers(in_child) -> None:
    in_child(
        MAKE
        + "third = memory_bytes() // 3\n"
        + "program = with_scratch(third)\n"
        + "assert (program.run(x, threads=1) == 2).all()\n"
        + "for run in (lambda: program.run(x, threads=8), lambda: program.run_explaining((x,), None, 8)):\n"
        + "    error = refusal(run)\n"
        + "    assert (error.needed_bytes, error.limit_bytes) == (8 * third, memory_bytes()), error\n"
        + "    assert 'memory for scratch' in str(error) and 'fewer threads' in error.remedy\n"
        + "assert (program.run(x, threads=1) == 2).all()\n"
        + "launcher().trim()\n"
    )


def test_a_limit_of_the_process_is_told_too(in_child) -> None:
    in_child(
        MAKE
        + "import resource\n"
        + "program = with_scratch(1 << 30)\n"
        + "assert (program.run(x, threads=1) == 2).all()\n"
        + "launcher().trim()\n"
        + "held = resource.getpagesize() * int(open('/proc/self/statm').read().split()[0])\n"
        + "resource.setrlimit(resource.RLIMIT_AS, (held + (1 << 29), held + (1 << 29)))\n"
        + "error = refusal(lambda: program.run(x, threads=1))\n"
        + "assert (error.needed_bytes, error.limit_bytes) == (1 << 30, held + (1 << 29)), error\n"
    )


def test_sizes_beyond_every_machine_are_refused_before_a_run(in_child) -> None:
    in_child(
        MAKE
        + "for count in (1 << 60, 1 << 62, 2**63 - 1, 2**63, 2**64 + 4096):\n"
        + "    for make in (with_scratch, with_arena):\n"
        + "        error = refusal(lambda: make(count).run(x, threads=8))\n"
        + "        assert error.needed_bytes == count and error.limit_bytes == memory_bytes(), error\n"
        + "assert (with_arena(64).run(x) == 6).all()\n"
    )


def test_the_launcher_refuses_what_would_overflow_by_itself() -> None:
    most = 2**63 - 1
    kernel = [0, 1, 1, 0, 0, 0, 0, 0]  # kind, address, parallel, scratch of the team and of a thread, and no arguments
    for arena, shared, own in ((most, 0, 0), (0, most, 0), (0, 0, most), (0, 0, 1 << 60)):
        with pytest.raises(ResourceExceeded):
            launcher().create([1, 0, 0, arena, 1, *kernel[:3], shared, own, *kernel[5:]], "huge")
    handle = launcher().create([1, 0, 0, 2 * memory_bytes(), 0], "twice")
    try:
        with pytest.raises(ResourceExceeded, match="memory for twice"):
            launcher().run(handle, [], [], 1, "twice")
    finally:
        launcher().destroy(handle)


@pytest.mark.parametrize("number", [2**63, 2**64 + 4096, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_not_cut_off(number: int) -> None:
    with pytest.raises(RunError, match="beyond 64 bits"):
        launcher().create([1, 0, 0, number, 0], "cut")
