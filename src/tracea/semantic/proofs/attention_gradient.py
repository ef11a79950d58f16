"""Gradients of attention: every pair that is seen gives its part to all three gradients, once.

Two passes take the keys that a block of queries sees, as an attention's step does: the first one for peaks and totals,
the second one for the gradients. Around them sequential loops take all queries of all heads that share a key head. The
sums over them begin with zeros before these loops and are stored behind them; the sums of a block of queries begin
and end in its iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tracea.core.expr import Constant, Input
from tracea.core.ops.attention_gradient import AttentionGradientOp
from tracea.semantic.index import Index
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import PointwiseTile, Region
from tracea.semantic.nodes_attention import AttentionStart
from tracea.semantic.nodes_attention_gradient import (
    AttentionDeltas,
    AttentionGradient,
    AttentionPeaks,
    AttentionSlopeEnd,
    KeyBlock,
)
from tracea.semantic.proofs.attention import check_numbers, every_key, operands_aligned, room_for_terms, rows_of
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.tiling import chain
from tracea.semantic.proofs.walk import Box, Site
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["prove_attention_gradient"]

_NAME = "attention"
_ZERO = Polynomial({})


def prove_attention_gradient(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that a kernel of gradients sums what all pairs that are seen give.

    Raises:
        ProofFailed: it was not shown.
    """
    kinds = (AttentionStart, AttentionPeaks, AttentionDeltas, AttentionGradient, AttentionSlopeEnd)
    if not any(isinstance(site.node, kinds[1:]) for site in sites):
        return
    found = [[site for site in sites if isinstance(site.node, kind)] for kind in kinds]
    if any(len(each) != 1 for each in found):
        counts = ", ".join(f"{len(each)} {kind.__name__}" for each, kind in zip(found, kinds, strict=True))
        raise refuse(_NAME, kernel.name, f"{counts}: not one of each")
    yield from _Gradients(kernel, sites, *(each[0] for each in found)).facts()


