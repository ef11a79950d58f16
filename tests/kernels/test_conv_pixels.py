"""Convolutions with vectors along pixels: random ops, other extents, what is not finite, proofs that refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.drawn import drawn
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.conv_cases import FUSED, conv
from tests.kernels.moved_regions import later, moved, narrowed, nothing
from tests.kernels.native import host_isas, one_of_the_isas, run_isas
from tests.kernels.pixel_cases import pixel_cases
from tests.kernels.test_conv import DTYPES, random_conv
from tests.kernels.test_conv_turned import turned

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.emitters.cpu.emitter import emit
from tracea.errors import EmitError, InvalidSchedule, ProofFailed
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import candidates, find
from tracea.semantic.index import as_index
from tracea.semantic.nodes import CopyTile, MicroKernel, Node, Pack
from tracea.semantic.proofs import prove
from tracea.semantic.rewrite import edited, places
from tracea.semantic.schedule import Schedule
from tracea.targets import load

CASES = {case.name: case for case in pixel_cases()}
VARIANTS = ("conv.pixels", "conv.pixels_prepacked")


def with_operand(op: Conv2dOp, shape: tuple[int, ...]) -> Conv2dOp:
    return replace(op, epilogue=Epilogue(Input(0) + Input(1), (TensorType(shape, DType.F32),)))


def in_rows(op: Conv2dOp) -> Conv2dOp:
    """Return an op of the same extents whose windows are a pixel apart, its images in rows."""
    x, w = (replace(type_, layout=None) for type_ in (op.x, op.w))
    return Conv2dOp(x=x, w=w, padding=op.padding, dilation=op.dilation, groups=op.groups)


@pytest.mark.parametrize("isa", one_of_the_isas("pixels", vectors=True))
@pytest.mark.parametrize("variant", drawn(1, VARIANTS, of="vectors of pixels"))
def test_random_convolutions_match_float64(variant: str, isa: str, rng: np.random.Generator) -> None:
    target, found, cases = load(isa), find(variant), []
    assert found.space is not None
    for number, dtype in enumerate((*DTYPES, DType.F32, DType.F32, DType.F32)):
        op = in_rows(random_conv(rng, dtype=dtype))
        op = turned(rng, op) if number % 3 == 2 else op
        if found.unmet(op, target):  # an image of one column or channel has more than one order
            continue
        space = found.space(op, target)
        schedule = space.schedule(space.rows[int(rng.integers(0, len(space)))])
        cases.append(Case.of(f"pixels{number}", variant, op, **dict(schedule)))
    unit = unit_of(tuple(cases), isa)
    for case in cases:
        for threads in (1, 3):
            check(unit, build(case, isa), case.op, random_inputs(case.op, rng), threads=threads)


@pytest.mark.costly
@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", ["pixels_long_rows", "pixels_groups", "pixels_dilated", "pixels_f64", "pixels_bf16"])
def test_kernel_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = unit_of(pixel_cases(), isa), CASES[name]
    built, op = build(case, isa), case.op
    for _ in range(10):
        groups = 1 if op.groups == 1 else int(rng.integers(2, 5))
        other = Conv2dOp.of(
            batch=int(rng.integers(0, 3)),
            channels=groups * int(rng.integers(2, 12)),
            size=(int(rng.integers(8, 40)), int(rng.integers(8, 80))),
            filters=groups * int(rng.integers(2, 30)),
            kernel=(int(rng.integers(1, 5)), int(rng.integers(1, 4))),
            padding=op.padding,
            dilation=op.dilation,
            groups=groups,
            dtype=op.x.dtype,
            **(FUSED if len(op.epilogue.operands) > 1 else {"bias": bool(op.epilogue.operands)}),  # type: ignore[arg-type]
        )
        check(unit, built, other, random_inputs(other, rng), threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", ["pixels_long_rows", "pixels_short_rows"])
def test_nan_and_infinity_reach_exactly_the_results_that_depend_on_them(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    unit, case = unit_of(pixel_cases(), isa), CASES[name]
    inputs = random_inputs(case.op, rng)
    inputs[0][0, 1, 2, -1] = np.nan  # at the end of a row, beside what is computed in vain
    inputs[0][-1, 0, -1, 0] = np.inf
    inputs[1][5, 1, 1, 1] = -np.inf
    with np.errstate(all="ignore"):
        check(unit, build(case, isa), case.op, inputs, threads=2)


@pytest.mark.parametrize("isa", host_isas()[:1])
def test_result_has_the_same_bits_for_any_team(isa: str, rng: np.random.Generator) -> None:
    for name in ("pixels_long_rows", "pixels_groups"):
        unit, case = unit_of(pixel_cases(), isa), CASES[name]
        inputs = random_inputs(case.op, rng)
        first = run(unit, build(case, isa), case.op, inputs, threads=1)
        for threads in (2, 3, 5):
            assert first.tobytes() == run(unit, build(case, isa), case.op, inputs, threads=threads).tobytes()


@pytest.mark.parametrize("name", CASES)
def test_scratch_is_bounded_by_a_band_and_the_filters(name: str) -> None:
    case = CASES[name]
    built = build(case, "avx512")
    op, schedule, values = case.op, built.kernel.schedule, arguments(built.kernel)
    filters, channels, r, s = op.w.static_shape
    rows = schedule.integer("rows") + (r - 1) * op.dilation[0]
    columns = int(op.shape[3]) + (s - 1) * op.dilation[1]
    halo = (rows * columns + schedule.integer("gap")) * channels * op.accumulator.nbytes
    assert int(built.kernel.thread_scratch_bytes.evaluate(values)) <= halo + 64
    nr = schedule.integer("nr")
    panels = -(-(filters // op.groups) // nr) * nr * op.groups * channels * r * s * op.accumulator.nbytes
    most = 0 if case.variant == "conv.pixels_prepacked" else panels + 64
    assert int(built.kernel.team_scratch_bytes.evaluate(values)) <= most


def said(node: Node, name: str, value: int | str) -> Node:
    """Return a tile whose routine says another number of itself."""
    assert isinstance(node, MicroKernel)
    attributes = tuple((key, value if key == name else old) for key, old in node.intrinsic.attributes)
    return replace(node, intrinsic=replace(node.intrinsic, attributes=attributes))


# In order: what is wrong, in which kernel, in which node, and how.
MUTANTS: dict[str, tuple[str, type[Node], Callable[[Node], Node]]] = {
    "the window is a row lower": (
        "pixels_long_rows",
        CopyTile,
        lambda node: replace(node, source=moved(node.source, -3, later)),  # type: ignore[attr-defined]
    ),
    "the window is a column to the right": (
        "pixels_long_rows",
        CopyTile,
        lambda node: replace(node, source=moved(node.source, -2, later)),  # type: ignore[attr-defined]
    ),
    "every image is the first one": (
        "pixels_short_rows",
        CopyTile,
        lambda node: replace(node, source=moved(node.source, 0, nothing)),  # type: ignore[attr-defined]
    ),
    "a channel is not copied": (
        "pixels_default",
        CopyTile,
        lambda node: replace(node, source=narrowed(node.source, -1), target=narrowed(node.target, -1)),  # type: ignore[attr-defined]
    ),
    "each tile has the first panel": (
        "pixels_long_rows",
        MicroKernel,
        lambda node: replace(node, b=moved(node.b, -5, nothing)),  # type: ignore[attr-defined]
    ),
    "a row of taps is left out": (
        "pixels_dilated",
        MicroKernel,
        lambda node: replace(node, b=narrowed(node.b, -4)),  # type: ignore[attr-defined]
    ),
    "a band is stored a row later": (
        "pixels_default",
        MicroKernel,
        lambda node: replace(node, c=moved(node.c, -3, later)),  # type: ignore[attr-defined]
    ),
    "the routine takes panels to be wider": ("pixels_long_rows", MicroKernel, lambda node: said(node, "nr", 5)),
    "whole tiles have no code": ("pixels_long_rows", MicroKernel, lambda node: said(node, "rows", "3")),
    "fewer rows come before more": ("pixels_long_rows", MicroKernel, lambda node: said(node, "rows", "4,4")),
    "there is code for no rows": ("pixels_long_rows", MicroKernel, lambda node: said(node, "rows", "")),
    "bias and residual are left out": (
        "pixels_long_rows",
        MicroKernel,
        lambda node: replace(node, epilogue=None),  # type: ignore[type-var]
    ),
    "filters are packed one further": (
        "pixels_long_rows",
        Pack,
        lambda node: replace(node, source=moved(node.source, -1, later)),  # type: ignore[attr-defined]
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_kernel_with_one_thing_wrong_is_refused(name: str) -> None:
    case, kind, change = MUTANTS[name]
    kernel = build(CASES[case], "avx512").kernel
    assert prove(kernel).facts
    place, node = next((place, node) for place, node in places(kernel.body) if isinstance(node, kind))
    with pytest.raises(ProofFailed):
        prove(edited(kernel, place, change(node)))


def test_panels_with_strides_are_refused() -> None:
    kernel = build(CASES["pixels_long_rows"], "avx512").kernel
    panels = kernel.buffer("panels")
    strides = tuple(step * 2 if axis < 3 else step for axis, step in enumerate(panels.element_strides))
    buffers = tuple(replace(b, strides=strides) if b.name == "panels" else b for b in kernel.buffers)
    with pytest.raises(ProofFailed, match="takes it to be row-major"):
        prove(replace(kernel, buffers=buffers))


@pytest.mark.parametrize("wrong", ["rows overlap", "channels overlap", "elements overlap"])
def test_scratch_whose_elements_share_a_place_is_refused(wrong: str) -> None:
    kernel = build(CASES["pixels_long_rows"], "avx512").kernel
    halo = kernel.buffer("halo")
    row, column, channel = halo.element_strides
    strides = {
        "rows overlap": (row - 1, column, channel),
        "channels overlap": (row, column, channel - 6),  # its gap is 5
        "elements overlap": (row, as_index(0), channel),
    }[wrong]
    buffers = tuple(replace(b, strides=strides) if b.name == "halo" else b for b in kernel.buffers)
    assert prove(kernel).facts
    with pytest.raises(ProofFailed, match="part its axes"):
        prove(replace(kernel, buffers=buffers))


def image(shape: tuple[int, ...], *strides: int) -> TensorType:
    return TensorType(shape, DType.F32, StridedLayout(strides))


@pytest.mark.parametrize(
    ("op", "needed"),
    [
        (conv(7, (5, 7), 19, stride=(1, 2)), "stride 1"),
        (conv(7, (5, 7), 19, channels_last=True), "columns are next to each other"),
        (conv(1, (5, 70), 19), "channels apart"),  # of one channel, whatever its stride is
        (replace(conv(1, (5, 70), 19), x=image((1, 1, 5, 70), 1050, 350, 70, 1)), "channels apart"),
        (replace(conv(4, (5, 70), 1), out=image((1, 1, 5, 70), 1050, 350, 70, 1)), "channels apart"),
        (with_operand(conv(7, (5, 70), 19), (5, 1)), "rows follow each other"),
        (with_operand(conv(7, (5, 70), 19), (1, 70)), "rows follow each other"),
        (with_operand(conv(7, (5, 70), 19), (1, 19, 5, 1)), "rows follow each other"),
    ],
)
def test_other_windows_and_orders_are_refused_with_the_reason(op: Conv2dOp, needed: str) -> None:
    (unmet,) = (reason for _, reason in find("conv.pixels").unmet(op, load("avx512")))
    assert needed in unmet.needed
    assert "conv.packed" in unmet.remedy


def test_a_stride_that_no_requirement_saw_is_not_emitted() -> None:
    schedule, target, make = (
        Schedule(nr=4, nv=2, tail=3, rows=3, kb=8, gap=5),
        load("avx512"),
        find("conv.pixels").build,
    )
    assert make is not None
    kernel = make(conv(7, (5, 70), 19, stride=(1, 2)), schedule, target)
    with pytest.raises(EmitError, match="a pixel apart"):
        emit(kernel, target.isa)


@pytest.mark.parametrize(
    ("values", "said"),
    [({"nr": 16, "nv": 2}, "registers"), ({"tail": 9}, "tail"), ({"gap": -1}, "gap"), ({"rows": 0}, "rows")],
)
def test_schedule_out_of_range_is_refused(values: dict[str, int], said: str) -> None:
    op = conv(7, (5, 7), 19)
    good = {"nr": 4, "nv": 2, "tail": 3, "rows": 3, "kb": 8, "gap": 5}
    with pytest.raises(InvalidSchedule, match=said):
        build(Case.of("wrong", "conv.pixels", op, **{**good, **values}), "avx512")


@pytest.mark.parametrize("fma_per_cycle", [1, 2])
def test_default_is_taken_where_filters_leave_more_lanes_empty_than_rows_have_columns_between_them(
    fma_per_cycle: int,
) -> None:
    target = replace(load("avx512"), fma_per_cycle=fma_per_cycle)
    chosen = {filters: candidates(conv(31, (56, 56), filters), target)[0].id for filters in (19, 37, 31, 32, 64)}
    pixels, packed = "conv.pixels_prepacked", "conv.prepacked"
    assert chosen == {19: pixels, 37: pixels, 31: packed, 32: packed, 64: packed}
