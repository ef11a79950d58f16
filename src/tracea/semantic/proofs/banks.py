"""Bank conflicts: the exact ways of every warp access to shared memory whose lanes are known.

An address is a base, which depends on loop variables, and an offset, which depends on the lane. Where the bits of the
two do not overlap the sum is an XOR, the swizzle distributes over it, and the ways are those of the offset alone, by
the ranks of two matrices (``wavefronts``). Elsewhere all residues of the base that matter are counted out; for
residues of which some are not reached, the number is a bound from above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from math import gcd

from tracea.semantic.index import Mod, Var
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes_async import Mma, Wgmma
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.divisibility import Divisibility
from tracea.semantic.proofs.walk import Site
from tracea.semantic.proofs.warp_lanes import LanePattern, WarpAccess, warp_accesses
from tracea.semantic.proofs.wavefronts import Conflict, conflict_of, linear_columns, linear_ways
from tracea.semantic.swizzle import WAVEFRONT_BYTES, Swizzle
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["SiteWays", "bank_ways", "prove_banks"]

_MAX_ITERATIONS = 4096


@dataclass(frozen=True, slots=True)
class SiteWays:
    """The most ways of the accesses of one node to one buffer, with a counter-example where there are several."""

    access: WarpAccess
    nbytes: int
    what: str
    ways: int
    exact: bool
    conflict: Conflict
    iteration: str


def prove_banks(kernel: TileKernel, sites: Sequence[Site], *, conflict_free: bool | None = None) -> Iterator[Fact]:
    """State the ways of every warp access; prove that those of the main loop are free of conflicts, if they must be.

    ``conflict_free``: whether they must; None: where matrices are multiplied by tensor cores and the schedule says
    ``swizzle=1``.

    Raises:
        ProofFailed: an access of the main loop has conflicts; it names node, lane, iteration and words.
    """
    if conflict_free is None:
        conflict_free = kernel.schedule.get("swizzle") == 1 and _uses_tensor_cores(kernel)
    for found in bank_ways(kernel, sites):
        access = found.access
        buffer = access.buffer
        if conflict_free and access.main_loop and found.ways > 1:
            raise refuse(
                "banks",
                access.site.label,
                f"{access.region} by {found.what} of {found.nbytes} bytes: {found.ways} ways: {found.conflict}; "
                f"{buffer.name} has {buffer.swizzle or 'no swizzle'}",
                lane=found.conflict.lanes[1] if len(found.conflict.lanes) > 1 else None,
                iteration=found.iteration,
            )
        verb = "written" if access.writes else "read"
        bound = "" if found.exact else "at most "
        yield Fact(
            "banks",
            access.site.label,
            f"{buffer.name} {verb} by {found.what} of {found.nbytes} bytes: {bound}{found.ways} way"
            + ("" if found.ways == 1 else "s"),
            (("buffer", buffer.name), ("ways", found.ways), ("access_bytes", found.nbytes)),
        )


def bank_ways(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[SiteWays]:
    """Yield the most ways of each node's accesses to each buffer, by width."""
    divisibility = Divisibility(kernel)
    for access in warp_accesses(kernel, tuple(sites)):
        strides = [normalize(stride).constant for stride in access.buffer.element_strides]
        if any(stride is None for stride in strides):
            continue
        unit = access.buffer.dtype.nbytes
        base = Polynomial({})
        for offset, stride in zip(access.box.offset, strides, strict=True):
            base = base + offset * ((stride or 0) * unit)
        pitch = (strides[-2] or 0) * unit if len(strides) > 1 else 0
        swizzle = access.buffer.swizzle
        residues = _residues(base, _period(swizzle), access.site, divisibility)
        by_width: dict[tuple[str, int], list[tuple[int, int, LanePattern, bool]]] = {}
        for pattern in access.patterns:
            ways, residue, exact = _pattern_ways(pattern, pitch, swizzle, residues)
            by_width.setdefault((pattern.what, pattern.nbytes), []).append((ways, residue, pattern, exact))
        for (what, nbytes), found in by_width.items():
            ways, residue, pattern, _ = max(found, key=lambda item: item[0])
            exact = all(item[3] for item in found)
            conflict = Conflict(1)
            iteration = ""
            if ways > 1:
                conflict = conflict_of(_addresses(pattern, pitch, swizzle, residue), nbytes)
                iteration = _iteration(base, residue, _period(swizzle), access.site)
            yield SiteWays(access, nbytes, what, ways, exact, conflict, iteration)


