"""The lines of the tile nodes: each prints the call of its routine, with addresses and valid extents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.emitters.cpu.attention import attention_combine, attention_finish, attention_start, attention_step
from tracea.emitters.cpu.attention_gradient import (
    attention_deltas,
    attention_gradient,
    attention_peaks,
    attention_slope_end,
)
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import epilogue_functor
from tracea.emitters.cpu.index_text import predicate_text
from tracea.emitters.cpu.indexed import indexed_op
from tracea.emitters.cpu.moments import column_moments, fold_moments
from tracea.emitters.cpu.norm_gradient import norm_gradient, plane_gradient
from tracea.emitters.cpu.pairs import pairs_tile
from tracea.emitters.cpu.printer import Printer
from tracea.emitters.cpu.row_tiles import pointwise_tile, reduce_tile, row_tile
from tracea.emitters.cpu.sparse import run_product
from tracea.emitters.cpu.stores import store_sums
from tracea.emitters.cpu.windows import (
    amx_conv,
    conv_dot,
    conv_tile,
    copy_halo,
    depthwise_tile,
    pack_windows,
    pixel_tile,
    split_halo,
)
from tracea.emitters.cpu.winograd import place_tile, transform_back, transform_filters, transform_image
from tracea.errors import EmitError
from tracea.semantic.access import Region
from tracea.semantic.index import FALSE, TRUE, Const
from tracea.semantic.nodes import (
    CopyTile,
    MicroKernel,
    Node,
    Pack,
    PointwiseTile,
    ReduceTile,
    RowTile,
)
from tracea.semantic.nodes_attention import AttentionCombine, AttentionFinish, AttentionStart, AttentionStep
from tracea.semantic.nodes_attention_gradient import (
    AttentionDeltas,
    AttentionGradient,
    AttentionPeaks,
    AttentionSlopeEnd,
)
from tracea.semantic.nodes_fragments import FragmentOp
from tracea.semantic.nodes_halo import Halo
from tracea.semantic.nodes_moments import MomentsFold, MomentsTile
from tracea.semantic.nodes_norm_gradient import NormGradientTile, PlaneGradientTile
from tracea.semantic.nodes_pairs import PairsTile
from tracea.semantic.nodes_sparse import RunProduct
from tracea.semantic.nodes_winograd import TransformBack, TransformFilters, TransformImage

__all__ = ["TILE_LINES"]

_X = Input(0)
_LINE_BYTES = 64
_TURNED_ROWS = 4  # of a tile, from which on its transposed store is worth it (benchmarks/NOTES.md)


def _pack(printer: Printer, node: Pack) -> None:
    printer.use("pack.h")
    target = printer.buffer(node.target)
    rows, columns = (printer.text(extent) for extent in node.source.extent[-2:])
    depth = printer.text(target.shape[-2])  # the allocated length of a panel: the pitch between panels, in steps
    routine = f"{'pack_a' if node.axis == 0 else 'pack_b'}<{C_TYPES[target.dtype]}, {node.panel}>"
    if node.granule > 1 and node.terms == 1 and target.dtype is DType.F32:
        printer.use("step_tile.h")
        printer.declare_check(f"{node.granule} == kSteps", "the kernel was built for these steps")
        routine = f"pack_steps<{C_TYPES[target.dtype]}, {node.panel}>"
    elif node.granule > 1:
        printer.use("pack_terms.h")
        is_first = (node.axis == 0) is not node.turned
        routine = f"{'pack_a_terms' if is_first else 'pack_b_terms'}<{node.terms}>"
        printer.declare_check(
            f"{node.panel} == kGranule && {node.granule} == kGranule", "the kernel was built for these granules"
        )
    if node.merged > 1:
        pack_windows(printer, node)
        return
    row_step, column_step = printer.strides(node.source)
    if node.turned:
        rows, columns, row_step, column_step = columns, rows, column_step, row_step
    printer.body.comment(f"Pack {node.source} -> {node.target.buffer}")
    printer.body.line(
        f"{routine}({printer.address(node.source)}, {row_step}, {column_step}, {rows}, {columns}, {depth}, "
        f"{printer.address(node.target)});"
    )


def _micro_kernel(printer: Printer, node: MicroKernel) -> None:
    if node.intrinsic.name in ("amx_block", "amx_rows"):
        _amx_block(printer, node)
        return
    if node.intrinsic.name == "amx_conv":
        amx_conv(printer, node)
        return
    if node.intrinsic.name == "pixel_tile":
        pixel_tile(printer, node)
        return
    if printer.step(node.c, -1) not in (Const(0), Const(1)):
        raise EmitError(node=node.c.buffer, detail=f"sums need unit column stride, got {printer.strides(node.c)[1]}")
    if node.intrinsic.name == "conv_tile":
        conv_tile(printer, node)
        return
    if node.intrinsic.name == "conv_dot":
        conv_dot(printer, node)
        return
    if node.intrinsic.name == "depthwise_tile":
        depthwise_tile(printer, node)
        return
    line = _PRODUCTS.get(node.intrinsic.name)
    if line is None:
        raise EmitError(node=node.intrinsic.name, detail="no register tile of this name")
    printer.body.comment(f"MicroKernel {node.c}")
    if node.epilogue is not None and node.intrinsic.name == "gemm_tile":
        _ask_ahead(printer, node)
    printer.body.line(line(printer, node))
    if node.epilogue is not None:
        store_sums(printer, node, node.epilogue, few=_has_few_rows(node))


def _amx_block(printer: Printer, node: MicroKernel) -> None:
    """The routine of a whole block, which applies the epilogue itself, while it multiplies."""
    if printer.step(node.c, -1) not in (Const(0), Const(1)):
        raise EmitError(node=node.c.buffer, detail=f"sums need unit column stride, got {printer.strides(node.c)[1]}")
    printer.use("gemm_amx.h")
    in_place = node.intrinsic.name == "amx_rows"
    if in_place:
        printer.use("thin_amx.h")
        _unit(printer, node.a, -1)
    a_pitch = printer.text(printer.buffer(node.a).element_strides[-2 if in_place else -3])
    functor, target = "IdentityEpilogue{}", node.c
    if node.epilogue is not None:
        compute = printer.buffer(node.c).dtype
        tile = int(node.intrinsic.attribute("tile"))
        functor = epilogue_functor(printer, node.epilogue.expr, node.epilogue.operands, compute, prefetch_columns=tile)
        target = node.c if node.epilogue.target is None else node.epilogue.target
    row_step, column_step = printer.strides(target)
    rows, columns = (printer.text(extent) for extent in node.c.extent[-2:])
    printer.body.comment(f"MicroKernel {node.c}")
    with printer.body.block(""):
        printer.body.line(
            f"const auto sink = amx_sink({printer.address(node.c)}, {printer.strides(node.c)[0]}, "
            f"{predicate_text(node.accumulate)}, {predicate_text(node.finish)}, {printer.address(target)}, {row_step}, "
            f"{column_step if column_step != '0' else '1'}, {functor});"
        )
        printer.body.line(
            f"{node.intrinsic.name}<{node.intrinsic.attribute('terms')}>({rows}, {columns}, "
            f"{printer.text(node.b.extent[-2])}, {printer.address(node.a)}, {a_pitch}, "
            f"{printer.address(node.b)}, {printer.text(printer.buffer(node.b).element_strides[-3])}, sink);"
        )


def _read_by_this_tile(printer: Printer, node: MicroKernel) -> list[Region]:
    """Return what the epilogue reads and no other tile has read: operands with rows and columns of C's own."""
    return [
        region
        for region in (() if node.epilogue is None else node.epilogue.operands)
        if isinstance(region, Region) and printer.step(region, -2) != Const(0) and printer.step(region, -1) == Const(1)
    ]


