"""Sections: one result computed by several ops, each of which reads and writes parts of what the program is given.

A transposed convolution of stride 2, say, is four convolutions, each of which writes every second row and column. The
ops are compiled together, a kernel for each distinct one, and become the calls of one program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from typing import Any, Final

import numpy as np

from tracea.core.graph import Graph, Node
from tracea.core.op import Conv2dOp, GemmOp, Op
from tracea.core.passes.columns import as_row
from tracea.core.passes.reach import Reach, reach_of
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.doctor import Decision, host
from tracea.errors import InvalidGraph
from tracea.flow.assemble import assemble
from tracea.flow.compile import decision_for
from tracea.flow.pixel_products import product_of
from tracea.runtime.program import ArenaSlot, Call, ConstantSlot, InputSlot, OutputSlot, Program, Slot
from tracea.targets.target import Target, for_threads

__all__ = ["Part", "Section", "Temporary", "compile_sections", "part_type", "simplest"]


_LINE_BYTES: Final = 64  # of a cache, and of an AVX-512 register


@dataclass(frozen=True, slots=True)
class Part:
    """What an operand is: the program's input ``index`` from an element on, counted in its storage."""

    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Temporary:
    """What an operand is: memory of the program's own from an element on, which an earlier section wrote."""

    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """An op whose operands are parts of the inputs, or constants, and whose result is part of the output.

    The op's types say the strides of the parts, its ``out`` those of the result; ``offset`` is the element of the
    output that the result begins with. Sections of one op share their constants. With ``temporary`` the result is part
    of that temporary instead, for later sections to read.
    """

    op: Op
    operands: tuple[Part | Temporary | np.ndarray[Any, Any], ...]
    offset: int = 0
    temporary: int | None = None


