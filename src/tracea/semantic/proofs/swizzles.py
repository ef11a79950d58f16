"""Swizzles: a bijection of each buffer onto itself that keeps aligned pieces whole.

A swizzle maps each aligned block of ``span_bytes`` onto itself where the bits that are XORed in do not change within
the block, which ``shift >= bits`` gives. So it is a bijection of the buffer if the buffer is a whole number of blocks.
The same statement as linear algebra: its matrix has full rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from tracea.semantic.index import product
from tracea.semantic.linear import normalize
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.divisibility import Divisibility
from tracea.semantic.proofs.wavefronts import rank
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["prove_swizzles"]


def prove_swizzles(kernel: TileKernel) -> Iterator[Fact]:
    """Prove of every swizzled buffer that its swizzle is a bijection of its bytes and keeps whole elements aligned.

    Raises:
        ProofFailed: the buffer is no whole number of blocks, an element would be torn, or the start is not aligned.
    """
    divisibility = Divisibility(kernel)
    for buffer in kernel.buffers:
        swizzle = buffer.swizzle
        if swizzle is None:
            continue
        bits = swizzle.base + swizzle.shift + swizzle.bits
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
