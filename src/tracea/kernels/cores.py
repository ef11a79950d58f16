"""What kernels know of a core beyond the numbers of its target."""

from __future__ import annotations

from tracea.targets.target import Target

__all__ = ["fetches_far"]


def fetches_far(target: Target) -> bool:
    """Tell whether a core reads far ahead: a few streams by itself, and requests pages beyond what is used now.

    That is a Zen 5, known by what tells it from others here: two 64-byte multiply-adds a cycle, and no tiles. Intel's
    cores of that width without tiles (Skylake-SP, Ice Lake) are taken for it too; they were not measured.
    """
    return target.isa == "avx512" and target.fma_per_cycle == 2 and "amx_tile" not in target.features
