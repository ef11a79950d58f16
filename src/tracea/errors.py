"""The error tree: every error carries its numbers as fields, renders them, and names a remedy.

::

    TraceaError
    ├── InvalidInput (ValueError)        what the caller gave: field, got, expected
    │   ├── InvalidOp
    │   ├── InvalidShape
    │   ├── InvalidDType (TypeError)
    │   ├── InvalidDevice
    │   ├── InvalidStride
    │   │   └── ReadOnlyOutput           an output whose memory cannot be written
    │   ├── InvalidIndex (IndexError)    an index tensor names a row that there is not
    │   ├── OverlappingOutput
    │   ├── InvalidGraph
    │   ├── InvalidSchedule
    │   └── InvalidOption                a flag, an environment variable, a budget, a stored file
    │       └── UnknownKeyword (TypeError)   an op has no argument of that name or place
    ├── UnsupportedNode (NotImplementedError)   a captured node that no op expresses, with the user's line
    ├── ProofFailed (RuntimeError)       a TileKernel was refused: proof, node, lane, iteration, detail
    ├── EmitError (RuntimeError)         an emitter met a node that it has no line for
    ├── ToolchainMissing (RuntimeError)  no tool on this machine for the task
    ├── CompileError (RuntimeError)      a compiler ran and failed: command, exit code, log
    ├── RunError (RuntimeError)          a compiled kernel could not run, or died
    ├── VerdictFailed (RuntimeError)     a gate refused a running kernel: gate, got, limit
    ├── ResourceExceeded (MemoryError)   bytes needed against bytes there are
    ├── BudgetExceeded (RuntimeError)    trials or seconds spent against those allowed
    └── CacheError (TraceaWarning, OSError)     raised where the cache was asked for, warned where it was worked around
        ├── CacheCorrupt
        └── CacheUnwritable

    TraceaWarning (UserWarning)          everything that Tracea warns about

Each is a subclass of the builtin that fits, pickles (a failing child process can hand it to its parent), and gives
``to_dict()`` for ``--json``. A variant that does not fit is not an error but a rejection, which belongs to the doctor.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from tracea.error_fields import MAX_TEXT, clipped, plain_field, shortened, shown

__all__ = [
    "BudgetExceeded",
    "CacheCorrupt",
    "CacheError",
    "CacheUnwritable",
    "CompileError",
    "EmitError",
    "InvalidDType",
    "InvalidDevice",
    "InvalidGraph",
    "InvalidIndex",
    "InvalidInput",
    "InvalidOp",
    "InvalidOption",
    "InvalidSchedule",
    "InvalidShape",
    "InvalidStride",
    "OverlappingOutput",
    "ProofFailed",
    "ReadOnlyOutput",
    "ResourceExceeded",
    "RunError",
    "ToolchainMissing",
    "TraceaError",
    "TraceaWarning",
    "UnknownKeyword",
    "UnsupportedNode",
    "VerdictFailed",
]

_TELLING = re.compile(r"\b(error|fatal|undefined|cannot)\b|limit exceeded|No space", re.IGNORECASE)  # of a log
_OUR_OWN_TEXT = frozenset({"command", "detail", "location", "log", "remedy"})  # kept whole


class TraceaWarning(UserWarning):
    """Anything Tracea warns about: one category to filter."""


@dataclass(kw_only=True, eq=False, repr=False)
class TraceaError(Exception):
    """The root of all errors that Tracea raises on purpose."""

    remedy: str

    def __post_init__(self) -> None:
        # A field may be a tensor, an IR tree or a hostile string: keep a plain, bounded value, so that the error
        # neither holds memory alive nor fails to pickle or print.
        for field in fields(self):
            if field.name not in _OUR_OWN_TEXT:
                setattr(self, field.name, plain_field(getattr(self, field.name)))

    def statement(self) -> str:
        """Say what went wrong, with its numbers, without the remedy and the class, which a traceback names."""
        return type(self).__name__

    def __str__(self) -> str:
        """Render as ``what: got X, limit Y. Remedy: ...``."""
        return f"{self.statement()}. Remedy: {self.remedy}"

    def __repr__(self) -> str:
        """Render as a constructor call."""
        inside = ", ".join(f"{name}={value!r}" for name, value in self._fields().items())
        return f"{type(self).__name__}({inside})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by fields, since exceptions pickle by positional arguments and these have none."""
        return _rebuild, (type(self), self._fields()), dict(self.__dict__)

    def to_dict(self) -> dict[str, Any]:
        """Return the error's name, message and fields as plain JSON values."""
        return {"error": type(self).__name__, "message": str(self), **self._fields()}

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _rebuild(cls: type[TraceaError], values: dict[str, Any]) -> TraceaError:
    return cls(**values)


