"""Variants are data in one tuple: a new one is a file and a line."""

from __future__ import annotations

import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.conformance import Built, Case, random_inputs, run
from tests.kernels.native import Unit, host_isas

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import GemmOp, PointwiseOp
from tracea.core.reference import evaluate
from tracea.core.tensor_type import BlockedLayout, StridedLayout, SymbolicDim, TensorType
from tracea.emitters.cpu.emitter import emit
from tracea.errors import InvalidOption, InvalidSchedule
from tracea.kernels.registry import VARIANTS, candidates, check_unique, find
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.proofs import prove
from tracea.semantic.schedule import Schedule
from tracea.targets import load

# A whole new variant, as its one file would be: y = x by blocks of columns.
NEW_FILE = """
from tracea.core.ops.pointwise import PointwiseOp
from tracea.kernels.operands import window
from tracea.kernels.pointwise.chain import chain_plan
from tracea.kernels.pointwise.tile import compute_type, map_tile
from tracea.kernels.requirements import CPU_VECTORS, condition
from tracea.kernels.rows.operands import RowOperands
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.nodes import PointwiseTile
from tracea.semantic.schedule import Schedule


def build(op, schedule, target):
    operands = RowOperands.of(op, chain_plan(op))
    intrinsic = map_tile(compute_type(op.out_dtype), streaming=False)

    def tile(offset, extent):
        inputs = tuple(window(buffer, offset, extent) for buffer in operands.inputs)
        return PointwiseTile(
            intrinsic=intrinsic, expr=op.expr, inputs=inputs, target=window(operands.y, offset, extent)
        )

    body = operands.over_blocks(operands.rank - 1, schedule.integer("columns"), tile)
    return operands.kernel("pointwise.by_columns", schedule, target, (), body)


BY_COLUMNS = Variant(
    id="pointwise.by_columns",
    op_type=PointwiseOp,
    backend="cpu",
    requirements=(
        CPU_VECTORS, condition("wide", lambda op, target: op.shape[-1] >= 64, needed="64 columns", found=str,
        remedy="pointwise.chain"),
    ),
    preferences=(),
    priority=99,
    build=build,
    space=lambda op, target: ScheduleSpace.enumerated({"columns": (16, 64)}),
    default_schedule=lambda op, target: Schedule(columns=16),
)
"""


def test_new_variant_is_one_file_and_one_registry_line(rng: np.random.Generator) -> None:
    module = types.ModuleType("by_columns")
    exec(compile(NEW_FILE, "by_columns.py", "exec"), module.__dict__)
    registry = (*VARIANTS, module.BY_COLUMNS)  # the one line
    check_unique(registry)
    isa = host_isas()[0]
    target = load(isa)
    x = TensorType((5, 100), DType.F32)
    op = PointwiseOp(expr=Input(0) * 2.0, inputs=(x,), out_dtype=DType.F32)
    chosen = candidates(op, target, registry)[0]
    assert chosen.id == "pointwise.by_columns"
    assert chosen.build is not None
    assert chosen.default_schedule is not None
    kernel = chosen.build(op, chosen.default_schedule(op, target), target)
    assert prove(kernel).facts
    source = emit(kernel, isa)
    built = Built(Case.of("new", "pointwise.chain", op), kernel, source)
    inputs = random_inputs(op, rng)
    got = run(Unit([source], isa, extra=("-O1", "-shared")), built, op, inputs, threads=2)
    np.testing.assert_array_equal(got, evaluate(op, inputs).astype(np.float32))


def test_two_variants_of_one_id_are_refused() -> None:
    with pytest.raises(InvalidOption, match=r"gemm\.packed"):
        check_unique((*VARIANTS, find("gemm.packed")))


def test_unknown_variant_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(InvalidOption, match=r"gemm\.direct"):
        find("gemm.unpacked; rm")


def test_a_misspelt_variant_is_told_what_it_may_have_meant() -> None:
    with pytest.raises(InvalidOption, match=r"Remedy: use gemm\.packed or gemm\.prepacked, if that was meant; name"):
        find("gemm.pakced")


