"""Interval arithmetic over a kernel's expressions: what the largest arguments can make of them."""

from __future__ import annotations

from dataclasses import dataclass

from tracea.semantic.index import INT32_MAX, Add, Const, FloorDiv, Index, Lookup, Max, Min, Mod, Mul, Param, Var
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes_async import MOST_USES, Gather
from tracea.semantic.proofs.walk import Site
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["Interval", "Ranges"]


@dataclass(frozen=True, slots=True)
class Interval:
    """Integers from ``low`` to ``high``."""

    low: int
    high: int


class Ranges:
    """The ranges of the names in scope at a node."""

    def __init__(self, kernel: TileKernel, site: Site) -> None:
        self._site = site
        self._tables = {table.name: table for table in kernel.tables}
        self._params = kernel.params
        self._closely = False
        self._known: dict[str, Interval] = {}
        for loop in site.loops:
            count = self.of(loop.count.to_index())
            if count is not None:
                most = count.high
                if most > INT32_MAX and loop.outside.proves(-loop.count + INT32_MAX):
                    most = INT32_MAX  # by a guard: 32 bits is the narrowest width
                self._known[loop.var.name] = Interval(0, max(0, most - 1))
            if loop.segment is not None:
                steps, workers = (self.of(p.to_index()) for p in (loop.segment.steps, loop.segment.workers))
                if steps is not None and workers is not None:
                    self._known[loop.segment.first.name] = self._known[loop.segment.count.name] = Interval(
                        0, steps.high
                    )
                    self._known[loop.segment.last.name] = Interval(0, workers.high)
            if loop.turns is not None:  # by guards of the launch: 32 bits is the narrowest width
                if loop.outside.proves(-loop.turns.tiles + INT32_MAX):
                    self._known[loop.turns.turn.name] = Interval(0, INT32_MAX - 1)
                if loop.outside.proves(-(loop.turns.tiles * loop.turns.steps) + MOST_USES):
                    self._known[loop.turns.first.name] = Interval(0, MOST_USES)
        self._facts = site.facts.with_maxima()

    def with_points(self, node: Gather, site: Site) -> Ranges:
        """Add the points of a gather."""
        for point, extent in zip(node.points, node.target.extent, strict=True):
            reach = self.of_expression(extent)
            if reach is not None:
                self._known[point.name] = Interval(0, max(0, reach.high - 1))
                this = Polynomial.atom(point)
                self._facts = self._facts.plus((this, site.canonical(extent) - this - 1)).with_maxima()
        return self

    def of_expression(self, index: Index, *, within: int = INT32_MAX) -> Interval | None:
        """Return the range of an expression of the kernel, by intervals, or by the prover where they are too wide.

        ``within`` is how large it may be: 32 bits is the narrowest width.
        """
        canonical = self._site.canonical(index).to_index()
        direct, folded = self.of(self._inlined(index)), self.of(canonical)
        if direct is None or folded is None:
            return direct or folded
        best = _meet(direct, folded)
        if max(-best.low, best.high) > within:  # worth a closer look
            self._closely = True
            closer = self.of(self._inlined(index))
            self._closely = False
            best = best if closer is None else _meet(best, closer)
            if max(-best.low, best.high) > within and self._facts.proves(-normalize(canonical) + within):
                best = _meet(best, Interval(best.low, within))
        return best

    def of(self, index: Index) -> Interval | None:
        """Return the range of an expression over canonical names; None where a name has none."""
        match index:
            case Const(value=value):
                return Interval(value, value)
            case Param(minimum=low, maximum=high):
                return Interval(low, high)
            case Var(name=name):
                return self._known.get(name)
            case Lookup(table=table):
                known = self._tables.get(table)
                low, high = (None, None) if known is None else (self.of(known.minimum), self.of(known.maximum))
                return None if low is None or high is None else Interval(low.low, high.high)
            case _:
                left, right = (self.of(part) for part in index.parts)
                if left is None or right is None:
                    return None
                found = _combine(index, left, right)
                return self._quotient_below(index, found) if self._closely and found is not None else found

    def _inlined(self, index: Index) -> Index:
        return index.substitute(self._site.names)

    def _quotient_below(self, index: Index, found: Interval) -> Interval:
        """Bound a quotient by the parameters that it was shown to stay below: an image row by the number of rows."""
        if not isinstance(index, FloorDiv) or found.high <= INT32_MAX // 2**16:
            return found
        value = self._site.canonical(index)
        for param in sorted(self._params, key=lambda param: param.maximum):
            if param.maximum >= found.high:
                break
            if self._facts.proves(Polynomial.atom(param) - 1 - value):
                return Interval(found.low, param.maximum - 1)
        return found


def _meet(a: Interval, b: Interval) -> Interval:
    return Interval(max(a.low, b.low), min(a.high, b.high))


def _combine(index: Index, a: Interval, b: Interval) -> Interval | None:
    match index:
        case Add():
            return Interval(a.low + b.low, a.high + b.high)
        case Mul():
            corners = (a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
            return Interval(min(corners), max(corners))
        case FloorDiv() if b.high >= 1:
            low = max(b.low, 1)
            corners = (a.low // low, a.low // b.high, a.high // low, a.high // b.high)
            return Interval(min(corners), max(corners))
        case Mod() if b.high >= 1:
            return Interval(0, min(b.high - 1, a.high) if a.low >= 0 else b.high - 1)
        case Min():
            return Interval(min(a.low, b.low), min(a.high, b.high))
        case Max():
            return Interval(max(a.low, b.low), max(a.high, b.high))
        case _:
            return None
