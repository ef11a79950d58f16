"""NVML: the state of NVIDIA's driver and GPUs, which no context is made for - versions, clocks held down, modes.

Source: NVML API Reference, nvml.h: function names, return codes, clock event reasons, compute modes.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tracea.doctor.diagnosis import Problem

__all__ = ["NvmlDevice", "NvmlState", "diagnose_nvml", "read_nvml"]

_LIBRARY: Final = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
_TEXT: Final = 96
_MISMATCH: Final = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
_CODES: Final = {
    4: "no permission",
    9: "the driver is not loaded",
    15: "a GPU is lost",
    18: "the driver that is loaded and its libraries are of different versions",
    999: "an unknown error",
}
# nvmlClocksEventReason...: those that hold clocks below what the load would have.
_HELD: Final = {
    0x04: "the power limit",
    0x08: "a hardware slowdown",
    0x20: "the temperature, by the driver",
    0x40: "the temperature, by the hardware",
    0x80: "the power brake",
}
_PROHIBITED: Final = 2  # NVML_COMPUTEMODE_PROHIBITED


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlDevice:
    """One GPU: what holds its clocks down now, its power limits, and whether programs may compute on it.

    Units: watts; None where the GPU does not say.
    """

    number: int
    name: str
    held_by: tuple[str, ...]
    power_limit_w: float | None
    default_power_limit_w: float | None
    is_prohibited: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlState:
    """The driver's version and its GPUs, or the ``failure`` that NVML answered with (and its ``code``)."""

    driver: str
    devices: tuple[NvmlDevice, ...]
    failure: str = ""
    code: int = 0


def read_nvml(load: Callable[[str], Any] = ctypes.CDLL) -> NvmlState | None:
    """Ask NVML; None on a machine that does not have it. Milliseconds, and no GPU is woken."""
    try:
        library = load(_LIBRARY)
    except OSError:
        return None
    code = int(library.nvmlInit_v2())
    if code:
        return NvmlState(driver="", devices=(), failure=_CODES.get(code, f"error {code}"), code=code)
    try:
        count = ctypes.c_uint()
        known = not library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        devices = tuple(_device(library, number) for number in range(count.value if known else 0))
        return NvmlState(driver=_text(library.nvmlSystemGetDriverVersion), devices=devices)
    finally:
        library.nvmlShutdown()


def diagnose_nvml(state: NvmlState | None) -> tuple[Problem, ...]:
    """Return what NVML says that keeps GPUs from being used, or from being timed."""
    if state is None:
        return ()
    if state.failure:
        mismatch = state.code == _MISMATCH
        return (
            Problem(
                what=f"NVIDIA's driver does not answer: {state.failure}",
                remedy="restart the machine: the driver was updated since it started"
                if mismatch
                else "nvidia-smi must list the GPUs; in a container, start it with --gpus all",
            ),
        )
    return tuple(problem for device in state.devices for problem in _problems(device))


def _device(library: Any, number: int) -> NvmlDevice:
    handle = ctypes.c_void_p()
    library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(handle))
    reasons, mode = ctypes.c_ulonglong(), ctypes.c_int()
    held = not library.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons))
    asked = not library.nvmlDeviceGetComputeMode(handle, ctypes.byref(mode))
    return NvmlDevice(
        number=number,
        name=_text(partial(library.nvmlDeviceGetName, handle)),
        held_by=tuple(why for bit, why in _HELD.items() if held and reasons.value & bit),
        power_limit_w=_watts(library.nvmlDeviceGetPowerManagementLimit, handle),
        default_power_limit_w=_watts(library.nvmlDeviceGetPowerManagementDefaultLimit, handle),
        is_prohibited=asked and mode.value == _PROHIBITED,
    )


def _problems(device: NvmlDevice) -> list[Problem]:
    name = f"GPU {device.number} ({device.name})"
    found: list[Problem] = []
    if device.is_prohibited:
        found.append(Problem(what=f"{name} may not compute", remedy=f"nvidia-smi -i {device.number} -c DEFAULT"))
    if device.held_by:
        found.append(
            Problem(
                what=f"The clocks of {name} are held down by {' and '.join(device.held_by)}: times will be too long",
                remedy="let it cool down, look at its power supply, and measure again",
            )
        )
    limit, usual = device.power_limit_w, device.default_power_limit_w
    if limit is not None and usual is not None and limit < usual:
        found.append(
            Problem(
                what=f"{name} is limited to {limit:g} W of its usual {usual:g} W: it reaches less than others do",
                remedy=f"nvidia-smi -i {device.number} -pl {usual:g}",
            )
        )
    return found


def _text(ask: Callable[..., int]) -> str:
    text = ctypes.create_string_buffer(_TEXT)
    return "unknown" if ask(text, ctypes.c_uint(_TEXT)) else text.value.decode(errors="replace")


def _watts(ask: Callable[..., int], handle: Any) -> float | None:
    milliwatts = ctypes.c_uint()
    return None if ask(handle, ctypes.byref(milliwatts)) else milliwatts.value / 1_000