@pytest.mark.parametrize(
    ("variant", "op", "requirement"),
    [
        ("gemm.packed", GemmOp.of(m=4, n=4, k=0), "k >= 1"),
        ("gemm.packed", GemmOp.of(m=4, n=4, k=4, dtype=DType.I8, out_dtype=DType.I32), "element types"),
        ("gemm.packed", replace(GemmOp.of(m=4, n=4, k=4), b=TensorType((4, 4), DType.F64)), "one arithmetic"),
        (
            "gemm.packed",
            replace(GemmOp.of(m=4, n=4, k=4), a=TensorType((4, 4), DType.F32, StridedLayout((-4, 1)))),
            "strides",
        ),
        (
            "gemm.packed",
            replace(GemmOp.of(m=4, n=4, k=4), b=TensorType((4, 4), DType.F32, BlockedLayout(((1, 2),)))),
            "strided layouts",
        ),
        ("gemm.direct", GemmOp.of(m=4, n=4, k=4, transpose_b=True), "rows of B contiguous"),
        (
            "gemm.direct",
            replace(GemmOp.of(m=4, n=4, k=4), a=TensorType((4, 4), DType.F32, StridedLayout((8, 2)))),
            "rows or columns of A contiguous",
        ),
        ("gemm.direct", GemmOp.of(m=4, n=4, k=4, dtype=DType.BF16), "operands stored as they are summed"),
        ("gemm.stream", GemmOp.of(m=5, n=4, k=4), "m <= 4"),
        ("gemm.stream_turned", GemmOp.of(m=9, n=5, k=4, transpose_a=True), "n <= 4"),
        ("gemm.stream_turned", GemmOp.of(m=9, n=1, k=4), "columns of A contiguous"),
        ("gemm.stream_turned", GemmOp.of(m=4, n=4, k=4, transpose_a=True), "more rows than columns"),
        ("gemm.stream_turned", GemmOp.of(m=SymbolicDim("m"), n=1, k=4), "extents known"),
        ("gemm.direct_turned", GemmOp.of(m=200, n=113, k=4, transpose_a=True), "n <= 112"),
        ("gemm.direct_turned", GemmOp.of(m=200, n=9, k=4), "columns of A contiguous"),
        ("gemm.direct_turned", GemmOp.of(m=9, n=9, k=4, transpose_a=True), "more rows than columns"),
        (
            "gemm.direct_turned",
            GemmOp.of(m=70, n=9, k=4, transpose_a=True, dtype=DType.F16),
            "operands stored as they are summed",
        ),
        (
            "gemm.direct_turned",
            replace(GemmOp.of(m=9, n=4, k=4, transpose_a=True), b=TensorType((4, 4), DType.F32, StridedLayout((8, 2)))),
            "rows or columns of B contiguous",
        ),
        ("gemm.narrow", GemmOp.of(m=70, n=257, k=4), "n <= 256"),
        ("gemm.narrow", GemmOp.of(m=70, n=3, k=4, batch=(2,)), "one product"),
        ("gemm.narrow", GemmOp.of(m=70, n=3, k=4, transpose_a=True), "rows of A contiguous"),
        ("gemm.narrow_prepacked", GemmOp.of(m=70, n=3, k=4, dtype=DType.BF16), "operands stored as they are summed"),
        ("gemm.dot_turned", GemmOp.of(m=70, n=49, k=4, transpose_b=True), "n <= 48"),
        ("gemm.dot_turned", GemmOp.of(m=9, n=1, k=4, transpose_b=True), "columns"),
        ("gemm.dot_turned", GemmOp.of(m=9, n=3, k=4), "columns of B contiguous"),
        ("gemm.dot_turned", GemmOp.of(m=9, n=3, k=4, transpose_a=True, transpose_b=True), "rows of A contiguous"),
        ("gemm.stream_split_turned", GemmOp.of(m=9, n=1, k=4, batch=(2,), transpose_a=True), "one product"),
        ("gemm.dot", GemmOp.of(m=4, n=4, k=4), "columns of B contiguous"),
        ("gemm.prepacked", GemmOp.of(m=4, n=4, k=4, batch=(2,)), "b is a matrix"),
        ("library.gemm", GemmOp.of(m=0, n=4, k=4), "no empty extent"),
    ],
)
def test_requirement_that_fails_says_what_it_needs_and_what_it_found(
    variant: str, op: GemmOp, requirement: str
) -> None:
    unmet = dict((r.name, u) for r, u in find(variant).unmet(op, load("avx512")))
    assert requirement in unmet
    assert unmet[requirement].needed
    assert unmet[requirement].found
    assert unmet[requirement].remedy
    assert find(variant) not in candidates(op, load("avx512"))


def test_some_variant_of_ours_takes_every_float_gemm() -> None:
    for op in (
        GemmOp.of(m=1, n=1, k=1),
        GemmOp.of(m=0, n=4, k=0),
        GemmOp.of(m=7, n=1, k=9, transpose_a=True),
        GemmOp.of(m=7, n=3, k=9, dtype=DType.BF16, batch=(2, 3), transpose_b=True, bias=True),
    ):
        ours = [variant.id for variant in candidates(op, load("avx512")) if not variant.is_library]
        assert ours, op


