"""Attention on matrix tiles against float64: any extents and schedule, extremes, what is not finite; mistakes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.attention_cases import NEVER, attention, attention_tile_cases, random_attention, random_case
from tests.kernels.conformance import build, check, random_inputs, run, unit_of
from tests.kernels.on_tiles import on_both
from tests.kernels.test_attention import MISTAKES, changed, later

from tracea.core.dtype import DType
from tracea.core.op import AttentionOp
from tracea.core.tensor_type import TensorType
from tracea.emitters.cpu.emitter import emit
from tracea.errors import EmitError, InvalidSchedule, ProofFailed
from tracea.kernels.registry import candidates, find
from tracea.semantic.access import Intrinsic
from tracea.semantic.nodes import Pack
from tracea.semantic.nodes_attention import AttentionStep
from tracea.semantic.proofs import prove
from tracea.targets import load

CASES = {case.name: case for case in attention_tile_cases()}
NAME = "attention.amx"


@on_both
@pytest.mark.parametrize("name", CASES)
def test_kernel_matches_float64_on_one_thread_and_three(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = unit_of(attention_tile_cases(), isa), CASES[name]
    for threads in (1, 3):
        check(unit, build(case, isa), case.op, random_inputs(case.op, rng), threads=threads)


@pytest.mark.costly
@on_both
@pytest.mark.parametrize("name", ["amx_attention_panels", "amx_attention_causal_window", "amx_attention_far_window"])
def test_attention_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, built, op = unit_of(attention_tile_cases(), isa), build(CASES[name], isa), CASES[name].op
    assert isinstance(op, AttentionOp)
    for _ in range(8):
        batch, kv_heads, sharing = (int(value) for value in rng.integers(1, 4, 3))
        s, t, d, dv = (int(value) for value in rng.integers((1, 0, 1, 1), (300, 300, 80, 80)))
        other = attention(
            batch, kv_heads * sharing, kv_heads, s, t, d, dv, causal=op.causal, window=op.window, scale=op.softmax_scale
        )
        check(unit, built, other, random_inputs(other, rng), threads=int(rng.integers(1, 4)))


@pytest.mark.costly
@on_both
def test_random_problems_and_schedules_of_the_space(isa: str, rng: np.random.Generator) -> None:
    cases = [random_case(number, random_attention(number, rng), NAME, rng) for number in range(6)]
    unit = unit_of(tuple(cases), isa)
    for case in cases:
        check(unit, build(case, isa), case.op, random_inputs(case.op, rng), threads=int(rng.integers(1, 4)))


@on_both
def test_a_row_without_a_key_is_zero(isa: str, rng: np.random.Generator) -> None:
    unit = unit_of(attention_tile_cases(), isa)
    for name in ("amx_attention_no_keys", "amx_attention_far_window"):
        got = run(unit, build(CASES[name], isa), CASES[name].op, random_inputs(CASES[name].op, rng))
        assert (got[:, :, 50 if "far" in name else 0 :] == 0).all()
    inputs = random_inputs(CASES["amx_attention_allowed"].op, rng)
    inputs[3][5] = False
    got = run(unit, build(CASES["amx_attention_allowed"], isa), CASES["amx_attention_allowed"].op, inputs)
    assert (got[:, :, 5] == 0).all()


@on_both
@pytest.mark.parametrize("size", [1e4, 1e9, 1e30])
def test_extreme_scores_choose_the_largest(isa: str, size: float, rng: np.random.Generator) -> None:
    unit, name = unit_of(attention_tile_cases(), isa), "amx_attention_added"
    inputs = random_inputs(CASES[name].op, rng)
    inputs[3] = np.where(rng.random(inputs[3].shape) < 0.5, -size, size).astype(np.float32)
    inputs[3][3], inputs[3][4] = NEVER, -size
    check(unit, build(CASES[name], isa), CASES[name].op, inputs, threads=2)


@on_both
@pytest.mark.parametrize("name", ["amx_attention_causal", "amx_attention_bf16"])
@pytest.mark.parametrize("size", [1e-39, 1e-20, 1e25])
def test_operands_beyond_the_range_of_terms_are_multiplied_in_float(
    isa: str, size: float, name: str, rng: np.random.Generator
) -> None:
    unit = unit_of(attention_tile_cases(), isa)
    for operand in range(3):
        inputs = random_inputs(CASES[name].op, rng)
        scaled = np.where(rng.random(inputs[operand].shape) < 0.02, np.float32(size), np.float32(1.0))
        inputs[operand] = (inputs[operand] * scaled).astype(inputs[operand].dtype)
        check(unit, build(CASES[name], isa), CASES[name].op, inputs, threads=2)


@on_both
def test_nan_and_infinity_stay_in_their_rows(isa: str, rng: np.random.Generator) -> None:
    unit, name = unit_of(attention_tile_cases(), isa), "amx_attention_added"
    inputs = random_inputs(CASES[name].op, rng)
    inputs[0][0, 1, 2, 3], inputs[3][9, 44], inputs[3][11, 0] = np.nan, np.inf, np.nan
    inputs[3][12] = np.frombuffer(np.uint32(0xFFFF0000).tobytes(), np.float32)  # as an unsafe granule begins
    with np.errstate(invalid="ignore"):
        check(unit, build(CASES[name], isa), CASES[name].op, inputs, threads=2)


@on_both
def test_a_bf16_that_nobody_sees_reaches_nobody(isa: str, rng: np.random.Generator) -> None:
    unit, name = unit_of(attention_tile_cases(), isa), "amx_attention_bf16"  # causal, in panels of 32 queries
    inputs = random_inputs(CASES[name].op, rng)
    expected = run(unit, build(CASES[name], isa), CASES[name].op, inputs)
    inputs[1][:, :, 100], inputs[2][:, :, 100] = np.inf, np.nan
    got = run(unit, build(CASES[name], isa), CASES[name].op, inputs)
    assert got[:, :, :96].tobytes() == expected[:, :, :96].tobytes()
    assert np.isnan(got[:, :, 100:].astype(np.float32)).all()


@on_both
def test_a_value_that_nobody_sees_reaches_nobody(isa: str, rng: np.random.Generator) -> None:
    unit, name = unit_of(attention_tile_cases(), isa), "amx_attention_far_window"  # 150 queries, 20 keys, window 9
    op = CASES[name].op
    inputs = random_inputs(op, rng)
    expected = run(unit, build(CASES[name], isa), op, inputs)
    inputs[2][:, :, 3] = np.nan  # query i sees the keys from i - 8 on
    got = run(unit, build(CASES[name], isa), op, inputs)
    assert got[:, :, 32:].tobytes() == expected[:, :, 32:].tobytes()
    assert np.isnan(got[:, :, 3]).all()


@on_both
def test_the_order_of_tasks_and_the_team_change_no_bit(isa: str, rng: np.random.Generator) -> None:
    unit = unit_of(attention_tile_cases(), isa)
    for name in ("amx_attention_causal", "amx_attention_panels"):
        inputs = random_inputs(CASES[name].op, rng)
        first = run(unit, build(CASES[name], isa), CASES[name].op, inputs)
        for threads in (2, 3, 5):
            again = run(unit, build(CASES[name], isa), CASES[name].op, inputs, threads=threads)
            assert first.tobytes() == again.tobytes()


PACKED = {
    "values of other keys": (Pack, lambda node: moved(node, -2) if node.axis == 1 else node),
    "keys of another head": (Pack, lambda node: node if node.axis == 1 or node.turned else moved(node, 1)),
    "one term": (Pack, lambda node: replace(node, terms=1, granule=1, turned=False)),
    "the other factor": (Pack, lambda node: replace(node, turned=not node.turned)),
    "panels of 16": (Pack, lambda node: replace(node, panel=16)),
    "another count of keys": (AttentionStep, lambda node: replace(node, count=node.count - 1)),
    "no count of keys": (AttentionStep, lambda node: replace(node, count=None)),
    "room for one panel": (AttentionStep, lambda node: replace(node, scores=narrowed(node.scores, 0))),
    "weights of fewer keys": (AttentionStep, lambda node: replace(node, weights=narrowed(node.weights, 1))),
    "no weights": (AttentionStep, lambda node: replace(node, weights=None)),
    "one term of f32": (AttentionStep, lambda node: replace(node, intrinsic=reading(1, node.intrinsic))),
    "two terms of f32": (AttentionStep, lambda node: replace(node, intrinsic=reading(2, node.intrinsic))),
    "keys as values": (AttentionStep, lambda node: replace(node, values=node.keys)),
}


def reading(terms: int, intrinsic: Intrinsic) -> Intrinsic:
    attributes = ((k, terms if k == "operand_terms" else v) for k, v in intrinsic.attributes)
    return replace(intrinsic, attributes=tuple(attributes))


def moved(pack: Pack, axis: int) -> Pack:
    return replace(pack, source=later(pack.source, axis, -1))


def narrowed(region, axis: int):
    extent = list(region.extent)
    extent[axis] = extent[axis] - 1
    return replace(region, extent=tuple(extent))


@pytest.mark.parametrize("mistake", sorted({*MISTAKES, *PACKED}))
def test_a_planted_mistake_is_refused(mistake: str) -> None:
    kernel = build(CASES["amx_attention_causal_window"], "amx").kernel
    assert prove(kernel).about("attention")
    kind, change = {**MISTAKES, **PACKED}[mistake]
    with pytest.raises(ProofFailed):
        prove(changed(kernel, kind, change))


def test_as_many_terms_are_read_as_hold_the_operands() -> None:
    for dtype, least in (("bf16", 1), ("f16", 2), ("dense", 3)):
        kernel = build(CASES[f"amx_attention_{dtype}"], "amx").kernel
        for terms in (1, 2, 3):
            read = changed(
                kernel, AttentionStep, lambda node, terms=terms: replace(node, intrinsic=reading(terms, node.intrinsic))
            )
            if terms >= least:
                assert prove(read).about("routines")
            else:
                with pytest.raises(
                    ProofFailed, match=f"{terms} of the 3 terms of {'f32' if dtype == 'dense' else dtype} are read"
                ):
                    prove(read)


def test_only_granules_of_terms_are_turned() -> None:
    kernel = build(CASES["amx_attention_dense"], "amx").kernel
    with pytest.raises(InvalidSchedule, match="turned terms"):
        changed(kernel, Pack, lambda node: replace(node, terms=1, turned=True))


def test_a_step_without_its_room_is_not_printed() -> None:
    kernel = build(CASES["amx_attention_dense"], "amx").kernel
    with pytest.raises(EmitError, match="room for weights"):
        emit(changed(kernel, AttentionStep, lambda node: replace(node, weights=None)), "avx512")


def test_numbers_of_a_schedule_are_checked() -> None:
    case, target = CASES["amx_attention_dense"], load("amx")
    build_with = find(NAME).build
    assert build_with is not None
    with pytest.raises(InvalidSchedule, match="bq: got 0, expected 1 to"):
        build_with(case.op, find(NAME).default_schedule(case.op, target).with_values(bq=0), target)


@pytest.mark.parametrize(
    ("queries", "dtype", "target", "first"),
    [
        (512, DType.F32, "amx", NAME),
        (17, DType.F32, "amx", NAME),
        (16, DType.F32, "amx", "attention.flash"),
        (1, DType.F32, "amx", "attention.decode"),
        (512, DType.BF16, "amx", NAME),
        (512, DType.F16, "amx", NAME),
        (512, DType.F64, "amx", "attention.flash"),
        (512, DType.F32, "avx512", "attention.flash"),
    ],
)
def test_tiles_are_taken_where_they_are_faster(queries: int, dtype: DType, target: str, first: str) -> None:
    x = TensorType((1, 8, queries, 64), dtype)
    assert candidates(AttentionOp(q=x, k=x, v=x), load(target))[0].id == first


@pytest.mark.parametrize(
    ("heads", "queries", "causal", "cores", "rows"),
    [
        (8, 512, False, 1, 512),
        (8, 4096, False, 2, 512),
        (3, 512, False, 2, 256),  # three tasks on two cores would leave one idle
        (1, 512, False, 8, 64),
        (1, 65, False, 1, 96),
    ],
)
def test_a_task_has_as_many_queries_as_the_cores_leave(
    heads: int, queries: int, causal: bool, cores: int, rows: int
) -> None:
    x = TensorType((1, heads, queries, 64), DType.F32)
    default = find(NAME).default_schedule
    assert default is not None
    found = default(AttentionOp(q=x, k=x, v=x, causal=causal), replace(load("amx"), cores=cores))
    assert found.integer("bq") == rows


def test_a_window_takes_its_keys_in_one_block() -> None:
    x = TensorType((1, 8, 4096, 64), DType.F32)
    default, target = find(NAME).default_schedule, replace(load("amx"), cores=1)
    assert default is not None
    for causal, window, keys in ((False, 128, 768), (True, 128, 640), (False, 512, 256), (False, None, 256)):
        found = default(AttentionOp(q=x, k=x, v=x, causal=causal, window=window), target)
        assert found.integer("bk") == keys
