"""The line that ends a tile: its sums, through the epilogue, into the result of any layout and storage type."""

from __future__ import annotations

from tracea.emitters.cpu.functors import epilogue_functor
from tracea.emitters.cpu.index_text import predicate_text
from tracea.emitters.cpu.printer import Printer
from tracea.semantic.index import TRUE, Const
from tracea.semantic.nodes import EpilogueCall, MicroKernel
from tracea.semantic.nodes_sparse import RunProduct

__all__ = ["store_sums"]

_ZERO, _UNIT = Const(0), Const(1)


def store_sums(printer: Printer, node: MicroKernel | RunProduct, epilogue: EpilogueCall, *, few: bool = False) -> None:
    """Print the call that stores the sums of ``node``, once its last step is done.

    A tile whose rows lie next to each other in the result is transposed on its way, but for ``few`` of them.
    """
    printer.use("gemm_store.h")
    target = node.c if epilogue.target is None else epilogue.target
    turned = not few and printer.step(target, -1) not in (_ZERO, _UNIT) and printer.step(target, -2) == _UNIT
    functor = epilogue_functor(
        printer, epilogue.expr, epilogue.operands, printer.buffer(node.c).dtype, transposed=turned
    )
    rows, columns = (printer.text(extent) for extent in node.c.extent[-2:])
    row_step, column_step = printer.strides(target)
    sums = f"{printer.address(node.c)}, {printer.strides(node.c)[0]}, {rows}, {columns}"
    if turned:
        call = f"store_tile_transposed({sums}, {printer.address(target)}, {column_step}, {functor});"
    else:
        step = column_step if column_step != "0" else "1"
        call = f"store_tile({sums}, 0, 0, {printer.address(target)}, {row_step}, {step}, {functor});"
    printer.body.line(call if node.finish == TRUE else f"if ({predicate_text(node.finish)}) {call}")
