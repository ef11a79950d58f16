"""The child's side of ``isolation``: load one function, then answer requests until the pipe closes.

The parent starts it with ``python -c``; its configuration is one JSON argument. Requests and replies are lines of
JSON on two pipes of their own, so that whatever a candidate prints cannot be taken for a reply.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO, Final, Self

import msgspec

from tracea.errors import CacheError, CacheUnwritable
from tracea.optimizer.trial import Outcome, OutcomeKind

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


class Configuration(msgspec.Struct, frozen=True):
    """What the parent tells its child at the start."""

    target: str
    request_fd: int
    reply_fd: int
    parent_pid: int
    memory_bytes: int


class Request(msgspec.Struct, frozen=True):
    """One call; ``number`` comes back with the reply, so that a late or forged line is noticed."""

    number: int
    value: msgspec.Raw


class PlaceProblem(msgspec.Struct, frozen=True):
    """A place where nothing can be kept, such as a full disk, which is no fault of the call: a CacheError's fields."""

    path: str
    detail: str
    remedy: str
    is_unwritable: bool

    @classmethod
    def of(cls, error: CacheError) -> Self:
        """Take over an error."""
        is_unwritable = isinstance(error, CacheUnwritable)
        return cls(path=str(error.path), detail=error.detail, remedy=error.remedy, is_unwritable=is_unwritable)

    def error(self) -> CacheError:
        """Return the error, to raise it in another process."""
        made = CacheUnwritable if self.is_unwritable else CacheError
        return made(path=self.path, detail=self.detail, remedy=self.remedy)


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a call; number 0 says that the function is loaded, or why it is not."""

    number: int
    value: msgspec.Raw = msgspec.Raw(b"null")
    kind: OutcomeKind = OutcomeKind.OK
    detail: str = ""
    place: PlaceProblem | None = None


def serve(configuration_text: str) -> None:
    """Answer requests until the parent closes the pipe or ends."""
    configuration = msgspec.json.decode(configuration_text, type=Configuration)
    _die_with(configuration.parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    faulthandler.enable(all_threads=False)
    _prefer_as_victim()
    with (
        os.fdopen(configuration.request_fd, "rb") as requests,
        os.fdopen(configuration.reply_fd, "wb", buffering=0) as replies,
    ):
        try:
            function = _load(configuration.target)
        except Exception as error:
            _send(replies, _failure(0, error))
            return
        _limit_memory(configuration.memory_bytes)
        _send(replies, Reply(number=0))
        for line in requests:
            request = msgspec.json.decode(line, type=Request)
            _send(replies, _answer(function, request))


def _answer(function: Callable[[Any], Any], request: Request) -> Reply:
    try:
        value = function(msgspec.json.decode(request.value))
        return Reply(number=request.number, value=msgspec.Raw(msgspec.json.encode(value)))
    except Exception as error:
        return _failure(request.number, error)


def _failure(number: int, error: Exception) -> Reply:
    outcome = Outcome.of_error(error)
    place = PlaceProblem.of(error) if isinstance(error, CacheError) else None
    return Reply(number=number, kind=outcome.kind, detail=outcome.detail, place=place)


def _load(target: str) -> Callable[[Any], Any]:
    module_name, _, attribute = target.partition(":")
    found: Any = import_module(module_name)
    for name in attribute.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError(f"{target} is not callable")
    return found


def _send(replies: BinaryIO, reply: Reply) -> None:
    line = memoryview(msgspec.json.encode(reply) + b"\n")
    while line:
        line = line[replies.write(line) :]


def _die_with(parent_pid: int) -> None:
    """Have the kernel end this process when its parent ends, whatever it is doing then."""
    if sys.platform != "linux":
        return  # elsewhere the closed pipe ends it, once the call under way returns
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent ended before the request was in place
        os._exit(1)


def _prefer_as_victim() -> None:
    """Ask the kernel to end this process, not its parent, when the machine runs out of memory."""
    if sys.platform == "linux":
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")


def _limit_memory(memory_bytes: int) -> None:
    """Limit what is allocated from here on.

    RLIMIT_DATA counts private writable pages: heaps, anonymous mappings, thread stacks. Unlike RLIMIT_AS it does not
    count libraries or address space that is only reserved, which a threaded numeric library takes by the gigabyte.
    """
    if sys.platform != "linux":
        return
    import resource

    with open("/proc/self/status", encoding="ascii") as file:
        used = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData:"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = used + memory_bytes
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
