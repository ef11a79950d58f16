"""Run a compiler as a process of its own: with a time limit, with temporary files that stay nowhere, killed whole.

It ends with this process, however that ends. ``PR_SET_PDEATHSIG`` would not do: it ends a compiler's driver and leaves
the compiler proper, which the driver started, and Python has no safe way to ask for it where there are threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

from tracea.errors import CompileError
from tracea.runtime.at_once import check_wanted
from tracea.runtime.awake_clock import AwakeClock
from tracea.runtime.shortage import starved_remedy

__all__ = ["run_compiler"]

_LOOK_SECONDS: Final = 1.0  # how often this process looks after a compiler
_PAUSE_SECONDS: Final = 3.0  # longer between two looks: this process was stopped (Ctrl-Z), and its children with it
# What a compiler prints in the C locale, for every file that it writes.
_DISK_FULL: Final = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "File size limit exceeded": errno.EFBIG,
    "File too large": errno.EFBIG,
}
_TEMPORARY: Final = ("TMPDIR", "TMP", "TEMP")
# In a compiler's group: when the pipe's other end is closed, which only this process holds, it ends the group.
_GUARD: Final = ("/bin/sh", "-c", "read _; kill -s KILL 0")
_WRITTEN: Final = ("DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES")  # have a compiler write to a file of the user's


def run_compiler(command: Sequence[str], timeout_seconds: float, place: Path, product: str = "") -> None:
    """Run a compiler; kill it with all its children when the time is up, in which this process was not stopped.

    Its temporary files are in ``place``, where its results are to be: what has room there has room, and a compiler that
    is killed leaves nothing elsewhere. ``product`` is the file there that it is to write, if its exit code is not all
    that is asked for.

    Raises: CompileError: it failed, took too long or could not be started, with its log. OSError: the disk of ``place``
    is full. GivenUp: another that it ran beside has failed.
    """
    temporary = place / "temporary"
    temporary.mkdir(mode=0o700)
    try:
        _run(command, timeout_seconds, temporary, product)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _run(command: Sequence[str], timeout_seconds: float, temporary: Path, product: str) -> None:
    with _started(command, temporary) as process, _guarded(process):
        try:
            log = _output(process, timeout_seconds)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            log = process.communicate()[0]
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise CompileError(
                command=command,
                log=f"stopped after {timeout_seconds:g} s\n{log}",
                exit_code=-signal.SIGKILL,
                remedy="run it again when fewer programs use the machine: what was searched and compiled is kept",
            ) from None
    # Where SIGCHLD is ignored, or the host waits for every child, nobody learns the exit code and Python says 0.
    is_missing = product != "" and not _has_content(temporary.parent / product)
    if process.returncode == 0 and not is_missing:
        return
    for said, code in _DISK_FULL.items():
        if said in log:
            raise OSError(code, said, str(temporary.parent))  # where it wrote: the compiler is not at fault
    if process.returncode == 0:
        log = f"{log.rstrip()}\nerror: it wrote no {product}".lstrip()
    raise CompileError(command=command, log=log, exit_code=process.returncode)


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _started(command: Sequence[str], temporary: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name not in _WRITTEN}
    environment |= {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"} | dict.fromkeys(_TEMPORARY, str(temporary))
    try:
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            env=environment,
            process_group=0,
        )
    except OSError as error:
        raise CompileError(
            command=command,
            log=f"could not be started: {error}",
            exit_code=CompileError.NOT_STARTED,
            remedy=starved_remedy(error) or "run the command in a shell; TRACEA_CXX names another compiler",
        ) from error


@contextlib.contextmanager
def _guarded(process: subprocess.Popen[str]) -> Generator[None]:
    """Have a compiler's whole group end when this process does: it may be killed, and then can do nothing itself."""
    read, write = os.pipe()
    guard: subprocess.Popen[bytes] | None = None
    try:
        with contextlib.suppress(OSError):  # no shell here, or no process left for it: it compiles without
            guard = subprocess.Popen(
                _GUARD,
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=process.pid,
            )
        os.close(read)
        yield
    finally:
        if guard is not None:
            guard.kill()  # before the pipe is closed
            guard.wait()
        os.close(write)


def _output(process: subprocess.Popen[str], timeout_seconds: float) -> str:
    """Return what a compiler printed until it ended.

    Raises: TimeoutExpired: it did not while this process ran. GivenUp: nobody waits for it any longer.
    """
    clock = AwakeClock(_PAUSE_SECONDS)
    while True:
        check_wanted()
        left = timeout_seconds - clock.look()
        try:
            return process.communicate(timeout=max(0.0, min(left, _LOOK_SECONDS)))[0]
        except subprocess.TimeoutExpired:
            if clock.look() >= timeout_seconds:
                raise