def test_unfit_schedule_is_a_typed_error_with_its_numbers() -> None:
    packed, target, op = find("gemm.packed"), load("avx512"), GemmOp.of(m=64, n=64, k=64)
    assert packed.build is not None
    assert packed.default_schedule is not None
    good = packed.default_schedule(op, target)
    for bad in ({"mr": 30, "nv": 2}, {"kc": 0}, {"split": "diagonal"}, {"tail": 14}):
        with pytest.raises(InvalidSchedule):
            packed.build(op, good.with_values(**bad), target)  # type: ignore[arg-type]
    with pytest.raises(InvalidSchedule):
        packed.build(op, Schedule(mr=14), target)


def test_a_boolean_is_no_number_of_a_schedule() -> None:
    with pytest.raises(InvalidSchedule, match=r"mr: got True, expected an integer or a word\. Remedy: mr=1"):
        Schedule(mr=True)


@pytest.mark.parametrize("name", ["gemm.packed", "gemm.direct", "gemm.stream", "gemm.dot", "gemm.amx"])
def test_a_value_out_of_range_is_told_its_limit(name: str) -> None:
    variant, target, op = find(name), load("amx" if name == "gemm.amx" else "avx512"), GemmOp.of(m=4, n=64, k=64)
    assert variant.build is not None
    assert variant.default_schedule is not None
    good = variant.default_schedule(op, target)
    for key, value in good.values_.items():
        if key in ("fixed", "streaming"):
            continue
        bad = -1 if isinstance(value, int) else "diagonal"
        limit = r"expected (at least \d|\d to \d+)" if isinstance(value, int) else r"expected rows \| columns"
        with pytest.raises(InvalidSchedule, match=f"^{key}: got {bad}, {limit}.* Remedy: {key}="):
            variant.build(op, good.with_values(**{key: bad}), target)


def test_variant_with_half_of_its_functions_is_refused() -> None:
    with pytest.raises(InvalidSchedule):
        replace(find("gemm.packed"), space=None)


def test_space_rows_name_values() -> None:
    space = ScheduleSpace.enumerated({"a": (1, 2), "b": ("x", "y")}, lambda chosen: chosen["a"] == 1)
    assert [schedule.key for schedule in space] == ["a=1,b=x", "a=1,b=y"]
    assert space.schedule((1, 0)) == Schedule(a=2, b="x")
    with pytest.raises(InvalidSchedule):
        space.schedule((0,))


def test_importing_the_registry_registers_nothing_twice() -> None:
    assert "tracea.kernels.registry" in sys.modules
    assert all(isinstance(variant, Variant) for variant in VARIANTS)


@pytest.mark.parametrize(("rows", "first"), [(32, "gemm.direct"), (80, "gemm.packed")])
def test_columns_of_a_are_read_in_place_where_their_steps_are_near(rows, first):
    op = GemmOp.of(m=rows, n=192, k=196, transpose_a=True)
    target = load("avx512")
    target = replace(target, features=target.features | {"avx512_bf16"})  # a Zen 5, which packs fast
    known = [variant for variant in candidates(op, target) if variant.constant_operand is None and variant.build]
    assert known[0].id == first
    direct = find("gemm.direct")
    assert direct.default_schedule(op, target) in direct.space(op, target)


@pytest.mark.parametrize(
    ("shape", "cycle", "first"),
    [
        ((128, 384, 784), 1, "gemm.direct"),
        ((128, 384, 784), 2, "gemm.packed"),  # a step is over before the second cache has brought the next one
        ((128, 384, 49), 1, "gemm.packed"),  # short sums
        ((1024, 512, 784), 1, "gemm.packed"),  # sums that leave the second cache between blocks
    ],
)
def test_far_columns_of_a_are_read_in_place_where_a_step_takes_long(shape, cycle, first):
    m, n, k = shape
    op = GemmOp.of(m=m, n=n, k=k, transpose_a=True)
    target = replace(load("avx512"), fma_per_cycle=cycle, l2_bytes=1 << 20)
    known = [variant for variant in candidates(op, target) if variant.constant_operand is None and variant.build]
    assert known[0].id == first


def test_tasks_of_columns_leave_the_last_core_as_little_as_can_be():
    target = replace(load("avx512"), fma_per_cycle=1, l2_bytes=1 << 20, cores=2)
    chosen = {
        n: find("gemm.direct").default_schedule(GemmOp.of(m=64, n=n, k=784, transpose_a=True), target)["nc"]
        for n in (192, 288, 4096)
    }
    assert chosen == {192: 96, 288: 160, 4096: 1024}
