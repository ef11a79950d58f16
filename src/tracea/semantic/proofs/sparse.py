"""Products over listed blocks: each block of a line is multiplied once, with its own steps of the other factor.

What a table says is the caller's: the launch checks it (:func:`tracea.semantic.nodes_sparse.runs_fault`), and the proof
takes that for granted. It shows the rest. Block ``e`` of the panels is what the factor holds at ``step[e]`` and
``line[e]``; a product reads all blocks of one run, its tile lies in that run's line, and the other factor's panels are
its chunk of the tile's rows. A product of several lines does so for each, in the columns of that line.
So the tile is the sum over the line's blocks of ``a[:, steps of e] · b[e]``: nothing else is in it, and nothing twice,
since the chunks cover the depth once and the steps of a run ascend within its chunk. It is stored as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.core.expr import Input
from tracea.core.ops.block_sparse import BlockSparseOp
from tracea.semantic.index import Const, Index, Lookup, ceil_div, minimum
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import Pack
from tracea.semantic.nodes_sparse import RunProduct
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.coverage import exactly_at, first_and_last
from tracea.semantic.proofs.provenance import origin
from tracea.semantic.proofs.tiling import chain
from tracea.semantic.proofs.timeline import barrier_between
from tracea.semantic.proofs.walk import Box, LoopKind, Site
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["listed_panels", "prove_sparse"]

_ZERO = Polynomial({})


def listed_panels(kernel: TileKernel) -> frozenset[str]:
    """Return the buffers that hold listed blocks: what is read of them is what their table says was written."""
    return frozenset(node.b.buffer for node in kernel.body.walk() if isinstance(node, RunProduct))


def prove_sparse(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that every product over listed blocks sums the blocks of its tile's line.

    Raises:
        ProofFailed: the blocks, the line, the rows or the steps were not shown to be those of the tile, or its sums are
        not stored as they are.
    """
    for site in sites:
        if isinstance(site.node, RunProduct):
            yield _product(kernel, sites, site, site.node)


def _product(kernel: TileKernel, sites: Sequence[Site], site: Site, node: RunProduct) -> Fact:
    op = kernel.op
    if not isinstance(op, BlockSparseOp) or (op.block, op.chunk) != (node.size, node.runs.chunk):
        raise refuse("sparse", site.label, f"blocks of {node.size} steps, the op is {type(op).__name__}")
    if not all(table in kernel.tables for table in node.runs.tables):
        raise refuse("sparse", site.label, "its tables are not those of the kernel, or have other ranges")
    if node.epilogue is not None and (node.epilogue.expr != Input(0) or node.epilogue.operands):
        raise refuse("sparse", site.label, f"stores {node.epilogue.expr}, the op's result is the sums as they are")
    target = node.epilogue.target if node.epilogue is not None else None
    result = site.box(node.c if target is None else target)
    _rows(kernel, sites, site, node, result)
    pack = _packing(kernel, sites, site, node)
    _line(kernel, site, node, result, pack)
    return Fact("sparse", site.label, f"the blocks of run {node.run} of {node.runs.first} are summed, each once")


def _rows(kernel: TileKernel, sites: Sequence[Site], site: Site, node: RunProduct, result: Box) -> None:
    """Show that a's panels are the tile's rows, over the whole depth."""
    a = origin(kernel, sites, site, site.box(node.a))
    if a is None or not a.packed or kernel.buffer(a.box.buffer).role is not BufferRole.INPUT:
        raise refuse("sparse", site.label, f"what {node.a.buffer} holds was not traced to an operand in panels")
    depth = site.canonical(kernel.buffer(a.box.buffer).shape[-1])
    first, steps = a.box.offset[-1], a.box.extent[-1]
    high = minimum(node.runs.chunk * node.size, (depth - first).to_index())
    for what, left, right in (
        ("first step of a and of the chunk", first, site.canonical(node.base)),
        ("steps of a and of the chunk", steps, normalize(high)),
        ("depth of the blocks and of a", site.canonical(node.depth), depth),
        ("rows of a and of the tile", a.box.offset[-2], result.offset[-2]),
    ):
        _same(site, what, left, right)
    _chunks(site, node, first, steps, depth)
    _at_least(site, "rows of a", a.box.extent[-2], result.extent[-2])


def _chunks(site: Site, node: RunProduct, first: Polynomial, steps: Polynomial, depth: Polynomial) -> None:
    """Show that the chunks are all of the depth, summed from the first to the last, with no other sum in between."""
    swept = chain(first, steps, depth, site.loops, site.unguarded)
    if swept is None:
        raise refuse("sparse", site.label, f"chunks of {steps.to_index()} steps were not shown to cover the depth once")
    summed = [loop for loop in site.loops if loop in swept.loops]
    begin, last = first_and_last(summed)
    if not exactly_at(site.unguarded, site.condition(node.accumulate), begin, holds=False):
        raise refuse("sparse", site.label, f"the sum does not start exactly at the first chunk: {node.accumulate}")
    if node.epilogue and not exactly_at(site.unguarded, site.condition(node.finish), last, holds=True):
        raise refuse("sparse", site.label, f"the sum does not finish exactly at the last chunk: {node.finish}")
    place = site.box(node.c).offset
    for loop in site.loops[site.loops.index(summed[0]) :] if summed else ():
        if loop not in summed and not any(loop.var in offset.atoms() for offset in place):
            raise refuse("sparse", site.label, f"{node.c.buffer} holds one sum for all iterations of {loop.var}")


