"""Convolutions on vectors: random ops, one kernel for many extents, values that are not finite, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.drawn import drawn
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.conv_cases import conv_cases
from tests.kernels.native import host_isas, one_of_the_isas, run_isas

from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp
from tracea.core.tensor_type import SymbolicDim, TensorType
from tracea.errors import InvalidOp, InvalidSchedule
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import candidates, find
from tracea.targets import load

CASES = {case.name: case for case in conv_cases()}
DTYPES = (DType.F32, DType.F64, DType.BF16, DType.F16)


def pick(rng: np.random.Generator, *values: int) -> int:
    return int(rng.choice(values))


def random_conv(
    rng: np.random.Generator, *, dtype: DType, groups: int | None = None, most: int = 20, multiples: bool = True
) -> Conv2dOp:
    """Return a random convolution that has a result; without ``multiples`` its groups have one channel and filter."""
    groups = pick(rng, 1, 1, 2, 3) if groups is None else groups
    choices = (1, 3, int(rng.integers(4, most)), 16) if multiples else (1,)
    channels, filters = (groups * pick(rng, *choices) for _ in range(2))
    kernel = (pick(rng, 1, 2, 3, 5), pick(rng, 1, 2, 3, 4))
    dilation = (pick(rng, 1, 1, 2), pick(rng, 1, 1, 3))
    padding = (int(rng.integers(0, 4)), int(rng.integers(0, 4)))
    size = tuple(
        max(1, gap * (taps - 1) + 1 - 2 * pad) + int(rng.integers(0, most))
        for gap, taps, pad in zip(dilation, kernel, padding, strict=True)
    )
    fused = {"bias": True, "activation": "silu", "residual": True} if rng.integers(2) else {}
    return Conv2dOp.of(
        batch=pick(rng, 1, 1, 2),
        channels=channels,
        size=size,  # type: ignore[arg-type]
        filters=filters,
        kernel=kernel,
        stride=(pick(rng, 1, 1, 2, 3), pick(rng, 1, 1, 2, 3)),
        padding=padding,
        dilation=dilation,
        groups=groups,
        dtype=dtype,
        channels_last=bool(rng.integers(2)),
        **fused,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("isa", one_of_the_isas("convolutions", vectors=True))
@pytest.mark.parametrize("variant", drawn(1, ["conv.packed", "conv.prepacked"], of="products of images"))
def test_random_convolutions_match_float64(variant: str, isa: str, rng: np.random.Generator) -> None:
    target, found = load(isa), find(variant)
    assert found.space is not None
    cases = []
    for number, dtype in enumerate((*DTYPES, DType.F32, DType.F32)):
        op = random_conv(rng, dtype=dtype)
        space = found.space(op, target)
        schedule = space.schedule(space.rows[int(rng.integers(0, len(space)))])
        cases.append(Case.of(f"random{number}", variant, op, **dict(schedule)))
    unit = unit_of(tuple(cases), isa)
    for case in cases:
        for threads in (1, 3):
            check(unit, build(case, isa), case.op, random_inputs(case.op, rng), threads=threads)


@pytest.mark.parametrize("isa", one_of_the_isas("convolutions", vectors=True))
@pytest.mark.parametrize("variant", drawn(1, ["conv.depthwise", "conv.depthwise_prepacked"], of="depthwise"))
def test_random_depthwise_convolutions_match_float64(variant: str, isa: str, rng: np.random.Generator) -> None:
    target, found = load(isa), find(variant)
    assert found.space is not None
    cases = []
    for number, dtype in enumerate((*DTYPES, DType.F32, DType.F32, DType.F32)):
        channels = pick(rng, 1, 5, 16, int(rng.integers(17, 90)))
        op = random_conv(rng, dtype=dtype, groups=channels, most=24, multiples=False)
        space = found.space(op, target)
        schedule = space.schedule(space.rows[int(rng.integers(0, len(space)))])
        cases.append(Case.of(f"depthwise{number}", variant, op, **dict(schedule)))
    unit = unit_of(tuple(cases), isa)
    for case in cases:
        for threads in (1, 3):
            check(unit, build(case, isa), case.op, random_inputs(case.op, rng), threads=threads)


@pytest.mark.costly
@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", ["conv_last", "conv_planar_blocks", "conv_groups", "conv_f64", "conv_dilated"])
def test_convolution_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = unit_of(conv_cases(), isa), CASES[name]
    built, op = build(case, isa), case.op
    for _ in range(10):
        groups = 1 if op.groups == 1 else int(rng.integers(2, 5))
        other = Conv2dOp.of(
            batch=int(rng.integers(0, 3)),
            channels=groups * int(rng.integers(2, 12)),
            size=(int(rng.integers(8, 20)), int(rng.integers(8, 20))),
            filters=groups * int(rng.integers(2, 90)),
            kernel=(int(rng.integers(1, 5)), int(rng.integers(1, 4))),
            stride=op.stride,
            padding=op.padding,
            dilation=op.dilation,
            groups=groups,
            dtype=op.x.dtype,
            channels_last=op.infer().layout is not None,
            **({"bias": True, "activation": "gelu", "residual": True} if op.epilogue.operands else {}),  # type: ignore[arg-type]
        )
        check(unit, built, other, random_inputs(other, rng), threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", ["conv_last", "conv_planar_blocks", "conv_stem"])
def test_nan_and_infinity_reach_exactly_the_results_that_depend_on_them(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    unit, case = unit_of(conv_cases(), isa), CASES[name]
    inputs = random_inputs(case.op, rng)
    inputs[0][0, 1, 2, 3] = np.nan
    inputs[0][-1, 0, -1, 0] = np.inf
    down, right = case.op.padding  # the tap that lies over the image for every result: others' padding is left out
    inputs[1][5, 1, down, right] = -np.inf
    with np.errstate(all="ignore"):
        check(unit, build(case, isa), case.op, inputs, threads=2)


@pytest.mark.parametrize("isa", host_isas()[:1])
def test_result_has_the_same_bits_for_any_team(isa: str, rng: np.random.Generator) -> None:
    for name in ("conv_last_blocks", "conv_planar", "conv_groups"):
        unit, case = unit_of(conv_cases(), isa), CASES[name]
        inputs = random_inputs(case.op, rng)
        first = run(unit, build(case, isa), case.op, inputs, threads=1)
        for threads in (2, 3, 5):
            assert first.tobytes() == run(unit, build(case, isa), case.op, inputs, threads=threads).tobytes()


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].variant in ("conv.packed", "conv.prepacked")])
def test_scratch_is_bounded_by_a_band_and_the_filters(name: str) -> None:
    """No buffer holds the windows side by side: a task keeps the rows that its band reads, and its sums."""
    case = CASES[name]
    built = build(case, "avx512")
    op, schedule, values = case.op, built.kernel.schedule, arguments(built.kernel)
    filters, channels, r, s = op.w.static_shape
    item, lanes = op.accumulator.nbytes, 64 // op.accumulator.nbytes
    width = op.shape[3]
    rows = (schedule.integer("rows") - 1) * op.stride[0] + (r - 1) * op.dilation[0] + 1
    columns = (int(width) - 1) * op.stride[1] + (s - 1) * op.dilation[1] + 1
    halo = rows * columns * ((schedule.integer("cb") or channels) + schedule.integer("gap")) * item
    kb = -(-schedule.integer("kb") // (schedule.integer("nv") * lanes)) * schedule.integer("nv") * lanes
    sums = max(schedule.integer("rows") * int(width) * kb, schedule.integer("mr") * kb) * item
    assert int(built.kernel.thread_scratch_bytes.evaluate(values)) <= halo + sums + 128
    panels = -(-(filters // op.groups) // kb + 0) * kb * op.groups * channels * r * s * item
    most = 0 if case.variant == "conv.prepacked" else panels + 64
    assert int(built.kernel.team_scratch_bytes.evaluate(values)) <= most


@pytest.mark.parametrize("name", [name for name in CASES if "depthwise" in CASES[name].variant])
def test_depthwise_scratch_is_bounded_by_a_band(name: str) -> None:
    case = CASES[name]
    built = build(case, "avx512")
    op, schedule, values = case.op, built.kernel.schedule, arguments(built.kernel)
    _, _, r, s = op.w.static_shape
    item, nr = op.accumulator.nbytes, schedule.integer("nv") * 64 // op.accumulator.nbytes
    rows = (schedule.integer("rows") - 1) * op.stride[0] + (r - 1) * op.dilation[0] + 1
    columns = (int(op.shape[3]) - 1) * op.stride[1] + (s - 1) * op.dilation[1] + 1
    halo = 0 if op.x.layout is not None else rows * columns * -(-schedule.integer("cb") // nr) * nr * item
    sums = schedule.integer("mr") * nr * item
    assert int(built.kernel.thread_scratch_bytes.evaluate(values)) <= halo + sums + 128
    panels = 0 if case.variant.endswith("prepacked") else -(-op.groups // nr) * nr * r * s * item + 64
    assert int(built.kernel.team_scratch_bytes.evaluate(values)) <= panels


def test_kernel_refuses_an_op_that_it_was_not_built_for() -> None:
    case = CASES["conv_last"]
    kernel = build(case, "avx512").kernel
    for other in ({"stride": (2, 1)}, {"padding": (0, 1)}, {"dilation": (2, 2)}):
        with pytest.raises(InvalidOp, match="conv2d"):
            arguments(kernel, Conv2dOp.of(**{**PLAIN, **other}))  # type: ignore[arg-type]


PLAIN = {
    "channels": 7, "size": (5, 7), "filters": 70, "kernel": (3, 3), "padding": (1, 1), "channels_last": True,
    "bias": True, "activation": "gelu", "residual": True,
}  # fmt: skip


def test_requirements_say_what_is_missing() -> None:
    packed, target = find("conv.packed"), load("avx512")

    def unmet(op: Conv2dOp) -> dict[str, str]:
        return {requirement.name: why.found for requirement, why in packed.unmet(op, target)}

    assert unmet(Conv2dOp.of(channels=4, size=(5, 5), filters=2**15 + 1, kernel=(1, 1))) == {
        "sizes within the kernel's range": "k = 32769"
    }
    images = TensorType((SymbolicDim("n", 1), 4, 5, 5), DType.F32)
    op = Conv2dOp(x=images, w=TensorType((4, 4, 3, 3), DType.F32))
    assert "known extents" in unmet(op)
    mixed = replace(op, x=TensorType((1, 4, 5, 5), DType.F32), accumulator=DType.F64)
    assert "one arithmetic" in unmet(mixed)


@pytest.mark.parametrize("bad", [{"mr": 40}, {"rows": 0}, {"cb": -1}, {"tail": 99}, {"kb": 0}, {"gap": 2**30}])
def test_schedule_that_is_none_is_an_error_with_its_numbers(bad: dict[str, int]) -> None:
    found, target = find("conv.packed"), load("avx512")
    op = Conv2dOp.of(channels=4, size=(14, 14), filters=8, kernel=(3, 3))
    assert found.build is not None
    assert found.default_schedule is not None
    with pytest.raises(InvalidSchedule):
        found.build(op, found.default_schedule(op, target).with_values(**bad), target)


def _one_by_one(channels: int, filters: int, **more: object) -> Conv2dOp:
    fixed = {"size": (28, 28), "kernel": (1, 1), "padding": (0, 0), "channels_last": True, **more}
    return Conv2dOp.of(channels=channels, filters=filters, **fixed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "in_place"),
    [
        ({}, True),
        ({"stride": (2, 2)}, True),
        ({"groups": 2}, True),
        ({"channels_last": False}, False),
        ({"padding": (1, 1)}, False),
        ({"kernel": (1, 3)}, False),
        ({"dtype": DType.BF16}, False),
    ],
)
def test_image_is_copied_only_where_a_halo_would_differ_from_it(more: dict[str, object], in_place: bool) -> None:
    op, target, found = _one_by_one(64, 32, **more), load("avx512"), find("conv.prepacked")
    assert found.build is not None
    kernel = found.build(op, found.default_schedule(op, target), target)  # type: ignore[misc]
    assert ("halo" not in {buffer.name for buffer in kernel.buffers}) is in_place


@pytest.mark.parametrize(
    ("channels", "filters", "more", "first"),
    [
        (192, 32, {}, "conv.prepacked"),
        (32, 16, {}, "conv.prepacked"),
        (16, 96, {}, "conv.prepacked"),  # half of each granule of channels is empty
        (144, 24, {}, "conv.prepacked"),
        (192, 64, {}, "conv.amx_prepacked"),
        (24, 144, {}, "conv.amx_prepacked"),
        (192, 32, {"channels_last": False}, "conv.amx_prepacked"),  # vectors copy a halo as well
        (192, 32, {"kernel": (3, 3), "padding": (1, 1)}, "conv.amx_prepacked"),  # nine taps share one splitting
    ],
)
def test_tiles_are_tried_first_where_products_repay_the_splitting(
    channels: int, filters: int, more: dict[str, object], first: str
) -> None:
    assert candidates(_one_by_one(channels, filters, **more), load("amx"))[0].id == first


@pytest.mark.parametrize(
    ("target", "channels_last", "inner"), [("avx2", True, True), ("avx2", False, False), ("avx512", True, False)]
)
def test_channels_are_walked_first_where_a_panel_is_one_line_of_each_pixel(
    target: str, channels_last: bool, inner: bool
) -> None:
    op = Conv2dOp.of(channels=64, size=(28, 28), filters=64, kernel=(3, 3), groups=64, channels_last=channels_last)
    schedule = find("conv.depthwise_prepacked").default_schedule(op, load(target))  # type: ignore[misc]
    assert ("inner" in schedule and schedule.integer("inner") == 1) is inner


def test_order_of_channels_that_is_none_is_refused() -> None:
    op = Conv2dOp.of(channels=64, size=(28, 28), filters=64, kernel=(3, 3), groups=64, channels_last=True)
    target, found = load("avx2"), find("conv.depthwise_prepacked")
    with pytest.raises(InvalidSchedule, match="inner"):
        found.build(op, found.default_schedule(op, target).with_values(inner=2), target)  # type: ignore[misc]


def test_filters_beyond_a_small_cache_are_walked_once_and_pixels_stepped_over_take_no_room() -> None:
    target, found = replace(load("avx2"), l2_bytes=2**19), find("conv.prepacked")

    def rows(channels: int, filters: int, size: int, taps: int) -> int:
        op = Conv2dOp.of(
            channels=channels,
            size=(size, size),
            filters=filters,
            kernel=(taps, taps),
            padding=(taps // 2, taps // 2),
            stride=(2, 2),
            channels_last=True,
        )
        return found.default_schedule(op, target).integer("rows")  # type: ignore[misc]

    assert rows(512, 512, 14, 3) == 7
    assert rows(1024, 2048, 14, 1) == 7
    assert rows(256, 256, 28, 3) < 14  # 4.5 times the cache: one walk was not measured to be faster
