"""The lines of ops that walk an axis element by element, or by an index: one call of a routine each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import load_functor, store_functor
from tracea.emitters.cpu.printer import Printer
from tracea.errors import EmitError
from tracea.semantic.access import Region
from tracea.semantic.index import Const
from tracea.semantic.nodes_fragments import FragmentOp

__all__ = ["indexed_op"]

_X = Input(0)
_STREAMING: Final = ("streaming", 1)
_FEW: Final = 4  # rows of a table for each index, from which on its zeros are written in stretches


def indexed_op(printer: Printer, node: FragmentOp) -> None:
    """Print the call of a routine of scan.h, indexed.h, sort.h, row_sums.h or weighted_rows.h."""
    line = _ROUTINES.get(node.intrinsic.name)
    regions = [region for region in (*node.inputs, *node.outputs) if isinstance(region, Region)]
    outputs, indices = _TAKEN.get(node.intrinsic.name, (1, 0))
    taken = len(node.outputs) == outputs and len(node.indices) == indices
    if line is None or node.updates or not taken or len(regions) != len(node.inputs) + outputs:
        raise EmitError(node=node.intrinsic.name, detail="no routine of this name and these operands on a CPU")
    printer.body.comment(f"{node.intrinsic.name} {regions[-1]}")
    printer.body.line(line(printer, node, regions))
    if _STREAMING in node.intrinsic.attributes:
        printer.body.line("streaming_fence();")


def _extents(printer: Printer, region: Region) -> str:
    rows, columns = [Const(1), *region.extent][-2:]
    return f"{printer.text(rows)}, {printer.text(columns)}"


def _scan(printer: Printer, node: FragmentOp, regions: list[Region]) -> str:
    printer.use("rows.h", "scan.h")
    compute = DType.parse(str(node.intrinsic.attribute("compute")))
    load = load_functor(printer, _X, regions[:1], compute)
    store = store_functor(printer, _X, (), compute, target=regions[1], streaming=False)
    extents = _extents(printer, regions[1])
    backward = ", true" if ("backward", 1) in node.intrinsic.attributes else ""
    return f"{node.intrinsic.name}<{C_TYPES[compute]}{backward}>({extents}, {load}, {store});"


def _largest(printer: Printer, node: FragmentOp, regions: list[Region]) -> str:
    printer.use("rows.h", "indexed.h")
    get = node.intrinsic.attribute
    compute = DType.parse(str(get("compute")))
    types = f"{C_TYPES[compute]}, {get('k')}, {'true' if get('smallest') else 'false'}"
    turned = False
    if node.intrinsic.name == "largest_across_rows":
        turned = printer.step(regions[0], -2) == Const(1) != printer.step(regions[0], -1)
        types += f", {'true' if turned else 'false'}"
    row_axis, column_axis = (-1, -2) if turned else (-2, -1)
    load = load_functor(printer, _X, regions[:1], compute, row_axis=row_axis, column_axis=column_axis)
    place, steps = printer.address(regions[1]), ", ".join(printer.strides(regions[1]))
    return f"{node.intrinsic.name}<{types}>({_extents(printer, regions[0])}, {load}, {place}, {steps});"


def _sort(printer: Printer, node: FragmentOp, regions: list[Region]) -> str:
    printer.use("sort.h")
    x, y, room = regions
    smallest = "true" if node.intrinsic.attribute("smallest") else "false"
    return (
        f"sort_rows<{smallest}>({_extents(printer, x)}, {printer.address(x)}, {', '.join(printer.strides(x))}, "
        f"{printer.text(y.extent[-1])}, {printer.address(y)}, {', '.join(printer.strides(y))}, "
        f"{printer.address(room)});"
    )


def _gather(printer: Printer, node: FragmentOp, regions: list[Region]) -> str:
    printer.use("indexed.h")
    table, indices, y = regions
    return (
        f"gather_rows({_extents(printer, y)}, {printer.address(table)}, {printer.text(table.extent[-2])}, "
        f"{', '.join(printer.strides(table))}, {printer.address(indices)}, {printer.strides(indices)[0]}, "
        f"{printer.address(y)}, {', '.join(printer.strides(y))});"
    )


def _weighted(printer: Printer, node: FragmentOp, regions: list[Region]) -> str:
    printer.use("rows.h", "weighted_rows.h")
    table, indices, weights, y = regions
    compute = DType.parse(str(node.intrinsic.attribute("compute")))
    load = load_functor(printer, _X, (table,), compute)
    store = store_functor(printer, _X, (), compute, target=y, streaming=False)
    listed = ", ".join(
        part for region in (indices, weights) for part in (printer.address(region), *printer.strides(region))
    )
    return (
        f"weighted_rows<{C_TYPES[compute]}, {node.intrinsic.attribute('count')}>({_extents(printer, y)}, {load}, "
        f"{printer.text(table.extent[-2])}, {listed}, {store});"
    )


def _chain(printer: Printer, node: FragmentOp, regions: list[Region]) -> str:
    printer.use("row_sums.h")
    indices, heads, links = regions
    first, rows = (printer.text(index) for index in node.indices)
    return (
        f"chain_rows({printer.text(indices.extent[-2])}, {printer.address(indices)}, {printer.strides(indices)[0]}, "
        f"{first}, {rows}, {node.intrinsic.attribute('skipped')}, {printer.address(heads)}, {printer.address(links)});"
    )


def _sum_chained(printer: Printer, node: FragmentOp, regions: list[Region]) -> str:
    printer.use("rows.h", "row_sums.h")
    heads, links, x, y = regions
    compute = DType.parse(str(node.intrinsic.attribute("compute")))
    streaming = _STREAMING in node.intrinsic.attributes
    load = load_functor(printer, _X, (x,), compute)
    store = store_functor(printer, _X, (), compute, target=y, streaming=streaming)
    lists = f"{printer.address(heads)}, {printer.address(links)}"
    pitch, step = printer.strides(y)
    count, table = printer.text(links.extent[-1]), printer.text(printer.buffer(y).shape[-2])
    few = f"{pitch} == {printer.text(y.extent[-1])} && {_FEW} * {count} <= {table}" if step == "1" else "false"
    extents, place = _extents(printer, y), printer.address(y)
    return f"sum_chained_rows<{C_TYPES[compute]}>({extents}, {lists}, {load}, {store}, {place}, {few});"


# The results and the indices of routines that have more than one result: lists are told where their rows begin and end,
# what sorts has room of its own.
_TAKEN: Final[Mapping[str, tuple[int, int]]] = {"chain_rows": (2, 2), "sort_rows": (2, 0)}
_ROUTINES: Mapping[str, Callable[[Printer, FragmentOp, list[Region]], str]] = {
    "scan_rows": _scan,
    "scan_columns": _scan,
    "largest_of_rows": _largest,
    "largest_across_rows": _largest,
    "sort_rows": _sort,
    "gather_rows": _gather,
    "weighted_rows": _weighted,
    "chain_rows": _chain,
    "sum_chained_rows": _sum_chained,
}
