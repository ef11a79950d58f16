"""What the integers of a module's inputs may be, as ranges that a program's native call checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tracea.core.dtype import DType
from tracea.interface.torch.specs import InputSpec
from tracea.runtime.extension import MOST_RANGES
from tracea.runtime.index_range import EXACT_INTEGERS, IndexRange, Named
from tracea.runtime.program import Program

__all__ = ["with_ranges"]


def with_ranges(program: Program, spec: InputSpec) -> Program:
    """Return the program of a module that checks, of its inputs, as many as the native call takes."""
    return replace(program, index_ranges=tuple(_ranges(spec))[:MOST_RANGES])


def _ranges(spec: InputSpec) -> Iterator[IndexRange]:
    for index, (name, type_) in enumerate(zip(spec.names, spec.types, strict=True)):
        if type_.dtype not in (DType.I64, DType.I32) or (name in spec.rows and name in spec.small):
            continue
        if name in spec.rows:
            yield IndexRange(input=index, count=spec.rows[name], name=name, what=Named.ROWS)
        elif name in spec.small:
            yield IndexRange.within(spec.small[name], input=index, name=name)
        elif type_.dtype is DType.I64:
            yield IndexRange.within(EXACT_INTEGERS, input=index, name=name)
