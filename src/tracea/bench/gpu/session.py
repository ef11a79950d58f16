"""Session: what the items of a stage share in one process - the driver, the target, and what is left of the time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import msgspec

from tracea.bench.gpu.emulated import EmulatedDevice
from tracea.bench.gpu.settings import ItemOutcome, Settings, Status
from tracea.emitters.kernel_source import KernelSource
from tracea.errors import InvalidOption, RunError
from tracea.flow.gpu import GpuCompiled
from tracea.runtime.cuda.driver import Driver
from tracea.runtime.cuda.null_driver import NullDriver
from tracea.targets.gpu import GpuTarget, load_gpu

__all__ = ["DeviceLost", "Item", "Session", "closing", "open_session"]


class DeviceLost(BaseException):  # not an Exception: whoever keeps on after a failed candidate must not catch it
    """The device refuses all further work of this process, as it does after a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that a stage does: ``run`` is called once, in a process that may die of it."""

    name: str
    run: Callable[[], ItemOutcome]


@dataclass(slots=True, kw_only=True)
class Session:
    """``note`` tells the watching process what is about to be tried.

    Notes that ended badly come back in ``avoid``, each with what came of it.
    """

    settings: Settings
    target: GpuTarget
    driver: Driver
    deadline: float
    note: Callable[[str], None] = lambda text: None
    avoid: Mapping[str, str] = field(default_factory=dict[str, str])
    torch: Any = None
    stream: int = 0
    emulated: EmulatedDevice | None = field(default=None)

    @property
    def is_dry(self) -> bool:
        """Whether there is no device."""
        return self.emulated is not None

    @property
    def seconds_left(self) -> float:
        """What the stage has left."""
        return self.deadline - time.monotonic()

    def know(self, cubin: bytes, source: KernelSource) -> None:
        """Let the emulator stand in for the device where there is none."""
        if self.emulated is not None:
            self.emulated.know(cubin, source)

    def require_sound(self, wrong: str) -> None:
        """Check that the device still works, after something failed.

        Raises:
            DeviceLost: it does not, for this process; ``wrong``, what failed, is in its text: this process ends of it.
        """
        if self.is_dry:
            return
        try:
            self.driver.release(self.driver.allocate(4))
            self.driver.synchronize(self.stream)
        except Exception as error:  # whatever the driver or torch calls it
            raise DeviceLost(f"{wrong}; then the device was lost: {error}") from error

    def know_compiled(self, compiled: GpuCompiled) -> GpuCompiled:
        """Return the kernel, which the emulator can run from now on."""
        self.know(compiled.binary.cubin, compiled.built.source)
        return compiled

    def outcome(self, failures: list[str], **data: Any) -> ItemOutcome:
        """Return an item's outcome: what failed is failed without a device too, what passed is dry."""
        if failures:
            return ItemOutcome(status=Status.FAILED, detail=failures[0], data={**data, "failures": failures[:20]})
        return ItemOutcome(status=Status.DRY if self.is_dry else Status.PASSED, data=data)

    def failed_after(self, outcome: ItemOutcome, failures: list[str]) -> ItemOutcome:
        """Return an outcome with failures that came after it; none leave it as it is."""
        if not failures:
            return outcome
        detail = "; ".join(text for text in (outcome.detail, *failures) if text)
        return msgspec.structs.replace(outcome, status=Status.FAILED, detail=detail)


@contextmanager
def closing(close: Callable[[], None]) -> Generator[list[str]]:
    """Close at the end, and put into the list what the device refused then.

    After a fault it refuses that too, and what went wrong first is what is worth knowing.
    """
    refused: list[str] = []
    try:
        yield refused
    finally:
        try:
            close()
        except RunError as error:
            refused.append(f"giving memory back: {error}")


def open_session(
    settings: Settings,
    *,
    seconds: float,
    with_torch: bool = False,
    note: Callable[[str], None] = lambda text: None,
    avoid: Mapping[str, str] | None = None,
) -> Session:
    """Return the session of one stage; torch takes part where it is asked for, is installed and has the device.

    Raises:
        ToolchainMissing: there is no driver. InvalidOption: the driver is neither ``cuda`` nor ``null``.
    """
    target = load_gpu(settings.target)
    deadline = time.monotonic() + seconds
    common: dict[str, Any] = {
        "settings": settings,
        "target": target,
        "deadline": deadline,
        "note": note,
        "avoid": avoid or {},
    }
    if settings.driver == "null":
        emulated = EmulatedDevice()
        return Session(driver=NullDriver(target, execute=emulated), emulated=emulated, **common)
    if settings.driver != "cuda":
        raise InvalidOption(field="driver", got=settings.driver, expected=("cuda", "null"), remedy="--driver cuda")
    torch = _torch() if with_torch else None
    if torch is not None:
        from tracea.bench.gpu.torch_driver import TorchDriver

        driver = TorchDriver(torch, settings.device)
        return Session(driver=driver, torch=torch, stream=driver.stream, **common)
    from tracea.runtime.cuda.cuda_driver import CudaDriver

    plain = CudaDriver(settings.device)
    return Session(driver=plain, stream=plain.create_stream(), **common)


def _torch() -> Any:
    """Return torch where it has CUDA, else None."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(os.cpu_count() or 1))
    try:
        torch = import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None
