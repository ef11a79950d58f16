"""Grant of matrix tiles: whether the operating system lets this process use AMX, asked of it without a compiler.

The processor's tile registers are switched off until a process asks for them. Asking again changes nothing, and what
is granted stays so for the process, its threads and its children.

Source: Linux kernel documentation, x86/xstate ("Using XSTATE features in user space applications").
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tracea.profiler.machine import Processor

__all__ = ["TILE_FLAGS", "TileGrant", "ask_for_tiles"]

TILE_FLAGS: Final = frozenset({"amx_tile", "amx_bf16"})
_ARCH_PRCTL: Final = 158  # the system call's number on x86-64
_REQUEST_PERMISSION: Final = 0x1023  # ARCH_REQ_XCOMP_PERM
_TILE_DATA: Final = 18  # XFEATURE_XTILEDATA


@dataclass(frozen=True, slots=True, kw_only=True)
class TileGrant:
    """What the system answered; ``refusal`` is its reason, empty where tiles are granted or the processor has none."""

    granted: bool
    refusal: str = ""


def ask_for_tiles(processor: Processor) -> TileGrant:
    """Ask the system for the tiles that the processor shows; nothing is asked where it shows none."""
    if not processor.flags >= TILE_FLAGS:
        return TileGrant(granted=False)
    if (platform.system(), platform.machine()) != ("Linux", "x86_64") or sys.maxsize <= 2**32:
        return TileGrant(granted=False, refusal="only a 64-bit program on Linux can ask for them")
    call: Any = getattr(ctypes.CDLL(None, use_errno=True), "syscall", None)
    if call is None:
        return TileGrant(granted=False, refusal="the C library has no syscall function to ask by")
    call.restype, call.argtypes = ctypes.c_long, [ctypes.c_long] * 3
    if call(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0:
        return TileGrant(granted=True)
    return TileGrant(granted=False, refusal=f"arch_prctl answers: {os.strerror(ctypes.get_errno())}")
