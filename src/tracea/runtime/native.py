"""The launcher: the native code that walks a Program, compiled once through the cache and bound here."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from tracea.errors import InvalidOption, ResourceExceeded, RunError
from tracea.forks import is_child
from tracea.runtime.compiler import Library, compile_text, headers_digest
from tracea.runtime.process_lock import ProcessLock
from tracea.runtime.shortage import memory_bytes

__all__ = ["Launcher", "Statistics", "launcher", "launcher_directory"]

SOURCES: Final = ("workspace.cpp", "pool.cpp", "region.cpp", "port.cpp", "program.cpp")
MOST_THREADS: Final = 1024

_OUT_OF_MEMORY: Final = 1
_WORD: Final = 2**63  # the least number that an int64 does not hold
_MESSAGES: Final = {
    2: "a library call failed; torch printed the reason",
    3: "a library call's function is not loaded",
    4: "the table of calls is malformed",
}

_Words = ctypes.POINTER(ctypes.c_int64)
_Addresses = ctypes.POINTER(ctypes.c_void_p)


class _Statistics(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64) for name in ("workspaces", "workspace_bytes", "mapped", "acquired", "workers")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What the launcher holds: ``mapped`` and ``acquired`` count since the process began, the rest is now."""

    workspaces: int
    workspace_bytes: int
    mapped: int
    acquired: int
    workers: int


