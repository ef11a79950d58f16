"""The lines of a convolution's nodes: copies of halos, and the tiles that read windows of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracea.core.dtype import DType
from tracea.core.expr import Binary, Constant, Input
from tracea.core.function import BinaryFunction
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import epilogue_functor
from tracea.emitters.cpu.index_text import predicate_text
from tracea.emitters.cpu.printer import Printer
from tracea.emitters.cpu.stores import store_sums
from tracea.errors import EmitError
from tracea.semantic.access import Region
from tracea.semantic.index import TRUE, Const, Index
from tracea.semantic.linear import normalize
from tracea.semantic.nodes import CopyTile, MicroKernel, Pack, Scalar
from tracea.semantic.nodes_halo import Halo

__all__ = [
    "amx_conv",
    "conv_dot",
    "conv_tile",
    "copy_halo",
    "declare_conv_tile",
    "depthwise_tile",
    "image_arguments",
    "pack_windows",
    "panel_text",
    "pixel_tile",
    "split_halo",
]

_ZERO, _UNIT = Const(0), Const(1)

# Bias, residual, ReLU and clamps: longer chains would take registers that hold sums, and be repeated for each of them.
_SHORT: Final = frozenset(BinaryFunction(name) for name in ("add", "sub", "mul", "max", "min"))
_FEW_STEPS: Final = 6


def copy_halo(printer: Printer, node: CopyTile) -> None:
    """Print a masked copy of (…, rows, columns, channels) of an image; only rows and columns may lie outside of it."""
    source, target = printer.buffer(node.source), printer.buffer(node.target)
    if not node.masked or node.fill != 0.0 or source.rank < 3 or target.rank != 3:
        detail = "a CPU copies rows and columns of an image, with zeros around it"
        raise EmitError(node=f"CopyTile {node.source}", detail=detail)
    row, column, channel = target.element_strides
    in_rows = column == _UNIT != channel
    if in_rows and source.element_strides[-2] != _UNIT:
        raise EmitError(node=f"CopyTile {node.source}", detail="columns of the image are next to each other")
    if _UNIT not in (column, channel):
        raise EmitError(node=f"CopyTile {node.target}", detail="channels or columns of a halo are next to each other")
    printer.use("pixels.h" if in_rows else "conv.h")
    pitches = ", ".join(printer.text(step) for step in (row, channel if in_rows else column))
    printer.body.comment(f"CopyTile {node.source} -> {node.target.buffer}")
    printer.body.line(
        f"{'copy_rows' if in_rows else 'copy_halo'}<{C_TYPES[target.dtype]}>({image_arguments(printer, node.source)}, "
        f"{printer.address(node.target)}, {pitches});"
    )


def split_halo(printer: Printer, node: Halo) -> None:
    """Print the copy of rows and columns of an image as sums of terms."""
    printer.use("halo_terms.h")
    source, text = printer.buffer(node.source), printer.text
    if source.dtype is not DType.F32 and node.merged is not None:
        raise EmitError(node=f"Halo {node.source}", detail=f"merged taps of f32, not of {source.dtype.value}")
    printer.declare_check(f"{node.lanes} == kGranule", "the kernel was built for these granules")
    printer.body.comment(f"Halo {node.source} -> {node.target.buffer}")
    target = (
        f"{printer.address(node.target)}, {_shape(printer, node.target, node.phases)}, "
        f"HaloTaps{{{text(node.taps[0])}, {text(node.taps[1])}, {node.gaps[0]}, {node.gaps[1]}}}"
    )
    if node.merged is None:
        printer.body.line(f"split_halo<{node.terms}>({image_arguments(printer, node.source)}, {target});")
        return
    printer.use("halo_windows.h")
    high, wide = node.merged
    row, pixel, channel = source.element_strides[-3:]
    channels = node.source.extent[-1]
    if channel != _UNIT or normalize(pixel) != normalize(channels):
        raise EmitError(node=f"Halo {node.source}", detail="merged taps of a row are not next to each other")
    run = text(channels * wide)
    printer.declare_check(f"{high} * {run} <= kGranule", "merged taps fit a granule")
    rows, columns = (text(extent) for extent in node.target.extent[-3:-1])
    printer.body.line(
        f"split_windows<{node.terms}>({printer.address(node.source)}, {text(row)}, {text(channels * node.steps[1])}, "
        f"{run}, {high}, {rows}, {columns}, {target});"
    )


def pack_windows(printer: Printer, node: Pack) -> None:
    """Print the packing of filters whose taps and channels are the steps of one granule."""
    if node.merged != 3 or node.granule == 1:
        raise EmitError(node=f"Pack {node.source}", detail="rows, columns and channels of terms are merged, or none")
    printer.use("pack_windows.h")
    text, source = printer.text, printer.buffer(node.source)
    sizes = ", ".join(text(extent) for extent in node.source.extent[-4:-1])
    *strides, across = (text(step) for step in source.element_strides[-4:])
    printer.declare_check(f"{sizes.replace(', ', ' * ')} <= kGranule", "merged taps fit a granule")
    printer.body.comment(f"Pack {node.source} -> {node.target.buffer}")
    printer.body.line(
        f"pack_windows<{node.terms}>({printer.address(node.source)}, MergedSteps{{{{{sizes}}}, "
        f"{{{', '.join(strides)}}}}}, {across}, {text(node.source.extent[-1])}, {printer.address(node.target)});"
    )


def image_arguments(printer: Printer, region: Region, *, extents: Sequence[Index] | None = None) -> str:
    """Return an image's first element, strides and extents, its first row and column, and what is taken from there on.

    ``extents`` are those of the region, rows, columns and channels, where a routine does not count something else.
    """
    source, text = printer.buffer(region), printer.text
    *outer, top, left, first = region.offset
    whole = Region(region.buffer, (*outer, _ZERO, _ZERO, first), region.extent)
    strides = ", ".join(text(step) for step in source.element_strides[-3:])
    taken = ", ".join(text(extent) for extent in (region.extent[-3:] if extents is None else extents))
    return (
        f"{printer.address(whole)}, {{{strides}}}, {text(source.shape[-3])}, {text(source.shape[-2])}, {text(top)}, "
        f"{text(left)}, {taken}"
    )


def _shape(printer: Printer, halo: Region, steps: tuple[int, int]) -> str:
    blocks, rows, columns, _ = (printer.text(size) for size in printer.buffer(halo).shape)
    return f"HaloShape{{{blocks}, {rows}, {columns}, {steps[0]}, {steps[1]}}}"


def amx_conv(printer: Printer, node: MicroKernel) -> None:
    """Print the routine of a band, which applies the epilogue itself, while it multiplies."""
    printer.use("conv_amx.h", "gemm_amx.h")
    get, text = node.intrinsic.attribute, printer.text
    planar = printer.step(node.c, -1) not in (_ZERO, _UNIT)
    if planar and printer.step(node.c, -2) != _UNIT:
        raise EmitError(node=f"MicroKernel {node.c}", detail="neither filters nor pixels are next to each other")
    functor = "IdentityEpilogue{}"
    if node.epilogue is not None:
        functor = epilogue_functor(printer, node.epilogue.expr, node.epilogue.operands, DType.F32, transposed=planar)
    for region in (node.c, *(node.epilogue.operands if node.epilogue else ())):
        _check_flat(printer, region)
    rows, columns, filters = (text(extent) for extent in node.c.extent[-3:])
    taps = ", ".join(text(extent) for extent in node.b.extent[-4:-2])
    gaps = ", ".join(str(get(f"dilation_{axis}")) for axis in ("rows", "columns"))
    pixel_step, filter_step = printer.strides(node.c)
    steps = (int(get("stride_rows")), int(get("stride_columns")))
    once = ", true" if "merged_rows" in dict(node.intrinsic.attributes) else ""  # a row of taps reads a pixel once
    printer.body.comment(f"MicroKernel {node.c}")
    with printer.body.block(""):
        sink = f"pixel_sink<{'true' if planar else 'false'}>"
        step = filter_step if planar else pixel_step
        printer.body.line(f"const auto sink = {sink}({printer.address(node.c)}, {step}, {functor});")
        printer.body.line(
            f"amx_conv<{get('terms')}{once}>(ConvWindow{{{rows}, {columns}, {filters}, {taps}, {gaps}}}, "
            f"{printer.address(node.a)}, {_shape(printer, node.a, steps)}, {printer.address(node.b)}, "
            f"{text(printer.buffer(node.b).element_strides[-6])}, sink);"
        )


def _check_flat(printer: Printer, region: Region | Scalar) -> None:
    """Refuse a tensor whose pixels are not one axis, as far as its strides say."""
    if not isinstance(region, Region):
        return
    buffer = printer.buffer(region)
    if buffer.rank < 3:
        return
    rows, columns = buffer.element_strides[-3:-1]
    one = buffer.shape[-3] == _UNIT == buffer.shape[-2]
    if not one and normalize(rows) != normalize(region.extent[-2] * columns):  # a band takes whole rows
        raise EmitError(node=f"MicroKernel {region}", detail="rows of pixels do not follow each other")


def conv_tile(printer: Printer, node: MicroKernel) -> None:
    """Print a tile of pixels by filters, and the call that stores it."""
    printer.use("conv.h")
    get, text = node.intrinsic.attribute, printer.text
    dtype = C_TYPES[printer.buffer(node.c).dtype]
    row_pitch, pixel_pitch, step = printer.buffer(node.a).element_strides[-3:]
    if printer.buffer(node.a).dtype is not printer.buffer(node.c).dtype:
        raise EmitError(node=f"MicroKernel {node.a}", detail="channels are in the sums' type")
    apart, ahead = step != _UNIT, int(get("ahead"))
    tile = declare_conv_tile(printer, node, dtype, apart=apart, ahead=ahead)
    printer.declare_check(f"{tile}::columns == {get('nr')}", "the kernel was built for this vector length")
    panel = printer.buffer(node.b)
    steps = ", ".join(
        text(each)
        for each in (
            row_pitch * int(get("dilation_rows")),
            pixel_pitch * int(get("dilation_columns")),
            panel.element_strides[-3],
            *(() if step == _UNIT else (step,)),
        )
    )
    taps = ", ".join(text(extent) for extent in node.b.extent[-4:-1])
    pixels, filters = (text(extent) for extent in node.c.extent[-2:])
    printer.body.comment(f"MicroKernel {node.c}")
    printer.body.line(
        f"{tile}::run{'' if node.image is None else '_within'}<{str(get('rows')).replace(',', ', ')}>("
        f"{_area(printer, node)}{pixels}, {filters}, {{{taps}, {steps}}}, "
        f"{printer.address(node.a)}, {text(pixel_pitch * int(get('stride_columns')))}, {panel_text(printer, node)}, "
        f"{printer.address(node.c)}, {printer.strides(node.c)[0]}, {predicate_text(node.accumulate)}"
        f"{_in_registers(printer, node, prefetch_columns=int(get('nr')) if ahead else 0)});"
    )
    if node.epilogue is not None and not _applies_in_registers(node):
        store_sums(printer, node, node.epilogue)


def declare_conv_tile(printer: Printer, node: MicroKernel, dtype: str, *, apart: bool = False, ahead: int = 0) -> str:
    """Return the name of a tile's type; what it does without is left out."""
    get = node.intrinsic.attribute
    numbers = ", ".join(str(get(name)) for name in ("mr", "nv", "unroll", "prefetch"))
    upcoming = int(get("upcoming"))
    if bool(upcoming) != (node.ahead is not None):
        raise EmitError(node=f"MicroKernel {node.c}", detail=f"{upcoming} lines a run of steps of {node.ahead}")
    more = (str(apart).lower(), str(ahead), str(upcoming))
    last = 3 if upcoming else 2 if ahead else 1 if apart else 0
    return printer.declare_type(f"ConvTile<{', '.join((dtype, numbers, *more[:last]))}>", "Tile")


