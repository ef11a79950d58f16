"""The thread's floating-point control: rounding, flushing and traps, which a kernel must leave as it found them.

Whoever leaves another rounding mode, or a flush of subnormals, changes what its caller computes afterwards: the judge's
own arithmetic here, and a user's there. Flags of what happened (inexact, overflow) are no control and may change.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

__all__ = ["Control", "read_control"]

_ENVIRONMENT_BYTES: Final = 64  # more than fenv_t of any system
# Where fenv_t holds what controls: (first byte, bytes, bits that count) of each register.
_X86: Final = ("x86_64", "AMD64")
_ARM: Final = ("aarch64", "arm64")
_MXCSR: Final = 0xFFC0  # below are flags
_X87: Final = 0x1F3F  # rounding, precision and masks of exceptions; the rest is reserved
_ALL: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The control registers of a thread, and the whole environment that ``restore`` sets again."""

    registers: tuple[int, ...]
    environment: bytes

    def restore(self) -> None:
        """Set what was read, flags included, in the calling thread."""
        library = _library()
        if library is None or not self.environment:
            return
        library.fesetenv(ctypes.create_string_buffer(self.environment, _ENVIRONMENT_BYTES))


def read_control() -> Control:
    """Return the calling thread's control; without registers where the system is not known or the library is silent."""
    library, fields = _library(), _fields()
    if library is None or not fields:
        return Control(registers=(), environment=b"")
    buffer = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    library.fegetenv(buffer)
    content = buffer.raw
    registers = tuple(
        int.from_bytes(content[first : first + size], sys.byteorder) & bits for first, size, bits in fields
    )
    return Control(registers=registers, environment=content)


@cache
def _library() -> Any:
    library = ctypes.CDLL(None)
    return library if hasattr(library, "fegetenv") and hasattr(library, "fesetenv") else None


@cache
def _fields() -> tuple[tuple[int, int, int], ...]:
    machine = platform.machine()
    match sys.platform:
        case "linux" if machine in _X86:
            return ((0, 2, _X87), (28, 4, _MXCSR))
        case "linux" if machine in _ARM:
            return ((0, 4, _ALL),)
        case "darwin" if machine in _X86:
            return ((0, 2, _X87), (4, 4, _MXCSR))
        case "darwin" if machine in _ARM:
            return ((8, 8, _ALL),)
        case _:
            return ()