def _beside(printer: Printer, node: MicroKernel) -> Region | None:
    """Return what the tile asks for line by line beside its own lines of C: a residual of the type of its sums."""
    sums = printer.buffer(node.c).dtype
    return next((each for each in _read_by_this_tile(printer, node) if printer.buffer(each).dtype is sums), None)


def _ask_ahead(printer: Printer, node: MicroKernel) -> None:
    """Prefetch what the epilogue reads and the tile does not ask for itself."""
    beside = _beside(printer, node)
    for region in _read_by_this_tile(printer, node):
        if region == beside:
            continue
        printer.use("gemm_store.h")
        rows, columns = (printer.text(extent) for extent in region.extent[-2:])
        call = f"prefetch_tile({printer.address(region)}, {printer.strides(region)[0]}, {rows}, {columns});"
        printer.body.line(call if node.finish == TRUE else f"if ({predicate_text(node.finish)}) {call}")


def _has_few_rows(node: MicroKernel) -> bool:
    """Whether a transposed store would move a block of vectors for a few elements of each."""
    return node.intrinsic.name != "gemm_tile" or int(node.intrinsic.attribute("mr")) < _TURNED_ROWS


def _gemm_tile(printer: Printer, node: MicroKernel) -> str:
    printer.use("gemm.h")
    get = node.intrinsic.attribute
    mr, nv = get("mr"), get("nv")
    a = {"panel": f"PanelA<{mr}>", "rows": "RowsA", "columns": "PackedA"}[str(get("a"))]
    b = "PackedB" if get("b") == "panel" else "RowsB"
    lines, beside = int(get("upcoming_lines")), _beside(printer, node)
    if lines and get("b") != "panel":
        raise EmitError(node=node.b.buffer, detail="lines of the next panel are asked for, and there are no panels")
    upcoming = "false" if not lines else "true" if node.ahead is None else "true, true"
    if beside is not None:
        upcoming = f"{'true' if lines else 'false'}, {'false' if node.ahead is None else 'true'}, true"
    prefetch = f"GemmPrefetch<{get('prefetch_a')}, {get('prefetch_b')}, true, {upcoming}>"
    dtype = C_TYPES[printer.buffer(node.c).dtype]
    tile = printer.declare_type(f"GemmTile<{dtype}, {mr}, {nv}, {get('unroll')}, {a}, {b}, {prefetch}>", "Tile")
    printer.declare_check(f"{tile}::columns == {get('nr')}", "the kernel was built for this vector length")
    a_axis = -2 if get("a") == "columns" else -1
    if get("a") != "panel":
        _unit(printer, node.a, a_axis)
    if get("b") == "rows":
        _unit(printer, node.b, -1)
    rows, columns = (printer.text(extent) for extent in node.c.extent[-2:])
    return (
        f"{tile}::run<{str(get('rows')).replace(',', ', ')}>({rows}, {columns}, {printer.text(node.b.extent[-2])}, "
        f"{printer.address(node.a)}, {printer.strides(node.a)[-1 - a_axis]}, {printer.address(node.b)}, "
        f"{printer.strides(node.b)[0]}, {printer.address(node.c)}, {printer.strides(node.c)[0]}, "
        f"{predicate_text(node.accumulate)}{_upcoming(printer, node, lines, beside)});"
    )


