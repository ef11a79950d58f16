"""Mechanical mutants: each must fail a proof or differ from the reference; those that do not are argued one by one.

The CPU kernels run whole; of each asynchronous kernel a seeded sample runs here, and all of them in the slow suite.
"""

from __future__ import annotations

import random
import warnings
from types import ModuleType

import numpy as np
import pytest
from objects import (
    flash_attention,
    halo_conv,
    implicit_conv,
    packed_gemm,
    registry_direct,
    registry_gemm,
    registry_split,
    sm80_gemm,
    sm90_gemm,
    stream_k,
)

from tracea.errors import TraceaError
from tracea.semantic.interpreter import interpret
from tracea.semantic.proofs import prove
from tracea.testing.mutants import Mutant, mutants, unguarded

CPU = (packed_gemm, registry_direct, registry_gemm, registry_split, halo_conv)
ASYNCHRONOUS = (sm80_gemm, sm90_gemm, flash_attention, implicit_conv, stream_k)
SAMPLE = 60

# Another schedule of the same kernel, proved as such: blocks of another size that still tile the axis.
OTHER_BLOCK = "the loop's step and length agree: the same axis in smaller blocks, and every proof passes"
WIDER_GAP = "64 or more floats lie between the sums of two parts, so that no core prefetches the other's: 63 will do"
# pc counts in steps of 4, so the first block is the only one below 1, 2 and 3 alike.
SAME_CONDITION = "the variable is a multiple of the block: both conditions hold at the same iterations"
# A copy of a tile that no step reads: its source is masked, its slot is free, and the group count does not change.
EXTRA_COPY = "copies one more tile than is read: masked, into a free slot, in a group that exists anyway"
STRICTER_WAIT = "waits for more groups than it must: slower, not wrong"
# A block's first column is below N for every block of the grid, since there are ceil(N / BN) of them.
REDUNDANT_GUARD = "the guard is true for every block: a block of columns begins below N"
# Beyond K the copy of the weights is masked to zero, so whatever finite value A holds there is multiplied by zero.
ZERO_WEIGHTS = "beyond K the weights are zeros by their own mask"