def panel_text(printer: Printer, node: MicroKernel) -> str:
    """Return the panel of a tile, and where the lines begin that it asks for."""
    first = printer.address(node.b)
    return first if node.ahead is None else f"{{{first}, {printer.address(node.ahead)}}}"


def pixel_tile(printer: Printer, node: MicroKernel) -> None:
    """Print the routine of a band on vectors along pixels, which applies the epilogue itself."""
    printer.use("pixels.h")
    get, text = node.intrinsic.attribute, printer.text
    halo, panel = printer.buffer(node.a), printer.buffer(node.b)
    row_pitch, pixel_pitch, plane = halo.element_strides[-3:]
    if pixel_pitch != _UNIT or printer.step(node.c, -2) != _UNIT or halo.dtype is not panel.dtype:
        detail = "columns of the halo, in the sums' type, and of the result are next to each other"
        raise EmitError(node=f"MicroKernel {node.c}", detail=detail)
    if (get("stride_rows"), get("stride_columns")) != (1, 1):
        raise EmitError(node=f"MicroKernel {node.c}", detail="windows on one axis of pixels are a pixel apart")
    functor = "IdentityEpilogue{}"
    if node.epilogue is not None:
        functor = epilogue_functor(printer, node.epilogue.expr, node.epilogue.operands, panel.dtype, transposed=True)
    for region in (node.c, *(node.epilogue.operands if node.epilogue else ())):
        _check_flat(printer, region)
    tile = printer.declare_type(f"PixelTile<{C_TYPES[panel.dtype]}, {get('nr')}, {get('nv')}>", "Tile")
    rows, columns, filters = (text(extent) for extent in node.c.extent[-3:])
    taps = ", ".join(text(extent) for extent in node.b.extent[-4:-1])
    steps = f"{text(row_pitch * int(get('dilation_rows')))}, {get('dilation_columns')}, {text(plane)}"
    counts = str(get("rows")).replace(",", ", ")
    printer.body.comment(f"MicroKernel {node.c}")
    printer.body.line(
        f"{tile}::run<{counts}>({rows}, {columns}, {filters}, PixelTaps{{{taps}, {steps}}}, "
        f"{printer.address(node.a)}, {text(row_pitch)}, {printer.address(node.b)}, {printer.address(node.c)}, "
        f"{printer.strides(node.c)[1]}, {functor});"
    )


