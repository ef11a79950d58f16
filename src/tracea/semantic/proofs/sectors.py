"""Global memory: every vector access is aligned, and how many 32-byte sectors each warp access moves.

Worked example. 32 lanes copy 16 bytes each, four to a row of 64 bytes. Where rows begin at multiples of 32 bytes the
8 rows are 16 sectors, as many as the 512 bytes need. Where they begin at multiples of 16 only, a row may straddle three
sectors: at most 24.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from tracea.semantic.access import Region
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import CopyTile, PointwiseTile
from tracea.semantic.nodes_async import AsyncCopy, StoreFragment
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.divisibility import Divisibility
from tracea.semantic.proofs.walk import LoopKind, Site
from tracea.semantic.proofs.warp_lanes import LanePattern, sum_pairs, warp_pieces
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel

__all__ = ["SECTOR_BYTES", "prove_sectors", "sectors_of"]

SECTOR_BYTES = 32
_PIECE_BYTES = 16
_MOVES = (AsyncCopy, CopyTile, StoreFragment, PointwiseTile)


@dataclass(frozen=True, slots=True)
class _Transfer:
    """A warp's transfer of a region: its rows and bytes of a row where the tile is whole, and bytes of one access."""

    region: Region
    verb: str
    patterns: tuple[LanePattern, ...]
    chunk_bytes: int


