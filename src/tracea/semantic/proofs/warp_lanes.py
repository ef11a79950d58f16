"""What each lane of a warp touches in shared memory, access by access, as places within a node's region.

``ldmatrix`` reads matrices of 8 rows of 16 bytes, a phase of 8 lanes each; which matrix comes first does not matter to
the banks. Copies give consecutive pieces of a row-major region to consecutive lanes. Where a tile lies the other way
than its fragment, and the instruction cannot transpose it, each lane reads its elements one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tracea.semantic.access import Intrinsic, Region
from tracea.semantic.distribution import copy_lanes
from tracea.semantic.instructions import STORE_M16N8
from tracea.semantic.lane_map import LaneMap
from tracea.semantic.nodes import CopyTile, Node, PointwiseTile
from tracea.semantic.nodes_async import AsyncCopy, LoadMatrix, StoreFragment, Wgmma
from tracea.semantic.proofs.walk import Box, Site
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel

__all__ = ["LanePattern", "WarpAccess", "sum_pairs", "warp_accesses", "warp_pieces"]

LANES = 32
_PIECE_BYTES = 16
_MATRIX_ROWS = 8
_SUM_PAIR = 2  # neighbours of a row that a lane holds of an accumulator


@dataclass(frozen=True, slots=True)
class LanePattern:
    """One access of a warp: for each lane the row and the byte within the row of its ``nbytes``, None if inactive."""

    what: str
    nbytes: int
    places: tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class WarpAccess:
    """Accesses of a warp to one region of a buffer in shared memory; ``box`` is the region in canonical form."""

    site: Site
    buffer: Buffer
    region: Region
    box: Box
    patterns: tuple[LanePattern, ...]
    main_loop: bool
    writes: bool


def warp_accesses(kernel: TileKernel, sites: tuple[Site, ...]) -> Iterator[WarpAccess]:
    """Yield the accesses to shared memory whose lanes are known, in program order."""
    for site in sites:
        for region, patterns, main_loop, writes in _touched(kernel, site.node):
            if patterns and not site.facts.contradictory():
                buffer = kernel.buffer(region.buffer)
                yield WarpAccess(site, buffer, region, site.box(region), patterns, main_loop, writes)


def _touched(kernel: TileKernel, node: Node) -> Iterator[tuple[Region, tuple[LanePattern, ...], bool, bool]]:
    match node:
        case AsyncCopy(target=target, chunk_bytes=chunk):
            if _shared(kernel, target):
                yield target, _pieces("copy", *_extent(kernel, target), chunk), True, True
        case CopyTile(source=source, target=target):
            held = kernel.buffer(source.buffer).space is MemorySpace.REGISTER
            if held and _shared(kernel, target):
                yield target, _pieces("copy", *_extent(kernel, target), _PIECE_BYTES), True, True
        case LoadMatrix(source=source, intrinsic=intrinsic):
            if _shared(kernel, source):
                yield source, _load(kernel, source, intrinsic), True, False
        case Wgmma(a=a, b=b):
            for operand in (a, b):
                if _shared(kernel, operand):
                    yield operand, _matrices("wgmma", *_extent(kernel, operand)), True, False
        case StoreFragment(target=target, intrinsic=intrinsic):
            if _shared(kernel, target):
                yield target, _store(kernel, target, intrinsic), False, True
        case PointwiseTile(inputs=inputs, target=target):
            for region in inputs:
                if isinstance(region, Region) and _shared(kernel, region):
                    yield region, _rows(kernel, region, kernel.buffer(target.buffer)), False, False
        case _:
            pass


def _shared(kernel: TileKernel, region: Region) -> bool:
    return kernel.buffer(region.buffer).space is MemorySpace.TEAM


def _extent(kernel: TileKernel, region: Region) -> tuple[int, int]:
    """Return rows and bytes of a row of a region's last two axes; none where they are no constants."""
    rows, columns = (size.constant for size in region.extent[-2:])
    if rows is None or columns is None:
        return 0, 0
    return rows, columns * kernel.buffer(region.buffer).dtype.nbytes


