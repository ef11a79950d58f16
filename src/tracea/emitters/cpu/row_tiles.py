"""The lines of blocks of rows: elementwise chains, normalised rows and reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input
from tracea.core.ops.rows import ReduceKind, RowKind
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import load_functor, store_functor
from tracea.emitters.cpu.pooling import pool_window
from tracea.emitters.cpu.printer import Printer
from tracea.emitters.cpu.turned import transpose_copy
from tracea.errors import EmitError
from tracea.semantic.access import Intrinsic, Region
from tracea.semantic.index import FALSE, TRUE, Const, Index
from tracea.semantic.nodes import EpilogueCall, PointwiseTile, ReduceTile, RowTile, Scalar

__all__ = ["pointwise_tile", "reduce_tile", "row_tile"]

_X = Input(0)
_WORD_BYTES: Final = 4


def _compute(intrinsic: Intrinsic) -> DType:
    return DType.parse(str(intrinsic.attribute("compute")))


def pointwise_tile(printer: Printer, node: PointwiseTile) -> None:
    """Print a block of a chain of elementwise ops, or of a copy that turns it."""
    if node.intrinsic.name == "transpose_copy":
        transpose_copy(printer, node)
        return
    moved = _moved(printer, node)
    if moved is not None:
        printer.use("copy.h")
        places = (f"{printer.address(place)}, {printer.strides(place)[0]}" for place in (moved, node.target))
        printer.body.comment(f"PointwiseTile {node.target}")
        printer.body.line(f"copy_rows({', '.join((*_last_two(printer, node.target.extent), *places))});")
        return
    printer.use("rows.h", "row_tiles.h")
    compute = _compute(node.intrinsic)
    load = load_functor(printer, node.expr, node.inputs, compute)
    streaming = bool(node.intrinsic.attribute("streaming"))
    store = store_functor(printer, _X, (), compute, target=node.target, streaming=streaming)
    pairs = ", 2" if node.intrinsic.attribute("together") == 2 else ""
    types = f"{C_TYPES[compute]}, {node.intrinsic.attribute('prefetch')}{pairs}"
    printer.body.comment(f"PointwiseTile {node.target}")
    printer.body.line(f"map_rows<{types}>({', '.join(_last_two(printer, node.target.extent))}, {load}, {store});")
    if streaming:
        printer.body.line("streaming_fence();")


def _moved(printer: Printer, node: PointwiseTile) -> Region | None:
    """Return what is moved as it is, of a type that arithmetic would widen and narrow again; None for all else.

    What is stored past the caches goes by vectors all the same: f16 of 4096x4096 takes 0.6 of the time so.
    """
    if node.expr != _X or len(node.inputs) != 1 or node.intrinsic.attribute("streaming"):
        return None
    (source,) = node.inputs
    if isinstance(source, Scalar) or any(printer.step(place, -1) != Const(1) for place in (source, node.target)):
        return None
    kinds = {printer.buffer(place).dtype for place in (source, node.target)}
    return source if len(kinds) == 1 and kinds.pop().nbytes < _WORD_BYTES else None


_ROW_ROUTINES: Mapping[RowKind, str] = {
    RowKind.SOFTMAX: "softmax_rows",
    RowKind.LOG_SOFTMAX: "log_softmax_rows",
    RowKind.LAYER_NORM: "layer_norm_rows",
    RowKind.RMS_NORM: "rms_norm_rows",
}


def row_tile(printer: Printer, node: RowTile) -> None:
    """Print a block of normalised rows."""
    if node.scratch is None:
        raise EmitError(node="RowTile", detail="a row routine keeps the row in scratch, and there is none")
    printer.use("rows.h", "normalize.h")
    compute = _compute(node.intrinsic)
    expr, operands = _epilogue(node.epilogue)
    near = bool(dict(node.intrinsic.attributes).get("near", 0))
    load = load_functor(printer, node.prologue, node.inputs, compute, says_again=True, near=near)
    streaming = bool(node.intrinsic.attribute("streaming"))
    store = store_functor(printer, expr, operands, compute, target=node.target, streaming=streaming)
    has_eps = node.kind in (RowKind.LAYER_NORM, RowKind.RMS_NORM)
    types = f"{C_TYPES[compute]}, {node.intrinsic.attribute('overlap')}, {node.intrinsic.attribute('prefetch')}"
    rows, columns = _last_two(printer, node.target.extent)
    printer.body.comment(f"RowTile {node.kind.value} {node.target}")
    printer.body.line(
        f"{_ROW_ROUTINES[node.kind]}<{types}>({rows}, {columns}, "
        f"{f'{node.eps!r}, ' if has_eps else ''}{printer.address(node.scratch)}, {load}, {store});"
    )
    if streaming:
        printer.body.line("streaming_fence();")


_REDUCTIONS: Mapping[ReduceKind, str] = {
    ReduceKind.SUM: "SumOf",
    ReduceKind.MEAN: "MeanOf",
    ReduceKind.MAX: "MaxOf",
    ReduceKind.MIN: "MinOf",
    ReduceKind.PRODUCT: "ProductOf",
}


def reduce_tile(printer: Printer, node: ReduceTile) -> None:
    """Print the reduction of a block along its rows, down its columns, or of both to one number."""
    if node.accumulate != FALSE or node.finish != TRUE:
        raise EmitError(node="ReduceTile", detail="a reduction in parts has no routine")
    if node.intrinsic.name in ("pool_window", "pool_grid"):
        pool_window(printer, node, _REDUCTIONS[node.kind])
        return
    printer.use("rows.h", "row_tiles.h")
    compute = _compute(node.intrinsic)
    expr, operands = _epilogue(node.epilogue)
    target = node.target if node.epilogue is None or node.epilogue.target is None else node.epilogue.target
    along_rows, whole = node.axes == (len(node.shape) - 1,), node.intrinsic.name == "reduce_slab"
    routine = "reduce_slab" if whole else "reduce_rows" if along_rows else "reduce_columns"
    rows, columns = _last_two(printer, node.shape)
    row_axis = -2
    if whole or node.kind is ReduceKind.PRODUCT:
        printer.use("slabs.h")
    if whole and node.axes != (len(node.shape) - 2, len(node.shape) - 1):
        raise EmitError(node="ReduceTile", detail=f"a slab is the last two axes, not {node.axes} of {len(node.shape)}")
    if not (along_rows or whole):
        # The routine's rows are the reduced axis, wherever it is; of what lies between it and the columns there is one.
        (reduced,) = node.axes
        row_axis = reduced - len(node.shape)
        if any(size != Const(1) for size in node.shape[reduced + 1 : -1]):
            raise EmitError(node="ReduceTile", detail=f"axis {reduced} of {len(node.shape)} with rows of its own")
        rows = printer.text(node.shape[reduced])

    def load(inputs: Sequence[Region]) -> str:
        return load_functor(printer, node.prologue, inputs, compute, row_axis=row_axis, says_one_row=whole)

    def store(place: Region) -> str:
        return store_functor(printer, expr, operands, compute, target=place, streaming=False)

    printer.body.comment(f"ReduceTile {node.kind.value} {node.target}")
    types, sizes = f"{C_TYPES[compute]}, {_REDUCTIONS[node.kind]}", f"{rows}, {columns}"
    together = int(dict(node.intrinsic.attributes).get("together", 1))
    if together == 1:
        printer.body.line(f"{routine}<{types}>({sizes}, {load(node.inputs)}, {store(target)});")
        return
    loads = ", ".join(load([_block_of(printer, each, i) for each in node.inputs]) for i in range(together))
    stores = ", ".join(store(_block_of(printer, target, i)) for i in range(together))
    printer.body.line(f"{routine}_together<{types}, {together}>({sizes}, {{{loads}}}, {{{stores}}});")


def _block_of(printer: Printer, region: Region, number: int) -> Region:
    """Return one of the blocks of rows and columns that a region has along the axis before them."""
    if printer.step(region, -3) == Const(0):
        number = 0
    offset, extent = list(region.offset), list(region.extent)
    offset[-3], extent[-3] = offset[-3] + number, Const(1)
    return Region(region.buffer, tuple(offset), tuple(extent))


def _epilogue(call: EpilogueCall | None) -> tuple[Expr, tuple[Any, ...]]:
    return (_X, ()) if call is None else (call.expr, call.operands)


def _last_two(printer: Printer, extents: Sequence[Index]) -> tuple[str, str]:
    """Return the rows and columns of a block; a block of one axis is a row."""
    rows, columns = [Const(1), *extents][-2:]
    return printer.text(rows), printer.text(columns)
