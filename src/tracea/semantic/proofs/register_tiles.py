"""Register tiles: what the routine of a tile says that it holds is what its regions are.

A routine that reads rows of A out of a panel may compute rows that nobody stores. One that reads them where the caller
has them reads exactly as many as its code is for: each number of rows that a tile may have needs code. That no other
one comes is shown by refutation: between two counts of ``rows="6,4"`` lies 5, and ``min(6, M − 6·q) = 5`` contradicts
the guard ``M mod 6 == 4``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from tracea.semantic.access import Attribute, Region
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import Intrinsic, MicroKernel
from tracea.semantic.nodes_sparse import RunProduct
from tracea.semantic.proofs.certificate import refuse
from tracea.semantic.proofs.walk import Site

__all__ = ["check_register_tile", "check_rest"]

_READ_IN_PLACE = frozenset({"step_tile", "gemv_columns"})  # whatever else they say of A


def check_register_tile(site: Site, node: MicroKernel | RunProduct) -> None:
    """Show that a tile is no larger than its routine holds, and that operands lie as the routine reads them.

    ``mr`` and ``nr`` (``nk``: of panels of one) are the most rows and columns, ``rows`` the numbers of rows that have
    code, ``a`` and ``b`` where operands are read.

    Raises:
        ProofFailed: it may be larger, have a number of rows without code, or an operand that lies otherwise.
    """
    extents, said = site.box(node.c).extent, dict(node.intrinsic.attributes)
    for name, what, axis in (("mr", "rows", -2), ("nr", "columns", -1), ("nk", "columns", -1)):
        limit = said.get(name)
        if isinstance(limit, int) and len(extents) >= -axis and not site.facts.proves(-extents[axis] + limit):
            raise refuse("shapes", site.label, f"{extents[axis].to_index()} {what}, the routine holds {limit}")
    counts = _counts(site, said)
    if said.get("a") in ("rows", "columns") or node.intrinsic.name in _READ_IN_PLACE:
        _has_code(site, site.box(node.a).extent[-2], counts)
    for region, axes in _as_read(site, node, said):
        for axis, expected in axes.items():
            found = site.box(region).extent[axis]
            if not site.facts.proves_equal(found, expected):
                sizes = f"{found.to_index()} along axis {axis}, the routine reads {expected.to_index()}"
                raise refuse("shapes", site.label, f"{region}: {sizes}")


def check_rest(site: Site, intrinsic: Intrinsic, region: Region) -> None:
    """Show that the last tile over the elements of a row has the ``tail`` that the routine has code for.

    Raises:
        ProofFailed: another number of elements may be left by tiles of ``mr``.
    """
    said, width = dict(intrinsic.attributes), site.box(region).extent[-1]
    if "tail" in said:
        left = normalize(width.to_index() % int(said["mr"]))
        if not site.facts.proves_equal(left, Polynomial.of(int(said["tail"]))):
            text = f"{left.to_index()} elements of {region} are left, the routine has code for {said['tail']}"
            raise refuse("shapes", site.label, text)


def _counts(site: Site, said: Mapping[str, Attribute]) -> list[int]:
    """Return the numbers of rows with code, descending; the first is a whole tile's."""
    counts, whole = said.get("rows"), said.get("mr", said.get("nr"))
    if isinstance(counts, int):
        return [counts]
    if not isinstance(counts, str) or not isinstance(whole, int):
        return []
    each = [int(count) for count in counts.split(",") if count]
    if each[:1] != [whole] or min(each) < 1 or any(low >= high for high, low in pairwise(each)):
        raise refuse("shapes", site.label, f"code for {counts or 'no'} rows, of tiles that hold {whole}")
    return each


def _has_code(site: Site, rows: Polynomial, counts: list[int]) -> None:
    """Show that a tile whose rows are read in place has a number of them that is listed."""
    gaps = [(low + 1, high - 1) for high, low in pairwise(counts) if high - low > 1]
    outside = not counts or not site.facts.proves(rows - counts[-1]) or not site.facts.proves(-rows + counts[0])
    if outside or not all(site.facts.plus([rows - low, -rows + high]).contradictory() for low, high in gaps):
        listed = ", ".join(map(str, counts)) or "none"
        raise refuse("shapes", site.label, f"{rows.to_index()} rows, the routine has code for {listed}")


def _as_read(
    site: Site, node: MicroKernel | RunProduct, said: Mapping[str, Attribute]
) -> Iterator[tuple[Region, dict[int, Polynomial]]]:
    """Yield each operand of which a tile says where it lies, and the extents by axis that it then has."""
    rows, columns = site.box(node.c).extent[-2:]
    match said.get("a"), said.get("mr"):
        case "panel", int(high):
            yield node.a, {-1: Polynomial.of(high)}
        case "rows" | "columns", _:
            yield node.a, {-1: site.box(node.b).extent[-2], -2: rows}
        case _:
            pass
    match said.get("b"), said.get("nr"):
        case "panel", int(wide):
            yield node.b, {-1: Polynomial.of(wide)}
        case "rows", _:
            yield node.b, {-1: columns}
        case _:
            pass