def _packing(kernel: TileKernel, sites: Sequence[Site], site: Site, node: RunProduct) -> Pack:
    """Show that panel e holds block e, for all blocks that there are, before any is read."""
    writers = [other for other in sites for a, box in other.accesses() if a.writes and box.buffer == node.b.buffer]
    if len(writers) != 1 or not isinstance(writers[0].node, Pack) or writers[0].guards:
        raise refuse("sparse", site.label, f"{node.b.buffer} is filled by {len(writers)} nodes, must be one Pack")
    writer, pack = writers[0], writers[0].node
    if len(writer.loops) != 1 or writer.loops[0].kind not in (LoopKind.TASK, LoopKind.TEAM):
        raise refuse("sparse", writer.label, "the blocks are not the tasks of one loop")
    if writer.place > site.place or not barrier_between(sites, writer, site, None):
        raise refuse("sparse", site.label, f"no barrier lies between {writer.label} and this reader of its blocks")
    block, runs, size = writer.loops[0], node.runs, node.size
    _same(writer, "tasks and blocks", block.count, writer.canonical(runs.begin(runs.count)))
    at = block.atom.to_index()
    source, target = writer.box(pack.source), writer.box(pack.target)
    shape = kernel.buffer(pack.source.buffer).shape
    rows, columns = Lookup(runs.step, at) * size, Lookup(runs.line, at) * size
    high, wide = minimum(size, shape[0] - rows), minimum(size, shape[1] - columns)
    panels = ceil_div(wide, pack.panel)
    if kernel.buffer(pack.source.buffer).role is not BufferRole.INPUT or (pack.axis, pack.merged) != (1, 1):
        raise refuse("sparse", writer.label, "the blocks are not packed from an operand, columns in panels")
    found = (*source.offset, *source.extent, *target.offset, *target.extent[:3])
    zero: Index = Const(0)
    wanted = (rows, columns, high, wide, at, zero, zero, zero, Const(1), panels, high)
    names = ("first step", "first column", "steps", "columns", "number", "panel", "step", "lane", "number of blocks")
    for place, (left, right) in enumerate(zip(found, wanted, strict=True)):
        _same(writer, f"{names[min(place, 8)]} of a block", left, writer.canonical(right))
    return pack


def _line(kernel: TileKernel, site: Site, node: RunProduct, result: Box, pack: Pack) -> None:
    """Show that the tile lies in the columns of the line whose blocks it sums, or of as many lines as it sums."""
    runs, size = node.runs, node.size
    line, lines, summed = site.canonical(node.line), site.canonical(runs.lines), site.canonical(node.lines)
    shape = kernel.buffer(pack.source.buffer).shape
    panels = kernel.buffer(node.b.buffer).shape
    b = site.box(node.b)
    for what, left, right in (
        ("lines and blocks of columns", lines, normalize(ceil_div(shape[1], size))),
        ("blocks of the depth", site.canonical(runs.steps), normalize(ceil_div(shape[0], size))),
        ("blocks in the panels", b.extent[0], lines * site.canonical(runs.steps)),
        ("first block", b.offset[0], _ZERO),
        ("first step of a block", b.offset[2], _ZERO),
        ("steps of a block", b.extent[2], Polynomial.of(size)),
        ("first lane", b.offset[3], _ZERO),
        ("lanes of a panel", b.extent[3], site.canonical(panels[3])),
        ("width of a panel", site.canonical(panels[3]), Polynomial.of(pack.panel * pack.terms + pack.marks)),
        ("granules of a and of b", Polynomial.of(node.granule), Polynomial.of(pack.granule)),
        ("columns of the line and of the tile", line * size + b.offset[1] * pack.panel, result.offset[-1]),
    ):
        _same(site, what, left, right)
    _at_least(site, "number of the line", line, _ZERO)
    _at_least(site, "number of lines", lines, line + summed)
    _at_least(site, "columns of the line", (line + summed) * size, result.offset[-1] + result.extent[-1])
    if node.lines == Const(1):
        _at_least(site, "columns of the panels", b.extent[1] * pack.panel, result.extent[-1])
        return
    _same(site, "first panel of each line", b.offset[1], _ZERO)
    _at_least(site, "columns of each line's panels", b.extent[1] * pack.panel, Polynomial.of(size))


def _same(site: Site, what: str, left: Polynomial, right: Polynomial) -> None:
    if not site.facts.proves_equal(left, right):
        raise refuse("sparse", site.label, f"{what}: {left.to_index()} was not shown to be {right.to_index()}")


def _at_least(site: Site, what: str, has: Polynomial, needs: Polynomial) -> None:
    if not site.facts.proves(has - needs):
        raise refuse("sparse", site.label, f"{what}: {has.to_index()} was not shown to be at least {needs.to_index()}")
