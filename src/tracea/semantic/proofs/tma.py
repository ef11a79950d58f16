"""TMA descriptors: what the host encodes is accepted by the driver, and what lands is where the kernel reads it.

The rules are those of ``cuTensorMapEncodeTiled`` (CUDA Driver API, Tensor Map Object Management) without interleave,
and of ``cp.async.bulk.tensor`` (PTX ISA 9.7.9.27).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tracea.semantic.index import INT32_MAX
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes_async import MbarrierExpect, TmaCopy
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.conditions import conjuncts
from tracea.semantic.proofs.divisibility import Divisibility
from tracea.semantic.proofs.interval import Ranges
from tracea.semantic.proofs.prover import Facts
from tracea.semantic.proofs.walk import Site
from tracea.semantic.swizzle import TMA_MODES
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel

__all__ = ["prove_tma"]

_MAX_RANK = 5
_MAX_BOX = 256
_MAX_SIZE = 1 << 32
_MAX_STRIDE_BYTES = 1 << 40
_GLOBAL_BYTES = 16  # of strides, of the address, and of the box's innermost axis
_SHARED_BYTES = 128
_MAX_EXPECTED_BYTES = (1 << 20) - 1  # of an mbarrier's transaction count
_DTYPE_BYTES = (1, 2, 4, 8)


def prove_tma(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove of every copy by the copy engine that its descriptor is valid and its target laid out as it writes.

    Raises:
        ProofFailed: a limit of the descriptor is exceeded, an alignment was not shown, or the target's layout differs.
    """
    divisibility = Divisibility(kernel)
    for site in sites:
        if isinstance(site.node, MbarrierExpect):
            _expected(kernel, site, site.node)
        if not isinstance(site.node, TmaCopy):
            continue
        node = site.node
        source, target = kernel.buffer(node.descriptor.buffer), kernel.buffer(node.target.buffer)
        _box(site, node, source)
        _array(kernel, site, source, divisibility)
        _swizzle(site, node, source, target)
        alignment = _landing(kernel, site, node, target, divisibility)
        nbytes = prod(node.descriptor.box) * source.dtype.nbytes
        box = "×".join(map(str, node.descriptor.box))
        mode = node.descriptor.swizzle_bytes
        swizzle = f"swizzle {mode}" if mode else "no swizzle"
        yield Fact(
            "tma",
            site.label,
            f"{source.name}: box {box}, {nbytes} bytes, {swizzle}, shared address aligned to {alignment}",
            (("bytes", nbytes), ("swizzle_bytes", mode), ("alignment_bytes", alignment)),
        )


def _expected(kernel: TileKernel, site: Site, node: MbarrierExpect) -> None:
    reach = Ranges(kernel, site).of_expression(node.nbytes)
    if reach is None or reach.low < 0 or reach.high > _MAX_EXPECTED_BYTES:
        spans = "unbounded" if reach is None else f"{reach.low} .. {reach.high}"
        raise refuse("tma", site.label, f"expects {spans} bytes, a barrier counts 0 .. {_MAX_EXPECTED_BYTES}")


def _box(site: Site, node: TmaCopy, source: Buffer) -> None:
    box, dtype = node.descriptor.box, source.dtype
    if not 1 <= len(box) <= _MAX_RANK or len(box) != source.rank:
        raise refuse(
            "tma",
            site.label,
            f"a box of rank {len(box)} of {source.name}, rank {source.rank}; both are equal and 1 .. {_MAX_RANK}",
        )
    wrong = [(axis, size) for axis, size in enumerate(box) if not 1 <= size <= _MAX_BOX]
    if wrong:
        axis, size = wrong[0]
        raise refuse(
            "tma", site.label, f"axis {axis} of the box of {source.name} has {size} elements, must be 1 .. {_MAX_BOX}"
        )
    if dtype.nbytes not in _DTYPE_BYTES:
        raise refuse("tma", site.label, f"elements of {source.name} have {dtype.nbytes} bytes, not in {_DTYPE_BYTES}")
    inner = box[-1] * dtype.nbytes
    if inner % _GLOBAL_BYTES:
        raise refuse(
            "tma",
            site.label,
            f"a row of the box of {source.name} has {inner} bytes, must be a multiple of {_GLOBAL_BYTES}: "
            f"use {-(-inner // _GLOBAL_BYTES) * _GLOBAL_BYTES // dtype.nbytes} elements",
        )


