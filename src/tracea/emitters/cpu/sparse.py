"""The line of a product over listed blocks: a register tile, or a block on matrix tiles, with its run of a table."""

from __future__ import annotations

from tracea.core.expr import Input
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.index_text import predicate_text
from tracea.emitters.cpu.printer import Printer
from tracea.emitters.cpu.stores import store_sums
from tracea.errors import EmitError
from tracea.semantic.index import Const
from tracea.semantic.nodes_sparse import RunProduct

__all__ = ["run_product"]


def run_product(printer: Printer, node: RunProduct) -> None:
    """Print a product over the blocks of a line."""
    if printer.step(node.c, -1) not in (Const(0), Const(1)):
        raise EmitError(node=node.c.buffer, detail=f"sums need unit column stride, got {printer.strides(node.c)[1]}")
    if node.epilogue is not None and (node.epilogue.expr != Input(0) or node.epilogue.operands):
        raise EmitError(node="RunProduct", detail="its routines store sums as they are")
    line = {"gemm_tile": _register_tile, "amx_block": _matrix_tiles}.get(node.intrinsic.name)
    if line is None:
        raise EmitError(node=node.intrinsic.name, detail="no routine over listed blocks")
    printer.body.comment(f"RunProduct {node.c}")
    line(printer, node)


def _blocks(printer: Printer, node: RunProduct) -> str:
    begin, count = printer.text(node.runs.begin(node.run)), printer.text(node.runs.length(node.run))
    depth, base = printer.text(node.depth), printer.text(node.base)
    return f"StepBlocks{{{node.runs.step} + {begin}, {count}, {node.size}, {depth}, {base}}}"


def _of_run(printer: Printer, node: RunProduct) -> tuple[str, str]:
    """Return the address of the run's first block, in the column's panel, and how far the next block is."""
    pitch = printer.text(printer.buffer(node.b).element_strides[0])
    return f"{printer.address(node.b)} + {printer.text(node.runs.begin(node.run))} * {pitch}", pitch


def _register_tile(printer: Printer, node: RunProduct) -> None:
    if node.lines != Const(1):
        raise EmitError(node="gemm_tile", detail="a register tile lies in one line")
    printer.use("gemm.h", "step_blocks.h")
    get = node.intrinsic.attribute
    mr, dtype = get("mr"), C_TYPES[printer.buffer(node.c).dtype]
    if (get("a"), get("b")) != ("panel", "panel"):
        raise EmitError(node="gemm_tile", detail="listed blocks are read from panels")
    asked = f"{get('prefetch_a')}, 0, true, {'true' if get('upcoming_lines') else 'false'}"
    types = f"{dtype}, {mr}, {get('nv')}, {get('unroll')}, PanelA<{mr}>, PackedB, GemmPrefetch<{asked}>"
    if ("streaming", 1) in node.intrinsic.attributes:
        types += ", true"
        printer.streaming = True
    tile = printer.declare_type(f"GemmTile<{types}>", "Tile")
    width = printer.text(node.b.extent[-1])
    printer.declare_check(f"{tile}::columns == {width}", "the kernel was built for this vector length")
    rows, columns = (printer.text(extent) for extent in node.c.extent[-2:])
    first, pitch = _of_run(printer, node)
    printer.body.line(
        f"{tile}::run_blocks<{str(get('rows')).replace(',', ', ')}>({rows}, {columns}, {_blocks(printer, node)}, "
        f"{printer.address(node.a)}, {printer.strides(node.a)[0]}, {first}, {pitch}, {printer.address(node.c)}, "
        f"{printer.strides(node.c)[0]}, {predicate_text(node.accumulate)}"
        f"{_upcoming(printer, node, tile) if get('upcoming_lines') else ''});"
    )
    if node.epilogue is not None:
        store_sums(printer, node, node.epilogue)


def _upcoming(printer: Printer, node: RunProduct, tile: str) -> str:
    """Return this tile's share of the blocks that are read next: a's panel index counts the tiles of the block."""
    a, b = printer.buffer(node.a), printer.buffer(node.b)
    pitch, panels = printer.text(b.element_strides[0]), printer.text(b.shape[1])
    return (
        f", upcoming_blocks<{tile}>({node.runs.first}, {printer.text(node.run)}, {printer.text(node.runs.count)}, "
        f"{printer.text(node.b.offset[1])}, {panels}, {node.size}, {b.name}, {pitch}, "
        f"{printer.text(node.a.offset[0])}, {printer.text(a.shape[0])}, {printer.text(a.element_strides[0])})"
    )


def _matrix_tiles(printer: Printer, node: RunProduct) -> None:
    if node.b.offset[1] != Const(0):
        raise EmitError(node="amx_block", detail="lines are summed from their first panel on")
    printer.use("gemm_amx.h", "sparse_amx.h", "step_blocks.h")
    target = node.c
    if node.epilogue is not None and node.epilogue.target is not None:
        target = node.epilogue.target
    row_step, column_step = printer.strides(target)
    rows, columns = (printer.text(extent) for extent in node.c.extent[-2:])
    runs, (room, panel, *_) = node.runs, printer.buffer(node.b).element_strides
    depth, base = printer.text(node.depth), printer.text(node.base)
    # Without an epilogue C holds the sums: the last chunk leaves nothing to do, and lines without blocks stay alone.
    finish = "false" if node.epilogue is None else predicate_text(node.finish)
    with printer.body.block(""):
        printer.body.line(
            f"const auto sink = amx_sink({printer.address(node.c)}, {printer.strides(node.c)[0]}, "
            f"{predicate_text(node.accumulate)}, {finish}, "
            f"{printer.address(target)}, {row_step}, {column_step if column_step != '0' else '1'}, "
            "IdentityEpilogue{});"
        )
        printer.body.line(
            f"const StepLines lines = {{{runs.first} + {printer.text(node.run)}, {runs.step}, "
            f"{printer.text(node.lines)}, {node.size}, {depth}, {base}}};"
        )
        printer.body.line(
            f"amx_lines<{node.intrinsic.attribute('terms')}>({rows}, {columns}, lines, {printer.address(node.a)}, "
            f"{printer.text(printer.buffer(node.a).element_strides[-3])}, {printer.address(node.b)}, "
            f"{printer.text(panel)}, {printer.text(room)}, sink);"
        )
