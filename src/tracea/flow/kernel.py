"""From an op under one schedule to a proved kernel and its text: the steps of the flow that need no machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tracea.core.op import Op
from tracea.emitters.cpu.emitter import emit as emit_cpu
from tracea.emitters.cuda.emitter import emit as emit_cuda
from tracea.emitters.kernel_source import KernelSource
from tracea.errors import InvalidOption
from tracea.kernels.registry import find
from tracea.semantic.proofs import Certificate, prove
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.gpu import GpuTarget
from tracea.targets.target import Target

__all__ = ["Built", "build", "build_pack"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A kernel that passed its proofs, with the certificate that says so and its text."""

    kernel: TileKernel
    certificate: Certificate
    source: KernelSource


@lru_cache(maxsize=4096)
def build(op: Op, variant: str, schedule: Schedule, target: Target | GpuTarget) -> Built:
    """Lower an op, prove the kernel and print it. No kernel is printed whose proofs did not pass.

    Raises:
        InvalidSchedule: the schedule is none of the variant's. ProofFailed. InvalidOption: the variant is a library's.
    """
    chosen = find(variant)
    if chosen.build is None:
        raise InvalidOption(
            field="variant",
            got=variant,
            expected="a variant with a kernel",
            remedy="a library's kernels are not built here",
        )
    kernel = chosen.build(op, schedule, target)
    return Built(kernel=kernel, certificate=prove(kernel), source=_emit(kernel, target))


@lru_cache(maxsize=1024)
def build_pack(op: Op, variant: str, schedule: Schedule, target: Target) -> Built:
    """Return the kernel that packs the constant operand of ``op`` into the layout that the variant reads.

    Raises:
        InvalidOption: the variant packs nothing ahead.
    """
    chosen = find(variant)
    if chosen.build_pack is None:
        raise InvalidOption(
            field="variant", got=variant, expected="one that packs a constant", remedy="call build alone"
        )
    kernel = chosen.build_pack(op, schedule, target)
    return Built(kernel=kernel, certificate=prove(kernel), source=_emit(kernel, target))


def _emit(kernel: TileKernel, target: Target | GpuTarget) -> KernelSource:
    emit = emit_cuda if isinstance(target, GpuTarget) else emit_cpu
    return emit(kernel, target.isa)
