"""The lines of the tile nodes: each prints the call of its routine, with addresses and valid extents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.index_text import predicate_text
from tracea.emitters.cpu.printer import Printer
from tracea.errors import EmitError
from tracea.semantic.index import TRUE, Const
from tracea.semantic.nodes import EpilogueCall, MicroKernel, Node, Pack, Region

__all__ = ["TILE_LINES"]


def _pack(printer: Printer, node: Pack) -> None:
    printer.use("pack.h")
    target = printer.buffer(node.target)
    rows, columns = (printer.text(extent) for extent in node.source.extent[-2:])
    routine = "pack_a" if node.axis == 0 else "pack_b"
    depth = printer.text(target.shape[-2])  # the allocated length of a panel: the pitch between panels, in steps
    row_step, column_step = printer.strides(node.source)
    printer.body.comment(f"Pack {node.source} -> {node.target.buffer}")
    printer.body.line(
        f"{routine}<{C_TYPES[target.dtype]}, {node.panel}>({printer.address(node.source)}, {row_step}, {column_step}, "
        f"{rows}, {columns}, {depth}, {printer.address(node.target)});"
    )


def _micro_kernel(printer: Printer, node: MicroKernel) -> None:
    if node.intrinsic.name != "gemm_tile":
        raise EmitError(node=node.intrinsic.name, detail="no register tile of this name")
    printer.use("gemm.h")
    tile = _tile_type(printer, node)
    rows, columns = (printer.text(extent) for extent in node.c.extent[-2:])
    steps = printer.text(node.b.extent[-2])
    c_row, c_column = printer.strides(node.c)
    if printer.step(node.c, -1) not in (Const(0), Const(1)):
        raise EmitError(node=node.c.buffer, detail=f"sums need unit column stride, got {c_column}")
    c_address = printer.address(node.c)
    printer.body.comment(f"MicroKernel {node.c}")
    printer.body.line(
        f"{tile}::run<{str(node.intrinsic.attribute('rows')).replace(',', ', ')}>({rows}, {columns}, {steps}, "
        f"{printer.address(node.a)}, {_pitch(printer, node.a)}, {printer.address(node.b)}, {_pitch(printer, node.b)}, "
        f"{c_address}, {c_row}, {predicate_text(node.accumulate)});"
    )
    if node.epilogue is not None:
        _store(printer, node, node.epilogue, rows, columns)


def _store(printer: Printer, node: MicroKernel, epilogue: EpilogueCall, rows: str, columns: str) -> None:
    printer.use("gemm_store.h")
    functor = printer.functor("Epilogue", epilogue.expr, epilogue.operands, first=1)
    target = node.c if epilogue.target is None else epilogue.target
    row_step, column_step = printer.strides(target)
    call = (
        f"store_tile({printer.address(node.c)}, {printer.strides(node.c)[0]}, {rows}, {columns}, 0, 0, "
        f"{printer.address(target)}, {row_step}, {column_step}, {printer.instance(functor, epilogue.operands, first=1)});"
    )
    printer.body.line(call if node.finish == TRUE else f"if ({predicate_text(node.finish)}) {call}")


def _tile_type(printer: Printer, node: MicroKernel) -> str:
    get = node.intrinsic.attribute
    dtype = C_TYPES[printer.buffer(node.c).dtype]
    mr, nv = get("mr"), get("nv")
    a = f"PanelA<{mr}>" if get("a") == "panel" else "RowsA"
    b = "PackedB" if get("b") == "panel" else "RowsB"
    prefetch = f"GemmPrefetch<{get('prefetch_a')}, {get('prefetch_b')}>"
    name = printer.declare_type(f"GemmTile<{dtype}, {mr}, {nv}, {get('unroll')}, {a}, {b}, {prefetch}>", "Tile")
    if get("b") == "panel":
        width = printer.text(node.b.extent[-1])
        printer.declare_check(f"{name}::columns == {width}", "the kernel was built for this vector length")
    return name


def _pitch(printer: Printer, region: Region) -> str:
    """The distance of A's or B's rows: the panel's width where it is packed, else the row stride."""
    return printer.text(printer.step(region, -2))


TILE_LINES: Mapping[type[Node], Callable[[Printer, Any], None]] = {Pack: _pack, MicroKernel: _micro_kernel}
