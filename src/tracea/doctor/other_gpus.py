"""GPUs of AMD and Apple: which there are. AMD's by the kernel's topology files, Apple's by asking Metal.

Source: Linux kernel, drivers/gpu/drm/amd/amdkfd/kfd_topology.c (properties of a node); Metal, MTLCopyAllDevices.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tracea.doctor.diagnosis import Problem

__all__ = ["OtherGpu", "probe_amd", "probe_apple"]

_NODES: Final = "sys/class/kfd/kfd/topology/nodes"
_DEVICE: Final = "dev/kfd"
_HIP: Final = "libamdhip64.so"
_METAL: Final = "/System/Library/Frameworks/Metal.framework/Metal"
_OBJC: Final = "/usr/lib/libobjc.dylib"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGpu:
    """A GPU that is not NVIDIA's: ``architecture`` is gfx942 or so, of Apple the family's name."""

    backend: str
    name: str
    architecture: str
    compute_units: int | None = None


def probe_amd(
    root: Path = Path("/"), load: Callable[[str], Any] = ctypes.CDLL
) -> tuple[tuple[OtherGpu, ...], tuple[Problem, ...]]:
    """Return AMD's GPUs and what keeps HIP from running on them; nothing is loaded where there are none."""
    nodes = sorted((root / _NODES).glob("*/properties"), key=lambda path: path.parent.name.zfill(4))
    found = tuple(gpu for path in nodes if (gpu := _of_node(path)) is not None)
    if not found:
        return (), ()
    problems: list[Problem] = []
    if not _may_write(root / _DEVICE):
        problems.append(
            Problem(
                what=f"There are {len(found)} AMD GPUs, but this user may not open /{_DEVICE}",
                remedy="add the user to the groups render and video; in a container, pass --device=/dev/kfd",
            )
        )
    try:
        load(_HIP)
    except OSError:
        problems.append(
            Problem(
                what=f"There are {len(found)} AMD GPUs, but the HIP runtime ({_HIP}) is not found",
                remedy="install ROCm 6 or later, and let the linker find it (LD_LIBRARY_PATH)",
            )
        )
    return found, tuple(problems)


def probe_apple(load: Callable[[str], Any] = ctypes.CDLL, system: str | None = None) -> tuple[OtherGpu, ...]:
    """Return Apple's GPUs; none on other systems, where nothing is loaded."""
    if (system or platform.system()) != "Darwin":
        return ()
    try:
        metal, objc = load(_METAL), load(_OBJC)
    except OSError:
        return ()
    create, send = metal.MTLCreateSystemDefaultDevice, objc.objc_msgSend
    register = objc.sel_registerName
    for function in (create, send, register):
        function.restype = ctypes.c_void_p
    device = create()
    if not device:
        return ()
    name = send(ctypes.c_void_p(device), ctypes.c_void_p(register(b"name")))
    text = send(ctypes.c_void_p(name), ctypes.c_void_p(register(b"UTF8String")))
    title = ctypes.string_at(text).decode(errors="replace") if text else "Apple GPU"
    return (OtherGpu(backend="metal", name=title, architecture=title.removeprefix("Apple ").split(" ")[0].lower()),)


def _of_node(path: Path) -> OtherGpu | None:
    """Return the GPU of a topology node, None of a processor's."""
    try:
        words = dict(line.split(None, 1) for line in path.read_text(encoding="utf-8").splitlines() if " " in line)
        units, version = int(words.get("simd_count", 0)), int(words.get("gfx_target_version", 0))
        per_unit = max(1, int(words.get("simd_per_cu", 1)))
    except (OSError, ValueError):
        return None
    if not units or not version:
        return None
    # 90402 is gfx942: major, minor, and the stepping in hexadecimal.
    architecture = f"gfx{version // 10_000}{version // 100 % 100:x}{version % 100:x}"
    return OtherGpu(
        backend="hip", name=f"AMD {architecture}", architecture=architecture, compute_units=units // per_unit
    )


def _may_write(path: Path) -> bool:
    try:
        with path.open("r+b"):
            return True
    except OSError:
        return False
