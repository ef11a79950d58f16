"""Every builder's kernel passes the proofs over its schedule space, and the interpreter gives it the op's meaning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.cases import all_cases, tile_cases
from tests.kernels.conformance import Built, build, random_inputs

from tracea.core.accuracy import error_bound
from tracea.core.dtype import DType
from tracea.core.op import GemmOp, GroupedGemmOp, Op
from tracea.core.reference import evaluate
from tracea.emitters.cpu.emitter import emit
from tracea.errors import ProofFailed
from tracea.kernels.arguments import arguments, buffer_types, operand_buffers, result_offsets
from tracea.kernels.registry import VARIANTS, find
from tracea.semantic.interpreter import interpret
from tracea.semantic.nodes import Barrier, Block, For, MicroKernel, Node, ReduceTile
from tracea.semantic.proofs import prove
from tracea.semantic.rewrite import edited, places
from tracea.semantic.tile_kernel import BufferRole, TileKernel
from tracea.targets import load

CASES = {case.name: case for case in (*all_cases(), *tile_cases())}
TILES = frozenset(case.name for case in tile_cases())


@pytest.mark.parametrize("name", CASES)
def test_kernel_is_proved_for_every_argument(name: str) -> None:
    built = build(CASES[name], "amx" if name in TILES else "avx512")
    assert prove(built.kernel).facts
    if built.pack is not None:
        assert prove(built.pack).facts


@pytest.mark.parametrize(
    ("variant", "op"),
    [
        ("gemm.packed", GemmOp.of(m=2048, n=2048, k=2048)),
        ("gemm.packed", GemmOp.of(m=128, n=3072, k=768, bias=True, activation="gelu", residual=True)),
        ("gemm.packed", GemmOp.of(m=512, n=768, k=3072, dtype=DType.BF16)),
        ("gemm.prepacked", GemmOp.of(m=16, n=4096, k=4096)),
        ("gemm.direct", GemmOp.of(m=16, n=4096, k=4096)),
        ("gemm.direct", GemmOp.of(m=64, n=64, k=64)),
        ("gemm.stream", GemmOp.of(m=1, n=4096, k=4096)),
        ("gemm.stream_split", GemmOp.of(m=3, n=1000, k=2048, bias=True, activation="gelu", residual=True)),
        ("gemm.stream_turned", GemmOp.of(m=4096, n=1, k=4096, transpose_a=True)),
        ("gemm.direct_turned", GemmOp.of(m=3000, n=37, k=500, transpose_a=True, bias=True, residual=True)),
        ("gemm.stream_split_turned", GemmOp.of(m=1000, n=3, k=2048, transpose_a=True, bias=True, residual=True)),
        ("gemm.narrow", GemmOp.of(m=2000, n=40, k=3000, transpose_b=True)),
        ("gemm.narrow_prepacked", GemmOp.of(m=2000, n=40, k=3000, transpose_b=True)),
        ("gemm.dot_turned", GemmOp.of(m=2000, n=10, k=512, transpose_b=True)),
        ("gemm.dot", GemmOp.of(m=1, n=1000, k=2048, transpose_b=True)),
        ("gemm.grouped", GroupedGemmOp.of(m=512, n=4096, k=1024, groups=8, parts=11, bias=True, activation="gelu")),
    ],
)
@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon", "plain"])
def test_schedules_of_the_space_build_prove_and_emit(variant: str, op: Op, isa: str, rng: np.random.Generator) -> None:
    target, found = load(isa), find(variant)
    assert found.build is not None
    assert found.space is not None
    assert found.default_schedule is not None
    space = found.space(op, target)
    assert found.default_schedule(op, target) in space
    rows = {space.rows[int(i)] for i in rng.integers(0, len(space), 3)}
    for schedule in map(space.schedule, rows):
        kernel = found.build(op, schedule, target)
        prove(kernel)
        assert emit(kernel, isa).text.startswith(f"// {op.key} | {variant} | {isa} | {schedule.key}\n")


def test_packed_space_of_a_square_problem_has_five_hundred_schedules() -> None:
    space = find("gemm.packed").space
    assert space is not None
    assert len(space(GemmOp.of(m=2048, n=2048, k=2048), load("avx512"))) >= 500


def interpreted(built: Built, kernel: TileKernel, op: Op, inputs: list[np.ndarray], seed: int) -> np.ndarray:
    values = arguments(kernel, op)
    types = buffer_types(kernel, op)
    buffers, own = {}, operand_buffers(kernel)
    tables = {table.name: array for table, array in zip(kernel.tables, inputs[len(own) :], strict=True)}
    for buffer, type_, array in zip(own, op.operands, inputs, strict=not tables):
        memory = np.zeros(max(1, type_.extent[1]), type_.dtype.numpy)
        view = np.lib.stride_tricks.as_strided(memory, array.shape, [s * memory.itemsize for s in type_.strides])
        view[...] = array
        buffers[buffer.name] = memory
    if built.pack is not None:
        panels = next(buffer for buffer in built.pack.buffers if buffer.role is BufferRole.OUTPUT)
        shape = tuple(int(size.evaluate(values)) for size in panels.shape)
        source = next(buffer for buffer in built.pack.buffers if buffer.role is BufferRole.INPUT).name
        packed = {source: buffers[source], "panels": np.zeros(shape, panels.dtype.numpy)}
        buffers[source] = interpret(built.pack, packed, arguments(built.pack, op), threads=2, seed=seed)["panels"]
    result = op.infer()
    memory = np.zeros(max(1, result.extent[1]), result.dtype.numpy)
    for name, first in result_offsets(kernel, op).items():
        buffers[name] = memory[first:]
    assert set(types) >= set(buffers)
    interpret(kernel, buffers, values, threads=2, seed=seed, tables=tables)
    return np.lib.stride_tricks.as_strided(memory, result.static_shape, [s * memory.itemsize for s in result.strides])


@pytest.mark.parametrize("name", CASES)
def test_interpreter_agrees_with_the_reference(name: str, seed: int, rng: np.random.Generator) -> None:
    built = build(CASES[name], "amx" if name in TILES else "avx512")
    op = CASES[name].op
    inputs = random_inputs(op, rng)
    got, wanted = interpreted(built, built.kernel, op, inputs, seed).astype(np.float64), evaluate(op, inputs)
    with np.errstate(invalid="ignore"):
        close = np.abs(got - wanted) <= error_bound(op, inputs, worst_case=True)
    assert (close | (np.isnan(got) & np.isnan(wanted))).all()


def without_first_barrier(body: Block, removed: list[Node]) -> Block:
    """Return a block with the first barrier inside it left out."""
    nodes: list[Node] = []
    for node in body.nodes:
        if isinstance(node, Barrier) and not removed:
            removed.append(node)
            continue
        nodes.append(replace(node, body=without_first_barrier(node.body, removed)) if isinstance(node, For) else node)
    return replace(body, nodes=tuple(nodes))


def test_packed_kernel_without_a_barrier_is_refused() -> None:
    kernel = build(CASES["packed_rows"], "avx512").kernel
    removed: list[Node] = []
    mutant = replace(kernel, body=without_first_barrier(kernel.body, removed))
    assert removed
    with pytest.raises(ProofFailed):
        prove(mutant)


@pytest.mark.parametrize("name", ["max_rows", "mean_columns", "mean_f64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_reduction_of_more_than_its_input_is_refused(name: str, axis: int) -> None:
    kernel = build(CASES[name], "avx512").kernel
    place, tile = next((place, node) for place, node in places(kernel.body) if isinstance(node, ReduceTile))
    shape = tuple(size + 16 if number == axis else size for number, size in enumerate(tile.shape))
    assert prove(kernel).facts
    with pytest.raises(ProofFailed, match="ReduceTile"):
        prove(edited(kernel, place, replace(tile, shape=shape)))


@pytest.mark.parametrize("name", ["low_rank", "dot_columns"])
def test_granules_of_an_operand_that_is_read_in_place_are_its_own_steps(name: str) -> None:
    kernel = build(CASES[name], "avx512").kernel
    tiles = [(place, node) for place, node in places(kernel.body) if isinstance(node, MicroKernel)]
    assert tiles
    for place, node in tiles:
        assert prove(edited(kernel, place, replace(node, granule=2))).about("reduction")


def test_a_mean_divided_by_another_number_is_refused() -> None:
    kernel = build(CASES["mean_columns"], "avx512").kernel
    place, tile = next((place, node) for place, node in places(kernel.body) if isinstance(node, ReduceTile))
    with pytest.raises(ProofFailed, match="is divided by"):
        prove(edited(kernel, place, replace(tile, count=tile.count + 1)))


def test_every_kernel_variant_is_compiled_by_a_case() -> None:
    assert {variant.id for variant in VARIANTS if not variant.is_library} == {case.variant for case in CASES.values()}