def _uses_tensor_cores(kernel: TileKernel) -> bool:
    products = [node for node in kernel.body.walk() if isinstance(node, Mma | Wgmma)]
    return any(dict(node.intrinsic.attributes).get("form") != "fma" for node in products)


def _period(swizzle: Swizzle | None) -> int:
    """Return after how many bytes of the base all banks are the same again."""
    return max(WAVEFRONT_BYTES, 1 if swizzle is None else swizzle.period_bytes)


def _residues(base: Polynomial, period: int, site: Site, divisibility: Divisibility) -> frozenset[int]:
    """Return a set that contains every value of the base modulo the period, as small as the loops let it be."""
    found = {base.offset % period}
    counts = {loop.var: loop.count.constant for loop in site.loops}
    for monomial, factor in base.terms.items():
        if not monomial or factor % period == 0:
            continue
        size = None
        if len(monomial) == 1:
            atom = monomial[0]
            if isinstance(atom, Var):
                size = counts.get(atom)
            elif isinstance(atom, Mod):
                size = atom.right.constant
        if size is not None and size <= period:
            steps = {factor * value % period for value in range(size)}
        else:
            unit = gcd(divisibility.of(Polynomial({monomial: factor})), period)
            steps = set(range(0, period, unit))
        found = {(start + step) % period for start in found for step in steps}
    return frozenset(found)


@lru_cache(maxsize=4096)
def _pattern_ways(
    pattern: LanePattern, pitch: int, swizzle: Swizzle | None, residues: frozenset[int]
) -> tuple[int, int, bool]:
    """Return the most ways over all residues of the base, one residue that has them, and whether all have as many."""
    first = min(residues)
    moving = 0
    for residue in residues:
        moving |= residue
    plain = [place[0] * pitch + place[1] for place in pattern.places if place is not None]
    spread = 0
    for offset in plain:
        spread |= offset
    if len(plain) == len(pattern.places) and not spread & moving:
        columns = linear_columns(plain)
        if columns is not None:
            stored = columns if swizzle is None else tuple(swizzle.apply(column) for column in columns)
            return linear_ways(stored, pattern.nbytes), first, True
    counted = {
        residue: conflict_of(_addresses(pattern, pitch, swizzle, residue), pattern.nbytes).ways
        for residue in sorted(residues)
    }
    worst = max(counted, key=lambda residue: counted[residue])
    return counted[worst], worst, len(set(counted.values())) == 1


def _addresses(pattern: LanePattern, pitch: int, swizzle: Swizzle | None, residue: int) -> list[int | None]:
    addresses: list[int | None] = []
    for place in pattern.places:
        if place is None:
            addresses.append(None)
            continue
        plain = residue + place[0] * pitch + place[1]
        addresses.append(plain if swizzle is None else swizzle.apply(plain))
    return addresses


def _iteration(base: Polynomial, residue: int, period: int, site: Site) -> str:
    """Return values of the loop variables for which the base has the residue, others 0; empty where none was found."""
    named = [loop for loop in site.loops if loop.var in base.atoms()]
    sizes = [min(loop.count.constant or 2, 64) for loop in named]
    for values in islice(product(*map(range, sizes)), _MAX_ITERATIONS):
        env = {str(atom): 0 for atom in base.atoms()}
        env |= {loop.var.name: value for loop, value in zip(named, values, strict=True)}
        total = base.offset
        for monomial, factor in base.terms.items():
            term = factor if monomial else 0
            for atom in monomial:
                term *= env.get(str(atom), 0)
            total += term
        if total % period == residue:
            return ", ".join(f"{loop.var}={value}" for loop, value in zip(named, values, strict=True)) or "any"
    return ""