def prove_sectors(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that vector accesses to global memory are aligned, and state the sectors that each moves, at most.

    Raises:
        ProofFailed: an address was not shown to be a multiple of the access.
    """
    if not any(loop.kind is LoopKind.BLOCK for site in sites for loop in site.loops):
        return
    divisibility = Divisibility(kernel)
    for site in sites:
        if not isinstance(site.node, _MOVES) or site.facts.contradictory():
            continue
        if isinstance(site.node, AsyncCopy):
            _aligned_target(kernel, site, site.node, divisibility)
        for transfer in _transfers(kernel, site):
            buffer = kernel.buffer(transfer.region.buffer)
            if not transfer.patterns:
                continue
            alignment = _alignment(site, buffer, transfer, divisibility)
            steps = [normalize(s) * buffer.dtype.nbytes for s in buffer.element_strides[-2:-1]]
            pitch = gcd(*(divisibility.of(step) for step in steps)) if steps else 0
            contiguous = buffer.element_strides[-1].constant == 1
            most = ideal = 0
            for pattern in transfer.patterns:
                if contiguous:
                    most += sectors_of(pattern, alignment, pitch)
                else:
                    most += sum(place is not None for place in pattern.places)
                used = sum(place is not None for place in pattern.places) * pattern.nbytes
                ideal += -(-used // SECTOR_BYTES)
            width = max(pattern.nbytes for pattern in transfer.patterns)
            yield Fact(
                "sectors",
                site.label,
                f"{buffer.name} {transfer.verb} {width} bytes a lane: at most {most} sectors of 32 bytes, {ideal} are "
                f"ideal ({100 * ideal // most} %)",
                (("buffer", buffer.name), ("vector_bytes", width), ("sectors", most), ("ideal_sectors", ideal)),
            )


def sectors_of(pattern: LanePattern, alignment: int, pitch_divisor: int) -> int:
    """Return the most sectors of one access whose rows are contiguous.

    ``alignment`` is what the first byte of the region is a multiple of, ``pitch_divisor`` what the distance between
    rows is. Neighbouring bytes of a row are one run; rows share no sector.
    """
    rows: dict[int, list[int]] = {}
    for place in pattern.places:
        if place is not None:
            rows.setdefault(place[0], []).append(place[1])
    total = 0
    for starts in rows.values():
        run_first = previous = None
        for start in [*sorted(set(starts)), None]:
            if start is not None and previous is not None and start == previous + pattern.nbytes:
                previous = start
                continue
            if run_first is not None and previous is not None:
                length = previous + pattern.nbytes - run_first
                unit = gcd(SECTOR_BYTES, alignment, pitch_divisor, run_first)
                total += (SECTOR_BYTES - unit + length + SECTOR_BYTES - 1) // SECTOR_BYTES
            run_first = previous = start
    return total


def _transfers(kernel: TileKernel, site: Site) -> Iterator[_Transfer]:
    match site.node:
        case AsyncCopy(source=source, target=target, chunk_bytes=chunk):
            rows, row_bytes = _whole(kernel, site, target)
            yield _Transfer(source, "read by", warp_pieces(rows, row_bytes, chunk), chunk)
        case CopyTile(source=source, target=target, chunk_bytes=pieces) if (
            kernel.buffer(source.buffer).space is MemorySpace.GLOBAL
            and kernel.buffer(target.buffer).space is MemorySpace.REGISTER
        ):
            rows, row_bytes = _whole(kernel, site, source)
            chunk = pieces or kernel.buffer(source.buffer).dtype.nbytes
            yield _Transfer(source, "read by", warp_pieces(rows, row_bytes, chunk), chunk)
        case StoreFragment(target=target) if kernel.buffer(target.buffer).space is MemorySpace.GLOBAL:
            nbytes = kernel.buffer(target.buffer).dtype.nbytes
            pairs = sum_pairs(nbytes)
            single = tuple(LanePattern("sums", nbytes, pattern.places) for pattern in pairs)
            yield _Transfer(target, "written by", single, nbytes)
        case PointwiseTile(target=target, inputs=inputs) if kernel.buffer(target.buffer).space is MemorySpace.GLOBAL:
            staged = [r for r in inputs if isinstance(r, Region) and kernel.buffer(r.buffer).space is MemorySpace.TEAM]
            if staged:
                shape = [size.constant for size in kernel.buffer(staged[0].buffer).shape[-2:]]
                nbytes = kernel.buffer(target.buffer).dtype.nbytes
                rows, columns = (size or 0 for size in shape)
                # Sixteen bytes a lane where the address happens to allow: that is looked at when it is known.
                yield _Transfer(target, "written by up to", warp_pieces(rows, columns * nbytes, _PIECE_BYTES), nbytes)
        case _:
            pass


def _whole(kernel: TileKernel, site: Site, region: Region) -> tuple[int, int]:
    rows, columns = (size.constant for size in region.extent[-2:])
    if rows is None or columns is None:
        raise refuse("sectors", site.label, f"{region} has no constant extent, so its lanes are not known")
    return rows, columns * kernel.buffer(region.buffer).dtype.nbytes


def _alignment(site: Site, buffer: Buffer, transfer: _Transfer, divisibility: Divisibility) -> int:
    """Return what the region's first byte is a multiple of; show that every access is aligned to its width."""
    unit, chunk = buffer.dtype.nbytes, transfer.chunk_bytes
    found = max(buffer.aligned_bytes, unit)
    box = site.box(transfer.region)
    for axis, (offset, stride) in enumerate(zip(box.offset, buffer.element_strides, strict=True)):
        moved = divisibility.of(offset * normalize(stride) * unit)
        found = gcd(found, moved)
        along = divisibility.of(normalize(stride) * unit)
        several = axis < buffer.rank - 1 and box.extent[axis].constant != 1
        if chunk > unit and (moved % chunk or (several and along % chunk)):
            raise refuse(
                "sectors",
                site.label,
                f"{transfer.region} by {chunk} bytes: stride {axis} of {buffer.name}, {stride} elements, was not shown "
                f"to be a multiple of {chunk} bytes: assume {stride} % {chunk // unit} == 0, or copy {unit} bytes",
            )
    if chunk <= unit:
        return found
    if buffer.element_strides[-1].constant != 1:
        raise refuse("sectors", site.label, f"{buffer.name} by {chunk} bytes: its last stride is not 1")
    if found % chunk:
        raise refuse(
            "sectors",
            site.label,
            f"{transfer.region} begins at a multiple of {found} bytes ({buffer.name} at one of "
            f"{buffer.aligned_bytes}), not of {chunk}: align it, or copy {found} bytes",
        )
    return found


def _aligned_target(kernel: TileKernel, site: Site, node: AsyncCopy, divisibility: Divisibility) -> None:
    """Show that every piece lands at a multiple of its width, also where the swizzle puts it."""
    buffer = kernel.buffer(node.target.buffer)
    if buffer.swizzle is not None and buffer.swizzle.alignment_bytes < node.chunk_bytes:
        raise refuse(
            "sectors",
            site.label,
            f"{buffer.swizzle} of {buffer.name} keeps pieces of {buffer.swizzle.alignment_bytes} bytes whole, "
            f"not of {node.chunk_bytes}",
        )
    unit = buffer.dtype.nbytes
    address = normalize(kernel.scratch_offset_bytes(buffer.name))
    for offset, stride in zip(site.box(node.target).offset, buffer.element_strides, strict=True):
        address = address + offset * normalize(stride) * unit
    pitch = normalize(buffer.element_strides[-2]) * unit if buffer.rank > 1 else Polynomial({})
    for what, value in (("the address", address), ("a row", pitch)):
        if not divisibility.divides(node.chunk_bytes, value):
            raise refuse(
                "sectors",
                site.label,
                f"{node.target} by {node.chunk_bytes} bytes: {what} of {buffer.name}, {value.to_index()} bytes, "
                f"was not shown to be a multiple of {node.chunk_bytes}",
            )
