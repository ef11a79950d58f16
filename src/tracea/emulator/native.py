"""The emulator's core: compiled once through the cache, loaded once, and called from here."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from tracea.emitters.cuda.primitives import sm_of
from tracea.emitters.kernel_source import KernelSource
from tracea.errors import CompileError, InvalidOption, ToolchainMissing
from tracea.runtime.compiler import Library, compile_text, headers_digest
from tracea.runtime.process_lock import ProcessLock

__all__ = ["BufferDescription", "Core", "NotCompiled", "RunDescription", "compile_kernel", "core"]

_SOURCES: Final = (
    "context.cpp",
    "findings.cpp",
    "statistics.cpp",
    "shadow.cpp",
    "knowledge.cpp",
    "scheduler.cpp",
    "blocks.cpp",
    "collectives.cpp",
    "shared.cpp",
    "global.cpp",
    "copies.cpp",
    "matrix.cpp",
    "mbarrier.cpp",
    "tma.cpp",
    "wgmma.cpp",
    "core.cpp",
)
_NAME_BYTES: Final = 64
# A compiler that was ended, or had no room: it says nothing of the text.
_ENDED: Final = re.compile(r"terminated program|File too large|No space left|[Cc]annot allocate|out of memory")


@dataclass(kw_only=True, eq=False, repr=False)
class NotCompiled(ToolchainMissing):
    """This machine could not compile what the emulator runs, whatever the kernel is."""

    reason: str = ""
    remedy: str = "give the compiler the room that it asks for (ulimit -a, df), and verify again"

    def statement(self) -> str:
        """Say what was compiled, and what the compiler said first."""
        return f"{self.tool} could not be compiled ({self.reason})"

    @classmethod
    def of(cls, error: CompileError, what: str) -> NotCompiled:
        """Return what a failed compilation says of this machine."""
        first = next((line.strip() for line in error.log.splitlines() if line.strip()), "")
        return cls(tool=what, reason=first or f"exit code {error.exit_code}")


class BufferDescription(ctypes.Structure):
    """One buffer of a run, as core.cpp has it."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("host", ctypes.c_void_p),
        ("outside", ctypes.c_void_p),
        ("written", ctypes.c_void_p),
        ("granule", ctypes.c_uint32),
        ("writable", ctypes.c_uint32),
        ("initialised", ctypes.c_uint32),
        ("name", ctypes.c_char * _NAME_BYTES),
    )


class RunDescription(ctypes.Structure):
    """A launch and its schedule, as core.cpp has it."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("threads", "blocks", "shared_bytes", "resident", "capacity")),
        ("shared_granule", ctypes.c_uint32),
        ("statistics", ctypes.c_uint32),
        ("elided_line", ctypes.c_int32),
        ("elided_at", ctypes.c_int32),
        ("traced_line", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
        ("budget", ctypes.c_int64),
        ("elided_primitive", ctypes.c_char_p),
    )


class RawPlace(msgspec.Struct, frozen=True):
    """A site of the core's report."""

    line: int
    at: int
    primitive: str
    count: int


class RawFinding(msgspec.Struct, frozen=True):
    """A finding of the core's report."""

    kind: str
    site: int
    other: int
    count: int
    block: int
    thread: int
    iteration: int
    detail: str


class RawCost(msgspec.Struct, frozen=True):
    """The accesses of a site in the core's report."""

    site: int
    requests: int
    actual: int
    ideal: int
    bytes: int
    ways: int


class RawTrace(msgspec.Struct, frozen=True):
    """One access of a traced line."""

    site: int
    global_: bool = msgspec.field(name="global")
    block: int
    addresses: tuple[int, ...]


class RawReport(msgspec.Struct, frozen=True, kw_only=True):
    """The core's report of one run."""

    sites: tuple[RawPlace, ...]
    findings: tuple[RawFinding, ...]
    shared: tuple[RawCost, ...]
    global_: tuple[RawCost, ...] = msgspec.field(name="global")
    traced: tuple[RawTrace, ...]
    statements: int
    bytewise: bool  # it stopped at an access of one byte to shared memory, whose cells had two


@dataclass(frozen=True, slots=True, eq=False)
class CompiledKernel:
    """A kernel bound to the core: its entry, called once by each thread with the address of the arguments."""

    library: Library
    entry: int


