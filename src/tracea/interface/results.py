"""Results that are not the plain result of an op: another view of it, memory of the caller's, numbers of nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tracea.core.expr import Input
from tracea.core.graph import Graph, Node
from tracea.core.op import Op, PointwiseOp, ViewKind, ViewOp
from tracea.core.tensor_type import Dim, StridedLayout, TensorType
from tracea.flow.compile import compile_op
from tracea.flow.sections import Part, Section, compile_sections
from tracea.runtime.buffers import check_output, empty, view
from tracea.runtime.program import OutputSlot, Program, Slot
from tracea.runtime.tensor_state import count_write

__all__ = ["apart", "compile_as_vectors", "compile_as_views", "filled", "state_result", "vector"]


def state_result(graph: Graph, node: Node, shape: Sequence[Dim], out: TensorType | None) -> None:
    """State a node as the graph's result, in its shape and, where the caller gave ``out``, in that one's strides.

    An op whose result has these strides writes there itself. A view of a result is copied there, unless both are
    row-major: then they are one memory.
    """
    if node.type.shape != tuple(shape):
        node = graph.add_view(ViewKind.RESHAPE, node, shape=tuple(shape))
    is_there = out is None or (
        out.is_contiguous and node.type.is_contiguous if isinstance(node.op, ViewOp) else node.type == out
    )
    if out is not None and not is_there:
        copied = PointwiseOp(expr=Input(0), inputs=(node.type,), out_dtype=out.dtype, out=out)
        node = graph.add(copied, [node])
    graph.set_outputs(node)


def apart(program: Program, shapes: Sequence[Sequence[Dim]], offsets: Sequence[int]) -> Program:
    """Return a program whose one output lies in parts as one with an output for each, row-major.

    ``offsets`` are the elements at which the parts begin, each of which a kernel writes from there on.
    """
    (whole,) = program.outputs
    starts = {offset * whole.dtype.nbytes: index for index, offset in enumerate(offsets)}

    def moved(slot: Slot) -> Slot:
        return OutputSlot(starts[slot.offset], 0) if isinstance(slot, OutputSlot) else slot

    calls = (replace(call, pointers=tuple(map(moved, call.pointers))) for call in program.calls)
    return replace(
        program, calls=tuple(calls), outputs=tuple(TensorType(tuple(shape), whole.dtype) for shape in shapes)
    )


def filled(like: Any, wanted: TensorType, out: Any, value: float) -> Any:
    """Return a result of nothing, one number throughout, of the kind of the array ``like``, or ``out`` filled so.

    Raises: ReadOnlyOutput, OverlappingOutput: ``out`` is read-only, or shares memory with itself or ``like``.
    """
    result = empty(wanted.static_shape, wanted.dtype, view(like).kind) if out is None else out
    target = view(result)
    if out is not None:
        check_output(target, {"the first operand": view(like)})
        count_write(target.owner)
    target.numpy()[...] = value
    return result


def dense_like(x: TensorType) -> TensorType:
    """Return the type of a tensor without gaps that has the order of axes of x."""
    strides, step = [0] * x.rank, 1
    for axis in sorted(range(x.rank), key=lambda axis: (x.strides[axis], -axis)):
        strides[axis] = step
        step *= max(1, x.static_shape[axis])
    return TensorType(x.shape, x.dtype, StridedLayout(tuple(strides)))


def vector(type_: TensorType) -> TensorType:
    """Return the type of a number as that of a vector of one; any other type is itself."""
    return type_ if type_.rank else TensorType((1,), type_.dtype)


def compile_as_vectors(op: Op, *, inputs: Sequence[TensorType], output: TensorType, threads: int) -> Program:
    """Return the program of an op on inputs and an output of which those that are numbers are vectors to the op."""
    if all(type_.rank for type_ in (*inputs, output)):
        return compile_op(op, threads=threads)
    return compile_as_views(op, inputs=inputs, output=output, threads=threads)


def compile_as_views(
    op: Op, *, inputs: Sequence[TensorType], output: TensorType, threads: int, order: Sequence[int] = ()
) -> Program:
    """Return the program of an op whose types are views of whole inputs and of the output.

    ``order`` says which input each operand is a view of; without it, each is of its own.
    """
    parts = tuple(Part(position) for position in order or range(len(inputs)))
    return compile_sections([Section(op=op, operands=parts)], inputs=inputs, output=output, threads=threads)