def _array(kernel: TileKernel, site: Site, source: Buffer, divisibility: Divisibility) -> None:
    strides = source.element_strides
    if strides[-1].constant != 1:
        raise refuse("tma", site.label, f"the innermost stride of {source.name} is {strides[-1]}, must be 1")
    if source.aligned_bytes % _GLOBAL_BYTES:
        raise refuse(
            "tma",
            site.label,
            f"{source.name} is aligned to {source.aligned_bytes} bytes, must be to {_GLOBAL_BYTES}",
        )
    ranges = Ranges(kernel, site)
    launch = Facts(conjuncts(kernel.assumptions) or ())
    for axis, (size, stride) in enumerate(zip(source.shape, strides, strict=True)):
        if not launch.proves(normalize(size) - 1):  # the host encodes it whatever the loops around the copy do
            raise refuse(
                "tma",
                site.label,
                f"axis {axis} of {source.name}, {size} elements, was not shown to have one: assume 1 <= {size}",
            )
        reach = ranges.of_expression(size)
        if reach is None or reach.high > _MAX_SIZE:
            raise refuse("tma", site.label, f"axis {axis} of {source.name} was not shown to be at most 2**32")
        if axis == source.rank - 1:
            continue
        nbytes = normalize(stride) * source.dtype.nbytes
        if not divisibility.divides(_GLOBAL_BYTES, nbytes):
            wanted = _GLOBAL_BYTES // source.dtype.nbytes
            raise refuse(
                "tma",
                site.label,
                f"stride {axis} of {source.name}, {stride} elements, was not shown to be a multiple of "
                f"{_GLOBAL_BYTES} bytes: assume {stride} % {wanted} == 0, or take the scalar path",
            )
        reach = ranges.of_expression(stride)
        if reach is None or reach.low < 0 or reach.high * source.dtype.nbytes >= _MAX_STRIDE_BYTES:
            raise refuse("tma", site.label, f"stride {axis} of {source.name} was not shown to be below 2**40 bytes")


def _swizzle(site: Site, node: TmaCopy, source: Buffer, target: Buffer) -> None:
    mode, inner = node.descriptor.swizzle_bytes, node.descriptor.box[-1] * source.dtype.nbytes
    if mode and mode not in TMA_MODES:
        raise refuse("tma", site.label, f"swizzle of {mode} bytes, must be 0 or one of {tuple(TMA_MODES)}")
    if mode and inner > mode:
        raise refuse(
            "tma",
            site.label,
            f"a row of the box has {inner} bytes, the swizzle spans {mode}: use {mode // source.dtype.nbytes} elements",
        )
    wanted = TMA_MODES.get(mode)
    if target.swizzle != wanted:
        raise refuse(
            "tma",
            site.label,
            f"the copy engine writes {target.name} with {wanted or 'no swizzle'}, it is read with "
            f"{target.swizzle or 'none'}",
        )


def _landing(kernel: TileKernel, site: Site, node: TmaCopy, target: Buffer, divisibility: Divisibility) -> int:
    """Show that the box lies in shared memory as the region says, densely and aligned; return the alignment."""
    source = kernel.buffer(node.descriptor.buffer)
    if target.space is not MemorySpace.TEAM or target.dtype.nbytes != source.dtype.nbytes:
        raise refuse("tma", site.label, f"copies {source.name} to {target.name}, must be shared memory of its type")
    box = [size for size in node.descriptor.box if size != 1]
    region = site.box(node.target)
    extent = [size.constant for size in region.extent]
    if [size for size in extent if size != 1] != box:
        raise refuse("tma", site.label, f"the box has {node.descriptor.box} elements, its target {node.target}")
    first = next((axis for axis, size in enumerate(extent) if size != 1), len(extent))
    for axis in range(first + 1, target.rank):
        if target.shape[axis].constant != extent[axis]:
            raise refuse(
                "tma",
                site.label,
                f"the box is written without gaps, axis {axis} of {target.name} has {target.shape[axis]} elements "
                f"where the box has {extent[axis]}",
            )
    needed = max(_SHARED_BYTES, 1 if target.swizzle is None else target.swizzle.period_bytes)
    address = normalize(kernel.scratch_offset_bytes(target.name))
    for offset, stride in zip(region.offset, target.element_strides, strict=True):
        address = address + offset * normalize(stride) * target.dtype.nbytes
    if not divisibility.divides(needed, address):
        raise refuse(
            "tma",
            site.label,
            f"the shared address {_short(address)} was not shown to be a multiple of {needed} bytes",
        )
    reach = Ranges(kernel, site).of_expression(address.to_index())
    if reach is None or reach.high > INT32_MAX:
        raise refuse("tma", site.label, f"the shared address {_short(address)} was not shown to fit 32 bits")
    return needed


def _short(address: Polynomial) -> str:
    return str(address.to_index())