def part_type(whole: TensorType, shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorType:
    """Return the type of a part; an axis of one element has stride 0, so that equal parts have equal types."""
    kept = tuple(stride if dim > 1 else 0 for dim, stride in zip(shape, strides, strict=True))
    return TensorType(shape, whole.dtype, StridedLayout(kept))


def compile_sections(
    sections: Sequence[Section],
    *,
    inputs: Sequence[TensorType],
    output: TensorType,
    temporaries: Sequence[TensorType] = (),
    threads: int,
    library: bool = True,
    name: str = "sections",
) -> Program:
    """Return the program that runs the sections in their order; together they have to write each element once.

    Convolutions run as the simplest op that they are. ``temporaries`` are the types of the memory that sections hand on
    to later ones; it lies in the program's arena.

    Raises:
        InvalidGraph: a part reaches beyond its input, or a result beyond the output, or the results have another number
        of elements than the output. ProofFailed, EmitError, CompileError, ToolchainMissing.
    """
    sections = [_simplest(section, threads) for section in sections]
    for section in sections:
        _check(section, inputs, output, temporaries)
    written = sum(section.op.infer().elements for section in sections if section.temporary is None)
    if written != output.elements:
        raise InvalidGraph(
            field="sections",
            got=f"{written} elements",
            expected=f"{output.elements}, those of {output}",
            remedy="write each element of the output in one section",
        )
    if written == 0:
        return Program(calls=(), inputs=tuple(inputs), outputs=(output,), name=name)
    kernels = _Kernels.of(sections, threads=threads, library=library)
    ends = list(accumulate((_lines(type_.storage_bytes) for type_ in temporaries), initial=kernels.arena_bytes))
    places = ends[:-1]
    return Program(
        calls=tuple(kernels.call(section, places) for section in sections if section.op in kernels.number),
        inputs=tuple(inputs),
        outputs=(output,),
        constants=kernels.whole.constants,
        arena_bytes=ends[-1],
        name=name,
    )


def _simplest(section: Section, threads: int) -> Section:
    """Return a section by the simplest op that does the same on the same parts.

    A convolution of an image of one column is one of a row, and maybe a product of matrices. With constants it stays:
    they are packed for it.
    """
    if not isinstance(section.op, Conv2dOp) or any(isinstance(operand, np.ndarray) for operand in section.operands):
        return section
    convolution = section.op
    reach = reach_of(convolution)
    if reach is not None:
        section, convolution = _reached(section, reach)
    op = simplest(convolution, for_threads(host(), threads))
    if not isinstance(op, GemmOp):
        return replace(section, op=op)
    image, filters, *extras = section.operands
    return replace(section, op=op, operands=(filters, image, *extras))


def _reached(section: Section, reach: Reach) -> tuple[Section, Conv2dOp]:
    """Return a section on what its op reads of its parts, and the op that it then has."""
    types: list[TensorType] = []
    parts: list[Part | Temporary | np.ndarray[Any, Any]] = []
    plain = reach.plain
    views = ((plain.x, section.operands[0], reach.x), (plain.w, section.operands[1], reach.w))
    for type_, part, (starts, steps, shape) in views:
        types.append(part_type(type_, shape, tuple(map(mul, type_.strides, steps))))
        offset = sum(map(mul, starts, type_.strides))
        parts.append(replace(part, offset=part.offset + offset) if isinstance(part, Part | Temporary) else part)
    op = reach.op(*types)
    return replace(section, op=op, operands=(*parts, *section.operands[2:])), op


def simplest(op: Conv2dOp, target: Target) -> Op:
    """Return the simplest op that does the same: a product takes the filters first, a convolution of a row the image.

    The op itself where there is none.
    """
    op = as_row(op) or op
    return product_of(op, target) or op


def _check(
    section: Section, inputs: Sequence[TensorType], output: TensorType, temporaries: Sequence[TensorType]
) -> None:
    parts = [
        (type_, (inputs if isinstance(part, Part) else temporaries)[part.index], part.offset)
        for type_, part in zip(section.op.operands, section.operands, strict=True)
        if isinstance(part, Part | Temporary)
    ]
    target = output if section.temporary is None else temporaries[section.temporary]
    for part, whole, offset in (*parts, (section.op.infer(), target, section.offset)):
        low, high = part.extent
        least, most = whole.extent
        if part.elements and (part.dtype is not whole.dtype or offset + low < least or offset + high > most):
            raise InvalidGraph(
                field=f"section {section.op.key}",
                got=f"elements {offset + low} to {offset + high} of {part.dtype.value}",
                expected=f"{least} to {most} of {whole.dtype.value}",
                remedy="take the part from within its tensor",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernels:
    """One program of all distinct ops, each with inputs and an output of its own, and where those of each op begin."""

    whole: Program
    number: Mapping[Op, int]
    first_input: Mapping[Op, int]

    @classmethod
    def of(cls, sections: Sequence[Section], *, threads: int, library: bool) -> _Kernels:
        distinct = {section.op: section for section in sections if section.op.infer().elements}
        where, graph = for_threads(host(), threads), Graph()
        values: dict[str, np.ndarray[Any, Any]] = {}
        decisions: dict[str, Decision] = {}
        first_input: dict[Op, int] = {}
        for number, (op, section) in enumerate(distinct.items()):
            first_input[op] = len(graph.inputs)
            constants: list[int] = []
            nodes: list[Node] = []
            for index, (type_, operand) in enumerate(zip(op.operands, section.operands, strict=True)):
                name = f"x{number}_{index}"
                if isinstance(operand, Part | Temporary):
                    nodes.append(graph.add_input(type_, name=name))
                else:
                    nodes.append(graph.add_constant(type_, name=name))
                    values[name] = operand
                    constants.append(index)
            graph.add(op, nodes, name=f"y{number}")
            # A library's product is parted from its epilogue by who compiles a graph, which this is not.
            is_bare = not isinstance(op, GemmOp) or op.epilogue.is_identity
            decisions[f"y{number}"] = decision_for(
                op, where, threads=threads, constants=constants, library=library and is_bare
            )
        whole = assemble(graph, values, decisions, where).program
        return cls(whole=whole, number={op: number for number, op in enumerate(distinct)}, first_input=first_input)

    @property
    def arena_bytes(self) -> int:
        """The kernels' own arena, in whole cache lines."""
        return _lines(self.whole.arena_bytes)

    def call(self, section: Section, places: Sequence[int]) -> Call:
        """Return an op's call on a section's parts; ``places`` are the temporaries' bytes of the arena."""
        number, first = self.number[section.op], self.first_input[section.op]
        parts = [part for part in section.operands if isinstance(part, Part | Temporary)]
        call = self.whole.calls[number]

        def moved(slot: Slot) -> Slot:
            match slot:
                case InputSlot(index, offset):
                    part = parts[index - first]
                    byte = offset + part.offset * self.whole.inputs[index].dtype.nbytes
                    return (
                        InputSlot(part.index, byte) if isinstance(part, Part) else ArenaSlot(places[part.index] + byte)
                    )
                case OutputSlot(_, offset):
                    byte = offset + section.offset * self.whole.outputs[number].dtype.nbytes
                    return (
                        OutputSlot(0, byte)
                        if section.temporary is None
                        else ArenaSlot(places[section.temporary] + byte)
                    )
                case ArenaSlot() | ConstantSlot():
                    return slot

        return replace(call, pointers=tuple(moved(slot) for slot in call.pointers))


def _lines(nbytes: int) -> int:
    """Return a number of bytes rounded up to whole cache lines."""
    return -(-nbytes // _LINE_BYTES) * _LINE_BYTES
