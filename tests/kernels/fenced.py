"""A child process that runs every kernel in fenced memory: ``python -m tests.kernels.fenced <isa> <fences> [flags…]``.

Fences: ``end`` and ``start`` put every operand, result and scratch against a page without access, ``heap`` gives each
its own heap block, which a sanitizer watches; a comma joins several. Prints one line a kernel; a
violation kills the process.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from tests.kernels.cases import resized, tile_groups, vector_groups
from tests.kernels.conformance import Case, build, random_inputs
from tests.kernels.native import Unit, has_tiles, round_up

from tracea.core.accuracy import error_bound
from tracea.core.op import GemmOp, Op
from tracea.core.reference import evaluate
from tracea.kernels.arguments import arguments, result_offsets
from tracea.kernels.registry import find
from tracea.semantic.tile_kernel import BufferRole

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.free.argtypes = [ctypes.c_void_p]
PAGE = mmap.PAGESIZE


class Fenced:
    """Blocks of memory with a fence after (or before) each; all are given back together."""

    def __init__(self, fence: str) -> None:
        self._fence = fence
        self._release: list[Callable[[], Any]] = []

    def block(self, count: int) -> int:
        """Return the address of ``count`` bytes, filled with 0xFF."""
        if self._fence == "heap":
            pointer = ctypes.c_void_p()
            assert LIBC.posix_memalign(ctypes.byref(pointer), 64, max(count, 1)) == 0
            address = int(pointer.value or 0)
            self._release.append(lambda: LIBC.free(address))
        else:
            inside = round_up(max(count, 1), PAGE)
            base = LIBC.mmap(
                None, inside + 2 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
            )
            assert base not in (None, ctypes.c_void_p(-1).value)
            assert LIBC.mprotect(base, PAGE, 0) == 0
            assert LIBC.mprotect(base + PAGE + inside, PAGE, 0) == 0
            self._release.append(lambda: LIBC.munmap(base, inside + 2 * PAGE))
            address = base + PAGE + (inside - count if self._fence == "end" else 0)
        ctypes.memset(address, 0xFF, count)
        return address

    def release(self) -> None:
        """Give all blocks back."""
        for release in self._release:
            release()
        self._release.clear()


def place(memory: Fenced, type_: Any, values: np.ndarray | None) -> tuple[int, np.ndarray]:
    """Return the address of a tensor of a type's layout, and the tensor."""
    count = type_.extent[1] * type_.dtype.nbytes
    address = memory.block(count)
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * max(count, 1)).from_address(address))[:count]
    strides = [stride * type_.dtype.nbytes for stride in type_.strides]
    view = np.lib.stride_tricks.as_strided(raw.view(type_.dtype.numpy), type_.static_shape, strides)
    if values is not None:
        view[...] = values
    return address, view


def run(unit: Unit, case: Case, isa: str, op: Op, *, fence: str, threads: int) -> None:
    """Run a kernel with everything that it touches fenced, and check its result."""
    built, memory = build(case, isa), Fenced(fence)
    inputs = random_inputs(op, np.random.default_rng(7))
    operands = [place(memory, type_, value)[0] for type_, value in zip(op.operands, inputs, strict=True)]
    address, result = place(memory, op.infer(), None)
    values = arguments(built.kernel, op)

    def call(name: str, source: Any, pointers: list[int], integers: dict[str, int]) -> None:
        team = memory.block(round_up(int(source.team_scratch_bytes.evaluate(integers))))
        thread = memory.block(threads * round_up(int(source.thread_scratch_bytes.evaluate(integers))))
        unit.call(name, pointers, integers, threads=threads, scratch=(team, thread))

    position = find(case.variant).constant_operand
    if built.pack is not None and built.pack_source is not None and position is not None:
        panels = next(buffer for buffer in built.pack.buffers if buffer.role is BufferRole.OUTPUT)
        packed = memory.block(int(panels.nbytes.evaluate(values)))
        call(built.pack.name, built.pack_source, [operands[position], packed], arguments(built.pack, op))
        operands[position] = packed
    results = [address + first * result.itemsize for first in result_offsets(built.kernel, op).values()]
    call(built.kernel.name, built.source, [*operands, *results], values)
    wrong = np.abs(result.astype(np.float64) - evaluate(op, inputs)) > error_bound(op, inputs, worst_case=True)
    assert not wrong.any(), case.name
    memory.release()


def main() -> None:
    """Run all kernels of an instruction set behind each kind of fence that is asked for."""
    isa, fences, flags = sys.argv[1], sys.argv[2].split(","), sys.argv[3:] or ["-O1"]
    if isa == "amx":
        assert has_tiles()
    vectors = () if isa == "amx" else vector_groups()
    tiles = tile_groups() if isa in ("amx", "plain") else ()
    for group in (*vectors, *tiles):
        sources = {source.name: source for case in group for source in build(case, isa).sources}
        unit = Unit(tuple(sources.values()), isa, extra=(*flags, "-shared"))
        for case in group:
            ops = [case.op]
            if (
                isinstance(case.op, GemmOp)
                and case.variant in ("gemm.packed", "gemm.amx")
                and not case.op.batch
                and not case.op.infer().layout
            ):
                ops += [resized(case.op, 5, 33, 17), resized(case.op, 1, 1, 1)]
            for op in ops:
                for fence, threads in product(fences, (1, 3)):
                    run(unit, case, isa, op, fence=fence, threads=threads)
            print("ran", case.name, flush=True)


if __name__ == "__main__":
    main()
