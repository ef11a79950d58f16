"""Fingerprint: the identity of hardware and toolchain that measurements are kept under, free of figures and quotas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracea.runtime.cache import content_key

if TYPE_CHECKING:
    from tracea.doctor.probe import Machine

__all__ = ["Fingerprint", "identify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Two hashes, so that records can be kept over a new compiler or compared with a relative of the hardware."""

    hardware: str
    toolchain: str

    @property
    def key(self) -> str:
        """Both in one string."""
        return f"{self.hardware}-{self.toolchain}"


def identify(machine: Machine) -> Fingerprint:
    """Return the machine's identity: processor, instruction sets, caches and cores; compiler and C library.

    The hardware's part is what the system says of it, so that no compiler that comes, goes or fails changes it.
    """
    hardware, toolchain = machine.hardware, machine.toolchain
    compiler = toolchain.compiler
    return Fingerprint(
        hardware=content_key(
            {
                "model": hardware.processor.model,
                "vendor": hardware.processor.vendor,
                "architecture": hardware.processor.architecture,
                "microarchitecture": hardware.microarchitecture,
                "isas": list(hardware.shown),
                "features": sorted(machine.identity_features),
                "caches": [[c.level, c.kind, c.nbytes, c.ways, c.line_bytes] for c in hardware.caches],
                "cores": hardware.cores_present,
            }
        )[:16],
        toolchain=content_key({"compiler": compiler.identity if compiler else None, "libc": toolchain.libc})[:16],
    )
