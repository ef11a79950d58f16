"""The lines of the nodes of attention's gradients: calls of attention_gradient.h."""

from __future__ import annotations

from tracea.core.expr import Constant, Input
from tracea.emitters.cpu.attention import reach_of, scales_late, side_by_side
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import epilogue_functor
from tracea.emitters.cpu.printer import Printer
from tracea.semantic.access import Intrinsic, Region
from tracea.semantic.nodes_attention_gradient import (
    AttentionDeltas,
    AttentionGradient,
    AttentionPeaks,
    AttentionSlopeEnd,
    KeyBlock,
)

__all__ = ["attention_deltas", "attention_gradient", "attention_peaks", "attention_slope_end"]


def attention_peaks(printer: Printer, node: AttentionPeaks) -> None:
    """Print one block of keys of the first pass."""
    tile, text = gradient_tile(printer, node.intrinsic, node.queries), printer.text
    side_by_side(printer, "AttentionPeaks", node.keys, compute=printer.buffer(node.scores).dtype)
    state = f"{{{printer.address(node.peaks)}, {printer.address(node.totals)}, nullptr}}"
    keys = f"{printer.address(node.keys)}, {printer.strides(node.keys)[0]}, {text(node.keys.extent[-2])}"
    scale, score = _scale(printer, node), _score(printer, node)
    printer.body.comment(f"AttentionPeaks {node.keys}")
    printer.body.line(
        f"{tile}::peak({_queries(printer, node)}, {keys}, {text(node.first_key)}, {state}, "
        f"{printer.address(node.scores)}, {scale}, {score});"
    )


def attention_deltas(printer: Printer, node: AttentionDeltas) -> None:
    """Print the end of the first pass."""
    tile = gradient_tile(printer, node.intrinsic, node.grads)
    addresses = ", ".join(map(printer.address, (node.grads, node.results, node.totals, node.deltas)))
    printer.body.comment(f"AttentionDeltas {node.deltas}")
    printer.body.line(f"{tile}::begin({printer.text(node.rows)}, {printer.text(node.grads.extent[-2])}, {addresses});")


def attention_gradient(printer: Printer, node: AttentionGradient) -> None:
    """Print one block of keys of the second pass."""
    tile, text = gradient_tile(printer, node.intrinsic, node.queries), printer.text
    compute = printer.buffer(node.scores).dtype
    for rows in (node.keys, node.values):
        side_by_side(printer, "AttentionGradient", rows, compute=compute)
    keys, values = (f"{printer.address(part)}, {printer.strides(part)[0]}" for part in (node.keys, node.values))
    counts = ", ".join(text(extent) for extent in (node.keys.extent[-2], node.values.extent[-1]))
    block = f"AttentionKeys<{C_TYPES[compute]}>{{{keys}, {values}, {counts}, {text(node.first_key)}}}"
    room = text(printer.buffer(node.query_rows).shape[-2])
    rows = (node.grads, node.query_rows, node.grad_rows)
    state = (node.peaks, node.totals, node.deltas, node.sums)
    own = ", ".join((*map(printer.address, rows), room, *map(printer.address, state)))
    sums = f"{{{printer.address(node.key_sums)}, {printer.address(node.value_sums)}}}"
    slope = "PlainSlope{}"
    if node.slope != Constant(1.0):
        slope = epilogue_functor(printer, node.slope, node.operands, compute, transposed=True)
    scale, score = _scale(printer, node), _score(printer, node)
    printer.body.comment(f"AttentionGradient {node.keys} {node.values}")
    printer.body.line(
        f"{tile}::step<{node.intrinsic.attribute('tail')}>({_queries(printer, node)}, {block}, "
        f"{{{own}}}, {sums}, {printer.address(node.scores)}, "
        f"{printer.address(node.slopes)}, {scale}, {score}, {slope});"
    )


def attention_slope_end(printer: Printer, node: AttentionSlopeEnd) -> None:
    """Print the store of the gradients of a block of queries."""
    tile = gradient_tile(printer, node.intrinsic, node.sums)
    rows, depth = (printer.text(extent) for extent in node.target.extent[-2:])
    row, column = printer.strides(node.target)
    printer.body.comment(f"AttentionSlopeEnd {node.target}")
    printer.body.line(
        f"{tile}::end({rows}, {depth}, {printer.address(node.sums)}, {printer.address(node.target)}, {row}, "
        f"{column if column != '0' else '1'});"
    )


def gradient_tile(printer: Printer, intrinsic: Intrinsic, panels: Region) -> str:
    """Return the name of the routines' type; ``panels`` is a region in panels of queries."""
    printer.use("attention_gradient.h", "pack.h")
    get, buffer = intrinsic.attribute, printer.buffer(panels)
    parameters = f"{C_TYPES[buffer.dtype]}, {get('mr')}, {get('nv')}, {get('unroll')}"
    tile = printer.declare_type(f"AttentionGradientTile<{parameters}>", "Tile")
    printer.declare_check(
        f"{tile}::columns == {printer.text(buffer.shape[-1])}", "the kernel was built for this vector length"
    )
    return tile


def _queries(printer: Printer, node: KeyBlock) -> str:
    text = printer.text
    parts = (
        text(node.rows),
        text(node.queries.extent[-2]),
        text(node.first_query),
        *reach_of(node.causal, node.window),
    )
    return f"{{{', '.join((printer.address(node.queries), *parts))}}}"


def _scale(printer: Printer, node: KeyBlock) -> str:
    return f"{C_TYPES[printer.buffer(node.scores).dtype]}({node.scale!r})"


def _score(printer: Printer, node: KeyBlock) -> str:
    if node.score == Input(0) and scales_late(node.scale):
        return "PlainScore{}"
    return epilogue_functor(printer, node.score, node.operands, printer.buffer(node.scores).dtype, transposed=True)
