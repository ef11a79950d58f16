"""Attention over listed spans: each block of queries takes the keys of its own list's spans, every span once.

What the tables say is the caller's: the launch checks it (:func:`tracea.semantic.nodes_spans.spans_fault`), and the
proof takes that for granted. It shows that the list is the block's, that one loop takes all of its spans, a second one
all keys of a span, and that a step hides what its span hides.
"""

from __future__ import annotations

from tracea.core.ops.attention import AttentionOp
from tracea.semantic.index import Index, ceil_div, maximum, minimum
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes_attention import AttentionStep
from tracea.semantic.nodes_spans import SpanTables, SpanUse
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.tiling import chain, stride_of
from tracea.semantic.proofs.walk import Box, LoopKind, Site
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["every_span"]


def every_span(kernel: TileKernel, site: Site, node: AttentionStep, span: SpanUse, *, keys: Box, result: Box) -> Fact:
    """Show that two loops take all keys of all spans of the list of a step's block of queries, each once.

    Raises:
        ProofFailed: it was not shown.
    """
    tables, op = span.tables, kernel.op
    assert isinstance(op, AttentionOp)
    assert op.spans is not None  # the step's numbers were compared with the op's
    if not all(table in kernel.tables for table in tables.tables):
        raise refuse("attention", site.label, "its tables are not those of the kernel, or have other ranges")
    which, lists = _list_of(kernel, site, result, tables, each=op.spans.each)
    spans, offsets = site.loops[-2:]
    shown = {
        "queries of the tables": (tables.queries, kernel.buffer(result.buffer).shape[-2]),
        "keys of the tables": (tables.keys, kernel.buffer(keys.buffer).shape[-2]),
        "lists of the tables": (tables.lists, lists),
        "number of the span": (span.number, tables.number(which) + spans.var),
    }
    for what, (ours, theirs) in shown.items():
        if site.canonical(ours) != site.canonical(theirs):
            raise refuse("attention", site.label, f"{what}: {ours}, which was not shown to be {theirs}")
    count = site.canonical(maximum(0, tables.count(which)))
    if spans.kind is not LoopKind.SEQUENTIAL or spans.count not in (count, site.canonical(tables.count(which))):
        raise refuse("attention", site.label, f"{spans.var} does not take the {count.to_index()} spans of a list")
    begin = site.canonical(maximum(0, span.key_begin))
    end = site.canonical(minimum(tables.keys, span.key_end))
    size = site.canonical(maximum(0, (end - begin).to_index()))
    first, extent = keys.offset[-2], keys.extent[-2]
    start = first - stride_of(first, offsets) * offsets.atom
    if offsets.kind is not LoopKind.SEQUENTIAL or start != begin:
        raise refuse(
            "attention", site.label, f"keys begin at {start.to_index()}, those of the span at {begin.to_index()}"
        )
    if chain(first - start, extent, size, (offsets,), site.unguarded) is None:
        raise refuse("attention", site.label, f"the {size.to_index()} keys of a span were not shown to be taken once")
    return Fact("attention", site.label, f"the keys of each span of list {which} of {tables.first} are taken once")


def _list_of(kernel: TileKernel, site: Site, result: Box, tables: SpanTables, *, each: bool) -> tuple[Index, Index]:
    """Return the list of a result's queries, and how many lists there are."""
    shape = [site.canonical(size) for size in kernel.buffer(result.buffer).shape]
    block = site.canonical(result.offset[-2].to_index() // tables.rows)
    blocks = site.canonical(ceil_div(shape[-2].to_index(), tables.rows))
    if block * tables.rows != result.offset[-2]:
        raise refuse("attention", site.label, f"{result.offset[-2].to_index()} is no block of {tables.rows} queries")
    if not each:
        return block.to_index(), blocks.to_index()
    place, lists = Polynomial({}), Polynomial.of(1)
    for offset, size in zip(result.offset[:-2], shape[:-2], strict=True):
        place, lists = place * size + offset, lists * size
    return (place * blocks + block).to_index(), (lists * blocks).to_index()