def _load(kernel: TileKernel, source: Region, intrinsic: Intrinsic) -> tuple[LanePattern, ...]:
    attributes = dict(intrinsic.attributes)
    rows, row_bytes = _extent(kernel, source)
    nbytes = kernel.buffer(source.buffer).dtype.nbytes
    if attributes.get("form") == "fma":
        across = 4 if intrinsic.name == "load_a" else 8
        count = attributes["lane_rows" if across == 4 else "lane_columns"]
        return _broadcast(across, int(count), nbytes)
    if attributes.get("form") == "mma" and attributes.get("major") != "k" and nbytes != 2:
        k = 32 // nbytes
        operand = "A" if intrinsic.name == "load_a" else "B"
        return _elements(f"mma.m16n8k{k}.{attributes['element']}", operand, row_bytes // nbytes, nbytes)
    return _matrices("ldmatrix", rows, row_bytes)


def _store(kernel: TileKernel, target: Region, intrinsic: Intrinsic) -> tuple[LanePattern, ...]:
    known = intrinsic == STORE_M16N8 or dict(intrinsic.attributes).get("form") == "mma"
    return sum_pairs(kernel.buffer(target.buffer).dtype.nbytes) if known else ()


def _rows(kernel: TileKernel, region: Region, target: Buffer) -> tuple[LanePattern, ...]:
    """Return the reads of whole rows of a staged tile by lanes that each make 16 bytes of the target (``store_rows``).

    A lane reads what it needs 16 bytes at a time; a tail reads less of it.
    """
    buffer = kernel.buffer(region.buffer)
    rows, columns = (size.constant for size in buffer.shape[-2:])
    if rows is None or columns is None:
        return ()
    row_bytes, lane_bytes = columns * buffer.dtype.nbytes, _PIECE_BYTES // target.dtype.nbytes * buffer.dtype.nbytes
    return tuple(
        LanePattern(
            "rows",
            _PIECE_BYTES,
            tuple(None if place is None else (place[0], place[1] + part) for place in pattern.places),
        )
        for pattern in _pieces("rows", rows, row_bytes, lane_bytes)
        for part in range(0, lane_bytes, _PIECE_BYTES)
    )


def warp_pieces(rows: int, row_bytes: int, nbytes: int) -> tuple[LanePattern, ...]:
    """Return the accesses of one warp that copies rows in pieces of ``nbytes``; none where they do not fit a row."""
    return _pieces("copy", rows, row_bytes, nbytes)


@lru_cache(maxsize=256)
def _pieces(what: str, rows: int, row_bytes: int, nbytes: int) -> tuple[LanePattern, ...]:
    """Return the accesses of a copy by one warp (``copy_lanes``), whose columns are bytes."""
    if not rows or row_bytes % nbytes:
        return ()
    dealt = copy_lanes(rows, row_bytes, 1, nbytes, LANES)
    return tuple(
        LanePattern(what, nbytes, tuple(dealt.at(step, lane) for lane in range(LANES))) for step in range(dealt.steps)
    )


@lru_cache(maxsize=256)
def _matrices(what: str, rows: int, row_bytes: int) -> tuple[LanePattern, ...]:
    """Return the reads of all 8×16-byte matrices of a region, each one phase, as accesses of eight lanes."""
    return tuple(
        LanePattern(what, _PIECE_BYTES, tuple((top + row, left) for row in range(_MATRIX_ROWS)))
        for top in range(0, rows, _MATRIX_ROWS)
        for left in range(0, row_bytes, _PIECE_BYTES)
    )


@lru_cache(maxsize=64)
def _elements(instruction: str, operand: str, columns: int, nbytes: int) -> tuple[LanePattern, ...]:
    """Return the reads of a fragment element by element from a tile whose rows are steps of k."""
    rows_of, columns_of = LaneMap(instruction, operand).places()
    if operand == "A":  # the tile has rows of k: (k, m)
        rows_of, columns_of = columns_of, rows_of
    width = 8 if operand == "B" else 16
    return tuple(
        LanePattern(
            "elements",
            nbytes,
            tuple(
                (int(rows_of[lane, register]), (int(columns_of[lane, register]) + group * width) * nbytes)
                for lane in range(LANES)
            ),
        )
        for group in range(max(1, columns // width))
        for register in range(rows_of.shape[1])
    )


@lru_cache(maxsize=64)
def _broadcast(across: int, count: int, nbytes: int) -> tuple[LanePattern, ...]:
    """Return the reads of one step by lanes 4 by 8 that own pieces of up to four rows (``across`` 4) or columns (8)."""
    piece = min(4, count)
    access = min(piece, 16 // nbytes)  # elements of one read
    return tuple(
        LanePattern(
            "step",
            access * nbytes,
            tuple(
                (0, (first * across + (lane // 8 if across == 4 else lane % 8) * piece + part) * nbytes)
                for lane in range(LANES)
            ),
        )
        for first in range(0, count, piece)
        for part in range(0, piece, access)
    )


@lru_cache(maxsize=16)
def sum_pairs(nbytes: int) -> tuple[LanePattern, ...]:
    """Return the stores of a 16×8 accumulator: pairs of neighbours, eight rows at a time."""
    return tuple(
        LanePattern(
            "sums",
            _SUM_PAIR * nbytes,
            tuple((top + lane // 4, lane % 4 * _SUM_PAIR * nbytes) for lane in range(LANES)),
        )
        for top in (0, 8)
    )
