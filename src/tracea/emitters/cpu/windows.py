"""The lines of a convolution's nodes: copies of halos, and the tiles that read windows of them."""

from __future__ import annotations

from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import epilogue_functor
from tracea.emitters.cpu.index_text import predicate_text
from tracea.emitters.cpu.printer import Printer
from tracea.errors import EmitError
from tracea.semantic.index import TRUE, Const
from tracea.semantic.nodes import CopyTile, EpilogueCall, MicroKernel

__all__ = ["conv_tile", "copy_halo"]

_ZERO, _UNIT = Const(0), Const(1)


def copy_halo(printer: Printer, node: CopyTile) -> None:
    """Print a masked copy of (…, rows, columns, channels) of an image; only rows and columns may lie outside of it."""
    source, target = printer.buffer(node.source), printer.buffer(node.target)
    if not node.masked or node.fill != 0.0 or source.rank < 3 or target.rank != 3:
        detail = "a CPU copies rows and columns of an image, with zeros around it"
        raise EmitError(node=f"CopyTile {node.source}", detail=detail)
    printer.use("conv.h")
    text = printer.text
    *outer, top, left, first = node.source.offset
    whole = type(node.source)(node.source.buffer, (*outer, _ZERO, _ZERO, first), node.source.extent)
    strides = ", ".join(text(step) for step in source.element_strides[-3:])
    extents = ", ".join(text(extent) for extent in node.source.extent[-3:])
    pitches = ", ".join(text(step) for step in target.element_strides[:2])
    if target.element_strides[2] != _UNIT:
        raise EmitError(node=f"CopyTile {node.target}", detail="channels of a halo are next to each other")
    printer.body.comment(f"CopyTile {node.source} -> {node.target.buffer}")
    printer.body.line(
        f"copy_halo<{C_TYPES[target.dtype]}>({printer.address(whole)}, {{{strides}}}, {text(source.shape[-3])}, "
        f"{text(source.shape[-2])}, {text(top)}, {text(left)}, {extents}, {printer.address(node.target)}, {pitches});"
    )


def conv_tile(printer: Printer, node: MicroKernel) -> None:
    """Print a tile of pixels by filters, and the call that stores it."""
    printer.use("conv.h")
    get, text = node.intrinsic.attribute, printer.text
    dtype = C_TYPES[printer.buffer(node.c).dtype]
    tile = printer.declare_type(
        f"ConvTile<{dtype}, {get('mr')}, {get('nv')}, {get('unroll')}, {get('prefetch')}>", "Tile"
    )
    printer.declare_check(f"{tile}::columns == {get('nr')}", "the kernel was built for this vector length")
    row_pitch, pixel_pitch, _ = printer.buffer(node.a).element_strides
    panel = printer.buffer(node.b)
    steps = ", ".join(
        text(step)
        for step in (
            row_pitch * int(get("dilation_rows")),
            pixel_pitch * int(get("dilation_columns")),
            panel.element_strides[-3],
        )
    )
    taps = ", ".join(text(extent) for extent in node.b.extent[-4:-1])
    pixels, filters = (text(extent) for extent in node.c.extent[-2:])
    printer.body.comment(f"MicroKernel {node.c}")
    printer.body.line(
        f"{tile}::run<{str(get('rows')).replace(',', ', ')}>({pixels}, {filters}, {{{taps}, {steps}}}, "
        f"{printer.address(node.a)}, {text(pixel_pitch * int(get('stride_columns')))}, {printer.address(node.b)}, "
        f"{printer.address(node.c)}, {printer.strides(node.c)[0]}, {predicate_text(node.accumulate)});"
    )
    if node.epilogue is not None:
        _store(printer, node, node.epilogue)


def _store(printer: Printer, node: MicroKernel, epilogue: EpilogueCall) -> None:
    target = node.c if epilogue.target is None else epilogue.target
    planar = printer.step(target, -1) not in (_ZERO, _UNIT) and printer.step(target, -2) == _UNIT
    functor = epilogue_functor(
        printer, epilogue.expr, epilogue.operands, printer.buffer(node.c).dtype, transposed=planar
    )
    pixels, filters = (printer.text(extent) for extent in node.c.extent[-2:])
    pixel_step, filter_step = printer.strides(target)
    sums = f"{printer.address(node.c)}, {printer.strides(node.c)[0]}, {pixels}, {filters}"
    if planar:
        call = f"store_tile_transposed({sums}, {printer.address(target)}, {filter_step}, {functor});"
    else:
        step = filter_step if filter_step != "0" else "1"
        call = f"store_tile({sums}, 0, 0, {printer.address(target)}, {pixel_step}, {step}, {functor});"
    printer.body.line(call if node.finish == TRUE else f"if ({predicate_text(node.finish)}) {call}")
