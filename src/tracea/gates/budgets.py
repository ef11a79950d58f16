"""What each CUDA variant may use, and the instructions that its text must have to be that variant."""

from __future__ import annotations

from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.emitters.cuda.primitives import find, sm_of
from tracea.gates.resources import ResourceBudget

__all__ = ["budget_of"]

_BITS_8: Final = 1
_WGMMA: Final = {"f": "HGMMA", "i": "IGMMA", "8": "QGMMA"}
_MMA: Final = {"f": "HMMA", "i": "IMMA", "8": "QMMA"}
# What a variant is named for, beside its products; a kernel whose copies are narrower than 4 bytes has no LDGSTS.
_MOVES: Final = {
    "gemm.mma_sync": ("LDSM",),
    "gemm.mma_cp_async": ("LDSM", "LDGSTS"),
    "gemm.mma_tma": ("LDSM", "UTMALDG"),
    "gemm.wgmma": ("UTMALDG",),
}


def budget_of(variant: str, op: GemmOp, architecture: str, *, aligned: bool = True) -> ResourceBudget:
    """Return the budget of a GEMM variant for an op on an architecture: no spill, no stack, and its instructions.

    ``aligned``: rows begin at multiples of 16 bytes, and are copied by so many.
    """
    least: dict[str, int] = {}
    moves = _MOVES.get(variant)
    if moves is not None:
        least[_product(variant, op, architecture)] = 1
        # ldmatrix moves pairs of 16-bit elements and cannot transpose others: those are loaded one by one.
        wide = [move for move in moves if aligned or move == "UTMALDG"]
        least |= {move: 1 for move in wide if move != "LDSM" or op.a.dtype.nbytes <= 2}
    return ResourceBudget(least=least)


def _product(variant: str, op: GemmOp, architecture: str) -> str:
    kind = "f" if op.a.dtype.is_float else "i"
    if kind == "f" and op.a.dtype.nbytes == _BITS_8:
        kind = "8"
    if variant == "gemm.wgmma":
        return _WGMMA[kind]
    mma, (sm, _) = find("mma_m16n8k32"), sm_of(architecture)
    if kind == "8" and mma is not None and sm in mma.rewritten_on:
        return "HMMA"
    return _MMA[kind]
