"""From an op under one schedule to a proved kernel and its text: the steps of the flow that need no machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tracea.core.op import Op
from tracea.core.ops.gemm import GemmOp
from tracea.doctor import check_served
from tracea.emitters.cpu.emitter import emit as emit_cpu
from tracea.emitters.cuda.emitter import emit as emit_cuda
from tracea.emitters.kernel_source import KernelSource
from tracea.errors import EmitError, InvalidOption, InvalidSchedule
from tracea.flow.certificates import kept_certificate
from tracea.kernels.gemm.gpu.operands import is_contiguous
from tracea.kernels.gemm.gpu.requirements import on_tensor_cores
from tracea.kernels.gemm.operands import gemm_types
from tracea.kernels.registry import candidates, find, variants_of
from tracea.kernels.variant import Variant
from tracea.semantic.proofs import Certificate, prove
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.gpu import GpuTarget
from tracea.targets.target import Target
from tracea.targets.unknown import near

__all__ = [
    "Built",
    "build",
    "build_pack",
    "choose_for_gpu",
    "completed_schedule",
    "narrow_copies",
    "passed_over",
    "print_unproved",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A kernel that passed its proofs, with the certificate that says so and its text."""

    kernel: TileKernel
    certificate: Certificate
    source: KernelSource


@lru_cache(maxsize=4096)
def build(op: Op, variant: str, schedule: Schedule, target: Target | GpuTarget, *, kept: bool = False) -> Built:
    """Lower an op, prove the kernel and print it. No kernel is returned whose proofs did not pass.

    ``kept``: a certificate that the cache has of this very kernel is taken, and a new one is left there.

    Raises:
        InvalidSchedule: the schedule is none of the variant's. ProofFailed. InvalidOption: the variant is a library's.
    """
    return _built(op, variant, schedule, target, kept=kept, is_pack=False)


@lru_cache(maxsize=1024)
def build_pack(op: Op, variant: str, schedule: Schedule, target: Target, *, kept: bool = False) -> Built:
    """Return the kernel that packs the constant operand of ``op`` into the layout that the variant reads.

    ``kept`` is that of :func:`build`.

    Raises:
        InvalidOption: the variant packs nothing ahead.
    """
    return _built(op, variant, schedule, target, kept=kept, is_pack=True)


@lru_cache(maxsize=4096)
def print_unproved(
    op: Op, variant: str, schedule: Schedule, target: Target | GpuTarget, *, is_pack: bool = False
) -> KernelSource:
    """Return the text that :func:`build` or :func:`build_pack` prints, for a compiler to begin while proofs are made.

    Raises:
        EmitError: a node has no line. As they do.
    """
    emit = emit_cuda if isinstance(target, GpuTarget) else emit_cpu
    return emit(_lowered(op, variant, schedule, target, is_pack=is_pack), target.isa)


def choose_for_gpu(
    op: Op, target: GpuTarget, *, variant: str | None = None, schedule: dict[str, int | str] | None = None
) -> tuple[str, Schedule]:
    """Return a variant of ours for a GPU, the most promising one unless one is named, and its schedule.

    ``schedule`` are values that take the place of the default schedule's.

    Raises:
        InvalidOption: no variant fits, or the named one does not; a value that its schedules do not have.
        InvalidSchedule: a word where its schedules have a number.
    """
    check_served(op, target)
    fitting = [each for each in candidates(op, target) if not each.is_library]
    if not fitting:
        raise _unbuilt(op, target)
    chosen = fitting[0] if variant is None else next((each for each in fitting if each.id == variant), None)
    if chosen is None or chosen.default_schedule is None:
        raise _unfit(op, target, variant or "", [each.id for each in fitting])
    return chosen.id, completed_schedule(op, chosen, schedule or {}, target)


def completed_schedule(
    op: Op, variant: Variant, values: Mapping[str, int | str], target: Target | GpuTarget
) -> Schedule:
    """Return a variant's default schedule with the stated values in place of its own.

    Raises:
        InvalidOption: the variant is a library's; a value that its schedules do not have.
        InvalidSchedule: a word where its schedules have a number.
    """
    if variant.default_schedule is None:
        raise InvalidOption(
            field="schedule", got=dict(values), expected="none", remedy="a library has no schedule of ours"
        )
    default = variant.default_schedule(op, target)
    unknown = sorted(set(values) - set(default))
    if unknown:
        raise InvalidOption(
            field=f"schedule of {variant.id}",
            got=" ".join(unknown),
            expected=" ".join(sorted(default)),
            remedy="name values of this variant, or another one by --variant",
        )
    for name, value in values.items():
        if isinstance(default[name], int) and not isinstance(value, int):
            raise InvalidSchedule(
                field=name, got=value, expected="a whole number", remedy=f"use {name}={default[name]}, as by default"
            )
    return default.with_values(**values)