@dataclass(kw_only=True, eq=False, repr=False)
class InvalidInput(TraceaError, ValueError):
    """A value that the caller gave cannot be meant: ``field`` got ``got`` where ``expected`` was needed."""

    field: str
    got: Any
    expected: Any = None

    def statement(self) -> str:
        """Say the field, the value and what was expected."""
        text = f"{self.field}: got {shown(self.got)}"
        return text if self.expected is None else f"{text}, expected {shown(self.expected, ' | ')}"


class InvalidOp(InvalidInput):
    """An op's own parameter is out of its domain."""


class InvalidShape(InvalidInput):
    """A rank or an extent does not fit."""


class InvalidDType(InvalidInput, TypeError):
    """An element type does not fit, or is not a tensor's at all."""


class InvalidDevice(InvalidInput):
    """A tensor or a request is on the wrong device, or on none."""


class InvalidStride(InvalidInput):
    """A stride cannot be addressed as asked."""


class ReadOnlyOutput(InvalidStride):
    """An output lies in memory that cannot be written; of old an InvalidStride, and caught as one."""


class InvalidIndex(InvalidInput, IndexError):
    """An element of an index tensor names a row, or a class, that there is not."""


class OverlappingOutput(InvalidInput):
    """An output overlaps an input or itself in memory."""


class InvalidGraph(InvalidInput):
    """A graph breaks one of its invariants."""


class InvalidSchedule(InvalidInput):
    """A schedule's value is outside its search space, or contradicts another."""


class InvalidOption(InvalidInput):
    """A flag, an environment variable, a budget or a stored file does not parse."""


class UnknownKeyword(InvalidOption, TypeError):
    """An op has no argument of that name or place; a TypeError too, which Python itself would have raised."""


@dataclass(kw_only=True, eq=False, repr=False)
class UnsupportedNode(TraceaError, NotImplementedError):
    """A captured graph holds a node that no op expresses; ``location`` is the line of the user's code."""

    node: Any
    location: str

    def statement(self) -> str:
        """Say the node and where the user wrote it."""
        return f"{shown(self.node)} at {self.location}"


@dataclass(kw_only=True, eq=False, repr=False)
class ProofFailed(TraceaError, RuntimeError):
    """A proof refused a TileKernel, so it will not be run.

    ``lane`` and ``iteration`` name the first counter-example, where the proof found one.
    """

    proof: str
    node: Any
    detail: str
    lane: int | None = None
    iteration: str | None = None
    remedy: str = "choose another schedule; if the lowering made this node, report the kernel's IR"

    def statement(self) -> str:
        """Say which proof failed, at which node, for which lane and iteration, and with which numbers."""
        lane = "" if self.lane is None else f", lane {self.lane}"
        iteration = "" if self.iteration is None else f", iteration {self.iteration}"
        return f"{self.proof}: {shown(self.node)}{lane}{iteration}: {self.detail}"


@dataclass(kw_only=True, eq=False, repr=False)
class EmitError(TraceaError, RuntimeError):
    """An emitter met a node that it has no line for."""

    node: Any
    detail: str = "no line for this node"
    remedy: str = "lower the node before emission, or add its line to the emitter"

    def statement(self) -> str:
        """Say the node."""
        return f"{shown(self.node)}: {self.detail}"


