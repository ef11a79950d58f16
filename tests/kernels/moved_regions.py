"""Regions with one thing wrong: what the tests of proofs put into a kernel that was proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tracea.semantic.access import Region
from tracea.semantic.index import Const, Index


def moved(region: Region, axis: int, to: Callable[[Index], Index]) -> Region:
    offset = list(region.offset)
    offset[axis] = to(offset[axis])
    return replace(region, offset=tuple(offset))


def swapped(region: Region, one: int, other: int) -> Region:
    offset = list(region.offset)
    offset[one], offset[other] = offset[other], offset[one]
    return replace(region, offset=tuple(offset))


def narrowed(region: Region, axis: int) -> Region:
    extent = list(region.extent)
    extent[axis] = extent[axis] - 1
    return replace(region, extent=tuple(extent))


def nothing(index: Index) -> Index:
    return Const(0)


def twice(index: Index) -> Index:
    return index * 2


def later(index: Index) -> Index:
    return index + 1
