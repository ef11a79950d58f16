"""Pooling kernels against float64: any window, any extents, any team; and windows that the proofs refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, check, random_inputs, unit_of
from tests.kernels.native import host_isas, run_isas
from tests.kernels.pool_cases import THREE, grid, pool, pool_cases

from tracea.core.dtype import DType
from tracea.core.op import AdaptivePool2dOp, Pool2dOp, PoolKind, ReduceKind
from tracea.errors import InvalidOp, InvalidShape, ProofFailed
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import find
from tracea.semantic.index import TRUE, Const, Index, Var
from tracea.semantic.nodes import Block, For, Let, Node, Parallel, ReduceTile
from tracea.semantic.proofs import prove
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load

CASES = {case.name: case for case in pool_cases()}


@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", ["pool_max", "pool_max_planar", "pool_mean_ceil"])
def test_pooling_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, built = unit_of(pool_cases(), isa), build(CASES[name], isa)
    kind, ceil = CASES[name].op.kind.value, CASES[name].op.ceil
    for _ in range(10):
        shape = (int(rng.integers(1, 4)), *(int(value) for value in rng.integers((2, 5, 5), (150, 20, 20))))
        other = pool(shape, kind=kind, ceil=ceil, last=name != "pool_max_planar")
        check(unit, built, other, random_inputs(other, rng), threads=int(rng.integers(1, 4)))


def test_random_windows_of_the_space(rng: np.random.Generator) -> None:
    isa = host_isas()[0]
    target, variant, cases = load(isa), find("pool.window"), []
    assert variant.space is not None
    for number in range(4):
        kernel = tuple(int(value) for value in rng.integers(1, 6, 2))
        op = pool(
            (2, int(rng.integers(2, 90)), 11, 12),
            kind=("max", "average")[number % 2],
            last=bool(rng.integers(2)),
            kernel=kernel,
            stride=tuple(int(value) for value in rng.integers(1, 4, 2)),
            padding=tuple(int(rng.integers(0, size // 2 + 1)) for size in kernel),
            ceil=bool(rng.integers(2)),
            count_padding=bool(rng.integers(2)),
            dtype=(DType.F32, DType.BF16, DType.F64, DType.F16)[number],
        )
        space = variant.space(op, target)
        schedule = space.schedule(space.rows[int(rng.integers(0, len(space)))])
        cases.append(Case.of(f"random{number}", "pool.window", op, **dict(schedule)))
    unit = unit_of(tuple(cases), isa)
    for case in cases:
        for threads in (1, 3):
            check(unit, build(case, isa), case.op, random_inputs(case.op, rng), threads=threads)


@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", ["grid_mean", "grid_mean_planar", "grid_max"])
def test_a_grid_built_once_serves_other_extents_and_grids(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, built = unit_of(pool_cases(), isa), build(CASES[name], isa)
    for _ in range(10):
        shape = (int(rng.integers(1, 4)), *(int(value) for value in rng.integers((2, 1, 1), (150, 20, 20))))
        size = (int(rng.integers(1, 24)), int(rng.integers(1, 24)))
        other = grid(shape, size, kind=CASES[name].op.kind.value, last=name != "grid_mean_planar")
        check(unit, built, other, random_inputs(other, rng), threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", ["pool_planes", "pool_planes_mean", "grid_planes_bf16", "grid_planes_f16"])
def test_windows_of_many_pixels_in_a_row_are_pooled_on_vectors_of_them(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    """All extents, so that rows end everywhere in a vector and channels are left over."""
    unit, built, op = unit_of(pool_cases(), isa), build(CASES[name], isa), CASES[name].op
    for extra in range(6):
        shape = (1, 1 + extra, 9 + extra, 23 + 3 * extra)
        if isinstance(op, AdaptivePool2dOp):
            other = grid(shape, (2, 2), kind=op.kind.value, dtype=op.x.dtype, last=False)
        else:
            numbers = {"kernel": op.kernel, "stride": op.stride, "padding": op.padding}
            other = pool(shape, kind=op.kind.value, last=False, **numbers)
        (x,) = random_inputs(other, rng)
        # Of numbers below zero: lanes beyond a row's end must not count as zeros.
        check(unit, built, other, [-abs(x) if op.kind is PoolKind.MAX else x])


@pytest.mark.parametrize("isa", host_isas()[:1])
def test_nan_and_infinity_reach_exactly_the_results_that_depend_on_them(isa: str, rng: np.random.Generator) -> None:
    names = ("pool_max", "pool_mean_ceil", "grid_max", "grid_mean", "pool_planes", "grid_planes_f16")
    for name in names:
        inputs = random_inputs(CASES[name].op, rng)
        inputs[0][0, 1, 2, 3], inputs[0][1, 0, -1, 0], inputs[0][1, 3, 0, 0] = np.nan, np.inf, -np.inf
        with np.errstate(all="ignore"):
            check(unit_of(pool_cases(), isa), build(CASES[name], isa), CASES[name].op, inputs, threads=2)


def _with_tile(kernel: TileKernel, change) -> TileKernel:
    def rebuilt(node: Node) -> Node:
        if isinstance(node, ReduceTile):
            return change(node)
        if isinstance(node, For | Parallel):
            return replace(node, body=rebuilt(node.body))
        if isinstance(node, Block):
            return replace(node, nodes=tuple(map(rebuilt, node.nodes)))
        return node

    return replace(kernel, body=rebuilt(kernel.body))


def _moved(axis: int, offset: int, extent: int):
    def change(node: ReduceTile) -> ReduceTile:
        source = node.inputs[0]
        offsets: list[Index] = list(source.offset)
        extents: list[Index] = list(source.extent)
        offsets[axis] = offsets[axis] + offset
        extents[axis] = extents[axis] + extent
        return replace(
            node, inputs=(replace(source, offset=tuple(offsets), extent=tuple(extents)),), shape=tuple(extents)
        )

    return change


@pytest.mark.parametrize("name", ["pool_max", "grid_max"])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(("offset", "extent"), [(1, -1), (0, -1), (0, 1), (-1, 1), (1, 0)])
def test_another_window_is_refused(name: str, axis: int, offset: int, extent: int) -> None:
    kernel = build(CASES[name], "avx512").kernel
    assert prove(kernel).facts
    with pytest.raises(ProofFailed):
        prove(_with_tile(kernel, _moved(axis, offset, extent)))


@pytest.mark.parametrize("name", ["pool_mean_ceil", "pool_mean_inside", "grid_mean"])
@pytest.mark.parametrize(
    "change",
    [
        lambda node: replace(node, count=node.count * 2),
        lambda node: replace(node, count=Const(9)),
        lambda node: replace(node, shape=(node.shape[0], node.shape[1] + 1, *node.shape[2:])),
        lambda node: replace(node, shape=(*node.shape[:-1], node.shape[-1] + 16)),
    ],
    ids=["twice the count", "whole windows", "a row more", "more channels"],
)
def test_a_mean_of_other_elements_is_refused(name: str, change: Callable[[ReduceTile], ReduceTile]) -> None:
    kernel = build(CASES[name], "avx512").kernel
    with pytest.raises(ProofFailed):
        prove(_with_tile(kernel, change))


@pytest.mark.parametrize("name", ["pool_max", "pool_mean_ceil", "grid_mean", "grid_max"])
@pytest.mark.parametrize(
    "change",
    [
        lambda node: replace(node, prologue=node.prologue + 1.0),
        lambda node: replace(node, kind=ReduceKind.MIN),
        lambda node: replace(node, kind=ReduceKind.SUM),
    ],
    ids=["one more than the pixels", "the smallest", "the sum"],
)
def test_a_window_that_is_reduced_otherwise_than_the_op_says_is_refused(
    name: str, change: Callable[[ReduceTile], ReduceTile]
) -> None:
    kernel = build(CASES[name], "avx512").kernel
    assert prove(kernel).facts
    with pytest.raises(ProofFailed):
        prove(_with_tile(kernel, change))


@pytest.mark.parametrize("other", [{"stride": (1, 2)}, {"padding": (0, 1)}, {"kernel": (3, 2)}, {"kind": "average"}])
def test_windows_of_another_pooling_than_the_kernels_own_are_refused(other: dict[str, object]) -> None:
    kernel = build(CASES["pool_max"], "avx512").kernel
    theirs = build(Case.of("other", "pool.window", pool((2, 70, 7, 8), **other)), "avx512").kernel
    assert prove(theirs).facts
    with pytest.raises(ProofFailed):
        prove(replace(theirs, op=kernel.op))


def test_a_window_that_may_be_empty_is_refused() -> None:
    kernel = build(CASES["pool_max"], "avx512").kernel
    with pytest.raises(ProofFailed):
        prove(replace(kernel, assumptions=TRUE))


def test_a_kernel_refuses_an_op_that_it_was_not_built_for() -> None:
    kernel = build(CASES["pool_max"], "avx512").kernel
    for other in ({"stride": (1, 2)}, {"padding": (0, 1)}, {"kernel": (3, 2)}, {"kind": "average"}):
        with pytest.raises(InvalidOp, match="pool2d"):
            arguments(kernel, pool((2, 70, 7, 8), **other))


def test_a_grid_of_other_roundings_is_refused() -> None:
    """Windows that end where the next ones begin: 7 in 3 would be 0..2, 2..4 and 4..7."""
    kernel = build(CASES["grid_mean"], "avx512").kernel
    of = {param.name: param for param in kernel.params}

    def changed(node: Node) -> Node:
        if isinstance(node, Let) and node.var.name == "rows":
            return replace(node, value=(Var("top") + Var("line") + 1) * of["h"] // of["p"] - Var("above"))
        if isinstance(node, For | Parallel):
            return replace(node, body=changed(node.body))
        return replace(node, nodes=tuple(map(changed, node.nodes))) if isinstance(node, Block) else node

    with pytest.raises(ProofFailed, match="it ends at"):
        prove(replace(kernel, body=changed(kernel.body)))


def test_a_grid_kernel_of_means_refuses_the_largest() -> None:
    kernel = build(CASES["grid_mean"], "avx512").kernel
    with pytest.raises(InvalidOp, match="adaptive_pool2d"):
        arguments(kernel, grid((2, 70, 7, 8), (3, 5), kind="max"))


def test_the_longest_window_and_all_windows_are_counted() -> None:
    for h in range(1, 14):
        for p in range(1, 30):
            op = grid((1, 1, h, 1), (p, 1))
            lengths = [op.window(0, place)[2] for place in range(p)]
            assert op.longest == (max(lengths), 1)
            assert op.flops == sum(lengths)


@pytest.mark.parametrize("size", [(0, 3), (3,), (2.0, 3), 3])
def test_a_grid_without_windows_is_refused(size: object) -> None:
    with pytest.raises(InvalidOp, match="Remedy: "):
        AdaptivePool2dOp(kind=CASES["grid_max"].op.kind, x=CASES["grid_max"].op.x, size=size)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"kernel": (0, 3)}, InvalidOp),
        ({"padding": (2, 1)}, InvalidOp),
        ({"stride": (1, 0)}, InvalidOp),
        ({"kernel": (20, 3)}, InvalidShape),
    ],
)
def test_an_op_refuses_windows_without_a_value(fields: dict[str, tuple[int, int]], error: type[Exception]) -> None:
    with pytest.raises(error, match="Remedy: "):
        Pool2dOp(kind=CASES["pool_max"].op.kind, x=CASES["pool_max"].op.x, **{**THREE, **fields})
