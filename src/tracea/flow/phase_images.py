"""A transposed convolution with a stride whose phases are images of their own first, for the kernels that need such.

Each phase of the result (see :mod:`tracea.flow.transposed`) has every stride-th row and column of it. Matrix tiles
write results whose rows follow each other, which those of a phase do not: there the phase is written to memory of the
program's own, and copied to its place, which takes less time than the convolution on vectors. Worked example, stride 2,
rows of 4: the phase of even rows and columns is (a, c) of a row (a, b, c, d), and (a, c) beside the next row's (e, g)
in its own image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tracea.core.expr import Input
from tracea.core.op import Conv2dOp, PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.doctor import host
from tracea.flow.compile import decision_for
from tracea.flow.sections import Section, Temporary, part_type
from tracea.flow.transposed import Transposed
from tracea.kernels.conv.amx import AMX
from tracea.targets.target import for_threads

__all__ = ["PhaseImages"]

_FEWEST_FILTERS: Final = 32  # of the result: runs that are copied


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseImages:
    """The transposed convolution ``whole``, whose phases of matrix tiles have images of their own.

    ``phases`` are the sections of ``whole``, and of each phase that has an image of its own the op that writes it.
    """

    whole: Transposed
    phases: tuple[tuple[Section, Conv2dOp | None], ...]

    @classmethod
    def of(cls, whole: Transposed, *, threads: int, library: bool) -> PhaseImages | None:
        """Return the same with images of their own; None where no phase is on matrix tiles for it.

        Measured, benchmarks/NOTES.md, channels last: only there are the copies runs.
        """
        is_last = whole.y.strides[1] == 1 and whole.y.static_shape[1] >= _FEWEST_FILTERS
        is_bare = whole.total is None and whole.bias is None and whole.activation is None
        if whole.stride == (1, 1) or not is_last or not is_bare or whole.groups != 1:
            return None
        phases = tuple((section, _on_tiles(section, threads, library)) for section in whole.sections())
        return cls(whole=whole, phases=phases) if any(op is not None for _, op in phases) else None

    @property
    def temporaries(self) -> tuple[TensorType, ...]:
        """The images, one after the other: as much as the result at most."""
        size = sum(op.infer().elements for _, op in self.phases if op is not None)
        return (TensorType((size,), self.whole.y.dtype),)

    def sections(self) -> Iterator[Section]:
        """Yield each phase, and its copy where it has an image of its own."""
        start = 0
        for section, op in self.phases:
            if op is None:
                yield section
                continue
            image = op.infer()
            yield replace(section, op=op, offset=start, temporary=0)
            given, made = (_channels_last(type_) for type_ in (image, section.op.infer()))
            copy = PointwiseOp(expr=Input(0), inputs=(given,), out_dtype=image.dtype, out=made)
            yield Section(op=copy, operands=(Temporary(0, start),), offset=section.offset)
            start += image.elements


def _channels_last(type_: TensorType) -> TensorType:
    """Return the type with its axes in the order of memory, so that what is copied are runs."""
    return type_.permuted((0, 2, 3, 1))


def _on_tiles(section: Section, threads: int, library: bool) -> Conv2dOp | None:
    """Return the op of a phase with an image of its own where that, and not the phase in its place, is on tiles."""
    op = section.op
    if not isinstance(op, Conv2dOp) or len(section.operands) != 2 or not op.infer().elements:
        return None
    n, filters, p, q = op.infer().static_shape
    strides = (p * q * filters, 1, q * filters, filters)
    own = replace(op, out=part_type(op.infer(), (n, filters, p, q), strides))
    target = for_threads(host(), threads)
    variants = [decision_for(each, target, threads=threads, library=library).variant for each in (op, own)]
    return own if variants[1] == AMX.id != variants[0] else None