def _unbuilt(op: Op, target: GpuTarget) -> InvalidOption:
    """Return why no variant of ours builds an op: of the one that lacks least, what it lacks."""
    ours = [each for each in variants_of(target.backend) if each.build is not None and isinstance(op, each.op_type)]
    nearest = min(ours, key=lambda each: (len(each.unmet(op, target)), -each.score(op, target)))
    lacks = [lack for _, lack in nearest.unmet(op, target)]
    return InvalidOption(
        field=f"gemm on {target.name}",
        got="; ".join(lack.found for lack in lacks),
        expected="; ".join(lack.needed for lack in lacks),
        remedy="; ".join(lack.remedy for lack in lacks),
    )


def _unfit(op: Op, target: GpuTarget, name: str, fitting: list[str]) -> InvalidOption:
    """Return why a named variant does not build an op, and the most promising one that does."""
    here = {each.id: each for each in variants_of(target.backend)}
    close = [each for each in near(name, fitting) if each != name]
    use = f"use {close[0] if close else fitting[0]}"
    lacks = [lack for _, lack in here[name].unmet(op, target)] if name in here else []
    if not lacks:
        why = "" if name not in here else ", a library's call that is not printed"
        return InvalidOption(field="variant", got=f"{name}{why}", expected=fitting, remedy=use)
    needs = "; ".join(f"needs {lack.needed}, found {lack.found}" for lack in lacks)
    builds = here[name].build is not None
    more = [lack.remedy for need, lack in here[name].unmet(op, target) if builds and not need.of_target]
    return InvalidOption(
        field=f"variant {name} on {target.name}",
        got=needs,
        expected=fitting,
        remedy=f"{use}, which builds this op there"
        + (f"; or {'; '.join(more)}" if more and len(more) == len(lacks) else ""),
    )


def passed_over(op: Op, target: GpuTarget, chosen: str) -> tuple[str, ...]:
    """Return, a line each, the variants that rank above the chosen one, and why they cannot be built.

    One that this target can never have is left out: no other call would get it. One that nothing builds yet is named
    where products are made on the units that it would use.
    """
    rank = find(chosen).score(op, target)
    kin = [each for each in variants_of(target.backend) if isinstance(op, each.op_type)]
    lines: list[str] = []
    for each in sorted(kin, key=lambda each: -each.score(op, target)):
        if each.build is None and not on_tensor_cores(find(chosen)):
            continue
        lacks = each.unmet(op, target)
        if any(requirement.of_target for requirement, _ in lacks):
            continue
        unmet = [f"needs {lack.needed}, found {lack.found} ({lack.remedy})" for _, lack in lacks]
        if unmet and each.score(op, target) > rank:
            lines.append(f"{each.id} ranks above {chosen} and was rejected: {'; '.join(unmet)}")
    return tuple(lines)


def narrow_copies(op: Op, chosen: str, schedule: Schedule) -> tuple[str, ...]:
    """Return a line for each operand of 8-bit elements that tensor cores take along k and memory holds across it."""
    if not isinstance(op, GemmOp) or op.a.dtype.nbytes != 1 or not on_tensor_cores(find(chosen)):
        return ()
    types = gemm_types(op)
    return tuple(
        f"{chosen} copies {name} byte by byte, since it is not contiguous along k (store {name} as {order})"
        for name, along_k, order in (("a", types["a"], "(m, k)"), ("b", types["b_t"], "(n, k), transpose_b"))
        if schedule.integer(f"chunk_{name}") == 1 and not is_contiguous(along_k, -1)
    )


@lru_cache(maxsize=4096)
def _lowered(op: Op, variant: str, schedule: Schedule, target: Target | GpuTarget, *, is_pack: bool) -> TileKernel:
    chosen = find(variant)
    lower = chosen.build_pack if is_pack else chosen.build
    if lower is not None:
        return lower(op, schedule, target)
    if is_pack:
        raise InvalidOption(
            field="variant", got=variant, expected="one that packs a constant", remedy="call build alone"
        )
    raise InvalidOption(
        field="variant",
        got=variant,
        expected="a variant with a kernel",
        remedy="a library's kernels are not built here",
    )


def _built(op: Op, variant: str, schedule: Schedule, target: Target | GpuTarget, *, kept: bool, is_pack: bool) -> Built:
    kernel = _lowered(op, variant, schedule, target, is_pack=is_pack)
    if not kept or isinstance(target, GpuTarget):
        certificate = prove(kernel)
        source = print_unproved(op, variant, schedule, target, is_pack=is_pack)
        return Built(kernel=kernel, certificate=certificate, source=source)
    try:
        source = print_unproved(op, variant, schedule, target, is_pack=is_pack)
    except EmitError:
        prove(kernel)  # whatever is wrong with a kernel, its proofs say it first
        raise
    what = f"{variant} pack" if is_pack else variant
    certificate = kept_certificate(op, (what, schedule, target), source.text, lambda: prove(kernel))
    return Built(kernel=kernel, certificate=certificate, source=source)