class _Gradients:
    """The nodes of one kernel of gradients, where they stand."""

    def __init__(self, kernel: TileKernel, sites: Sequence[Site], *own: Site) -> None:
        self.kernel, self.sites = kernel, sites
        self.start, self.peaks, self.deltas, self.step, self.end = own
        first, pass_1, between, pass_2, last = (site.node for site in own)
        assert isinstance(first, AttentionStart)
        assert isinstance(pass_1, AttentionPeaks)
        assert isinstance(between, AttentionDeltas)
        assert isinstance(pass_2, AttentionGradient)
        assert isinstance(last, AttentionSlopeEnd)
        self.first, self.pass_1, self.between, self.pass_2, self.last = first, pass_1, between, pass_2, last
        self.around = self.step.loops[:-1]

    def facts(self) -> Iterator[Fact]:
        """Yield what was shown."""
        op = self.kernel.op
        if not isinstance(op, AttentionGradientOp):
            raise refuse(_NAME, self.step.label, f"the kernel's op is {type(op).__name__}, no gradients of attention")
        for site, node in ((self.peaks, self.pass_1), (self.step, self.pass_2)):
            check_numbers(site, node, op.forward)
        if self.pass_2.slope != op.slope:
            raise refuse(_NAME, self.step.label, f"slope is {self.pass_2.slope}, the op's is {op.slope}")
        on_tiles = [said is not None for said in (self.pass_1.count, self.pass_2.count, self.pass_2.terms)]
        if any(on_tiles) and not all(on_tiles):
            raise refuse(_NAME, self.step.label, "panels of terms need their count and room for slopes, in both passes")
        self._order()
        self._users()
        queries, keys = self._aligned()
        yield every_key(self.kernel, self.peaks, self.pass_1, self._keys(self.peaks, self.pass_1.keys))
        yield every_key(self.kernel, self.step, self.pass_2, keys)
        self._results(queries, keys)
        yield Fact(_NAME, self.step.label, "all queries of a key head give to its gradients once, in sequence")

    def _order(self) -> None:
        """Show that the nodes stand in one iteration of the same loops, in their order, unconditionally."""
        sites = (self.start, self.peaks, self.deltas, self.step, self.end)
        loops = (self.start.loops, self.peaks.loops[:-1], self.deltas.loops, self.around, self.end.loops)
        if any(other != self.around for other in loops) or any(site.guards for site in sites):
            raise refuse(_NAME, self.step.label, "the two passes are not around one block of queries")
        if any(a.place >= b.place for a, b in pairwise(sites)):
            raise refuse(_NAME, self.step.label, "peaks, deltas and gradients do not follow each other")

    def _users(self) -> None:
        """Show that what a pass leaves is what the next one reads, and that nothing else touches it."""
        state = self.first.state
        regions = {
            "peaks": (state.peaks, self.pass_1.peaks, self.pass_2.peaks),
            "totals": (state.totals, self.pass_1.totals, self.between.totals, self.pass_2.totals),
            "deltas": (self.between.deltas, self.pass_2.deltas),
            "sums": (state.sums, self.pass_2.sums, self.last.sums),
            "panels of queries": (self.pass_1.queries, self.pass_2.queries),
        }
        for what, same in regions.items():
            if any(region != same[0] for region in same):
                raise refuse(_NAME, self.step.label, f"{what} are {', '.join(map(str, same))}")
        for what, count in (("peaks", 3), ("totals", 4), ("deltas", 2), ("sums", 3)):
            self._count(regions[what][0], count)
        rows = {site.canonical(node.rows) for site, node in self._with_rows()}
        if len(rows) != 1:
            raise refuse(_NAME, self.step.label, f"{', '.join(str(row.to_index()) for row in rows)} rows in one block")

    def _with_rows(
        self,
    ) -> tuple[tuple[Site, AttentionStart | AttentionPeaks | AttentionDeltas | AttentionGradient], ...]:
        return (
            (self.start, self.first),
            (self.peaks, self.pass_1),
            (self.deltas, self.between),
            (self.step, self.pass_2),
        )

    def _count(self, region: Region, wanted: int) -> list[Site]:
        users = [s for s in self.sites if any(a.region.buffer == region.buffer for a in s.node.accesses())]
        if len(users) != wanted:
            raise refuse(_NAME, self.step.label, f"{len(users)} nodes touch {region.buffer}, not {wanted}")
        return users

    def _keys(self, site: Site, region: Region) -> Box:
        return rows_of(self.kernel, self.sites, site, region)

    def _aligned(self) -> tuple[Box, Box]:
        """Show that both passes have their operands at one block of queries and one of keys; return these."""
        kernel, step, node = self.kernel, self.step, self.pass_2
        inputs = [buffer.name for buffer in kernel.buffers if buffer.role is BufferRole.INPUT]
        queries, grads = (rows_of(kernel, self.sites, step, region) for region in (node.queries, node.grads))
        summed, results = (
            rows_of(kernel, self.sites, self.deltas, region) for region in (self.between.grads, self.between.results)
        )
        by_elements = [
            rows_of(kernel, self.sites, step, region, axis=1) for region in (node.query_rows, node.grad_rows)
        ]
        keys, values = self._keys(step, node.keys), self._keys(step, node.values)
        again = self._keys(self.peaks, self.pass_1.keys)
        boxes = (grads, results, queries, keys, values)
        if [box.buffer for box in boxes] != inputs[: len(boxes)]:
            raise refuse(_NAME, step.label, f"operands {[box.buffer for box in boxes]}, not {inputs[: len(boxes)]}")
        if kernel.buffer(node.query_rows.buffer).shape[-2] != kernel.buffer(node.grad_rows.buffer).shape[-2]:
            raise refuse(_NAME, step.label, f"{node.query_rows} and {node.grad_rows} have other room for rows")
        if by_elements != [queries, grads] or summed != grads:
            raise refuse(_NAME, step.label, "rows in panels of elements are not those in panels of queries")
        rows = step.canonical(node.rows)
        head = queries.offset[:-2]
        pairs: list[tuple[str, Polynomial, Polynomial]] = []
        for box in boxes:
            width = step.canonical(kernel.buffer(box.buffer).shape[-1])
            pairs += [
                (f"elements of {box.buffer}", box.extent[-1], width),
                (f"first of {box.buffer}", box.offset[-1], _ZERO),
            ]
            pairs += [(f"head of {box.buffer}", *both) for both in zip(box.offset[:-2], head, strict=False)]
        for box in boxes[:3]:
            pairs += [
                (f"position of {box.buffer}", box.offset[-2], step.canonical(node.first_query)),
                (f"rows of {box.buffer}", box.extent[-2], rows),
            ]
        for site, block, box in ((self.peaks, self.pass_1, again), (step, node, keys), (step, node, values)):
            pairs += [
                (f"position of {box.buffer}", box.offset[-2], site.canonical(block.first_key)),
                ("position of the queries", site.canonical(block.first_query), queries.offset[-2]),
                *room_for_terms(kernel, site, block, box.extent[-2], self._granules(block)),
            ]
        if node.terms is not None and rows_of(kernel, self.sites, step, node.terms.key_columns, axis=1) != keys:
            raise refuse(_NAME, step.label, "keys by columns are not those by rows")
        pairs += [(f"head of {again.buffer}", *both) for both in zip(again.offset[:-2], head, strict=False)]
        pairs += operands_aligned(kernel, self.peaks, self.pass_1, head, queries=queries, keys=again)
        pairs += operands_aligned(kernel, step, node, head, queries=queries, keys=keys)
        if again.buffer != keys.buffer:
            raise refuse(_NAME, self.peaks.label, f"keys of {again.buffer}, and then of {keys.buffer}")
        for region in (node.key_sums, node.value_sums):
            box = step.box(region)
            pairs += [
                (f"position of {box.buffer}", box.offset[-2], keys.offset[-2]),
                (f"rows of {box.buffer}", box.extent[-2], keys.extent[-2]),
                (f"first of {box.buffer}", box.offset[-1], _ZERO),
                (f"width of {box.buffer}", box.extent[-1], step.canonical(kernel.buffer(box.buffer).shape[-1])),
            ]
        self._equal(step, pairs)
        return queries, keys

    def _granules(self, block: KeyBlock) -> Mapping[str, tuple[Index | int, Region]]:
        """Return what the second pass keeps as sums of terms, where it does: of how many panels, and where."""
        terms = self.pass_2.terms
        if block is not self.pass_2 or terms is None:
            return {}
        panels = self.first.state.peaks.extent[-2]
        kept = {"weights": (panels, terms.weights), "slopes": (panels, terms.slopes), "turned": (2, terms.turned)}
        slopes, scores = (self.step.box(region).extent for region in (self.pass_2.slopes, self.pass_2.scores))
        if slopes != scores:
            raise refuse(_NAME, self.step.label, f"{self.pass_2.slopes} has not the room of {self.pass_2.scores}")
        return kept

    def _results(self, queries: Box, keys: Box) -> None:
        """Show where the three gradients go, and that the sums over queries take each query once."""
        outputs = [buffer.name for buffer in self.kernel.buffers if buffer.role is BufferRole.OUTPUT]
        target = self.end.box(self.last.target)
        whole = zip((*target.offset, *target.extent), (*queries.offset, *queries.extent), strict=True)
        self._equal(self.end, [("gradient of the queries", *both) for both in whole])
        names = [target.buffer]
        for region in (self.pass_2.key_sums, self.pass_2.value_sums):
            names.append(self._summed(region, queries, keys))
        if names != outputs:
            raise refuse(_NAME, self.step.label, f"the gradients go to {names}, not to {outputs}")

    def _summed(self, region: Region, queries: Box, keys: Box) -> str:
        """Show that a sum begins with zeros, takes all queries, and is stored; return where."""
        zero, step, store = self._count(region, 3)
        name = region.buffer
        begun, kept = zero.node, store.node
        if step is not self.step or zero.loops != store.loops or zero.guards or store.guards:
            raise refuse(_NAME, self.step.label, f"{name} is not begun and stored around the loops over queries")
        ours = isinstance(begun, PointwiseTile) and begun.expr == Constant(0.0) and not begun.inputs
        theirs = isinstance(kept, PointwiseTile) and kept.expr == Input(0) and len(kept.inputs) == 1
        if not (ours and theirs) or step.loops[: len(zero.loops)] != zero.loops:
            raise refuse(_NAME, self.step.label, f"{name} does not begin with zeros, or is not stored as it is")
        assert isinstance(begun, PointwiseTile)
        assert isinstance(kept, PointwiseTile)
        source = kept.inputs[0]
        assert isinstance(source, Region)
        target = store.box(kept.target)
        shape = [zero.canonical(size) for size in self.kernel.buffer(name).shape]
        pairs: list[tuple[str, Polynomial, Polynomial]] = []
        for box in (zero.box(begun.target), store.box(source)):
            pairs += [(f"beginning of {name}", offset, _ZERO) for offset in box.offset]
            pairs += [(f"extent of {name}", *both) for both in zip(box.extent, shape, strict=True)]
        pairs += [
            (f"head of {target.buffer}", *both) for both in zip(target.offset[:-2], keys.offset[:-2], strict=True)
        ]
        pairs += [(f"beginning of {target.buffer}", offset, _ZERO) for offset in target.offset[-2:]]
        pairs += [(f"extent of {target.buffer}", *both) for both in zip(target.extent[-2:], shape, strict=True)]
        self._equal(store, pairs)
        inner = self.around[len(zero.loops) :]
        taken: list[object] = []
        sizes = [step.canonical(size) for size in self.kernel.buffer(queries.buffer).shape]
        for axis in (-3, -2):
            swept = chain(queries.offset[axis], queries.extent[axis], sizes[axis], inner, step.unguarded)
            if swept is None:
                raise refuse(
                    _NAME, self.step.label, f"not all {sizes[axis].to_index()} of {queries.buffer} are taken once"
                )
            taken += swept.loops
        if len(taken) != len(inner) or any(loop.kind.is_parallel for loop in inner):
            raise refuse(_NAME, self.step.label, f"{name} is not summed in one sequence over the queries")
        return target.buffer

    def _equal(self, site: Site, pairs: Sequence[tuple[str, Polynomial, Polynomial]]) -> None:
        for what, left, right in pairs:
            if not site.facts.proves_equal(left, right):
                raise refuse(_NAME, site.label, f"{what}: {left.to_index()} and {right.to_index()}")
