"""What kernels know of a core beyond the numbers of its target."""

from __future__ import annotations

from tracea.targets.target import Target

__all__ = ["fetches_far"]


def fetches_far(target: Target) -> bool:
    """Tell whether a core reads far ahead: a few streams by itself, and requests pages beyond what is used now.

    That is a Zen 5, known by what tells it from others here: two 64-byte multiply-adds a cycle, products of bf16 on
    vectors, and no tiles. Intel's cores of that width without bf16 (Skylake-SP to Ice Lake) are none: what suits a
    Zen 5 costs a Xeon 1.07 to 1.4 of the time of norms, decoding and chains of three streams (benchmarks/NOTES.md).
    """
    is_wide = target.isa == "avx512" and target.fma_per_cycle == 2
    return is_wide and "avx512_bf16" in target.features and "amx_tile" not in target.features