class Launcher:
    """The launcher's C interface (launcher/launcher.h) as Python calls."""

    def __init__(self, library: Library) -> None:
        self.library = library
        handle = library.handle
        self._create = handle.tracea_program_create
        self._create.argtypes = [_Words, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p)]
        self._destroy = handle.tracea_program_destroy
        self._destroy.argtypes = [ctypes.c_void_p]
        self._destroy.restype = None
        self._run = handle.tracea_program_run
        self._run.argtypes = [ctypes.c_void_p, _Addresses, _Addresses, ctypes.c_int32]
        self._threads = handle.tracea_threads
        self._threads.argtypes = []
        self._override = handle.tracea_threads_override
        self._override.argtypes = [ctypes.c_int32]
        self._override.restype = None
        self._mark_forked = handle.tracea_mark_forked
        self._mark_forked.restype = None
        self._refresh = handle.tracea_refresh
        self._refresh.restype = None
        self._source = handle.tracea_thread_source
        self._source.restype = ctypes.c_char_p
        self._available = handle.tracea_library_available
        self._available.argtypes = [ctypes.c_int32]
        self._supports = handle.tracea_cpu_supports
        self._supports.argtypes = [ctypes.c_char_p]
        self._statistics = handle.tracea_get_statistics
        self._statistics.argtypes = [ctypes.POINTER(_Statistics)]
        self._statistics.restype = None
        self._trim = handle.tracea_trim
        self._trim.restype = None

    def create(self, words: list[int], name: str) -> int:
        """Return the handle of a program that a table of words describes (launcher.h).

        Raises: RunError: the table is malformed, or a library that it calls is not loaded. ResourceExceeded.
        """
        created = ctypes.c_void_p()
        if not all(-_WORD <= word < _WORD for word in words):  # which ctypes would cut off without a word
            raise RunError(
                kernel=name, detail="a number of its calls is beyond 64 bits", remedy="make its extents smaller"
            )
        table = (ctypes.c_int64 * len(words))(*words)
        self.check(self._create(table, len(words), ctypes.byref(created)), name, 8 * len(words))
        if created.value is None:
            raise RunError(kernel=name, detail="the launcher returned no program")
        return created.value

    def destroy(self, handle: int) -> None:
        """Free a program that no thread runs."""
        self._destroy(handle)

    def run(
        self,
        handle: int,
        inputs: list[int],
        outputs: list[int],
        threads: int,
        name: str,
        *,
        needs: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """Run a program on operands given by address; the GIL is released. 0 threads means :meth:`threads`.

        ``needs`` tells the bytes that a run of so many threads takes, for the error.
        """
        given = (ctypes.c_void_p * len(inputs))(*inputs)
        wanted = (ctypes.c_void_p * len(outputs))(*outputs)
        status = self._run(handle, given, wanted, threads)
        if status != 0:
            self.check(status, name, needs(threads))

    def check(self, status: int, name: str, needed_bytes: int) -> None:
        """Raise what a status means; 0 means nothing."""
        if status == _OUT_OF_MEMORY:
            raise ResourceExceeded(
                what=f"memory for {name}",
                needed_bytes=needed_bytes,
                limit_bytes=memory_bytes(),
                remedy="run with fewer threads",
            )
        if status != 0:
            remedy = "import torch before the program is built" if status == 3 else "report the program's plan"
            raise RunError(kernel=name, detail=_MESSAGES.get(status, f"status {status}"), remedy=remedy)

    def threads(self) -> int:
        """Return a run's default thread count: TRACEA_THREADS, else torch's setting, else the cores allowed."""
        self._refresh()
        return int(self._threads())

    def override_threads(self, threads: int) -> None:
        """Set the default thread count of this process; 0 takes it back."""
        self._override(threads)

    def mark_forked(self) -> None:
        """Say that the process is the child of a fork from before the launcher was loaded."""
        self._mark_forked()

    def thread_source(self) -> str:
        """Return the file of the OpenMP runtime whose threads are used, or "" for the launcher's own pool."""
        self._refresh()
        return (self._source() or b"").decode(errors="replace")

    def library_available(self, function: int) -> bool:
        """Tell whether torch is loaded and exports this function of its C shim."""
        return bool(self._available(function))

    def supports(self, isa: str) -> bool:
        """Tell whether this CPU and its operating system can run kernels of an instruction set."""
        return bool(self._supports(isa.encode()))

    def statistics(self) -> Statistics:
        """Return what the launcher holds."""
        found = _Statistics()
        self._statistics(ctypes.byref(found))
        return Statistics(**{name: int(getattr(found, name)) for name in Statistics.__dataclass_fields__})

    def trim(self) -> None:
        """Give idle workspaces back to the system."""
        self._trim()


_made: list[Launcher] = []
_lock = ProcessLock()


def launcher() -> Launcher:
    """Return this process's launcher, compiling it on first use on this machine.

    Raises: ToolchainMissing, CompileError, CacheError: as `compile_text`. InvalidOption: TRACEA_THREADS is no count.
    """
    if not _made:
        with _lock:
            if not _made:
                _made.append(_build())
    return _made[0]


def _build() -> Launcher:
    folder = launcher_directory()
    library = compile_text(
        "".join(f'#include "{name}"\n' for name in SOURCES),
        isa="plain",
        name="launcher",
        extra_flags=("-pthread", "-ldl"),
        include=(folder,),
        identity={"kind": "launcher", "launcher": headers_digest(folder)},
    )
    made = Launcher(library)
    if is_child():
        made.mark_forked()
    made.override_threads(_threads_from_environment())
    return made


def launcher_directory() -> Path:
    """Return the folder of the launcher's source."""
    return Path(str(files("tracea.runtime") / "launcher"))


def check_threads(threads: int | None, field: str = "threads") -> int:
    """Return a thread count for the launcher, 0 for None.

    Raises: InvalidOption: it is not a whole number from 1 to 1024.
    """
    if threads is None:
        return 0
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= MOST_THREADS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(
            field=field,
            got=repr(threads) if isinstance(threads, str) else threads,
            expected=f"a whole number from 1 to {MOST_THREADS}",
            remedy="give a thread count, or None for the default",
        )
    return threads


def _threads_from_environment() -> int:
    given = os.environ.get("TRACEA_THREADS")
    if not given:
        return 0
    return check_threads(int(given) if given.strip().isdecimal() else given, "TRACEA_THREADS")  # pyright: ignore[reportArgumentType]
