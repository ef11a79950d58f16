"""Requirements that several variants share, each answered with numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tracea.core.dtype import DType
from tracea.core.tensor_type import BlockedLayout, TensorType
from tracea.kernels.variant import Requirement, Unmet

if TYPE_CHECKING:
    from tracea.semantic.index import Param
    from tracea.targets.target import Target

__all__ = [
    "CPU_ELEMENTS",
    "CPU_VECTORS",
    "condition",
    "element_types",
    "non_negative_strides",
    "sizes_in_range",
    "strided_layouts",
]

_CPU_ISAS = ("avx512", "avx2", "neon", "plain")


def condition(
    name: str, holds: Callable[[Any, Target], bool], *, needed: str, found: Callable[[Any], str], remedy: str
) -> Requirement:
    """Return the requirement that ``holds``; ``found`` says what the op has instead."""

    def check(op: Any, target: Target) -> Unmet | None:
        return None if holds(op, target) else Unmet(needed=needed, found=found(op), remedy=remedy)

    return Requirement(name=name, check=check)


def sizes_in_range(of: Callable[[Any], Mapping[Param, int]], *, or_empty: bool = False) -> Requirement:
    """Return the requirement that the sizes ``of`` an op keep to their parameters' ranges; it names the others.

    ``or_empty``: below its least no size counts, since what is empty needs no kernel.
    """

    def check(op: Any, target: Target) -> Unmet | None:
        del target
        large = {size: value for size, value in of(op).items() if value > size.maximum}
        small = {} if or_empty else {size: value for size, value in of(op).items() if value < size.minimum}
        if not large and not small:
            return None
        limits = [*(f"{size} <= {size.maximum}" for size in large), *(f"{size} >= {size.minimum}" for size in small)]
        found = ", ".join(f"{size} = {value}" for size, value in {**large, **small}.items())
        return Unmet(needed=", ".join(limits), found=found, remedy="cut the op into several, or name no variant")

    return Requirement(name="sizes within the kernel's range", check=check)


def _check_isa(op: Any, target: Target) -> Unmet | None:
    del op
    if target.backend == "cpu" and target.isa in _CPU_ISAS:
        return None
    return Unmet(
        needed=f"cpu: {' | '.join(_CPU_ISAS)}", found=f"{target.backend}: {target.isa}", remedy="choose a CPU target"
    )


CPU_VECTORS = Requirement(name="isa", check=_check_isa)


def element_types(allowed: Iterable[DType]) -> Requirement:
    """Return the requirement that operands and result have one of the allowed element types."""
    names = tuple(allowed)

    def check(op: Any, target: Target) -> Unmet | None:
        del target
        wrong = sorted({type_.dtype.value for type_ in _types(op)} - {dtype.value for dtype in names})
        if not wrong:
            return None
        return Unmet(
            needed=" | ".join(dtype.value for dtype in names), found=", ".join(wrong), remedy="cast the operands first"
        )

    return Requirement(name="element types", check=check)


# What the headers can load and store; the narrow floats of tensor cores have no arithmetic on a CPU.
CPU_ELEMENTS = element_types(dtype for dtype in DType if dtype not in (DType.E4M3, DType.E5M2))


def _check_layouts(op: Any, target: Target) -> Unmet | None:
    del target
    blocked = [str(type_) for type_ in _types(op) if isinstance(type_.layout, BlockedLayout)]
    return Unmet(needed="strided operands", found=", ".join(blocked), remedy="unpack first") if blocked else None


strided_layouts = Requirement(name="strided layouts", check=_check_layouts)


def _check_signs(op: Any, target: Target) -> Unmet | None:
    del target
    known = [type_ for type_ in _types(op) if type_.layout is not None and not isinstance(type_.layout, BlockedLayout)]
    negative = [str(type_) for type_ in known if min(type_.strides, default=0) < 0]
    return (
        Unmet(
            needed="strides >= 0",
            found=", ".join(negative),
            remedy="give a copy that is flipped: numpy.ascontiguousarray(x[::-1])",
        )
        if negative
        else None
    )


non_negative_strides = Requirement(name="strides", check=_check_signs)


def _types(op: Any) -> tuple[TensorType, ...]:
    return (*op.operands, op.infer())
