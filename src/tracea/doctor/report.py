"""Report: what ``tracea doctor`` prints - the machine, its measured ceilings, the variants, and the problems last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tracea.doctor.ceilings import Ceilings
from tracea.doctor.diagnosis import Problem, diagnose, diagnose_neighbours
from tracea.doctor.fingerprint import Fingerprint, identify
from tracea.doctor.gpus import GpuReport, probe_gpus
from tracea.doctor.kept_ceilings import measured_ceilings
from tracea.doctor.place import CachePlace, diagnose_place, probe_place
from tracea.doctor.probe import Machine, Toolchain, probe_machine
from tracea.errors import CompileError, RunError, ToolchainMissing
from tracea.profiler.pace import shared_time

if TYPE_CHECKING:
    from tracea.targets import Target

__all__ = ["Report", "VariantLine", "examine"]

_SCHEMA_VERSION = 1

_WATCHED: Final = 4  # cores whose neighbours are looked for: 0.15 s each


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantLine:
    """One entry of the registry: what it computes, where, and what it asks for."""

    id: str
    op: str
    backend: str
    library: bool
    requirements: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything the doctor found; prints as text."""

    machine: Machine
    target: Target
    fingerprint: Fingerprint
    ceilings: Ceilings | None
    variants: tuple[VariantLine, ...]
    problems: tuple[Problem, ...]
    gpus: GpuReport | None = None
    place: CachePlace | None = None

    @property
    def toolchain(self) -> Toolchain:
        """The compilers, the C library and PyTorch."""
        return self.machine.toolchain

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        hardware = self.machine.hardware
        return {
            "schema_version": _SCHEMA_VERSION,
            "fingerprint": {"hardware": self.fingerprint.hardware, "toolchain": self.fingerprint.toolchain},
            "processor": {
                "model": hardware.processor.model,
                "vendor": hardware.processor.vendor,
                "architecture": hardware.processor.architecture,
                "microarchitecture": hardware.microarchitecture,
                "core": hardware.core,
                "virtual": hardware.processor.virtual,
                "isas": list(hardware.isas),
                "cores_present": hardware.cores_present,
                "cores_allowed": list(self.machine.cores_allowed),
                "cores_usable": self.machine.cores_usable,
                "quota": self.machine.quota,
                "governor": hardware.governor,
            },
            "memory": {
                "bytes": hardware.memory_bytes,
                "limit": self.machine.memory_limit,
                "huge_pages": hardware.huge_pages,
            },
            "caches": msgspec.to_builtins(hardware.caches),
            "target": {**msgspec.to_builtins(self.target), "features": sorted(self.target.features)},
            "toolchain": {
                "compilers": [
                    {"family": c.family.value, "command": list(c.command), "version": c.version, "identity": c.identity}
                    for c in self.toolchain.compilers
                ],
                "python": self.toolchain.python,
                "libc": self.toolchain.libc,
                "torch": None
                if self.toolchain.torch is None
                else {
                    "version": self.toolchain.torch.version,
                    "blas": self.toolchain.torch.blas,
                    "path": str(self.toolchain.torch.path),
                },
            },
            "ceilings": msgspec.to_builtins(self.ceilings),
            "variants": msgspec.to_builtins(self.variants),
            "gpus": None
            if self.gpus is None
            else {
                "devices": msgspec.to_builtins(self.gpus.devices),
                "absent": self.gpus.absent,
                "others": msgspec.to_builtins(self.gpus.others),
            },
            "cache": None if self.place is None else msgspec.to_builtins(self.place),
            "problems": msgspec.to_builtins(self.problems),
        }

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return msgspec.json.encode(self.to_dict()).decode()

    def text(self, *, variants: bool = False) -> str:
        """Return the report to read; with ``variants`` it lists every variant and what it requires."""
        from tracea.doctor.text import render

        return render(self, variants=variants)

    def __str__(self) -> str:
        return self.text()


def examine(*, again: bool = False, measure: bool = True) -> Report:
    """Look at this machine, measure its ceilings once (seconds; ``again`` repeats it), and report.

    ``measure=False`` leaves the ceilings out where looking is enough.
    """
    machine = probe_machine()
    found: Ceilings | None = None
    failure = ""
    if measure and machine.toolchain.compiler is not None:
        try:
            found = measured_ceilings(machine, again=again)
        except (CompileError, RunError, ToolchainMissing) as error:
            failure = error.statement()
    neighbours = diagnose_neighbours(shared_time(machine.cores_allowed[:_WATCHED])) if found is not None else None
    gpus, place = probe_gpus(), probe_place()
    return Report(
        machine=machine,
        target=machine.target,
        fingerprint=identify(machine),
        ceilings=found,
        variants=_variants(),
        problems=(
            *diagnose(machine, found, failure),
            *((neighbours,) if neighbours is not None else ()),
            *diagnose_place(place),
            *gpus.problems,
        ),
        gpus=gpus,
        place=place,
    )


def _variants() -> tuple[VariantLine, ...]:
    from tracea.kernels.registry import CUDA_VARIANTS, VARIANTS

    return tuple(
        VariantLine(
            id=variant.id,
            op=variant.op_type.__name__,
            backend=variant.backend,
            library=variant.is_library,
            requirements=tuple(requirement.name for requirement in variant.requirements),
        )
        for variant in (*VARIANTS, *CUDA_VARIANTS)
    )
