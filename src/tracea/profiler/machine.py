"""What the operating system says about this machine: processor, cores allowed, load. Reads files, measures nothing.

Every function takes ``root``, the folder that ``/proc`` and ``/sys`` are under, so that another machine's files can
be read.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Processor", "cores_allowed", "cores_usable", "cpu_quota", "load_average", "memory_limit", "processor"]

_ROOT: Final = Path("/")
_PERIOD_US: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """The processor as the kernel names it, with the feature flags that this machine (or its hypervisor) shows.

    ``family`` and ``number`` are the vendor's (CPUID's display family and model), 0 where the system does not say.
    """

    model: str
    vendor: str
    architecture: str
    flags: frozenset[str]
    family: int = 0
    number: int = 0

    @property
    def label(self) -> str:
        """The model with the vendor's numbers, which tell apart generations that a hypervisor gives one name."""
        return f"{self.model} (family {self.family}, model {self.number})" if self.family else self.model

    @property
    def virtual(self) -> bool:
        """Whether a hypervisor is between the program and the processor."""
        return "hypervisor" in self.flags


def processor(root: Path = _ROOT) -> Processor:
    """Return the first processor of ``/proc/cpuinfo``; empty names and flags where the system does not say."""
    fields: dict[str, str] = {}
    for line in _read(root / "proc/cpuinfo").splitlines():
        if not line.strip() and fields:
            break
        name, _, value = line.partition(":")
        fields.setdefault(name.strip().lower(), value.strip())
    arm = " ".join(f"{key[4:]} {fields[key]}" for key in ("cpu implementer", "cpu part") if key in fields)
    return Processor(
        model=fields.get("model name") or arm or platform.processor() or "unknown",
        vendor=fields.get("vendor_id") or fields.get("cpu implementer", "unknown"),
        architecture=platform.machine(),
        flags=frozenset((fields.get("flags") or fields.get("features", "")).split()),
        family=_whole(fields.get("cpu family", "")),
        number=_whole(fields.get("model", "")),
    )


def cores_allowed() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_quota(root: Path = _ROOT) -> float | None:
    """Return how many cores' worth of time the control group grants, or None where it sets no limit.

    Source: kernel documentation, cgroup-v2 ``cpu.max`` and cgroup-v1 ``cpu.cfs_quota_us``. Limits of parent groups
    count.
    """
    quotas = [quota for file in _quota_files(root) if (quota := _quota(file)) is not None]
    return min(quotas, default=None)


def memory_limit(root: Path = _ROOT) -> int | None:
    """Return how many bytes of memory the control group grants, or None where it sets no limit.

    Source: kernel documentation, cgroup-v2 ``memory.max`` and cgroup-v1 ``memory.limit_in_bytes``. Limits of parent
    groups count.
    """
    limits = [limit for file in _limit_files(root) if (limit := _bytes(file)) is not None]
    return min(limits, default=None)


def cores_usable(root: Path = _ROOT) -> int:
    """Return how many threads can run at once: the cores allowed, cut to the quota rounded up, and at least 1."""
    allowed = len(cores_allowed())
    quota = cpu_quota(root)
    return max(1, allowed if quota is None else min(allowed, -int(-quota // 1)))


def load_average() -> float | None:
    """Return the load of the last minute in runnable threads, or None where the system does not say."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _quota_files(root: Path) -> list[Path]:
    """Return the files that limit time, of this process's groups and of all their parents."""
    return _group_files(root, "cpu", "cpu.max", "cpu.cfs_quota_us", "cpu,cpuacct")


def _limit_files(root: Path) -> list[Path]:
    """Return the files that limit memory, of this process's groups and of all their parents."""
    return _group_files(root, "memory", "memory.max", "memory.limit_in_bytes", "memory")


def _group_files(root: Path, controller: str, unified: str, legacy: str, shared: str) -> list[Path]:
    found: list[Path] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, name = root / "sys/fs/cgroup", unified
        elif controller in controllers.split(","):
            folders = (root / f"sys/fs/cgroup/{folder}" for folder in (controllers, controller, shared))
            base, name = (
                next((folder for folder in folders if folder.is_dir()), root / f"sys/fs/cgroup/{controller}"),
                legacy,
            )
        else:
            continue
        group = base / path.strip().lstrip("/")
        # A container sees its own group at the mount point, whatever path the host calls it by.
        found += [folder / name for folder in {base, group, *group.parents} if folder.is_relative_to(base)]
    return found


def _quota(file: Path) -> float | None:
    words = _read(file).split()
    if not words or words[0] in ("max", "-1"):
        return None
    period = words[1] if len(words) > 1 else _read(file.with_name("cpu.cfs_period_us")).strip() or _PERIOD_US
    try:
        return int(words[0]) / int(period)
    except (ValueError, ZeroDivisionError):
        return None


def _bytes(file: Path) -> int | None:
    """Return a limit in bytes; version 1 writes almost 2^63 where it has none."""
    text = _read(file).strip()
    return int(text) if text.isdecimal() and int(text) < 1 << 60 else None


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _read(path: Path) -> str:
    """Return the file's text, or nothing where it cannot be read: each of these files is absent on some system."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
