"""32-bit indices: on a GPU every index but a stride is computed in 32 bits, and the launcher's guards make them fit.

A parameter that occurs only as a stride is 64 bits wide, and so is what it is multiplied with. All else that the text
computes is 32 bits wide, in the simplest form of each expression: every part of that form is shown to stay within.
Workers that share a flat space of tiles and steps divide it in 64 bits: tiles · steps · workers is shown to fit those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tracea.semantic.fields import expressions, subexpressions
from tracea.semantic.index import INT32_MAX, Const, Index
from tracea.semantic.nodes_async import Gather, SegmentLoop
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.extent import past_the_end
from tracea.semantic.proofs.interval import Ranges
from tracea.semantic.proofs.walk import LoopKind, Site
from tracea.semantic.tile_kernel import MemorySpace, TileKernel

__all__ = ["prove_index_range", "wide_params"]

_INT64_MAX: Final = 2**63 - 1


def wide_params(kernel: TileKernel) -> frozenset[str]:
    """Return the names of the parameters that are strides and nothing else: 64 bits wide."""
    strides = {
        name
        for buffer in kernel.buffers_in(MemorySpace.GLOBAL)
        for stride in buffer.element_strides
        for name in stride.names()
    }
    return frozenset(strides - {name for buffer in kernel.buffers for size in buffer.shape for name in size.names()})


def prove_index_range(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove of a GPU kernel that every 32-bit index, and every part of it, stays within 32 bits.

    Raises:
        ProofFailed: a value was not shown to fit; a smaller maximum of a parameter would make it.
    """
    if not any(loop.kind is LoopKind.BLOCK for site in sites for loop in site.loops):
        return
    wide = wide_params(kernel)
    count = 0
    for site in sites:
        if isinstance(site.node, Gather):
            continue  # the width proof has its points
        ranges = Ranges(kernel, site)
        if isinstance(site.node, SegmentLoop):
            _flat_space(ranges, site, site.node)
        seen: set[Index] = set()
        for expression in (*expressions(site.node), *past_the_end(site.node)):
            for part in subexpressions(expression.simplify()):
                if isinstance(part, Const) or part in seen or part.names() & wide:
                    continue
                seen.add(part)
                count += 1
                reach = ranges.of_expression(part)
                if reach is not None and reach.low >= -INT32_MAX and reach.high <= INT32_MAX:
                    continue
                if reach is None and not part.parts:
                    continue  # a name that the node itself binds
                spans = "no bound" if reach is None else f"{reach.low} .. {reach.high}"
                raise refuse("index range", site.label, f"{part} has {spans}, which does not fit 32 bits")
    limits = ", ".join(f"{p.name} <= {p.maximum}" for p in kernel.params if p.name not in wide)
    yield Fact("index range", kernel.name, f"{count} indices fit 32 bits where {limits}", (("indices", count),))


def _flat_space(ranges: Ranges, site: Site, node: SegmentLoop) -> None:
    """Show that the largest product from which a worker computes its share fits 64 bits."""
    places, workers = ranges.of_expression((node.tiles * node.steps).simplify()), ranges.of_expression(node.workers)
    if places is not None and workers is not None and places.high * workers.high <= _INT64_MAX:
        return
    most = "no bound" if places is None or workers is None else f"up to {places.high} · {workers.high}"
    detail = f"({node.tiles}) * ({node.steps}) * ({node.workers}) has {most}, which does not fit 64 bits"
    raise refuse("index range", site.label, detail)