def _area(printer: Printer, node: MicroKernel) -> str:
    """Return where the image is that a window may leave, as a routine's first arguments; nothing if it never does."""
    if node.image is None:
        return ""
    get = node.intrinsic.attribute
    steps = (("Rows", str(get("dilation_rows"))), ("Columns", f"{get('dilation_columns')}, {get('stride_columns')}"))
    parts = zip(steps, node.image.first, node.image.extent, strict=False)
    return "".join(
        f"Image{name}{{{printer.text(first)}, {printer.text(size)}, {step}}}, " for (name, step), first, size in parts
    )


def conv_dot(printer: Printer, node: MicroKernel) -> None:
    """Print a tile of pixels by filters that is summed in vectors along channels, and the call that stores it."""
    printer.use("conv.h", "conv_dot.h")
    get, text = node.intrinsic.attribute, printer.text
    image, panels = printer.buffer(node.a), printer.buffer(node.b)
    row_pitch, pixel_pitch, step = image.element_strides[-3:]
    if step != _UNIT or panels.shape[-1] != _UNIT:
        raise EmitError(node=f"MicroKernel {node.a}", detail="channels of pixels and of filters are next to each other")
    tile = printer.declare_type(f"ConvDotTile<{C_TYPES[panels.dtype]}, {get('mr')}, {get('nk')}>", "Tile")
    taps = ", ".join(text(extent) for extent in node.b.extent[-4:-1])
    steps = ", ".join(
        text(pitch * int(get(f"dilation_{axis}"))) for pitch, axis in ((row_pitch, "rows"), (pixel_pitch, "columns"))
    )
    pixels, filters = (text(extent) for extent in node.c.extent[-2:])
    printer.body.comment(f"MicroKernel {node.c}")
    printer.body.line(
        f"{tile}::run<{str(get('rows')).replace(',', ', ')}>({pixels}, {filters}, ConvTaps{{{taps}, {steps}, "
        f"{text(node.b.extent[-2])}}}, {printer.address(node.a)}, {text(pixel_pitch * int(get('stride_columns')))}, "
        f"{printer.address(node.b)}, {printer.address(node.c)}, {text(printer.buffer(node.c).element_strides[-2])}, "
        f"{_border(printer, node, text(node.b.extent[-4]))});"
    )
    if node.epilogue is not None:
        store_sums(printer, node, node.epilogue)


