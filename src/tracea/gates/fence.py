"""Fences: arrays that end, or begin, at a page without access. What reads or writes one byte beyond them dies of it.

A canary beside an array notices a write, and a read whose value is used; a fence notices every access. The operands'
own pages are for reading only: who changes one and takes it back is noticed as well.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import mmap
import os
import signal
import time
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.errors import RunError
from tracea.gates.comparison import compare_output
from tracea.gates.verdict import Check
from tracea.runtime.awake_clock import AwakeClock

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.op import Op
    from tracea.core.tensor_type import TensorType
    from tracea.gates.case import Case
    from tracea.gates.correctness import Run

__all__ = ["Fence", "check_fences", "fenced"]

_WRONG: Final = 3  # exit codes of the child
_RAISED: Final = 4
_POLL_S: Final = 0.005
_PAUSE_S: Final = 0.1  # between two looks: longer, and nobody could look
_TOLD_BYTES: Final = 4096


class Fence(Enum):
    """Which side of an array the page without access is on; the other side has one at the next page boundary."""

    END = "end"
    START = "start"


@contextmanager
def fenced(kind: TensorType, fence: Fence) -> Generator[NDArray[Any]]:
    """Give an array of a strided type against a fence, filled with bytes that are NaN in every float type.

    Raises:
        RunError: the system gives no memory, or cannot protect a page.
    """
    itemsize = kind.dtype.nbytes
    low, high = kind.extent
    count = (high - low) * itemsize
    inside = -(-max(count, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    libc = _libc()
    base = libc.mmap(
        None,
        inside + 2 * mmap.PAGESIZE,
        mmap.PROT_READ | mmap.PROT_WRITE,
        mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
        -1,
        0,
    )
    if base in (None, ctypes.c_void_p(-1).value):
        raise RunError(kernel="fence", detail=f"no memory: {os.strerror(ctypes.get_errno())}")
    try:
        for address in (base, base + mmap.PAGESIZE + inside):
            if libc.mprotect(address, mmap.PAGESIZE, 0):
                raise RunError(kernel="fence", detail=f"mprotect: {os.strerror(ctypes.get_errno())}")
        start = base + mmap.PAGESIZE + (inside - count if fence is Fence.END else 0)
        ctypes.memset(start, 0xFF, count)
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * max(count, 1)).from_address(start))
        strides = tuple(stride * itemsize for stride in kind.strides)
        offset = -low * itemsize if count else 0
        yield np.ndarray(kind.static_shape, np.dtype(kind.dtype.numpy), memory, offset, strides)
    finally:
        libc.munmap(base, inside + 2 * mmap.PAGESIZE)


def check_fences(run: Run, op: Op, case: Case, *, limit_s: float = 60.0) -> tuple[Check, ...]:
    """Run a kernel in a child process with every operand and the result against a fence, once for each side.

    Operands are for reading only there.

    Call ``run`` once before: what it compiles or loads on its first call is then there, and the child only runs it.

    Units: ``limit_s`` is seconds for each side.
    """
    return tuple(_check(run, op, case, fence, limit_s) for fence in Fence)


def _check(run: Run, op: Op, case: Case, fence: Fence, limit_s: float) -> Check:
    told, tell = os.pipe()
    with warnings.catch_warnings():
        # Other threads of this process do not exist in the child, which runs a kernel and exits.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = _RAISED
        try:
            gc.disable()  # what it would collect may belong to threads that the child does not have
            faulthandler.enable(tell)
            code = _run_fenced(run, op, case, fence)
        finally:
            os._exit(code)
    os.close(tell)
    try:
        status = _wait(child, limit_s)
    except BaseException:
        os.close(told)
        raise
    figure = "did not return" if status is None else _outcome(status)
    place = _last_words(told)
    return Check(
        name=f"nothing beyond the {fence.value} of an array",
        passed=figure == "clean",
        figure=figure,
        limit="clean",
        detail=f"every operand, for reading only, and the result against a page without access, on {case.name}"
        + (f"; died in {place}" if place else ""),
    )


def _last_words(told: int) -> str:
    """Return the call in which Python was when a signal ended the child, "" where none did, and close the pipe."""
    os.set_blocking(told, False)  # another child of this process may still hold the other end
    try:
        lines = os.read(told, _TOLD_BYTES).decode(errors="replace").splitlines()
    except BlockingIOError:
        lines = []
    finally:
        os.close(told)
    return next((line.strip() for line in lines if line.startswith("  File ")), "")


def _run_fenced(run: Run, op: Op, case: Case, fence: Fence) -> int:
    from contextlib import ExitStack

    with ExitStack() as stack, np.errstate(all="ignore"):
        inputs = [stack.enter_context(fenced(operand, fence)) for operand in op.operands]
        for array, values in zip(inputs, case.inputs, strict=True):
            array[...] = values
        out = stack.enter_context(fenced(op.infer(), fence))
        _let_read_only(inputs)
        run(inputs, out)
        signed = case.signed_zeros
        return 0 if compare_output(out, case.expected, case.bound, signed_zeros=signed).passed else _WRONG


def _let_read_only(arrays: Sequence[NDArray[Any]]) -> None:
    """Take away the right to write from all pages of fenced arrays: a change dies even where it is taken back.

    Raises:
        RunError: the system cannot protect a page.
    """
    for array in arrays:
        if not array.size:
            continue
        low, high = np.lib.array_utils.byte_bounds(array)
        first = low // mmap.PAGESIZE * mmap.PAGESIZE
        if _libc().mprotect(first, -(-(high - first) // mmap.PAGESIZE) * mmap.PAGESIZE, mmap.PROT_READ):
            raise RunError(kernel="fence", detail=f"mprotect: {os.strerror(ctypes.get_errno())}")


def _wait(child: int, limit_s: float) -> int | None:
    """Return how the child ended, or end it and return None; time in which this process is stopped does not count.

    Raises:
        RunError: nobody can say how it ended.
    """
    clock = AwakeClock(_PAUSE_S)
    try:
        while clock.look() < limit_s:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return status
            time.sleep(_POLL_S)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except ChildProcessError as error:
        raise RunError(
            kernel="fence",
            detail="how its process ended was lost: SIGCHLD is ignored, or this program waits for every child",
            remedy="signal.signal(signal.SIGCHLD, signal.SIG_DFL) before a search; a process that is started inherits "
            "an ignored one",
        ) from error
    return None


def _outcome(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return signal.Signals(-code).name
    return {0: "clean", _WRONG: "a wrong result", _RAISED: "an error"}.get(code, f"exit code {code}")


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc
