"""Convolutions whose sum over channels is split between the cores: where that is chosen, and what is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.conformance import build
from tests.kernels.conv_cases import conv_cases
from tests.kernels.conv_layers import core
from tests.kernels.moved_regions import later, moved, narrowed, nothing

from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp
from tracea.core.ops.rows import ReduceKind
from tracea.errors import InvalidSchedule, ProofFailed
from tracea.flow.compile import compile_node, decision_for, host
from tracea.kernels.arguments import arguments
from tracea.kernels.conv.split import SPLIT, SPLIT_PREPACKED, split_default
from tracea.kernels.operands import vector_lanes
from tracea.kernels.registry import candidates
from tracea.kernels.variant import Variant
from tracea.semantic.index import TRUE
from tracea.semantic.nodes import Barrier, Block, For, MicroKernel, Node, Parallel, ReduceTile
from tracea.semantic.proofs import prove
from tracea.semantic.rewrite import edited, places
from tracea.targets.target import Target, for_threads


def one_row(channels: int, filters: int, columns: int, **more: object) -> Conv2dOp:
    return Conv2dOp.of(
        channels=channels,
        size=(1, columns),
        filters=filters,
        kernel=(1, 7),
        padding=(0, 3),
        channels_last=True,
        **more,  # type: ignore[arg-type]
    )


def first(op: Conv2dOp, target: Target) -> Variant:
    return max(candidates(op, target), key=lambda variant: variant.score(op, target))


def test_only_results_with_fewer_parts_than_cores_are_split() -> None:
    two = replace(core(2, 48, 12), cores=2)
    assert first(one_row(64, 16, 4000), two) is SPLIT_PREPACKED
    assert first(one_row(64, 16, 4000), replace(two, cores=1)) is not SPLIT_PREPACKED
    assert first(one_row(64, 17, 4000), two) is not SPLIT_PREPACKED  # two vectors of filters
    assert first(one_row(64, 16, 4000, batch=2), two) is not SPLIT_PREPACKED
    assert first(one_row(64, 16, 40), two) is not SPLIT_PREPACKED  # not worth a barrier
    assert first(one_row(16, 16, 4000), two) is not SPLIT_PREPACKED  # too few channels for two
    assert first(one_row(64, 64, 4000), replace(two, cores=16)) is SPLIT_PREPACKED


def test_a_part_takes_whole_lines_of_channels_and_all_filters() -> None:
    op = one_row(100, 40, 200)
    schedule = split_default(op, replace(core(2, 48, 12), cores=3))
    assert schedule.integer("cb") == 48
    assert schedule.integer("kb") >= 40
    assert SPLIT.build is not None
    with pytest.raises(InvalidSchedule, match="cb"):
        SPLIT.build(op, schedule.with_values(cb=0), core(2, 48, 12))


@pytest.mark.parametrize("filters", [5, 16])
def test_the_bits_are_the_schedules_and_the_values_are_right(filters: int, rng: np.random.Generator) -> None:
    op = one_row(70, filters, 300)
    x = rng.standard_normal((1, 1, 300, 70), dtype=np.float32).transpose(0, 3, 1, 2)
    w = rng.standard_normal((filters, 70, 1, 7), dtype=np.float32)
    schedule = split_default(op, for_threads(host(), 2))
    compiled = compile_node(op, {1: w}, threads=2, library=False, variant=SPLIT_PREPACKED.id, schedule=schedule)
    results = []
    for threads in (1, 2, 3):
        out = np.full((1, 1, 300, filters), np.nan, np.float32).transpose(0, 3, 1, 2)
        compiled.program.run(x, out=out, threads=threads)
        results.append(out)
    assert all(np.array_equal(results[0], other) for other in results[1:])
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (0, 0), (3, 3)))
    taps = [np.einsum("nchw,fc->nfhw", padded[..., s : s + 300], w[:, :, 0, s].astype(np.float64)) for s in range(7)]
    assert np.abs(results[0] - sum(taps)).max() < 1e-4


def test_extra_memory_is_a_band_and_a_result_for_each_part() -> None:
    op, target = one_row(64, 16, 4000), replace(core(2, 48, 12), cores=2)
    assert SPLIT_PREPACKED.build is not None
    kernel = SPLIT_PREPACKED.build(op, split_default(op, target), target)
    assert prove(kernel).facts
    values = arguments(kernel)
    assert int(kernel.team_scratch_bytes.evaluate(values)) == 2 * op.infer().storage_bytes
    assert int(kernel.thread_scratch_bytes.evaluate(values)) <= 4006 * (32 + 16) * 4 + 128


def test_a_call_takes_it_where_one_core_would_work() -> None:
    filters = vector_lanes(host(), DType.F32)  # two vectors of them are a part for each of two cores
    op = one_row(64, filters, 4000)
    decision = decision_for(op, for_threads(host(), 2), threads=2, constants=(1,), library=False)
    assert decision.variant in (SPLIT_PREPACKED.id, "conv.amx_prepacked", "conv.amx_stem_prepacked")


CASES = {case.name: case for case in conv_cases()}
MUTANTS: dict[str, tuple[type[Node], Callable[[Any], Node]]] = {
    "every part reads the first channels": (MicroKernel, lambda node: replace(node, a=moved(node.a, -1, later))),
    "every part takes the first channels' filters": (
        MicroKernel,
        lambda node: replace(node, b=moved(node.b, -2, nothing)),
    ),
    "all parts leave their sums in the first slot": (
        MicroKernel,
        lambda node: replace(node, c=moved(node.c, 0, nothing)),
    ),
    "sums of every image in the first one's place": (
        MicroKernel,
        lambda node: replace(node, c=moved(node.c, 1, nothing)),
    ),
    "sums of every group in the first one's place": (
        MicroKernel,
        lambda node: replace(node, c=moved(node.c, 2, nothing)),
    ),
    "parts add to what is there": (MicroKernel, lambda node: replace(node, accumulate=TRUE)),
    "another image's sums": (ReduceTile, lambda node: replace(node, inputs=(moved(node.inputs[0], 1, nothing),))),
    "another group's sums": (ReduceTile, lambda node: replace(node, inputs=(moved(node.inputs[0], 2, nothing),))),
    "another row's sums": (ReduceTile, lambda node: replace(node, inputs=(moved(node.inputs[0], 3, nothing),))),
    "another pixel's sums": (ReduceTile, lambda node: replace(node, inputs=(moved(node.inputs[0], 4, nothing),))),
    "the largest part": (ReduceTile, lambda node: replace(node, kind=ReduceKind.MAX)),
    "the last part is left out": (
        ReduceTile,
        lambda node: replace(node, inputs=(narrowed(node.inputs[0], 0),), shape=(node.shape[0] - 1, *node.shape[1:])),
    ),
    "no one waits for the parts": (Barrier, lambda _: Block(nodes=())),
    "a row is not summed": (
        For,
        lambda node: replace(node, extent=node.extent - 1) if node.var.name == "sum_row" else node,
    ),
    "channels of a part are fewer": (
        Parallel,
        lambda node: replace(node, extent=node.extent - 1) if node.var.name == "part_first" else node,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_split_kernel_with_one_thing_wrong_is_refused(name: str) -> None:
    kind, change = MUTANTS[name]
    kernel = build(CASES["conv_split"], "avx512").kernel
    assert prove(kernel).facts
    found = [(place, node) for place, node in places(kernel.body) if isinstance(node, kind) and change(node) != node]
    place, node = found[-1]  # the barrier before the sums, not the one behind the packing
    with pytest.raises(ProofFailed):
        prove(edited(kernel, place, change(node)))