def depthwise_tile(printer: Printer, node: MicroKernel) -> None:
    """Print a tile of pixels by channels with taps of their own, and the call that stores it."""
    printer.use("conv.h", "depthwise.h")
    get, text = node.intrinsic.attribute, printer.text
    dtype = C_TYPES[printer.buffer(node.c).dtype]
    tile = printer.declare_type(f"DepthwiseTile<{dtype}, {get('mr')}, {get('nv')}>", "Tile")
    printer.declare_check(f"{tile}::columns == {get('nr')}", "the kernel was built for this vector length")
    image = printer.buffer(node.a)
    row_pitch, pixel_pitch, step = image.element_strides[-3:]
    if step != _UNIT:
        raise EmitError(node=f"MicroKernel {node.a}", detail="channels are next to each other")
    rows, columns = (text(extent) for extent in node.b.extent[-3:-1])
    steps = f"{text(row_pitch * int(get('dilation_rows')))}, {text(pixel_pitch * int(get('dilation_columns')))}"
    pixels, channels = (text(extent) for extent in node.c.extent[-2:])
    printer.body.comment(f"MicroKernel {node.c}")
    printer.body.line(
        f"{tile}::run<{str(get('rows')).replace(',', ', ')}>({pixels}, {channels}, ConvTaps{{{rows}, {columns}, 1, "
        f"{steps}, {get('nr')}}}, {printer.address(node.a)}, {text(pixel_pitch * int(get('stride_columns')))}, "
        f"{printer.address(node.b)}, {printer.address(node.c)}, {printer.strides(node.c)[0]}, "
        f"{_border(printer, node, rows)}{_in_registers(printer, node)});"
    )
    if node.epilogue is not None and not _applies_in_registers(node):
        store_sums(printer, node, node.epilogue)