EQUIVALENT = {
    "packed_gemm": {
        "For at 0: #1 8 becomes 7": OTHER_BLOCK,
        "For at 0.0.0: #1 4 becomes 3": OTHER_BLOCK,
        "Parallel at 0.0.0.0.2: #1 6 becomes 5": OTHER_BLOCK,
        "MicroKernel at 0.0.0.0.2.0.1.0.0.0.0: #16 0 becomes 1": SAME_CONDITION,
        "MicroKernel at 0.0.0.0.2.0.1.0.0.0.0: #17 pc becomes pc - 1": SAME_CONDITION,
    },
    "registry_direct": {
        "Parallel at 0: #1 32 becomes 33": OTHER_BLOCK,
        "Parallel at 0: #1 32 becomes 31": OTHER_BLOCK,
        "For at 0.0.0: #1 4 becomes 5": OTHER_BLOCK,
        "For at 0.0.0: #1 4 becomes 3": OTHER_BLOCK,
        "For at 0.0.0.0.0: #1 16 becomes 15": OTHER_BLOCK,
        "MicroKernel at 0.0.0.0.0.0.0.0.0: #12 0 becomes 1": SAME_CONDITION,
        "MicroKernel at 0.0.0.0.0.0.0.0.0: #13 pc becomes pc - 1": SAME_CONDITION,
    },
    "registry_gemm": {
        "For at 0: #1 32 becomes 31": OTHER_BLOCK,
        "For at 0.0.0: #1 4 becomes 3": OTHER_BLOCK,
        "Parallel at 0.0.0.0.2: #1 6 becomes 5": OTHER_BLOCK,
        "MicroKernel at 0.0.0.0.2.0.1.0.0.0.0: #16 0 becomes 1": SAME_CONDITION,
        "MicroKernel at 0.0.0.0.2.0.1.0.0.0.0: #17 pc becomes pc - 1": SAME_CONDITION,
    },
    "registry_split": {
        "For at 0.0.0: #1 16 becomes 17": OTHER_BLOCK,
        "For at 0.0.0: #1 16 becomes 15": OTHER_BLOCK,
        "Parallel at 2: #1 32 becomes 33": OTHER_BLOCK,
        "Parallel at 2: #1 32 becomes 31": OTHER_BLOCK,
        "partials: axis 2 is one shorter": WIDER_GAP,
    },
    "halo_conv": {"For at 0.0.4.0.0.0.0: #1 4 becomes 3": OTHER_BLOCK},
    "sm80_gemm": {
        "If at 0.0.2.0.0.0.0: #0 p becomes p - 1": EXTRA_COPY,
        "If at 0.0.2.0.0.0.0: #1 (K + 15) / 16 becomes ((K + 15) / 16) + 1": EXTRA_COPY,
        "If at 0.0.2.0.0.0.0: always": EXTRA_COPY,
        "WaitGroup at 0.0.2.0.1.0.0: #0 1 becomes 0": STRICTER_WAIT,
        "If at 0.0.2.0.1.0.3: #0 following becomes following - 1": EXTRA_COPY,
        "If at 0.0.2.0.1.0.3: #1 (K + 15) / 16 becomes ((K + 15) / 16) + 1": EXTRA_COPY,
        "If at 0.0.2.0.1.0.3: always": EXTRA_COPY,
    },
    "sm90_gemm": {
        "WgmmaWait at 0.0.4.1.0.0.3: #0 1 becomes 0": STRICTER_WAIT,
        "If at 0.0.4.1.2: #2 column becomes column - 1": REDUNDANT_GUARD,
        "If at 0.0.4.1.2: #3 N becomes N + 1": REDUNDANT_GUARD,
        "If at 0.0.4.1.2: without column < N": REDUNDANT_GUARD,
    },
    "flash_attention": {
        "If at 0.0.2.0.6.0.0: #0 p becomes p - 1": EXTRA_COPY,
        "If at 0.0.2.0.6.0.0: #1 (keys + 15) / 16 becomes ((keys + 15) / 16) + 1": EXTRA_COPY,
        "If at 0.0.2.0.6.0.0: always": EXTRA_COPY,
        "If at 0.0.2.0.7.0.3: #0 following becomes following - 1": EXTRA_COPY,
        "If at 0.0.2.0.7.0.3: #1 (keys + 15) / 16 becomes ((keys + 15) / 16) + 1": EXTRA_COPY,
        "If at 0.0.2.0.7.0.3: always": EXTRA_COPY,
    },
    "implicit_conv": {
        "If at 0.0.2.0.0.0.0: #0 p becomes p - 1": EXTRA_COPY,
        "If at 0.0.2.0.0.0.0: #1 (depth + 15) / 16 becomes ((depth + 15) / 16) + 1": EXTRA_COPY,
        "If at 0.0.2.0.0.0.0: always": EXTRA_COPY,
        "Gather at 0.0.2.0.0.0.0.0.0: #6 (p * 16) + lane_first becomes ((p * 16) + lane_first) - 1": ZERO_WEIGHTS,
        "Gather at 0.0.2.0.0.0.0.0.0: #7 depth becomes depth + 1": ZERO_WEIGHTS,
        "Gather at 0.0.2.0.0.0.0.0.0: without (p * 16) + lane_first < depth": ZERO_WEIGHTS,
        "WaitGroup at 0.0.2.0.1.0.0: #0 1 becomes 0": STRICTER_WAIT,
        "If at 0.0.2.0.1.0.3: #0 following becomes following - 1": EXTRA_COPY,
        "If at 0.0.2.0.1.0.3: #1 (depth + 15) / 16 becomes ((depth + 15) / 16) + 1": EXTRA_COPY,
        "If at 0.0.2.0.1.0.3: always": EXTRA_COPY,
        "Gather at 0.0.2.0.1.0.3.0.0: #6 (following * 16) + lane_next becomes "
        "((following * 16) + lane_next) - 1": ZERO_WEIGHTS,
        "Gather at 0.0.2.0.1.0.3.0.0: #7 depth becomes depth + 1": ZERO_WEIGHTS,
        "Gather at 0.0.2.0.1.0.3.0.0: without (following * 16) + lane_next < depth": ZERO_WEIGHTS,
    },
    "stream_k": {
        "If at 0.0.0.0.0.0.3.0.1: #2 column becomes column - 1": REDUNDANT_GUARD,
        "If at 0.0.0.0.0.0.3.0.1: #3 N becomes N + 1": REDUNDANT_GUARD,
        "If at 0.0.0.0.0.0.3.0.1: without column < N": REDUNDANT_GUARD,
    },
}