@dataclass(kw_only=True, eq=False, repr=False)
class ToolchainMissing(TraceaError, RuntimeError):
    """No tool on this machine can do the task."""

    tool: str
    searched: Sequence[str] = ()
    remedy: str = "install gcc or clang, or the ziglang wheel: pip install ziglang"

    def statement(self) -> str:
        """Say the tool and where it was looked for."""
        looked = f", looked for {', '.join(self.searched)}" if self.searched else ""
        return f"{self.tool}: found none{looked}"


@dataclass(kw_only=True, eq=False, repr=False)
class CompileError(TraceaError, RuntimeError):
    """A compiler ran and failed; ``log`` is its whole output. ``exit_code`` NOT_STARTED: it could not be started."""

    NOT_STARTED: ClassVar[int] = 126  # a shell's answer for what is there and cannot be run

    command: Sequence[str]
    log: str
    exit_code: int = 1
    remedy: str = "read the log; the command compiles the same source again"

    def statement(self) -> str:
        """Say the command, or its two ends, its exit code and the first lines of its log."""
        lines = [line.strip() for line in self.log.strip().splitlines()]
        telling = [line for line in lines if _TELLING.search(line)]
        head = " | ".join((telling or lines)[:4])
        return f"{shortened(self.command)}: exit code {self.exit_code}: {clipped(head, 4 * MAX_TEXT)}"


@dataclass(kw_only=True, eq=False, repr=False)
class RunError(TraceaError, RuntimeError):
    """A compiled kernel could not run, or the process that ran it died."""

    kernel: Any
    detail: str
    remedy: str = "verify the kernel (tracea verify) and run it alone"

    def statement(self) -> str:
        """Say the kernel and what happened."""
        return f"{shown(self.kernel)}: {self.detail}"


@dataclass(kw_only=True, eq=False, repr=False)
class VerdictFailed(TraceaError, RuntimeError):
    """A gate refused a running kernel."""

    gate: str
    kernel: Any
    got: Any
    limit: Any
    remedy: str = "choose another variant or schedule; the one that failed cannot be used"

    def statement(self) -> str:
        """Say the gate, the measured value and its limit."""
        return f"{self.gate}: {shown(self.kernel)}: got {shown(self.got)}, limit {shown(self.limit)}"


@dataclass(kw_only=True, eq=False, repr=False)
class ResourceExceeded(TraceaError, MemoryError):
    """A kernel or a plan needs more bytes of something than there are."""

    what: str
    needed_bytes: int
    limit_bytes: int

    def statement(self) -> str:
        """Say what ran out, the bytes needed and the bytes there are."""
        return f"{self.what}: got {self.needed_bytes:_} bytes, limit {self.limit_bytes:_} bytes"


@dataclass(kw_only=True, eq=False, repr=False)
class BudgetExceeded(TraceaError, RuntimeError):
    """A search or a run used up what it was allowed; ``unit`` is trials or seconds."""

    what: str
    spent: float
    limit: float
    unit: str = "seconds"
    remedy: str = "raise the budget, or resume: finished trials are kept"

    def statement(self) -> str:
        """Say what was spent of what."""
        return f"{self.what}: got {self.spent:g} {self.unit}, limit {self.limit:g} {self.unit}"


@dataclass(kw_only=True, eq=False, repr=False)
class CacheError(TraceaError, TraceaWarning, OSError):
    """The cache cannot be used at ``path``: an error where it was asked for, a warning where it was worked around."""

    path: str | os.PathLike[str]
    detail: str
    remedy: str = "set TRACEA_CACHE_DIR to a private directory that can be written"

    def statement(self) -> str:
        """Say the path and what is wrong with it."""
        return f"{self.path}: {self.detail}"


@dataclass(kw_only=True, eq=False, repr=False)
class CacheCorrupt(CacheError):
    """A cache entry does not match its checksum or its key."""

    remedy: str = "nothing to do if this is a warning: the entry is rebuilt; if it comes back, check the disk"


class CacheUnwritable(CacheError):
    """The cache's directory cannot be written, or is not private."""


def __dir__() -> list[str]:
    """List the public names, and what every module has."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
