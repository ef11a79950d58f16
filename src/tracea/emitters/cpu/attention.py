"""The lines of attention's nodes: calls of attention.h on a block of queries, its state and a block of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import epilogue_functor
from tracea.emitters.cpu.printer import Printer
from tracea.errors import EmitError
from tracea.semantic.access import Intrinsic, Region
from tracea.semantic.index import Const, ceil_div
from tracea.semantic.nodes_attention import (
    AttentionCombine,
    AttentionFinish,
    AttentionStart,
    AttentionState,
    AttentionStep,
)

__all__ = [
    "EVERY_KEY",
    "attention_combine",
    "attention_finish",
    "attention_start",
    "attention_step",
    "panels_of_terms",
    "reach_of",
    "scales_late",
    "side_by_side",
    "tile_of",
]

ROWS = "attention_rows"  # the routine for few queries; others are tiles of queries
AMX = "attention_amx"  # that on matrix tiles
_HEADERS: Final = {  # of routines, beside that of all
    ROWS: ("attention_rows.h",),
    AMX: ("attention_amx.h",),
    "attention_gradient": ("attention_gradient.h",),
    "attention_gradient_amx": ("attention_gradient_amx.h",),
}
_LATE_SCALES = (2.0**-100, 2.0**127)  # between them scale log2(e), and -126 over it, are what a float32 holds
EVERY_KEY = "kEveryKey"  # attention.h: no query is that far from a key


def attention_start(printer: Printer, node: AttentionStart) -> None:
    """Print the beginning of a block of queries."""
    tile = tile_of(printer, node.intrinsic, node.state.sums)
    width = printer.text(node.state.sums.extent[-2])
    printer.body.comment(f"AttentionStart {node.state.sums}")
    printer.body.line(f"{tile}::start({printer.text(node.rows)}, {width}, {_state(printer, node.state)});")


def attention_step(printer: Printer, node: AttentionStep) -> None:
    """Print one block of keys."""
    tile, text = tile_of(printer, node.intrinsic, node.state.sums), printer.text
    compute = printer.buffer(node.scores).dtype
    by_rows, packed = node.intrinsic.name == ROWS, node.intrinsic.name == AMX
    for rows in () if packed else (node.keys, node.values):
        side_by_side(printer, "AttentionStep", rows, compute=compute, widened=by_rows)
    reach = reach_of(node.causal, node.window)
    if node.span is not None:
        if by_rows:
            raise EmitError(node="AttentionStep", detail=f"{ROWS} takes no span", remedy="use attention.flash")
        own = (node.span.behind, node.span.ahead, node.span.begin - node.first_query, node.span.end - node.first_query)
        reach = [text(each) for each in own]
    position = (text(node.rows), text(node.first_query), *reach)
    queries, block = (_packed_operands if packed else _operands)(printer, node, position)
    score = "PlainScore{}"
    if node.score != Input(0) or not (by_rows or scales_late(node.scale)):
        score = epilogue_functor(printer, node.score, node.operands, compute, transposed=not by_rows)
    told = "" if by_rows else f"<{node.intrinsic.attribute('operand_terms' if packed else 'tail')}>"
    own = printer.address(node.scores)
    if node.weights is not None:
        own += f", {printer.address(node.weights)}, {text(printer.buffer(node.scores).shape[-2])}"
    printer.body.comment(f"AttentionStep {node.keys} {node.values}")
    printer.body.line(
        f"{tile}::step{told}({{{queries}}}, {block}, {_state(printer, node.state)}, {own}, "
        f"{C_TYPES[compute]}({node.scale!r}), {score});"
    )


def _operands(printer: Printer, node: AttentionStep, position: Sequence[str]) -> tuple[str, str]:
    """Return a block of queries in panels, and its keys and values as they lie."""
    text = printer.text
    depth, width = (text(rows.extent[-1]) for rows in (node.keys, node.values))
    rows, *place = position
    queries = ", ".join((printer.address(node.queries), rows, depth, *place))
    keys = f"{printer.address(node.keys)}, {printer.strides(node.keys)[0]}"
    values = f"{printer.address(node.values)}, {printer.strides(node.values)[0]}"
    types = [C_TYPES[printer.buffer(part).dtype] for part in (node.scores, node.keys, node.values)]
    kind = f"AttentionKeys<{', '.join(types if len(set(types)) > 1 else types[:1])}>"
    return queries, f"{kind}{{{keys}, {values}, {text(node.keys.extent[-2])}, {width}, {text(node.first_key)}}}"


def _packed_operands(printer: Printer, node: AttentionStep, position: Sequence[str]) -> tuple[str, str]:
    """Return a block of queries, and its keys and values, in panels of sums of terms."""
    if node.count is None or node.weights is None:
        raise EmitError(node="AttentionStep", detail=f"{AMX} needs room for weights, and the number of keys")
    text = printer.text
    queries, keys, values = (panels_of_terms(printer, part) for part in (node.queries, node.keys, node.values))
    granules = text(ceil_div(node.queries.extent[-2], int(node.intrinsic.attribute("tile"))))
    width, count = text(node.state.sums.extent[-2]), text(node.count)
    asked = [_rows_in_bytes(printer, part) for part in node.asked]
    block = f"AmxKeys{{{keys}, {values}, {count}, {width}, {text(node.first_key)}, {', '.join(asked[2:])}}}"
    return ", ".join((queries, granules, *position, "0", EVERY_KEY, *asked[:2])), block


def panels_of_terms(printer: Printer, panels: Region) -> str:
    """Return where panels of sums of terms lie, and how many elements they lie apart."""
    *_, steps, line = printer.buffer(panels).shape
    return f"{printer.address(panels)}, {printer.text(steps * line)}"


def _rows_in_bytes(printer: Printer, rows: Region) -> str:
    """Return where rows lie, how far apart, and how long they are, in bytes."""
    nbytes = printer.buffer(rows).dtype.nbytes
    stride, width = printer.step(rows, -2), rows.extent[-1]
    return f"{{{printer.address(rows)}, {printer.text(stride * nbytes)}, {printer.text(width * nbytes)}}}"


def scales_late(scale: float) -> bool:
    """Tell whether weights may be taken of scores that are scaled only as their exponents are.

    The tile looks for the largest score before it scales: a negative scale would turn their order around.
    """
    least, most = _LATE_SCALES
    return least <= scale <= most


def attention_combine(printer: Printer, node: AttentionCombine) -> None:
    """Print the store of a block of queries whose keys were taken in parts."""
    tile = tile_of(printer, node.intrinsic, node.state.sums)
    rows, width = (printer.text(extent) for extent in node.target.extent[-2:])
    row, column = printer.strides(node.target)
    parts = printer.text(node.state.peaks.extent[-3])
    printer.body.comment(f"AttentionCombine {node.target}")
    printer.body.line(
        f"{tile}::combine({parts}, {rows}, {width}, {_state(printer, node.state)}, {printer.address(node.target)}, "
        f"{row}, {column if column != '0' else '1'});"
    )


def attention_finish(printer: Printer, node: AttentionFinish) -> None:
    """Print the store of a block of queries."""
    tile = tile_of(printer, node.intrinsic, node.state.sums)
    rows, width = (printer.text(extent) for extent in node.target.extent[-2:])
    row, column = printer.strides(node.target)
    printer.body.comment(f"AttentionFinish {node.target}")
    printer.body.line(
        f"{tile}::finish({rows}, {width}, {_state(printer, node.state)}, {printer.address(node.target)}, {row}, "
        f"{column if column != '0' else '1'});"
    )


def side_by_side(printer: Printer, node: str, rows: Region, *, compute: DType, widened: bool = False) -> None:
    """Check that a routine can read rows in place; ``widened``: of 16-bit floats too, where sums are of f32.

    Raises:
        EmitError: it cannot.
    """
    dtype = printer.buffer(rows).dtype
    fits = dtype is compute or (widened and compute is DType.F32 and dtype in (DType.F16, DType.BF16))
    if printer.step(rows, -1) not in (Const(0), Const(1)) or not fits:
        detail = f"rows of {compute.value}, whose elements lie side by side, are read in place"
        raise EmitError(node=f"{node} {rows}", detail=detail, remedy="copy the rows first")


def reach_of(causal: bool, window: int | None) -> list[str]:
    """Return how far behind and ahead of itself a query sees keys, as text."""
    behind = EVERY_KEY if window is None else str(window - 1)
    return [behind, "0" if causal else behind]


def tile_of(printer: Printer, intrinsic: Intrinsic, panels: Region) -> str:
    """Return the name of the routines' type; ``panels`` is a region of floats in panels of queries."""
    printer.use("attention.h", "pack.h", *_HEADERS.get(intrinsic.name, ()))
    get, buffer = intrinsic.attribute, printer.buffer(panels)
    of_type = C_TYPES[buffer.dtype]
    match intrinsic.name:
        case "attention_amx":
            tile = printer.declare_type("AttentionAmx", "Tile")
        case "attention_gradient_amx":
            tile = printer.declare_type("AttentionGradientAmx", "Tile")
        case "attention_rows":
            tile = printer.declare_type(f"AttentionRows<{of_type}, {get('ahead')}>", "Rows")
        case _:
            kind = "AttentionTile" if intrinsic.name == "attention_tile" else "AttentionGradientTile"
            tile = printer.declare_type(f"{kind}<{of_type}, {get('mr')}, {get('nv')}, {get('unroll')}>", "Tile")
    panel = printer.text(buffer.shape[-1])
    printer.declare_check(f"{tile}::columns == {panel}", "the kernel was built for this vector length")
    return tile


def _state(printer: Printer, state: AttentionState) -> str:
    return f"{{{', '.join(map(printer.address, state.regions))}}}"
