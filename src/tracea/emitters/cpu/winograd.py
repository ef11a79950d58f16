"""The lines of Winograd's transforms, calls of winograd.h, and of the products of a place."""

from __future__ import annotations

from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import epilogue_functor
from tracea.emitters.cpu.printer import Printer
from tracea.emitters.cpu.windows import declare_conv_tile, image_arguments, panel_text
from tracea.errors import EmitError
from tracea.semantic.access import Region
from tracea.semantic.index import Const, Var
from tracea.semantic.nodes import MicroKernel
from tracea.semantic.nodes_winograd import TransformBack, TransformFilters, TransformImage

__all__ = ["place_tile", "transform_back", "transform_filters", "transform_image"]

_ZERO, _UNIT = Const(0), Const(1)
_ROW = Var("row_of_results")


def transform_image(printer: Printer, node: TransformImage) -> None:
    """Print the transform of a band of tiles."""
    printer.use("winograd.h")
    source, target = printer.buffer(node.source), printer.buffer(node.target)
    if source.element_strides[-1] != _UNIT and source.shape[-1] != _UNIT:
        raise EmitError(node=f"TransformImage {node.source}", detail="channels of the image are next to each other")
    image = image_arguments(printer, node.source, extents=(*node.tiles, node.source.extent[-1]))
    plane, pitch = (printer.text(step) for step in target.element_strides[:2])
    printer.body.comment(f"TransformImage {node.source} -> {node.target.buffer}")
    printer.body.line(
        f"winograd_image<{node.m}, {node.taps}, {C_TYPES[target.dtype]}>({image}, {printer.address(node.target)}, "
        f"{plane}, {pitch});"
    )


def transform_filters(printer: Printer, node: TransformFilters) -> None:
    """Print the transform of a panel of filters."""
    printer.use("winograd.h")
    source, target = printer.buffer(node.source), printer.buffer(node.target)
    width, dtype = node.target.extent[-1], C_TYPES[target.dtype]
    if not isinstance(width, Const):
        raise EmitError(node=f"TransformFilters {node.target}", detail=f"a panel of {width} filters has no routine")
    vectors = f"{width.value} / Vec<{dtype}>::lanes"
    printer.declare_check(f"{width.value} % Vec<{dtype}>::lanes == 0", "the kernel was built for this vector length")
    strides = ", ".join(printer.text(step) for step in source.element_strides[-4:])
    channels, filters = (printer.text(extent) for extent in node.source.extent[-2:])
    printer.body.comment(f"TransformFilters {node.source} -> {node.target.buffer}")
    printer.body.line(
        f"winograd_filters<{node.m}, {node.taps}, {dtype}, {vectors}>({printer.address(node.source)}, {{{strides}}}, "
        f"{channels}, {filters}, {printer.address(node.target)});"
    )


def transform_back(printer: Printer, node: TransformBack) -> None:
    """Print the transform of a panel's products to results, with the epilogue of each of their rows."""
    printer.use("winograd.h")
    source, text = printer.buffer(node.source), printer.text
    compute = source.dtype
    plane, pitch = (text(step) for step in source.element_strides[:2])
    operands = tuple(_of_row(printer, operand) for operand in node.operands)
    functor = epilogue_functor(printer, node.expr, operands, compute)
    rows, columns, filters = (text(extent) for extent in node.target.extent[-3:])
    steps = [text(step) for step in printer.buffer(node.target).element_strides[-3:]]
    printer.body.comment(f"TransformBack {node.source.buffer} -> {node.target}")
    with printer.body.block(""):
        head = f"const auto epilogue_of = [&]([[maybe_unused]] int64_t {_ROW.name}) TRACEA_LAMBDA"
        with printer.body.block(head, tail="};"):
            printer.body.line(f"return {functor};")
        printer.body.line(
            f"winograd_back<{node.m}, {node.taps}, {C_TYPES[compute]}>({printer.address(node.source)}, {plane}, "
            f"{pitch}, {text(node.tiles[1])}, {rows}, {columns}, {filters}, {printer.address(node.target)}, "
            f"{', '.join(steps)}, epilogue_of);"
        )


def _of_row(printer: Printer, operand: Region) -> Region:
    """Return the part of an epilogue's operand that belongs to one row of results."""
    buffer = printer.buffer(operand)
    if buffer.shape[-3] == _UNIT:
        return operand
    offset, extent = list(operand.offset), list(operand.extent)
    offset[-3], extent[-3] = offset[-3] + _ROW, _UNIT
    return Region(operand.buffer, tuple(offset), tuple(extent))


def place_tile(printer: Printer, node: MicroKernel) -> str:
    """Return the call that multiplies tiles of one place by its filters: a convolution of one tap."""
    printer.use("conv.h")
    get, text = node.intrinsic.attribute, printer.text
    a, b, c = (printer.buffer(region) for region in (node.a, node.b, node.c))
    if a.element_strides[-1] != _UNIT or not a.dtype is b.dtype is c.dtype:
        raise EmitError(node=f"MicroKernel {node.a}", detail="channels in the sums' type are next to each other")
    if int(str(get("rows")).split(",")[0]) != get("mr"):
        raise EmitError(node=f"MicroKernel {node.c}", detail=f"counts {get('rows')} of tiles of {get('mr')} rows")
    tile = declare_conv_tile(printer, node, C_TYPES[c.dtype])
    printer.declare_check(f"{tile}::columns == {get('nr')}", "the kernel was built for this vector length")
    tiles, filters = (text(extent) for extent in node.c.extent[-2:])
    taps = f"ConvTaps{{1, 1, {text(node.b.extent[-2])}, 0, 0, 0}}"
    return (
        f"{tile}::run<{str(get('rows')).replace(',', ', ')}>({tiles}, {filters}, {taps}, {printer.address(node.a)}, "
        f"{text(a.element_strides[-2])}, {panel_text(printer, node)}, {printer.address(node.c)}, "
        f"{text(c.element_strides[-2])}, false);"
    )
