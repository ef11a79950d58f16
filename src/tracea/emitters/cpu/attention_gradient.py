"""The lines of the nodes of attention's gradients: calls of attention_gradient.h."""

from __future__ import annotations

from tracea.core.expr import Constant, Input
from tracea.emitters.cpu.attention import EVERY_KEY, panels_of_terms, reach_of, scales_late, side_by_side, tile_of
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import epilogue_functor
from tracea.emitters.cpu.printer import Printer
from tracea.errors import EmitError
from tracea.semantic.nodes_attention_gradient import (
    AttentionDeltas,
    AttentionGradient,
    AttentionPeaks,
    AttentionSlopeEnd,
    GradientTerms,
    KeyBlock,
)

__all__ = ["attention_deltas", "attention_gradient", "attention_peaks", "attention_slope_end"]


def attention_peaks(printer: Printer, node: AttentionPeaks) -> None:
    """Print one block of keys of the first pass."""
    tile, text = tile_of(printer, node.intrinsic, node.scores), printer.text
    state = f"{{{printer.address(node.peaks)}, {printer.address(node.totals)}, nullptr}}"
    scale, score, scores = _scale(printer, node), _score(printer, node), printer.address(node.scores)
    if node.count is None:
        side_by_side(printer, "AttentionPeaks", node.keys, compute=printer.buffer(node.scores).dtype)
        rows = f"{printer.address(node.keys)}, {printer.strides(node.keys)[0]}, {text(node.keys.extent[-2])}"
        queries, keys = _queries(printer, node), f"{rows}, {text(node.first_key)}"
    else:
        granules = text(node.queries.extent[-2] // int(node.intrinsic.attribute("tile")))
        places = ", ".join((granules, *_places(printer, node), "0", EVERY_KEY, "{}", "{}"))
        queries = f"{{{panels_of_terms(printer, node.queries)}, {places}}}"
        count = f"{text(node.count)}, 0, {text(node.first_key)}"
        keys = f"{{{panels_of_terms(printer, node.keys)}, nullptr, 0, {count}, {{}}, {{}}}}"
        scores += f", {text(printer.buffer(node.scores).shape[-2])}"
    told = "" if node.count is None else f"<{node.intrinsic.attribute('operand_terms')}>"
    printer.body.comment(f"AttentionPeaks {node.keys}")
    printer.body.line(f"{tile}::peak{told}({queries}, {keys}, {state}, {scores}, {scale}, {score});")


def attention_deltas(printer: Printer, node: AttentionDeltas) -> None:
    """Print the end of the first pass."""
    tile = tile_of(printer, node.intrinsic, node.grads)
    addresses = ", ".join(map(printer.address, (node.grads, node.results, node.totals, node.deltas)))
    printer.body.comment(f"AttentionDeltas {node.deltas}")
    printer.body.line(f"{tile}::begin({printer.text(node.rows)}, {printer.text(node.grads.extent[-2])}, {addresses});")


def attention_gradient(printer: Printer, node: AttentionGradient) -> None:
    """Print one block of keys of the second pass."""
    if node.terms is not None:
        _gradient_of_terms(printer, node, node.terms)
        return
    tile, text = tile_of(printer, node.intrinsic, node.scores), printer.text
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
    printer.body.comment(f"AttentionGradient {node.keys} {node.values}")
    printer.body.line(
        f"{tile}::step<{node.intrinsic.attribute('tail')}>({_queries(printer, node)}, {block}, "
        f"{{{own}}}, {sums}, {printer.address(node.scores)}, {printer.address(node.slopes)}, "
        f"{_functions(printer, node)});"
    )


def _gradient_of_terms(printer: Printer, node: AttentionGradient, terms: GradientTerms) -> None:
    tile, text = tile_of(printer, node.intrinsic, node.scores), printer.text
    if node.count is None:
        raise EmitError(node="AttentionGradient", detail="panels of terms do not say how many keys they hold")
    factors = (node.queries, node.grads, node.query_rows, node.grad_rows)
    own = [f"{{{panels_of_terms(printer, region)}}}" for region in factors]
    own += map(printer.address, (node.peaks, node.totals, node.deltas, node.sums))
    rows, *places = _places(printer, node)
    own += (rows, *(text(sums.extent[-1]) for sums in (node.key_sums, node.value_sums)), *places)
    keys = [f"{{{panels_of_terms(printer, region)}}}" for region in (node.keys, node.values, terms.key_columns)]
    keys += map(printer.address, (node.key_sums, node.value_sums))
    keys += (text(node.count), text(node.first_key))
    room = [printer.address(part) for part in (node.scores, node.slopes, terms.weights, terms.slopes, terms.turned)]
    room.append(text(printer.buffer(node.scores).shape[-2]))
    printer.body.comment(f"AttentionGradient {node.keys} {node.values}")
    given = ", ".join(f"{{{', '.join(part)}}}" for part in (own, keys, room))
    told = node.intrinsic.attribute("operand_terms")
    printer.body.line(f"{tile}::step<{told}>({given}, {_functions(printer, node)});")


def attention_slope_end(printer: Printer, node: AttentionSlopeEnd) -> None:
    """Print the store of the gradients of a block of queries."""
    tile = tile_of(printer, node.intrinsic, node.sums)
    rows, depth = (printer.text(extent) for extent in node.target.extent[-2:])
    row, column = printer.strides(node.target)
    printer.body.comment(f"AttentionSlopeEnd {node.target}")
    printer.body.line(
        f"{tile}::end({rows}, {depth}, {printer.address(node.sums)}, {printer.address(node.target)}, {row}, "
        f"{column if column != '0' else '1'});"
    )


def _queries(printer: Printer, node: KeyBlock) -> str:
    rows, *places = _places(printer, node)
    depth = printer.text(node.queries.extent[-2])
    return f"{{{', '.join((printer.address(node.queries), rows, depth, *places))}}}"


def _places(printer: Printer, node: KeyBlock) -> list[str]:
    """Return the rows of a block of queries, the position of the first, and how far they see."""
    return [printer.text(node.rows), printer.text(node.first_query), *reach_of(node.causal, node.window)]


def _functions(printer: Printer, node: AttentionGradient) -> str:
    """Return the scale, the score and its derivative."""
    slope = "PlainSlope{}"
    scale, score = _scale(printer, node), _score(printer, node)
    if node.slope != Constant(1.0):
        compute = printer.buffer(node.scores).dtype
        slope = epilogue_functor(printer, node.slope, node.operands, compute, transposed=True)
    return f"{scale}, {score}, {slope}"


def _scale(printer: Printer, node: KeyBlock) -> str:
    return f"{C_TYPES[printer.buffer(node.scores).dtype]}({node.scale!r})"


def _score(printer: Printer, node: KeyBlock) -> str:
    if node.score == Input(0) and scales_late(node.scale):
        return "PlainScore{}"
    return epilogue_functor(printer, node.score, node.operands, printer.buffer(node.scores).dtype, transposed=True)
