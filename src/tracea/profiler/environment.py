"""Environment: where and when a measurement was taken, so that two of them can be told apart or compared."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Final

from tracea.profiler import machine

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Environment", "capture", "equal_terms"]

# What changes the speed of the numbers that are compared: ours, the peers, and what both stand on.
_PACKAGES: Final = ("tracea", "numpy", "torch", "onnxruntime", "openvino")
_THREADS: Final = ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "TRACEA_THREADS")
# The C library keeps what is freed, up to results of 32 MiB, the most that it takes: where it gives a freed result's
# pages back, the next call waits for new ones, a third of a 1x1 convolution's time, in some processes and for one side.
_MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 31)}
_VARIABLES: Final = (*_THREADS, *_MEMORY, "OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The surroundings of one measurement; ``toolchain`` names compilers and packages with their versions.

    Units: ``load`` is runnable threads averaged over the minute before the measurement.
    """

    hardware: str
    cores: tuple[int, ...]
    threads: int
    toolchain: dict[str, str]
    variables: dict[str, str]
    date: str
    load: float | None

    @property
    def comparable_key(self) -> tuple[str, int, tuple[tuple[str, str], ...]]:
        """What two measurements must share before their times may be compared directly."""
        return self.hardware, self.threads, tuple(sorted(self.toolchain.items()))


def capture(*, threads: int, toolchain: Mapping[str, str] | None = None) -> Environment:
    """Describe this process now; ``toolchain`` adds the compilers that the caller used to what is installed."""
    return Environment(
        hardware=machine.processor().label,
        cores=machine.cores_allowed(),
        threads=threads,
        toolchain={"python": platform.python_version(), **_versions(), **(toolchain or {})},
        variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        load=machine.load_average(),
    )


def equal_terms(threads: int) -> dict[str, str]:
    """Return the variables that a process of a measurement starts with, so that contenders have the same terms.

    These are the number of threads, for whatever asks for one, and glibc's thresholds (``man mallopt``).
    """
    return {**dict.fromkeys(_THREADS, str(threads)), **_MEMORY}


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
