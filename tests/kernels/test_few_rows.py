"""Products of few rows: which kernel they get, and what the one that packs nothing computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracea.core.accuracy import error_bound
from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.doctor.select import decide
from tracea.flow.compile import compile_node
from tracea.kernels.gemm.direct import DIRECT
from tracea.kernels.gemm.gemv import DOT
from tracea.kernels.gemm.narrow import NARROW
from tracea.kernels.gemm.packed import PACKED
from tracea.semantic.proofs import prove
from tracea.targets import load

XEON = replace(load("avx512"), cores=2)  # two multiply-adds of 64 bytes a cycle
ZEN4 = replace(XEON, fma_per_cycle=1)


@pytest.mark.parametrize(
    ("rows", "on_xeon", "on_zen4"),
    [(8, "direct", "direct"), (9, "direct", "packed"), (48, "direct", "packed"), (49, "packed", "packed")],
)
def test_packing_is_for_products_that_repay_it(rows: int, on_xeon: str, on_zen4: str) -> None:
    op = GemmOp.of(m=rows, n=1024, k=1024)
    variants = (DIRECT, PACKED)  # B is twice the second-level cache
    assert decide(op, XEON, variants=variants).variant == f"gemm.{on_xeon}"
    assert decide(op, ZEN4, variants=variants).variant == f"gemm.{on_zen4}"


@pytest.mark.parametrize(
    ("shape", "variant"),
    [
        ((384, 384, 512), "direct"),
        ((385, 384, 512), "packed"),  # enough rows
        ((256, 512, 512), "direct"),  # all of the cache
        ((257, 512, 512), "packed"),  # which more rows would bring again and again
        ((384, 513, 512), "packed"),  # rows that begin anywhere
        ((384, 301, 24), "direct"),  # the same, but small
        ((64, 768, 768), "packed"),  # more than the cache holds
    ],
)
def test_packing_waits_for_more_rows_where_the_cache_holds_b(shape: tuple[int, int, int], variant: str) -> None:
    m, n, k = shape
    assert decide(GemmOp.of(m=m, n=n, k=k), XEON, variants=(DIRECT, PACKED)).variant == f"gemm.{variant}"


def test_one_core_reads_b_in_place_for_more_rows() -> None:
    for rows, variant in ((512, "direct"), (513, "packed")):
        made = decide(GemmOp.of(m=rows, n=384, k=512), replace(XEON, cores=1), variants=(DIRECT, PACKED))
        assert made.variant == f"gemm.{variant}"


@pytest.mark.parametrize(
    ("shape", "on_xeon", "on_zen4"),
    [
        ((8, 768, 64), "dot", "dot"),
        ((9, 768, 126), "dot", "packed"),
        ((9, 768, 125), "packed", "packed"),  # sums too short for what ends each
        ((48, 768, 768), "dot", "packed"),
        ((49, 768, 768), "packed", "packed"),
    ],
)
def test_rows_times_a_weight_as_it_is_stored(shape: tuple[int, int, int], on_xeon: str, on_zen4: str) -> None:
    m, n, k = shape
    op, variants = GemmOp.of(m=m, n=n, k=k, transpose_b=True), (DIRECT, PACKED, DOT)
    assert decide(op, XEON, variants=variants).variant == f"gemm.{on_xeon}"
    assert decide(op, ZEN4, variants=variants).variant == f"gemm.{on_zen4}"


def test_a_weight_stored_in_another_type_is_converted_once() -> None:
    op = GemmOp.of(m=24, n=768, k=768, transpose_b=True, dtype=DType.BF16)
    assert decide(op, XEON, variants=(PACKED, DOT)).variant == "gemm.packed"


def test_weights_in_panels_are_taken_as_they_are() -> None:
    op = GemmOp.of(m=24, n=1024, k=1024)
    assert decide(op, XEON, constants=(1,)).variant == "gemm.prepacked"


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((170, 76, 602), (5, 5)),  # 80 columns; 6 by 3 would compute 96
        ((300, 390, 200), (5, 5)),
        ((30, 112, 600), (3, 7)),
        ((170, 96, 602), (6, 3)),  # fills its last tile
        ((300, 208, 150), (6, 3)),  # 3 by 7 computes 224 columns for 240, and reads each of B twice as often
        ((128, 200, 256), (6, 3)),  # 4 by 2 wastes less, and has half of the products for its loads
    ],
)
def test_a_tile_is_less_high_where_that_leaves_fewer_lanes_empty(
    shape: tuple[int, int, int], tile: tuple[int, int]
) -> None:
    m, n, k = shape
    op = GemmOp.of(m=m, n=n, k=k)
    for variant in (DIRECT, NARROW):
        schedule = variant.default_schedule(op, XEON)
        assert (schedule.integer("mr"), schedule.integer("nv")) == tile


@pytest.mark.parametrize(("rows", "block"), [(6, 256), (7, 128), (48, 128)])
def test_rows_of_b_that_several_tiles_read_stay_in_the_cache(rows: int, block: int) -> None:
    op = GemmOp.of(m=rows, n=1024, k=1024)
    assert DIRECT.default_schedule(op, XEON)["kc"] == block
    assert DIRECT.default_schedule(op, ZEN4)["kc"] == 256


@pytest.mark.parametrize("rows", [7, 12, 17, 31, 48])
@pytest.mark.parametrize(("n", "k"), [(1024, 1024), (513, 1151), (1000, 129)])
def test_default_schedules_of_few_rows_are_proved(rows: int, n: int, k: int) -> None:
    op = GemmOp.of(m=rows, n=n, k=k, bias=True, activation="relu")
    for target in (XEON, replace(XEON, cores=1)):
        prove(DIRECT.build(op, DIRECT.default_schedule(op, target), target))


@pytest.mark.costly
@pytest.mark.parametrize("variant", ["gemm.direct", "gemm.dot"])
@pytest.mark.parametrize("threads", [1, 2])
def test_products_of_few_rows(variant: str, threads: int, rng: np.random.Generator) -> None:
    for k in (127, 128, 129, 255, 257, 640):
        m, n, is_dot = int(rng.integers(7, 49)), int(rng.integers(500, 1100)), variant == "gemm.dot"
        op = GemmOp.of(m=m, n=n, k=k, bias=True, activation="relu", residual=True, transpose_b=is_dot)
        arrays = [rng.standard_normal(each.static_shape).astype(np.float32) for each in op.operands]
        if is_dot:
            arrays[1] = np.ascontiguousarray(arrays[1].T).T
        a, b, bias, residual = (each.astype(np.float64) for each in arrays)
        expected = np.maximum(a @ b + bias, 0.0) + residual
        out = np.full((m, n), np.nan, np.float32)
        compiled = compile_node(op, {}, threads=threads, variant=variant, library=False)
        compiled.program.bound(*arrays, out=out, threads=threads)()
        assert (np.abs(out - expected) <= error_bound(op, arrays)).all(), f"{m}x{n}x{k}"


@pytest.mark.parametrize(
    ("m", "n", "k", "variant"),
    [
        (64, 256, 3136, "direct"),
        (256, 64, 3136, "direct"),
        (24, 144, 3136, "direct"),
        (512, 128, 784, "direct"),
        (512, 512, 784, "packed"),  # sums are more than an eighth of the second-level cache
        (1024, 256, 196, "packed"),
        (2048, 16, 784, "packed"),  # a step of A is more than a page
        (256, 64, 100, "packed"),  # a short sum
    ],
)
def test_long_products_of_two_matrices_in_columns_and_rows_read_both_in_place(
    m: int, n: int, k: int, variant: str
) -> None:
    op = GemmOp.of(m=m, n=n, k=k, transpose_a=True)
    assert decide(op, replace(XEON, l2_bytes=2 << 20), variants=(DIRECT, PACKED)).variant == f"gemm.{variant}"
