"""The lines of two results a place."""

from __future__ import annotations

from tracea.core.dtype import DType
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import load_functor
from tracea.emitters.cpu.printer import Printer
from tracea.errors import EmitError
from tracea.semantic.index import Const
from tracea.semantic.nodes_pairs import PairsTile

__all__ = ["pairs_tile"]


def pairs_tile(printer: Printer, node: PairsTile) -> None:
    """Print a block of rows of places, whose results lie side by side or in two halves."""
    printer.use("rows.h", "pairs.h")
    compute = DType.parse(str(node.intrinsic.attribute("compute")))
    place, other = (printer.step(node.target, axis) for axis in (-2, -1))
    in_turns = (place, other) == (Const(2), Const(1))
    if not in_turns and place != Const(1):
        raise EmitError(node=node.target.buffer, detail="results lie side by side, or the first ones of a row do")
    first, second = (
        load_functor(printer, expr, node.inputs, compute, mixed=in_turns) for expr in (node.first, node.second)
    )
    streaming = bool(node.intrinsic.attribute("streaming"))
    rows, columns = (printer.text(extent) for extent in node.target.extent[-3:-1])
    row = printer.text(printer.step(node.target, -3))
    target = f"{printer.address(node.target)}, {row}{'' if in_turns else f', {printer.text(other)}'}"
    routine = "interleave_rows" if in_turns else "halve_rows"
    printer.body.comment(f"PairsTile {node.target}")
    printer.body.line(
        f"{routine}<{C_TYPES[compute]}, {'true' if streaming else 'false'}>({rows}, {columns}, {first}, {second}, "
        f"{target});"
    )
    if streaming:
        printer.body.line("streaming_fence();")
