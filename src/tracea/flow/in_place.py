"""Whether a product of matrices will read them where they lie: what decides if a copy in another order is worth it."""

from __future__ import annotations

from tracea.core.op import GemmOp
from tracea.doctor import host
from tracea.flow.compile import decision_for
from tracea.kernels.gemm.direct import DIRECT
from tracea.targets.target import for_threads

__all__ = ["is_read_in_place"]


def is_read_in_place(product: GemmOp, *, threads: int, library: bool) -> bool:
    """Tell whether what was decided for ``product`` packs neither factor."""
    decision = decision_for(product, for_threads(host(), threads), threads=threads, library=library)
    return decision.variant == DIRECT.id
