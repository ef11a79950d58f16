"""Swizzles: a bijection of each buffer onto itself that keeps aligned pieces whole.

A swizzle maps each aligned block of ``span_bytes`` onto itself where the bits that are XORed in do not change within
the block, which ``shift >= bits`` gives. So it is a bijection of the buffer if the buffer is a whole number of blocks.
The same statement as linear algebra: its matrix has full rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from tracea.semantic.index import product
from tracea.semantic.linear import normalize
from tracea.semantic.nodes_async import Wgmma
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.divisibility import Divisibility
from tracea.semantic.proofs.wavefronts import rank
from tracea.semantic.swizzle import TMA_MODES
from tracea.semantic.tile_kernel import MemorySpace, TileKernel

__all__ = ["prove_swizzles"]


def prove_swizzles(kernel: TileKernel) -> Iterator[Fact]:
    """Prove of every swizzled buffer that its swizzle is a bijection of its bytes and keeps whole elements aligned.

    Raises:
        ProofFailed: the buffer is no whole number of blocks, an element would be torn, the start is not aligned, or
            wgmma reads rows of another length than their swizzle's.
    """
    if kernel.op is not None:  # what no op asks for is never emitted: no descriptor is made of its tiles
        _check_descriptors(kernel)
    divisibility = Divisibility(kernel)
    for buffer in kernel.buffers:
        swizzle = buffer.swizzle
        if swizzle is None:
            continue
        bits = swizzle.period_bits
        if rank(swizzle.apply(1 << bit) for bit in range(bits)) != bits:
            raise refuse("swizzle", buffer.name, f"{swizzle} is no bijection: its matrix has not rank {bits}")
        if swizzle.alignment_bytes % buffer.dtype.nbytes:
            raise refuse(
                "swizzle",
                buffer.name,
                f"{swizzle} keeps {swizzle.alignment_bytes} bytes whole, an element has {buffer.dtype.nbytes}",
            )
        if not divisibility.divides(swizzle.span_bytes, normalize(buffer.nbytes)):
            raise refuse(
                "swizzle",
                buffer.name,
                f"{buffer.nbytes} bytes were not shown to be a multiple of the {swizzle.span_bytes} of {swizzle}",
            )
        # Texts apply it to offsets within one tile, the last two axes: the same where tiles begin at whole periods.
        tile = normalize(product(*buffer.shape[-2:], buffer.dtype.nbytes))
        if buffer.rank > 2 and not divisibility.divides(swizzle.period_bytes, tile):
            raise refuse(
                "swizzle",
                buffer.name,
                f"a tile of {tile.to_index()} bytes was not shown to be a multiple of the period of {swizzle}, "
                f"{swizzle.period_bytes} bytes",
            )
        start = normalize(kernel.scratch_offset_bytes(buffer.name))
        if not divisibility.divides(swizzle.period_bytes, start):
            raise refuse(
                "swizzle", buffer.name, f"begins at {start.to_index()} bytes, not a multiple of {swizzle.period_bytes}"
            )
        yield Fact(
            "swizzle",
            buffer.name,
            f"{swizzle} is a bijection of its bytes and keeps pieces of {swizzle.alignment_bytes} bytes whole",
            (("alignment_bytes", swizzle.alignment_bytes), ("period_bytes", swizzle.period_bytes)),
        )


def _check_descriptors(kernel: TileKernel) -> None:
    """A descriptor says of a tile only its swizzle: rows are as long as that, or they are not where wgmma reads them.

    Source: PTX ISA 9.7.15.5.1, matrix descriptors and the strides of core matrices.
    """
    for node in kernel.body.walk():
        if not isinstance(node, Wgmma):
            continue
        for region in (node.a, node.b):
            buffer = kernel.buffer(region.buffer)
            row_bytes = normalize(buffer.shape[-1]).constant
            wanted = None if row_bytes is None else TMA_MODES.get(row_bytes * buffer.dtype.nbytes)
            if buffer.space is MemorySpace.TEAM and (wanted is None or buffer.swizzle != wanted):
                raise refuse(
                    "swizzle",
                    buffer.name,
                    f"wgmma reads rows of {buffer.shape[-1]} elements of {buffer.dtype.value} with "
                    f"{buffer.swizzle or 'no swizzle'}; rows of 32, 64 or 128 bytes need the copy engine's mode",
                )
