"""The node of a GEMM on matrix registers: one routine for a whole block of C, on panels of sums of bf16 terms.

A float32 is the sum of three bfloat16 terms, x = h + m + l with h = bf16(x), m = bf16(x - h), l = x - h - m: 24 bits
are three times 8, and each rounding leaves half a unit of sign and rest. Of the nine products of two such sums six are
computed, each exact in float32. Those left out: |m| <= 2^-8 |x| and |l| <= 2^-17 |x|, so that m·l, l·m and l·l come to
at most 2^-24 |a| |b| (1 + 2^-10), half the distance from 1 to the next float32, of either sign; the accuracy
contract's 4 + sqrt(k) holds that with room (tracea.core.accuracy). Sums are kept in float32.

Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations", IEEE ARITH 2019. Matrix registers flush denormals: what is too small or too large for the argument, or
not finite, is kept apart by the packing and multiplied in float32 (emitters/cpu/include/tracea/pack_terms.h).
"""

from __future__ import annotations

from functools import partial

from tracea.kernels.gemm.blocking import Blocking
from tracea.kernels.gemm.operands import BlockOperands, K
from tracea.semantic.access import Intrinsic, Region
from tracea.semantic.index import Const, Index, Var, ceil_div
from tracea.semantic.intrinsics import rows_terms_product, terms_product
from tracea.semantic.nodes import MicroKernel
from tracea.semantic.tile_kernel import Buffer

__all__ = ["GRANULE", "TERMS_OF_FLOAT", "TILE", "amx_block", "amx_rows", "marks_of", "matrix_tiles", "whole_granules"]

TILE = 32  # rows and columns of C in four of the eight registers
GRANULE = 32  # steps: a row of a register is 64 bytes of bf16
TERMS_OF_FLOAT = 3  # which hold a float32; one holds a bf16, two a float16

_PC, _KC = Var("pc"), Var("kc")


def whole_granules(steps: Index) -> Index:
    """Round up to whole granules."""
    return ceil_div(steps, GRANULE) * GRANULE


def marks_of(terms: int) -> int:
    """Return the marks of a step in panels of so many terms: three say by themselves what they cannot hold."""
    return 0 if terms == TERMS_OF_FLOAT else 1


def amx_block(terms: int) -> Intrinsic:
    """Return the routine that multiplies panels of sums of ``terms`` bf16 terms."""
    return Intrinsic(
        name="amx_block",
        meaning=partial(terms_product, terms=terms, marks=marks_of(terms)),
        source="emitters/cpu/include/tracea/gemm_amx.h; TDPBF16PS: Intel 64 and IA-32 SDM vol. 2",
        attributes=(("terms", terms), ("tile", TILE), ("marks", marks_of(terms))),
    )


def amx_rows(terms: int) -> Intrinsic:
    """Return the routine that multiplies rows of float32, which it splits itself, with panels of sums of bf16 terms."""
    return Intrinsic(
        name="amx_rows",
        meaning=partial(rows_terms_product, terms=terms),
        source="emitters/cpu/include/tracea/thin_amx.h; TDPBF16PS: Intel 64 and IA-32 SDM vol. 2",
        attributes=(("terms", terms), ("tile", TILE)),
    )


def matrix_tiles(
    operands: BlockOperands,
    blocking: Blocking,
    *,
    panels: tuple[Buffer, Buffer],
    c: Region,
    origin: tuple[Index, Index],
    extents: tuple[Index, Index],
    b_origin: tuple[Index, Index],
) -> MicroKernel:
    """Return the node that multiplies all panels of a block: ``c`` holds the sums, ``origin`` is its place in C."""
    a_panels, b_panels = panels
    rows, columns = (ceil_div(extent, TILE) for extent in extents)
    width = blocking.width(TILE)
    return MicroKernel(
        intrinsic=amx_block(blocking.terms),
        a=a_panels.region((Const(0), Const(0), Const(0)), (rows, _KC, Const(width))),
        b=b_panels.region((*b_origin, Const(0)), (columns, _KC, Const(width))),
        c=c,
        accumulate=_PC > 0,
        finish=_PC + _KC >= K,
        epilogue=operands.epilogue(*origin, *extents),
        granule=blocking.granule,
    )