def _upcoming(printer: Printer, node: MicroKernel, lines: int, beside: Region | None) -> str:
    """What the tile asks for: its share of what comes next, and the residual beside C, which the last sums need."""
    fields = _share(printer, node, lines) if lines else []
    if beside is not None:
        other = [printer.address(beside), printer.strides(beside)[0]]
        if node.finish != TRUE:  # until then lines of C, which the tile asks for anyway
            own = [printer.address(node.c), printer.strides(node.c)[0]]
            last = predicate_text(node.finish)
            other = [f"{last} ? {after} : {before}" for after, before in zip(other, own, strict=True)]
        fields = [*fields, *("nullptr", "0", "0")[len(fields) :], *other]
    return f", {{{', '.join(fields)}}}" if fields else ""


def _share(printer: Printer, node: MicroKernel, lines: int) -> list[str]:
    """The share of b's next panel that belongs to this tile: a's panel index counts the tiles of the block."""
    if node.ahead is not None:
        return [printer.address(node.ahead), str(lines), printer.strides(node.ahead)[0]]
    dtype = printer.buffer(node.b).dtype
    pitch = printer.buffer(node.b).element_strides[-3]
    share = printer.text(node.a.offset[0] * (lines * _LINE_BYTES // dtype.nbytes) + pitch)
    return [f"{printer.address(node.b)} + {share}", str(lines)]


def _step_tile(printer: Printer, node: MicroKernel) -> str:
    printer.use("step_tile.h")
    get = node.intrinsic.attribute
    dtype = C_TYPES[printer.buffer(node.c).dtype]
    if node.accumulate != FALSE:
        raise EmitError(node="step_tile", detail="sums of steps in vectors are added up once, behind the last step")
    _unit(printer, node.a, -1)
    tile = printer.declare_type(f"StepTile<{dtype}, {get('mr')}, {get('nv')}, {get('unroll')}>", "Tile")
    printer.declare_check(f"{tile}::columns == {get('nr')}", "the kernel was built for this vector length")
    rows, columns = (printer.text(extent) for extent in node.c.extent[-2:])
    return (
        f"{tile}::run<{str(get('rows')).replace(',', ', ')}>({rows}, {columns}, {printer.text(node.b.extent[-2])}, "
        f"{printer.address(node.a)}, {printer.strides(node.a)[0]}, {printer.address(node.b)}, "
        f"{printer.address(node.c)}, {printer.strides(node.c)[0]});"
    )


def _gemv_columns(printer: Printer, node: MicroKernel) -> str:
    printer.use("gemv.h")
    get = node.intrinsic.attribute
    dtype = C_TYPES[printer.buffer(node.c).dtype]
    _unit(printer, node.b, -1)
    columns, depth = printer.text(node.c.extent[-1]), printer.text(node.b.extent[-2])
    return (
        f"gemv_columns<{dtype}, {get('rows')}, {get('steps')}>({columns}, {depth}, {printer.address(node.a)}, "
        f"{', '.join(printer.strides(node.a))}, {printer.address(node.b)}, {printer.strides(node.b)[0]}, "
        f"{printer.address(node.c)}, {printer.strides(node.c)[0]}, {predicate_text(node.accumulate)}, "
        f"{get('prefetch')});"
    )


def _dot_tile(printer: Printer, node: MicroKernel) -> str:
    printer.use("dot.h")
    _unit(printer, node.a, -1)
    _unit(printer, node.b, -2)
    get = node.intrinsic.attribute
    dtype = C_TYPES[printer.buffer(node.c).dtype]
    rows, columns = (printer.text(extent) for extent in node.c.extent[-2:])
    return (
        f"dot_block<{dtype}, {get('rows')}, {get('columns')}>({rows}, {columns}, {printer.text(node.b.extent[-2])}, "
        f"{printer.address(node.a)}, {printer.strides(node.a)[0]}, {printer.address(node.b)}, "
        f"{printer.strides(node.b)[1]}, {printer.address(node.c)}, {printer.strides(node.c)[0]}, "
        f"{predicate_text(node.accumulate)}, {get('prefetch')});"
    )


def _unit(printer: Printer, region: Region, axis: int) -> None:
    if printer.step(region, axis) not in (Const(0), Const(1)):
        detail = f"axis {axis} has stride {printer.text(printer.step(region, axis))}, the routine reads neighbours"
        raise EmitError(node=region.buffer, detail=detail, remedy="build the kernel with this axis contiguous")


_PRODUCTS: Mapping[str, Callable[[Printer, MicroKernel], str]] = {
    "gemm_tile": _gemm_tile,
    "step_tile": _step_tile,
    "gemv_columns": _gemv_columns,
    "dot_tile": _dot_tile,
    "place_tile": place_tile,
}


TILE_LINES: Mapping[type[Node], Callable[[Printer, Any], None]] = {
    Pack: _pack,
    CopyTile: copy_halo,
    Halo: split_halo,
    MicroKernel: _micro_kernel,
    PointwiseTile: pointwise_tile,
    RowTile: row_tile,
    ReduceTile: reduce_tile,
    PairsTile: pairs_tile,
    MomentsTile: column_moments,
    MomentsFold: fold_moments,
    NormGradientTile: norm_gradient,
    PlaneGradientTile: plane_gradient,
    TransformImage: transform_image,
    TransformFilters: transform_filters,
    TransformBack: transform_back,
    FragmentOp: indexed_op,
    RunProduct: run_product,
    AttentionStart: attention_start,
    AttentionStep: attention_step,
    AttentionFinish: attention_finish,
    AttentionCombine: attention_combine,
    AttentionPeaks: attention_peaks,
    AttentionDeltas: attention_deltas,
    AttentionGradient: attention_gradient,
    AttentionSlopeEnd: attention_slope_end,
}