def killed_by(module: ModuleType, mutant: Mutant) -> str | None:
    """Return what noticed the mistake, or None."""
    if differs(module, mutant):
        return "interpreter"
    try:
        prove(mutant.kernel)
    except TraceaError as error:
        return getattr(error, "proof", "refused")
    return None


def differs(module: ModuleType, mutant: Mutant) -> bool:
    tolerance = 2e-3 if module is flash_attention else 1e-4
    for seed in range(2):
        arrays, params = module.arguments(seed=seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # poison meets exp
                outputs = interpret(mutant.kernel, arrays, params, seed=seed, threads=3)
        except (TraceaError, ValueError, IndexError):  # out of bounds, deadlock, an extent that a meaning cannot take
            return True
        for name, wanted in module.expected(arrays, params).items():
            if not np.allclose(
                outputs[name].astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
            ):
                return True
    return False


def check(module: ModuleType, chosen: list[Mutant]) -> None:
    name = module.__name__.rpartition(".")[2]
    argued = EQUIVALENT[name]
    by = [killed_by(module, mutant) for mutant in chosen]
    survivors = [mutant.description for mutant, killer in zip(chosen, by, strict=True) if killer is None]
    unexplained = [description for description in survivors if description not in argued]
    noticed = sum(killer is not None for killer in by)
    wrong = len(chosen) - sum(description in argued for description in survivors)
    score = f"{noticed} of {wrong} wrong mutants noticed, {len(chosen) - wrong} equivalent"
    print(f"\n{name}: {score}; not noticed: {unexplained}")
    assert noticed >= 0.98 * wrong, unexplained
    assert noticed > 0.85 * len(chosen)  # what is argued stays few


@pytest.mark.parametrize("module", CPU, ids=lambda module: module.__name__.rpartition(".")[2])
def test_mutants_of_cpu_kernels_are_noticed(module: ModuleType) -> None:
    kernel = module.build()
    check(module, [*mutants(kernel), *unguarded(kernel)])


@pytest.mark.parametrize("module", ASYNCHRONOUS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_sample_of_mutants_of_gpu_kernels_is_noticed(module: ModuleType) -> None:
    everything = list(mutants(module.build()))
    check(module, random.Random(0).sample(everything, SAMPLE))


@pytest.mark.slow
@pytest.mark.parametrize("module", ASYNCHRONOUS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_all_mutants_of_gpu_kernels_are_noticed(module: ModuleType) -> None:
    check(module, list(mutants(module.build())))


def test_mutants_cover_every_family() -> None:
    families = {mutant.family for module in (*CPU, *ASYNCHRONOUS) for mutant in mutants(module.build())}
    assert families == {"bound", "mask", "split", "stride", "sum", "wait"}


def test_every_argued_mutant_exists() -> None:
    for module in (*CPU, *ASYNCHRONOUS):
        descriptions = {mutant.description for mutant in mutants(module.build())}
        assert set(EQUIVALENT[module.__name__.rpartition(".")[2]]) <= descriptions
