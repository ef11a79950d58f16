"""AArch64 on any machine: a cross compiler, an emulator, and kernels that run there on the arrays of a test here.

What is missing is named, and what needs it is skipped: a kernel that did not run was not checked.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import importlib.util
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.kernels.conformance import CANARY, CANARY_BYTES, Built
from tests.kernels.native import INCLUDE, round_up

from tracea.kernels.arguments import operand_buffers
from tracea.semantic.tile_kernel import Buffer, BufferRole, TileKernel

DRIVER = Path(__file__).with_name("driver.cpp")
FLAGS = (
    "-static",
    "-std=c++17",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-exceptions",
    "-fno-rtti",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Werror",
    f"-I{INCLUDE}",
)
NEON = ("-DTRACEA_ISA_NEON", "-O2")
_SECONDS = 1800


@cache
def compiler() -> tuple[str, ...] | None:
    """Return the command of a C++ compiler that makes AArch64 binaries, or None."""
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-musl", "-fno-sanitize=undefined")
    gnu = shutil.which("aarch64-linux-gnu-g++")
    return None if gnu is None else (gnu,)


@cache
def emulator() -> tuple[str, ...] | None:
    """Return the command that runs an AArch64 binary here, or None."""
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    return None if qemu is None else (qemu, "-cpu", "max")


def missing() -> str:
    """Return what to install before anything can be checked; empty where all is there."""
    wanted = []
    if compiler() is None:
        wanted.append("a cross compiler (pip install ziglang, or Debian's g++-aarch64-linux-gnu)")
    if emulator() is None:
        wanted.append("qemu-aarch64 (Debian's qemu-user)")
    return f"not checked: needs {' and '.join(wanted)}" if wanted else ""


def compile_binary(text: str, *flags: str) -> Path:
    """Compile one unit for AArch64; equal text, flags and headers are compiled once per session."""
    command = compiler()
    assert command is not None, "the caller asks missing() first"
    digest = hashlib.sha256("\0".join((text, *command, *flags)).encode()).hexdigest()[:24]
    binary = _folder() / digest
    if not binary.exists():
        unit = binary.with_suffix(".cpp")
        unit.write_text(text, encoding="utf-8")
        partial = binary.with_suffix(".partial")
        done = subprocess.run(
            [*command, *FLAGS, *flags, str(unit), "-o", str(partial)],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join([*command, *flags])} {unit}\n{done.stderr[:4000]}"
        partial.rename(binary)
    return binary


def run_binary(binary: Path, *arguments: str, given: bytes = b"") -> bytes:
    """Run an AArch64 binary and return what it wrote."""
    command = emulator()
    assert command is not None, "the caller asks missing() first"
    done = subprocess.run(
        [*command, str(binary), *arguments], input=given, capture_output=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr.decode(errors='replace')[:4000]}"
    return done.stdout


@cache
def _folder() -> Path:
    path = Path(tempfile.mkdtemp(prefix="tracea-aarch64-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


class EmulatedUnit:
    """Several kernels in one AArch64 binary, called as ``tests.kernels.native.Unit`` is: on addresses of arrays here.

    A call sends each array with the canaries around it, and puts what comes back in its place: the test's own check
    sees a kernel that wrote beside its result.
    """

    def __init__(self, built: Sequence[Built]) -> None:
        self._kernels: dict[str, TileKernel] = {}
        self._sources = {source.name: source for each in built for source in each.sources}
        for each in built:
            self._kernels[each.kernel.name] = each.kernel
            if each.pack is not None:
                self._kernels[each.pack.name] = each.pack
        self._names = tuple(self._sources)
        texts = [source.text for source in self._sources.values()]
        declared = [f'extern "C" void {name}(const tracea_call* call, int32_t rank);' for name in self._names]
        table = f"static const tracea_kernel tracea_test_kernels[] = {{{', '.join(self._names)}}};"
        self.binary = compile_binary("\n".join((*texts, *declared, table, DRIVER.read_text(encoding="utf-8"))), *NEON)

    def call(
        self,
        name: str,
        pointers: Sequence[int],
        integers: Mapping[str, int],
        *,
        threads: int = 1,
        backward: bool = False,
    ) -> None:
        """Call kernel ``name`` on memory of this process."""
        source, kernel = self._sources[name], self._kernels[name]
        values = [integers[key] for key in source.integers]
        results = [buffer for buffer in kernel.buffers if buffer.role is BufferRole.OUTPUT]
        lengths = [_extent_bytes(buffer, integers) for buffer in operand_buffers(kernel)]
        lengths += [4 * int(table.length.evaluate(integers)) for table in kernel.tables]
        lengths += [_extent_bytes(buffer, integers) for buffer in results]
        sizes = [length + 2 * CANARY_BYTES for length in lengths]
        assert len(sizes) == len(pointers)
        head = (
            self._names.index(name),
            threads,
            len(values),
            len(pointers),
            round_up(int(source.team_scratch_bytes.evaluate(integers))),
            round_up(int(source.thread_scratch_bytes.evaluate(integers))),
            int(backward),
        )
        numbers = (*head, *values, *sizes)
        blocks = [ctypes.string_at(address - CANARY_BYTES, size) for address, size in zip(pointers, sizes, strict=True)]
        # Several results lie one after the other: each gets canaries of its own.
        parts = range(len(sizes) - len(results), len(sizes)) if len(results) > 1 else range(0)
        fence = bytes([CANARY]) * CANARY_BYTES
        for part in parts:
            blocks[part] = fence + blocks[part][CANARY_BYTES:-CANARY_BYTES] + fence
        answer = run_binary(self.binary, given=struct.pack(f"<{len(numbers)}q", *numbers) + b"".join(blocks))
        assert len(answer) == sum(sizes)
        start = 0
        for number, (address, size) in enumerate(zip(pointers, sizes, strict=True)):
            block = answer[start : start + size]
            if number in parts:
                assert block.startswith(fence), f"{name} wrote before result {number}"
                assert block.endswith(fence), f"{name} wrote behind result {number}"
                ctypes.memmove(address, block[CANARY_BYTES:-CANARY_BYTES], size - 2 * CANARY_BYTES)
            else:
                ctypes.memmove(address - CANARY_BYTES, block, size)
            start += size


def _extent_bytes(buffer: Buffer, values: Mapping[str, int]) -> int:
    """Return the bytes from a buffer's first element to behind its last."""
    shape = [int(size.evaluate(values)) for size in buffer.shape]
    if 0 in shape:
        return 0
    steps = [int(step.evaluate(values)) for step in buffer.element_strides]
    last = sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
    return (last + 1) * buffer.dtype.nbytes
