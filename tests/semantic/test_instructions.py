"""Meanings of matrix instructions: against float64 and exact integers, through every way in and out of fragments."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects.declare import argument, scratch, variables

from tracea.core.dtype import DType
from tracea.errors import InvalidSchedule
from tracea.semantic.index import Const
from tracea.semantic.instructions import (
    ACCUMULATOR_TO_OPERAND,
    LDMATRIX_A,
    LDMATRIX_B,
    LDMATRIX_B_TRANSPOSED,
    MMA_M16N8K16,
    ROUND_TF32,
    STORE_M16N8,
    WGMMA_M64N8K16,
    accumulator_to_operand,
    load_fragment,
    load_matrix,
    mma,
    multiply_accumulate,
    round_tf32,
    store_fragment,
    store_matrix,
    wgmma,
)
from tracea.semantic.interpreter import interpret
from tracea.semantic.lane_map import LaneMap
from tracea.semantic.matrix_instructions import MMA_INSTRUCTIONS, Instruction, Operand, instruction
from tracea.semantic.nodes import CopyTile, Level, Parallel, block
from tracea.semantic.nodes_async import StoreFragment, Wgmma, WgmmaCommit, WgmmaWait
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

Array = np.ndarray[Any, Any]

DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "s8": np.int8,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


def _operands(of: Instruction, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    shapes = [of.shape(operand) for operand in Operand]
    if of.element == "s8":
        a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes[:2])
        return a, b, rng.integers(-(1 << 31), 1 << 31, shapes[2]).astype(np.int32)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes[:2])
    if of.element == "tf32":
        a, b = round_tf32(a), round_tf32(b)
    dtype = DTYPES[of.element]
    return a.astype(dtype), b.astype(dtype), rng.standard_normal(shapes[2]).astype(np.float32)


def _close(of: Instruction, got: Array, a: Array, b: Array, c: Array) -> None:
    if of.accumulator == "s32":
        exact = c.astype(object) + a.astype(object) @ b.astype(object)
        wrapped = (exact + (1 << 31)) % (1 << 32) - (1 << 31)
        assert (got.astype(object) == wrapped).all()
        return
    exact = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(c) + np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    assert got.dtype == np.float32
    assert (np.abs(got - exact) <= 2.0**-24 * np.abs(exact) + 2.0**-45 * scale).all()


@pytest.mark.parametrize("name", MMA_INSTRUCTIONS)
def test_fragments_multiply_as_matrices_do(name: str) -> None:
    of = instruction(name)
    a, b, c = _operands(of)
    maps = [LaneMap(of, operand) for operand in Operand]
    fragments = [where.fragment(matrix) for where, matrix in zip(maps, (a, b, c), strict=True)]
    got = maps[2].matrix(mma(name).meaning(*fragments))
    _close(of, got, a, b, c)
    assert np.array_equal(got, multiply_accumulate(of, a, b, c))


@pytest.mark.parametrize(
    ("n", "element"), [(8, "f16"), (24, "bf16"), (256, "f16"), (64, "tf32"), (32, "s8"), (128, "e4m3"), (16, "e5m2")]
)
def test_wgmma_multiplies_for_every_storage_that_it_reads(n: int, element: str) -> None:
    k = {"f16": 16, "bf16": 16, "tf32": 8}.get(element, 32)
    of = instruction(f"wgmma.m64n{n}k{k}.{element}")
    a, b, c = _operands(of)
    a_map, c_map = LaneMap(of, "A"), LaneMap(of, "C")
    start = c_map.fragment(c)
    plain = wgmma(n, element, b_transposed=True)
    assert plain.name == f"wgmma_m64n{n}k{k}"
    got = c_map.matrix(plain.meaning(a, b.T, start))
    _close(of, got, a, b, c)
    in_registers = wgmma(n, element, a_in_registers=True, b_transposed=True)
    assert np.array_equal(c_map.matrix(in_registers.meaning(a_map.fragment(a), b.T, start)), got)
    if of.element_bytes(Operand.A) == 2:
        assert np.array_equal(c_map.matrix(wgmma(n, element).meaning(a, b, start)), got)
        turned = wgmma(n, element, a_transposed=True)
        assert np.array_equal(c_map.matrix(turned.meaning(a.T, b, start)), got)
    else:
        with pytest.raises(InvalidSchedule):
            wgmma(n, element)
        with pytest.raises(InvalidSchedule):
            wgmma(n, element, a_transposed=True, b_transposed=True)


def test_a_in_registers_is_not_transposed() -> None:
    with pytest.raises(InvalidSchedule):
        wgmma(8, "f16", a_in_registers=True, a_transposed=True)


@pytest.mark.parametrize("operand", ["A", "B"])
@pytest.mark.parametrize("name", [name for name in MMA_INSTRUCTIONS if name.startswith("mma.")])
def test_lane_by_lane_loads_take_any_storage(name: str, operand: str) -> None:
    where = LaneMap(name, operand)
    matrix = np.arange(where.rows * where.columns).reshape(where.rows, where.columns)
    assert np.array_equal(load_fragment(name, operand).meaning(matrix), where.fragment(matrix))
    assert np.array_equal(load_fragment(name, operand, transposed=True).meaning(matrix.T), where.fragment(matrix))
    side = 0 if operand == "A" else 1
    two = np.concatenate([matrix, matrix + 1000], axis=side)
    both = load_fragment(name, operand, tiles=2).meaning(two)
    assert np.array_equal(both, np.stack([where.fragment(matrix), where.fragment(matrix + 1000)]))
    deep = np.concatenate([matrix, matrix + 1000], axis=1 - side)
    assert np.array_equal(load_fragment(name, operand, tiles=2, along="depth").meaning(deep), both)


def test_several_tiles_must_be_one_instruction() -> None:
    with pytest.raises(InvalidSchedule):
        load_matrix("mma.m16n8k16.f16", "B", tiles=3)
    with pytest.raises(InvalidSchedule):
        load_matrix("mma.m16n8k16.f16", "B", tiles=4)  # eight matrices
    with pytest.raises(InvalidSchedule):
        load_matrix("mma.m16n8k16.f16", "B", tiles=2, along="sideways")


def test_stores_bring_tiles_back_side_by_side() -> None:
    where = LaneMap("mma.m16n8k16.f16", "C")
    tile = np.arange(16 * 16).reshape(16, 16)
    fragments = np.stack([where.fragment(tile[:, :8]), where.fragment(tile[:, 8:])])
    for store in (store_fragment("mma.m16n8k16.f16", tiles=2), store_matrix("mma.m16n8k16.f16", tiles=2)):
        assert np.array_equal(store.meaning(fragments), tile)
    assert store_matrix("mma.m16n8k16.f16", tiles=2).name == "stmatrix_x4"
    assert store_matrix("mma.m8n8k16.s8", tiles=4).name == "stmatrix_x4"
    with pytest.raises(InvalidSchedule):
        store_matrix("mma.m16n8k16.f16", tiles=4)
    with pytest.raises(InvalidSchedule):
        store_matrix("wgmma.m64n8k16.f16")


def test_named_instructions_keep_their_names_and_shapes() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((16, 16)).astype(np.float16), rng.standard_normal((16, 8)).astype(np.float16)
    a_fragment, b_fragment = LDMATRIX_A.meaning(a), LDMATRIX_B.meaning(b)
    assert (a_fragment.shape, b_fragment.shape) == ((32, 8), (32, 4))
    assert np.array_equal(LDMATRIX_B_TRANSPOSED.meaning(b.T), b_fragment)
    c = MMA_M16N8K16.meaning(a_fragment, b_fragment, np.zeros((32, 4), dtype=np.float32))
    assert np.allclose(STORE_M16N8.meaning(c), a.astype(np.float64) @ b.astype(np.float64), atol=1e-5)
    names = [each.name for each in (LDMATRIX_A, LDMATRIX_B, LDMATRIX_B_TRANSPOSED, MMA_M16N8K16, WGMMA_M64N8K16)]
    assert names == ["ldmatrix_x4", "ldmatrix_x2_trans", "ldmatrix_x2", "mma_m16n8k16", "wgmma_m64n8k16"]
    assert [mma(f"mma.{name}").name for name in ("m16n8k8.tf32", "m16n8k32.s8", "m16n8k32.e4m3")] == [
        "mma_m16n8k8_tf32",
        "mma_m16n8k32_s8",
        "mma_m16n8k32",
    ]


def test_accumulators_are_operands_where_the_registers_agree() -> None:
    tile = np.arange(256.0).reshape(16, 16)
    where = LaneMap("mma.m16n8k16.f16", "C")
    halves = np.stack([where.fragment(tile[:, :8]), where.fragment(tile[:, 8:])])
    operand = ACCUMULATOR_TO_OPERAND.meaning(halves)
    assert np.array_equal(LaneMap("mma.m16n8k16.f16", "A").matrix(operand), tile)
    for name in ("mma.m16n8k8.tf32", "mma.m16n8k32.e4m3", "mma.m16n8k4.tf32"):
        with pytest.raises(InvalidSchedule):
            accumulator_to_operand(name)


def test_infinities_and_nan_are_values() -> None:
    of = instruction("mma.m16n8k8.f16")
    a, b, c = (np.zeros(of.shape(operand), np.float16) for operand in Operand)
    a[0, 0], b[0, 0], b[0, 1] = np.inf, 1, 0
    got = multiply_accumulate(of, a, b, c)
    assert got[0, 0] == np.inf
    assert np.isnan(got[0, 1])


@given(st.floats(width=32), st.integers(0, (1 << 13) - 1))
def test_tf32_rounds_to_nearest_away_and_is_read_without_the_rest(value: float, below: int) -> None:
    number = np.array([value], dtype=np.float32)
    rounded = round_tf32(number)
    if not np.isfinite(number[0]):
        assert np.array_equal(rounded, number, equal_nan=True)
        return
    bits = int(rounded.view(np.uint32)[0])
    assert bits % (1 << 13) == 0
    assert np.array_equal(round_tf32(rounded), rounded)
    exact, up = int(number.view(np.uint32)[0]), 1 << 12
    assert bits == (exact + up) // (1 << 13) * (1 << 13)  # ties away from zero: the sign is a bit of its own
    of = instruction("mma.m16n8k4.tf32")
    if not np.isfinite(rounded[0]):
        return
    a = np.zeros((16, 4), np.float32)
    a[0, 0] = rounded[0]
    dirty = a.copy()
    dirty.view(np.uint32)[0, 0] |= below
    b, c = np.ones((4, 8), np.float32), np.zeros((16, 8), np.float32)
    assert np.array_equal(multiply_accumulate(of, dirty, b, c), multiply_accumulate(of, a, b, c))


def test_the_rounding_is_a_meaning_on_fragments() -> None:
    values = np.float32(1) + np.arange(64, dtype=np.float32).reshape(32, 2) * np.float32(2.0**-13)
    assert np.array_equal(ROUND_TF32.meaning(values), round_tf32(values))
    assert ROUND_TF32.meaning(values).shape == (32, 2)


def test_a_late_product_of_integers_runs_in_the_interpreter() -> None:
    a, b = argument("A", DType.I8, (64, 32), BufferRole.INPUT), argument("B", DType.I8, (8, 32), BufferRole.INPUT)
    c = argument("C", DType.I32, (64, 8), BufferRole.OUTPUT)
    a_tile, b_tile = scratch("a", DType.I8, MemorySpace.TEAM, 64, 32), scratch("b", DType.I8, MemorySpace.TEAM, 8, 32)
    sums = scratch("sums", DType.I32, MemorySpace.REGISTER, 128, 4)
    tile, four = variables("tile four")
    product = (
        CopyTile(source=a.whole(), target=a_tile.whole()),
        CopyTile(source=b.whole(), target=b_tile.whole()),
        Wgmma(intrinsic=wgmma(8, "s8", b_transposed=True), a=a_tile.whole(), b=b_tile.whole(), c=sums.whole()),
        WgmmaCommit(),
        WgmmaWait(pending=Const(0)),
        StoreFragment(intrinsic=store_fragment("wgmma.m64n8k32.s8"), source=sums.whole(), target=c.whole()),
    )
    one = Parallel(level=Level.SUBGROUP, var=four, extent=Const(1), body=block(*product))
    kernel = TileKernel(
        name="s8",
        op=None,
        variant="test.s8",
        schedule=Schedule(),
        target="sm_90a",
        params=(),
        buffers=(a, b, c, a_tile, b_tile, sums),
        body=block(Parallel(level=Level.BLOCK, var=tile, extent=Const(1), body=block(one))),
    )
    rng = np.random.default_rng(2)
    arrays = {name: rng.integers(-128, 128, shape).astype(np.int8) for name, shape in (("A", (64, 32)), ("B", (8, 32)))}
    got = interpret(kernel, {**arrays, "C": np.zeros((64, 8), np.int32)}, {})["C"]
    assert np.array_equal(got, arrays["A"].astype(np.int32) @ arrays["B"].astype(np.int32).T)