def _applies_in_registers(node: MicroKernel) -> bool:
    """Whether a tile applies its epilogue before it stores: sums lie where results go, and a few steps spill none."""
    epilogue = node.epilogue
    if epilogue is None or epilogue.target is not None or node.finish != TRUE:
        return False
    steps = [part for part in epilogue.expr.walk() if not isinstance(part, Input | Constant)]
    return len(steps) <= _FEW_STEPS and all(isinstance(part, Binary) and part.function in _SHORT for part in steps)


def _in_registers(printer: Printer, node: MicroKernel, *, prefetch_columns: int = 0) -> str:
    """Return the epilogue as the last argument of a routine that applies it, else nothing."""
    if node.epilogue is None or not _applies_in_registers(node):
        return ""
    compute = printer.buffer(node.c).dtype
    functor = epilogue_functor(
        printer, node.epilogue.expr, node.epilogue.operands, compute, prefetch_columns=prefetch_columns
    )
    return f", {functor}"


def _border(printer: Printer, node: MicroKernel, tap_rows: str) -> str:
    """Return where a window of the image itself begins, and the image's extents; a halo has no border."""
    if not node.masked:
        return f"ConvBorder::none({tap_rows})"
    get, text, image = node.intrinsic.attribute, printer.text, printer.buffer(node.a)
    row, column = (text(start) for start in node.a.offset[-3:-1])
    height, width = (text(size) for size in image.shape[-3:-1])
    gaps = ", ".join(str(get(f"dilation_{axis}")) for axis in ("rows", "columns"))
    return f"ConvBorder{{{row}, {column}, {height}, {width}, {gaps}, {get('stride_columns')}}}"