class Core:
    """The core's C interface as Python calls; one machine, so one run at a time."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.lock = ProcessLock()
        handle = library.handle
        self._table = handle.tracea_emulator_core
        self._table.restype = ctypes.c_void_p
        self._run = handle.tracea_emulator_run
        self._run.restype = ctypes.c_char_p
        self._run.argtypes = [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.POINTER(BufferDescription),
            ctypes.c_uint32,
            ctypes.POINTER(RunDescription),
        ]
        self._reserve = handle.tracea_emulator_reserve
        self._reserve.restype = ctypes.c_uint64
        self._reserve.argtypes = [ctypes.c_uint64]
        self._encode = handle.tracea_emulator_encode_map
        self._encode.restype = ctypes.c_char_p
        self._encode.argtypes = [
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.c_uint32,
            ctypes.POINTER(ctypes.c_uint64),
            ctypes.POINTER(ctypes.c_uint64),
            ctypes.POINTER(ctypes.c_uint32),
            ctypes.c_uint32,
            ctypes.c_uint32,
        ]

    def bind(self, library: Library, name: str) -> CompiledKernel:
        """Give a compiled kernel the core's table of calls."""
        bind: Any = library.handle.tracea_emulator_bind
        bind.argtypes = [ctypes.c_void_p]
        bind.restype = None
        bind(self._table())
        return CompiledKernel(library, library.address(f"{name}_emulated"))

    def reserve(self, size: int) -> int:
        """Return the first of ``size`` addresses that nothing is mapped at; valid until the next call."""
        address = int(self._reserve(size))
        if address == 0:
            raise MemoryError(f"no {size} bytes of address space")
        return address

    def encode_map(
        self,
        target: int,
        *,
        base: int,
        extents: Sequence[int],
        pitches: Sequence[int],
        box: Sequence[int],
        element_bytes: int,
        swizzle_bytes: int,
    ) -> None:
        """Write a tensor map's 128 bytes; axes count from the contiguous one, pitches from the second, in bytes.

        Raises: InvalidOption: the hardware takes no such map.
        """
        rank = len(extents)
        problem = self._encode(
            target,
            base,
            rank,
            (ctypes.c_uint64 * rank)(*extents),
            (ctypes.c_uint64 * max(rank - 1, 1))(*pitches),
            (ctypes.c_uint32 * rank)(*box),
            element_bytes,
            swizzle_bytes,
        )
        if problem:
            raise InvalidOption(
                field="tensor map",
                got=f"extents {tuple(extents)}, pitches {tuple(pitches)}, box {tuple(box)}, {element_bytes} bytes",
                expected=problem.decode(),
                remedy="choose a path without tensor maps for this problem",
            )

    def run(
        self, kernel: CompiledKernel, arguments: int, buffers: Sequence[BufferDescription], run: RunDescription
    ) -> RawReport:
        """Run a kernel once."""
        table = (BufferDescription * max(len(buffers), 1))(*buffers)
        text = self._run(kernel.entry, arguments, table, len(buffers), ctypes.byref(run))
        return msgspec.json.decode(text, type=RawReport)


_made: list[Core] = []
_lock = ProcessLock()


def core() -> Core:
    """Return this process's core, compiling it on first use on this machine.

    Raises: ToolchainMissing, CacheError: as `compile_text`. NotCompiled: the compiler failed.
    """
    if not _made:
        with _lock:
            if not _made:
                folder, include = _folder() / "core", _folder() / "include"
                try:
                    library = compile_text(
                        "".join(f'#include "{name}"\n' for name in _SOURCES),
                        isa="plain",
                        name="emulator",
                        extra_flags=("-O2",),
                        include=(folder, include),
                        identity={"kind": "emulator", "core": headers_digest(folder), "faces": headers_digest(include)},
                    )
                except CompileError as error:
                    raise NotCompiled.of(error, "its core") from error
                _made.append(Core(library))
    return _made[0]


def compile_kernel(source: KernelSource, text: str) -> CompiledKernel:
    """Compile a prepared text against the emulator's primitives, through the cache, and bind it to the core.

    Raises: ToolchainMissing, CacheError: as `compile_text`. NotCompiled: the compiler was ended. CompileError.
    """
    sm, specific = sm_of(source.isa)
    include = (_folder() / "include", Path(str(files("tracea.emitters") / "cuda" / "include")))
    try:
        library = compile_text(
            text,
            isa="plain",
            name=f"{source.name}.emulated",
            extra_flags=(
                "-std=c++17",
                "-O1",
                "-w",
                f"-DTRACEA_SM={sm}",
                *(("-DTRACEA_ARCH_SPECIFIC",) if specific else ()),
                *(f"-I{folder}" for folder in include),  # before the headers of CPU kernels, which have names in common
            ),
            identity={"kind": "emulated kernel", "faces": [headers_digest(folder) for folder in include]},
        )
    except CompileError as error:
        if _ENDED.search(error.log):
            raise NotCompiled.of(error, "the kernel for it") from error
        raise
    return core().bind(library, source.name)


def _folder() -> Path:
    return Path(str(files("tracea.emulator")))
