"""ChildProcess: one child of ``isolation``, from its start to its reaping, under limits of time and memory."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tracea.errors import InvalidOption
from tracea.optimizer.isolation_child import Configuration, Reply, Request
from tracea.optimizer.trial import NotStarted, OutcomeKind

_POLL_SECONDS: Final = 0.05
_STOOD_STILL_SECONDS: Final = 2.0  # a turn that takes longer: this process was stopped (Ctrl-Z) in between
_OUTPUT_TAIL: Final = 4096
_SMALL_BYTES: Final = 256 << 20  # operands of a middling op, and the code that was loaded on the way
_MAX_REPLY: Final = 64 * 1024 * 1024
_DEATHS: Final = (OutcomeKind.CRASHED, OutcomeKind.OUT_OF_MEMORY, OutcomeKind.KILLED)
_BOOTSTRAP: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]);"
    " from tracea.optimizer.isolation_child import serve; serve(sys.argv[1])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one evaluation may use.

    Units: ``seconds`` of wall time for a call; ``memory_bytes`` beyond what the child holds once its function is
    loaded; ``startup_seconds`` of wall time to load it.
    """

    seconds: float = 60.0
    memory_bytes: int = 4 * 1024**3
    startup_seconds: float = 120.0

    def __post_init__(self) -> None:
        for name, value in (
            ("seconds", self.seconds),
            ("memory_bytes", self.memory_bytes),
            ("startup_seconds", self.startup_seconds),
        ):
            if isinstance(value, bool) or not math.isfinite(value) or value <= 0:
                raise InvalidOption(
                    field=f"limits.{name}", got=value, expected="a positive finite number", remedy="use the default"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a call in the child came to: ``value``, as JSON, where ``kind`` is ok, else ``detail``.

    ``has_died`` tells a process that ended by itself from a function that raised.
    """

    kind: OutcomeKind
    value: msgspec.Raw
    detail: str
    seconds: float
    has_died: bool = False


class DidNotAnswer(NotStarted):
    """The process was ended by SIGKILL or took too long before it was ready: the next one may start."""


class ChildProcess:
    """One child process, from its start to its reaping."""

    def __init__(self, target: str, limits: Limits, environment: Mapping[str, str]) -> None:
        self.served = 0
        self._was_killed = False
        self._target = target
        self._limits = limits
        self._received = bytearray()
        self._output = bytearray()
        request_read, self._request_fd = os.pipe()
        self._reply_fd, reply_write = os.pipe()
        self._output_fd, output_write = os.pipe()
        configuration = Configuration(
            target=target,
            request_fd=request_read,
            reply_fd=reply_write,
            parent_pid=os.getpid(),
            memory_bytes=int(limits.memory_bytes),
        )
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _BOOTSTRAP,
                    msgspec.json.encode(configuration).decode(),
                    msgspec.json.encode([entry or os.getcwd() for entry in sys.path]).decode(),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                pass_fds=(request_read, reply_write),
                env={**os.environ, **environment},
                start_new_session=True,
            )
        except BaseException:
            for fd in (self._request_fd, self._reply_fd, self._output_fd):
                os.close(fd)
            raise
        finally:
            for fd in (request_read, reply_write, output_write):
                os.close(fd)
        for fd in (self._request_fd, self._reply_fd, self._output_fd):
            os.set_blocking(fd, False)
        self._finalizer = weakref.finalize(
            self, _end, self._process, (self._request_fd, self._reply_fd, self._output_fd)
        )
        self._base_bytes = 0
        self._await_ready()

    @property
    def pid(self) -> int:
        """Return the process id, which is also the session's."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Tell whether the process is still there; one that ended is reaped."""
        return self._process.poll() is None

    def is_small(self) -> bool:
        """Tell whether it lives and holds little more than at its start, so that it may serve on."""
        return self.is_alive() and _resident_bytes(self.pid) - self._base_bytes < _SMALL_BYTES

    def end(self) -> None:
        """Kill the process and its descendants of the same session, reap it, and close the pipes."""
        self._finalizer()

    def call(self, value: Any, seconds: float) -> Answer:
        """Send one request and wait for its reply; after an answer other than ok the process may be gone.

        Raises: CacheError: the function raised it, which says nothing of what it was asked for.
        """
        self.served += 1
        started = time.monotonic()
        line = msgspec.json.encode(Request(number=self.served, value=msgspec.Raw(msgspec.json.encode(value)))) + b"\n"
        kind, reply, detail = self._exchange(line, started + seconds)
        if kind is OutcomeKind.TIMED_OUT:
            detail = f"no answer within {seconds:g} s"
        has_died = reply is None and kind in _DEATHS and not self._was_killed
        if reply is not None and reply.number == self.served:
            kind, detail = reply.kind, reply.detail
            if reply.place is not None:
                raise reply.place.error()
        elif reply is not None:
            kind, detail = OutcomeKind.CRASHED, f"reply {reply.number} to request {self.served}: the child is damaged"
        return Answer(
            kind=kind,
            value=reply.value if reply is not None else msgspec.Raw(b"null"),
            detail=detail,
            seconds=time.monotonic() - started,
            has_died=has_died,
        )

    def _await_ready(self) -> None:
        kind, reply, detail = self._exchange(b"", time.monotonic() + self._limits.startup_seconds)
        if reply is not None and reply.kind is OutcomeKind.OK:
            self._base_bytes = _resident_bytes(self.pid)
            return
        self.end()
        if reply is None and kind is OutcomeKind.TIMED_OUT:
            detail = f"not ready within {self._limits.startup_seconds:g} s"
            raise DidNotAnswer(kernel=self._target, detail=detail, remedy="stop other programs and run it again")
        if reply is None and kind is OutcomeKind.KILLED:
            raise DidNotAnswer(
                kernel=self._target, detail=detail, remedy="free memory on this machine and run it again"
            )
        detail = detail if reply is None else reply.detail
        remedy = "import it in a Python session and see it fail there"
        raise NotStarted(kernel=self._target, detail=detail, remedy=remedy)

    def _exchange(self, line: bytes, deadline: float) -> tuple[OutcomeKind, Reply | None, str]:
        """Send a line and wait for one, watching the clock, the memory and the process.

        Time in which this process itself was stopped does not count: it read no reply then.
        """
        unsent = memoryview(line)
        with selectors.DefaultSelector() as selector:
            selector.register(self._reply_fd, selectors.EVENT_READ)
            selector.register(self._output_fd, selectors.EVENT_READ)
            if unsent:
                selector.register(self._request_fd, selectors.EVENT_WRITE)
            looked = time.monotonic()
            while True:
                before, looked = looked, time.monotonic()
                if looked - before > _STOOD_STILL_SECONDS:
                    deadline += looked - before
                remaining = deadline - looked
                if remaining <= 0:
                    self._kill()
                    return OutcomeKind.TIMED_OUT, None, ""
                for key, _ in selector.select(min(remaining, _POLL_SECONDS)):
                    if key.fd == self._request_fd:
                        with contextlib.suppress(BlockingIOError, BrokenPipeError):
                            unsent = unsent[os.write(self._request_fd, unsent) :]
                        if not unsent or not self.is_alive():
                            selector.unregister(self._request_fd)
                    elif key.fd == self._output_fd:
                        if not self._drain_output():
                            selector.unregister(self._output_fd)
                    elif not self._receive():
                        selector.unregister(self._reply_fd)
                newline = self._received.find(b"\n")
                if newline >= 0:
                    return self._parsed(newline)
                if len(self._received) > _MAX_REPLY:
                    self._kill()
                    return OutcomeKind.INVALID, None, f"a reply of more than {_MAX_REPLY:_} bytes"
                if not self.is_alive():
                    self._receive()
                    newline = self._received.find(b"\n")
                    return self._parsed(newline) if newline >= 0 else self._death()
                grown = _resident_bytes(self.pid) - self._base_bytes
                if self._base_bytes and grown > self._limits.memory_bytes:
                    self._kill()
                    detail = f"{grown:_} bytes resident beyond the start, limit {self._limits.memory_bytes:_}"
                    return OutcomeKind.OUT_OF_MEMORY, None, detail

    def _parsed(self, newline: int) -> tuple[OutcomeKind, Reply | None, str]:
        line = bytes(self._received[:newline])
        del self._received[: newline + 1]
        try:
            return OutcomeKind.OK, msgspec.json.decode(line, type=Reply), ""
        except (msgspec.MsgspecError, UnicodeError) as error:
            return OutcomeKind.CRASHED, None, f"the reply does not decode, so the child's memory is damaged: {error}"

    def _death(self) -> tuple[OutcomeKind, None, str]:
        """Say how the process ended by itself."""
        self._drain_output()
        code = self._process.wait()
        output = self._output.decode(errors="replace").strip()
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        if code == -signal.SIGKILL:
            return OutcomeKind.KILLED, None, f"{how} from outside: by another program, or for want of memory"
        # C++ ends a failed allocation by abort; what it prints is the only trace.
        kind = OutcomeKind.OUT_OF_MEMORY if code == -signal.SIGABRT and "bad_alloc" in output else OutcomeKind.CRASHED
        return kind, None, f"{how}: {output}" if output else how

    def _receive(self) -> bool:
        """Take what the reply pipe holds; False at its end."""
        while True:
            try:
                chunk = os.read(self._reply_fd, 1 << 16)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self._received += chunk
            if len(self._received) > _MAX_REPLY:
                return True

    def _drain_output(self) -> bool:
        """Keep the tail of what the child printed, and its pipe from filling up; False at its end."""
        for _ in range(64):
            try:
                chunk = os.read(self._output_fd, 1 << 16)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self._output += chunk
            del self._output[:-_OUTPUT_TAIL]
        return True

    def _kill(self) -> None:
        self._was_killed = True
        _kill_session(self._process)


def _end(process: subprocess.Popen[bytes], descriptors: tuple[int, ...]) -> None:
    _kill_session(process)
    for fd in descriptors:
        with contextlib.suppress(OSError):
            os.close(fd)


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    # The session's number is the child's pid. Until it is reaped that number cannot have been given to anyone else.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()


def _resident_bytes(pid: int) -> int:
    """Return a process's resident memory, or 0 where it cannot be read."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
