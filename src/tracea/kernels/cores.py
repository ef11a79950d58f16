"""What kernels know of a core beyond the numbers of its target."""

from __future__ import annotations

from typing import Final

from tracea.targets.target import Target

__all__ = ["fetches_far", "waits_long"]

_INTELS: Final = frozenset({"avx512_fp16", "amx_tile"})  # one of them is on every wide core that has bf16 and is no Zen


def fetches_far(target: Target) -> bool:
    """Tell whether a core reads far ahead: a few streams by itself, and requests pages beyond what is used now.

    That is a Zen 5, known by what tells it from others here: two 64-byte multiply-adds a cycle, products of bf16 on
    vectors, and none of float16. Intel's cores of that width are none, be their tiles masked or not: they have no bf16
    (Skylake-SP to Ice Lake), or float16 as well. What suits a Zen 5 costs a Xeon 1.07 to 1.4 of the time of norms,
    decoding and chains of three streams (benchmarks/NOTES.md).
    """
    is_wide = target.isa == "avx512" and target.fma_per_cycle == 2
    return is_wide and "avx512_bf16" in target.features and _INTELS.isdisjoint(target.features)


def waits_long(target: Target) -> bool:
    """Tell whether what a core's own caches lack takes hundreds of cycles to come, whatever cache has it.

    So it is on Intel's servers, the cores with two 64-byte multiply-adds a cycle that are no Zen 5: their last cache is
    spread over a mesh. 128 ns were measured from 32 MiB on, 140 from memory (benchmarks/NOTES.md, 2026-11-27).
    """
    return target.isa == "avx512" and target.fma_per_cycle == 2 and not fetches_far(target)
