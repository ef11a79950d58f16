"""Lowerings of what mixtures of experts do: how many tokens each expert takes, and the products of each one's rows."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import torch

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Expr, Input, Unary, UnaryFunction, maximum, minimum, select
from tracea.core.op import CumulativeSumOp, GroupedGemmOp, JoinOp, PointwiseOp, ReduceKind, ReduceOp
from tracea.core.tensor_type import TensorType
from tracea.flow.places import EXACT_IN_F32
from tracea.interface.torch.types import torch_dtype_of
from tracea.kernels.gemm.grouped import PART_ROWS, parts_of

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = ["grouped_mm", "histogram"]

MOST_COUNTED: Final = 2**22  # elements times bins: each is compared with each


def histogram(low: Lowering, x: Node, bins: int = 100, least: float = 0.0, most: float = 0.0) -> Node:
    """Lower how many elements lie in each of ``bins`` parts of equal width from ``least`` to ``most``.

    Source: ATen, native/cpu/HistogramKernel.cpp, histogramdd_cpu_contiguous.
    """
    if least == most:
        low.refuse("a histogram between the extremes of what it counts", "give its ends: min=, max=")
    if not x.type.is_static or x.type.dtype not in (DType.F32, DType.F64):
        low.refuse(f"a histogram of {x.type}", "give float32 or float64 of static extents")
    count = x.type.elements
    if count * bins > MOST_COUNTED:
        low.refuse(
            f"a histogram of {count} elements in {bins} bins",
            f"count up to {MOST_COUNTED} pairs of an element and a bin, or call it outside of the optimized module",
        )
    if count == 0:
        return low.copy(low.filled(0.0, low.shape))
    place = Unary(UnaryFunction.FLOOR, (Input(0) - least) * float(bins) / (most - least))
    place = minimum(place, float(bins - 1))  # the last part has its right end
    is_there = Binary(BinaryFunction.EQ, place, Input(1))
    is_hit = select(Input(0) >= least, select(Input(0) <= most, is_there, 0.0), 0.0)
    line = low.reshape(x, (1, count))
    numbers = low.reshape(low.counted(bins, torch_dtype_of(x.type.dtype)), (bins, 1))
    hits = _reduced(low, ReduceKind.SUM, is_hit, (line, numbers), "", x.type.dtype)
    return low.integers.state_counts(hits, count)


def grouped_mm(low: Lowering, x: Node, weights: Node, offsets: Node | None = None, *others: object) -> Node:
    """Lower the products of groups of rows, which end at ``offsets``, with a matrix of each group's own."""
    if offsets is None or x.type.rank != 2 or weights.type.rank != 3 or any(each is not None for each in others):
        low.refuse(f"products of groups of {x.type} with {weights.type}", "give rows (m, k), (groups, k, n), offsets")
    if not (x.type.is_static and weights.type.is_static):
        low.refuse("products of groups of a symbolic number of rows", "make the axes static: dynamic=None")
    (m, k), (groups, _, n) = x.type.static_shape, weights.type.static_shape
    if 0 in (m, k, n, groups):
        low.refuse(f"products of groups of {x.type} with {weights.type}", "leave out what has no elements")
    if m > EXACT_IN_F32 - 2 * PART_ROWS:
        low.refuse(f"products of groups of {m} rows", f"multiply at most {EXACT_IN_F32} at a time")
    key = (offsets.id, m, groups)
    if key not in low.routings:
        low.routings[key] = _tables(low, offsets, m, groups)
    first, number = low.routings[key]
    out = TensorType((m, n), low.dtype)
    op = GroupedGemmOp(m=m, n=n, k=k, groups=groups, parts=parts_of(m, groups), x=x.type, weights=weights.type, out=out)
    return low.graph.add(op, [x, weights, first, number], name=low.label())


def _tables(low: Lowering, offsets: Node, m: int, groups: int) -> tuple[Node, Node]:
    """Return which rows are a part, and whose they are; the rows behind the last group's are a group of their own.

    Group g has ``ceil(rows / PART_ROWS)`` parts. Part p is of the group before whose parts there are at most p: it
    begins at the largest of what the groups up to there say of it, none of which is behind its own end.
    """
    _check(low, offsets, m)
    parts = parts_of(m, groups)
    within = low.pointwise(minimum(maximum(Input(0), 0.0), float(m)), offsets, dtype=DType.F32, exact=True)
    ends = _joined(low, within, _number(low, m), "ends")
    starts = _joined(low, _number(low, 0), within, "starts")
    counted = Unary(UnaryFunction.FLOOR, (Input(0) - Input(1) + (PART_ROWS - 1.0)) / float(PART_ROWS))
    counts = _add(low, counted, (ends, starts), "parts")
    upto = low.graph.add(CumulativeSumOp(x=counts.type, axis=0), [counts], name=low.label("parts_before"))
    before = _add(low, Input(0) - Input(1), (upto, counts), "before")
    every = low.reshape(low.counted(parts + 1, torch_dtype_of(DType.F32)), (parts + 1, 1))
    part, start, end, earlier = (Input(at) for at in range(4))
    begin = select(earlier <= part, minimum(start + (part - earlier) * float(PART_ROWS), end), 0.0)
    rows = tuple(low.reshape(each, (1, groups + 1)) for each in (starts, ends, before))
    first = _reduced(low, ReduceKind.MAX, begin, (every, *rows), "first", DType.F32)
    ended = select(Input(1) <= Input(0), 1.0, 0.0)
    parts_alone = low.slice(every, 0, 0, parts)
    passed = _reduced(low, ReduceKind.SUM, ended, (parts_alone, low.reshape(upto, (1, groups + 1))), "", DType.F32)
    number = low.pointwise(minimum(Input(0), float(groups)), passed, dtype=DType.I32, exact=True)
    return low.cast(first, DType.I32), number


def _check(low: Lowering, offsets: Node, m: int) -> None:
    """Have each run check that offsets ascend within the rows, unless they do whatever a call gives."""
    known = low.constant_of(offsets)
    if known is not None:
        steps = [0, *(int(each) for each in known), m]
        if any(later < earlier for earlier, later in pairwise(steps)):
            low.refuse(f"groups of rows that end at {steps[1:-1]}, of {m}", "let offsets ascend within the rows")
        return
    low.check_indices(offsets, m + 1)
    if low.integers.ascends(offsets) or offsets.type.elements < 2:
        return
    groups = offsets.type.static_shape[0]
    later, earlier = low.slice(offsets, 0, 1, groups - 1), low.slice(offsets, 0, 0, groups - 1)
    low.check_indices(_add(low, Input(0) - Input(1), (later, earlier), "rows_of_each", DType.I64), m + 1)


def _number(low: Lowering, value: int) -> Node:
    return low.constant(torch.tensor([float(value)], device="cpu"), "rows")


def _joined(low: Lowering, first: Node, second: Node, part: str) -> Node:
    return low.graph.add(JoinOp.along((first.type, second.type), 0), [first, second], name=low.label(part))


def _add(low: Lowering, expr: Expr, operands: tuple[Node, ...], part: str, dtype: DType = DType.F32) -> Node:
    op = PointwiseOp(expr=expr, inputs=tuple(node.type for node in operands), out_dtype=dtype)
    return low.graph.add(op, operands, name=low.label(part))


def _reduced(low: Lowering, kind: ReduceKind, expr: Expr, operands: tuple[Node, ...], part: str, dtype: DType) -> Node:
    """Append a reduction over the last axis of an expression of operands that are broadcast."""
    value = PointwiseOp(expr=expr, inputs=tuple(node.type for node in operands), out_dtype=dtype)
    found = low.graph.add(value, operands, name=low.label(f"{part}.each" if part else "each"))
    op = ReduceOp(kind=kind, x=(found.type,), axes=(1,))
    return low.graph.add(op, [found], name=low.label(part))
