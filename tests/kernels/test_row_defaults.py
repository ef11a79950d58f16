"""What default schedules over rows and chains decide from the target: streaming, prefetching, pieces, and tasks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.kernels.cases import F32
from tests.kernels.slab_cases import layer_norm_backward, softmax_backward

from tracea.core.expr import Expr, Input, Unary, activation
from tracea.core.op import CumulativeSumOp, Epilogue, LargestOp, Op, PointwiseOp, RowKind, RowOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.emitters.cpu.emitter import emit
from tracea.errors import InvalidSchedule
from tracea.kernels.cores import fetches_far
from tracea.kernels.pointwise.chain import build_chain
from tracea.kernels.registry import find
from tracea.kernels.rows.normalize import build_normalize
from tracea.semantic.nodes import PointwiseTile, ReduceTile
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import Target, load

MIB = 1 << 20
SERVER = replace(load("amx"), cores=1, l1d_bytes=48 << 10, l2_bytes=2 * MIB, l3_bytes=480 * MIB)  # L3: the whole host's
DESKTOP = replace(SERVER, l3_bytes=32 * MIB)
UNKNOWN = replace(SERVER, l3_bytes=0)
SMALL_L1 = replace(load("avx512"), fma_per_cycle=1, cores=1, l1d_bytes=32 << 10, l2_bytes=MIB, l3_bytes=32 * MIB)
XEON = replace(load("avx512"), cores=1, l1d_bytes=48 << 10, l2_bytes=MIB, l3_bytes=32 * MIB)
FAR = replace(XEON, features=XEON.features | {"avx512_bf16"})  # fetches far ahead itself


def chain(rows: int, columns: int) -> PointwiseOp:
    x = TensorType((rows, columns), F32)
    return PointwiseOp(expr=activation("silu") * Input(1) + Input(2), inputs=(x, x, x), out_dtype=F32)


def softmax(rows: int, columns: int) -> RowOp:
    return RowOp(kind=RowKind.SOFTMAX, x=(TensorType((rows, columns), F32),))


def default(op: Op, target: Target) -> Schedule:
    variant = find("pointwise.chain" if isinstance(op, PointwiseOp) else "rows.normalize")
    assert variant.default_schedule is not None
    return variant.default_schedule(op, target)


@pytest.mark.parametrize("make", [chain, softmax])
@pytest.mark.parametrize(
    ("rows", "target", "streaming", "prefetch"),
    [
        (128, SERVER, 0, False),  # stays in the second-level cache
        (1024, SERVER, 1, False),  # leaves it for a cache that is as far as memory
        (512, DESKTOP, 0, False),  # leaves it for a near one
        (512, UNKNOWN, 0, False),
        (65536, SERVER, 1, True),
        (65536, DESKTOP, 1, True),
        (65536, UNKNOWN, 1, True),
    ],
)
def test_results_are_stored_past_the_caches_that_cannot_keep_them(
    make: object, rows: int, target: Target, streaming: int, prefetch: bool
) -> None:
    assert callable(make)
    found = default(make(rows, 768), target)
    assert (found.integer("streaming"), found.integer("prefetch") > 0) == (streaming, prefetch)


@pytest.mark.parametrize(
    ("rows", "cores", "fixed"), [(512, 1, 1), (512, 4, 1), (1024, 1, 0), (2048, 2, 0), (2048, 4, 1)]
)
def test_rows_are_dealt_alike_where_a_thread_that_comes_back_finds_a_quarter(rows: int, cores: int, fixed: int) -> None:
    assert default(chain(rows, 768), replace(SERVER, cores=cores)).integer("fixed") == fixed


@pytest.mark.parametrize(("make", "part"), [(softmax, "rows"), (chain, "columns")])
def test_one_thread_takes_tasks_of_one_size_for_shapes_of_much_the_same(make: Callable[..., Op], part: str) -> None:
    found = {count: default(make(count, 768), DESKTOP).integer(part) for count in (800, 900, 1000)}
    assert len(set(found.values())) == 1  # so that one kernel serves them all
    every = {"rows": 1, "columns": 768}[part]
    assert all(4 * each <= count * every <= 16 * each for count, each in found.items())
    two = {default(make(count, 768), replace(DESKTOP, cores=2)).integer(part) for count in (800, 900, 1000)}
    assert len(two) == 3  # dealt out evenly


def test_a_result_is_stored_past_the_caches_where_that_moves_fewer_lines() -> None:
    x, vector = TensorType((512, 768), F32), TensorType((768,), F32)
    one = PointwiseOp(expr=activation("relu").substitute({0: Input(0) * Input(1)}), inputs=(x, vector), out_dtype=F32)
    two = PointwiseOp(expr=Input(0) + Input(1), inputs=(x, x), out_dtype=F32)
    # Two cores hold one operand and the result, or two operands; one core a third of three.
    assert [default(op, replace(SERVER, cores=2)).integer("streaming") for op in (one, two, chain(512, 768))] == [
        0,
        0,
        1,
    ]
    assert [default(op, SERVER).integer("streaming") for op in (one, two, chain(512, 768))] == [0, 1, 1]
    near = replace(SERVER, l3_bytes=32 * MIB)  # who reads it next finds it there
    assert [default(op, near).integer("streaming") for op in (one, two, chain(512, 768))] == [0, 0, 0]


@pytest.mark.parametrize(
    ("rows", "cores", "fixed", "block"), [(512, 1, 1, 4), (512, 2, 1, 4), (16, 2, 1, 2), (4096, 1, 0, 14)]
)
def test_rows_with_statistics_are_walked_there_and_back_in_tiles_of_the_first_cache(
    rows: int, cores: int, fixed: int, block: int
) -> None:
    variant, target = find("rows.statistics"), replace(SERVER, cores=cores, l1d_bytes=48 << 10)
    assert variant.default_schedule is not None
    assert variant.build is not None
    op = softmax_backward(rows, 768)
    found = variant.default_schedule(op, target)
    assert (found.integer("fixed"), found.integer("block")) == (fixed, block)
    assert ("StaticLoop" in emit(variant.build(op, found, target), "avx512").text) == bool(fixed)


@pytest.mark.parametrize("cores", [1, 2, 48])
@pytest.mark.parametrize("elements", [1, 1000, 1 << 16, (1 << 24) + 3, 1 << 30])
def test_a_long_row_is_cut_into_whole_pages_enough_for_every_core(elements: int, cores: int) -> None:
    target = replace(SERVER, cores=cores)
    found = default(chain(1, elements), target)
    piece = found.integer("columns")
    assert found.word("split") == "columns"
    assert piece * F32.nbytes % target.page_bytes == 0
    assert piece * F32.nbytes <= 4 * MIB
    if elements * F32.nbytes >= 4 * cores * target.page_bytes:
        assert -(-elements // piece) >= 2 * cores


def test_rows_whose_weight_and_bias_are_shared_are_normalized_in_pairs() -> None:
    x, vector = TensorType((4096, 4096), F32), TensorType((4096,), F32)
    affine = Input(0) * Input(1) + Input(2)
    both = RowOp(kind=RowKind.LAYER_NORM, x=(x,), epilogue=Epilogue(affine, (vector, vector)), eps=1e-5)
    residual = RowOp(kind=RowKind.LAYER_NORM, x=(x,), epilogue=Epilogue(affine, (vector, x)), eps=1e-5)
    weight = RowOp(kind=RowKind.RMS_NORM, x=(x,), epilogue=Epilogue(Input(0) * Input(1), (vector,)), eps=1e-5)
    assert [default(op, SERVER).integer("overlap") for op in (both, residual, weight)] == [2, 1, 1]
    assert default(softmax(4096, 4096), SERVER).integer("overlap") == 1


def test_what_leaves_a_first_level_cache_of_32_kib_row_by_row_is_made_otherwise() -> None:
    x, vector = TensorType((4096, 4096), F32), TensorType((4096,), F32)
    weight = RowOp(kind=RowKind.RMS_NORM, x=(x,), epilogue=Epilogue(Input(0) * Input(1), (vector,)), eps=1e-5)
    bare = RowOp(kind=RowKind.RMS_NORM, x=(x,), eps=1e-5)
    ops = (softmax(4096, 4096), softmax(8192, 2048), weight, bare)
    assert [default(op, SMALL_L1).integer("overlap") for op in ops] == [2, 1, 2, 0]

    def both(columns: int) -> Schedule:
        x, vector = TensorType(((1 << 24) // columns, columns), F32), TensorType((columns,), F32)
        affine = Epilogue(Input(0) * Input(1) + Input(2), (vector, vector))
        return default(RowOp(kind=RowKind.LAYER_NORM, x=(x,), epilogue=affine, eps=1e-5), SMALL_L1)

    assert [both(columns).integer("overlap") for columns in (1024, 2048, 4096)] == [0, 2, 2]
    assert both(1024).integer("prefetch") == 0
    assert default(bare, replace(SMALL_L1, cores=2)).integer("overlap") == 2
    scaled = PointwiseOp(expr=Input(0) * Input(1) + Input(2), inputs=(x, vector, vector), out_dtype=F32)
    several = PointwiseOp(expr=Input(0) * Input(1) + Input(2), inputs=(x, vector, x), out_dtype=F32)
    assert [default(op, SMALL_L1).integer("together") for op in (scaled, several)] == [2, 1]
    assert default(scaled, SERVER).integer("together") == 1


def test_with_sixteen_registers_one_thread_pairs_the_rows_that_a_shared_vector_pushes_out() -> None:
    few = replace(load("avx2"), l1d_bytes=32 << 10, l2_bytes=512 << 10, l3_bytes=32 * MIB)

    def overlap(kind: RowKind, columns: int, expr: Expr, vectors: int, cores: int = 1) -> int:
        x, vector = TensorType(((1 << 24) // columns, columns), F32), TensorType((columns,), F32)
        op = RowOp(kind=kind, x=(x,), epilogue=Epilogue(expr, (vector,) * vectors), eps=1e-5)
        return default(op, replace(few, cores=cores)).integer("overlap")

    affine, weighted, bare = Input(0) * Input(1) + Input(2), Input(0) * Input(1), Input(0)
    assert overlap(RowKind.LAYER_NORM, 4096, affine, 2) == 2
    assert overlap(RowKind.LAYER_NORM, 2048, affine, 2) == 1
    assert overlap(RowKind.RMS_NORM, 4096, weighted, 1) == 2
    assert overlap(RowKind.RMS_NORM, 2048, weighted, 1) == 1
    assert overlap(RowKind.LAYER_NORM, 8192, bare, 0) == 1
    assert overlap(RowKind.LAYER_NORM, 4096, affine, 2, cores=2) == 1
    assert [default(softmax(*shape), few).integer("overlap") for shape in ((4096, 4096), (8192, 2048))] == [2, 2]


def test_several_streams_are_asked_for_less_far_ahead_than_one() -> None:
    x = TensorType((4096, 4096), F32)
    one = PointwiseOp(expr=Input(0) * 2.0, inputs=(x,), out_dtype=F32)
    assert default(chain(4096, 4096), SERVER).integer("prefetch") < default(one, SERVER).integer("prefetch")


def test_a_core_that_fetches_far_ahead_is_asked_far_ahead_or_for_several_streams_not_at_all() -> None:
    x, vector = TensorType((4096, 4096), F32), TensorType((4096,), F32)
    one = PointwiseOp(expr=Input(0) * 2.0, inputs=(x,), out_dtype=F32)
    two = PointwiseOp(expr=Input(0) + Input(1), inputs=(x, x), out_dtype=F32)
    assert [default(op, FAR).integer("prefetch") for op in (one, two, chain(4096, 4096))] == [96, 96, 0]
    affine = Input(0) * Input(1) + Input(2)
    both = RowOp(kind=RowKind.LAYER_NORM, x=(x,), epilogue=Epilogue(affine, (vector, vector)), eps=1e-5)
    weight = RowOp(kind=RowKind.RMS_NORM, x=(x,), epilogue=Epilogue(Input(0) * Input(1), (vector,)), eps=1e-5)

    def passes(op: RowOp, cores: int = 1) -> tuple[int, ...]:
        found = default(op, replace(FAR, cores=cores))
        return tuple(found.integer(name) for name in ("overlap", "prefetch", "near"))

    assert (passes(both), passes(both, cores=2)) == ((0, 256, 1), (2, 48, 1))
    assert (passes(weight), passes(softmax(4096, 4096))) == ((1, 128, 1), (1, 128, 0))
    assert passes(softmax(2048, 8192)) == (1, 128, 0)


def test_a_wide_core_without_bf16_products_does_not_fetch_far_and_has_room_for_several_streams() -> None:
    x = TensorType((4096, 4096), F32)
    two = PointwiseOp(expr=Input(0) + Input(1), inputs=(x, x), out_dtype=F32)
    masked = replace(FAR, features=FAR.features | {"avx512_fp16"})  # a Xeon's tiles, of which the rest is shown
    assert [fetches_far(target) for target in (FAR, XEON, SERVER, masked)] == [True, False, False, False]
    found = [default(op, target).integer("prefetch") for target in (XEON, SMALL_L1) for op in (two, chain(4096, 4096))]
    assert found == [32, 32, 8, 8]


def test_rows_are_asked_for_into_the_first_cache_where_a_schedule_says_so() -> None:
    op = RowOp(kind=RowKind.RMS_NORM, x=(TensorType((64, 256), F32),), eps=1e-5)
    chosen = default(op, FAR).with_values(prefetch=16)
    texts = [emit(build_normalize(op, chosen.with_values(near=near), FAR), "avx512").text for near in (0, 1)]
    assert ["prefetch_l1(" in text for text in texts] == [False, True]
    with pytest.raises(InvalidSchedule, match="near"):
        build_normalize(op, chosen.with_values(near=2), FAR)


@pytest.mark.parametrize("together", [0, 3])
def test_rows_go_along_alone_or_in_pairs(together: int) -> None:
    chosen = default(chain(8, 64), SERVER).with_values(together=together)
    with pytest.raises(InvalidSchedule, match="together"):
        build_chain(chain(8, 64), chosen, SERVER)


@pytest.mark.parametrize(("kind", "overlap"), [(RowKind.SOFTMAX, 3), (RowKind.LAYER_NORM, 3), (RowKind.RMS_NORM, -1)])
def test_an_overlap_that_there_is_not_is_refused(kind: RowKind, overlap: int) -> None:
    op = RowOp(kind=kind, x=(TensorType((8, 64), F32),), eps=0.0 if kind is RowKind.SOFTMAX else 1e-5)
    chosen = Schedule(rows=4, split="rows", overlap=overlap, prefetch=0, streaming=0, fixed=0)
    with pytest.raises(InvalidSchedule, match="overlap"):
        build_normalize(op, chosen, SERVER)


def functions_of_tiles(kernel: TileKernel) -> list[tuple[str, list[str]]]:
    """Each tile's target, and the functions that it computes for each element."""
    tiles = [node for node in kernel.body.walk() if isinstance(node, PointwiseTile | ReduceTile)]
    found: list[tuple[str, list[str]]] = []
    for tile in tiles:
        expr = tile.expr if isinstance(tile, PointwiseTile) else tile.prologue
        used = [part.function.value for part in expr.walk() if isinstance(part, Unary)]
        found.append((tile.target.buffer, used))
    return found


def test_a_root_of_a_long_slab_is_computed_once() -> None:
    variant = find("rows.statistics")
    assert variant.build is not None
    assert variant.default_schedule is not None
    for columns in (100, 20):
        op = layer_norm_backward(7, columns)
        kernel = variant.build(op, variant.default_schedule(op, SERVER), SERVER)
        once = [("s0", []), ("s1", []), ("s2", ["rsqrt"]), ("s3", []), ("s4", []), ("y", [])]
        each = [("s0", []), ("s1", []), ("s2", ["rsqrt"]), ("s3", []), ("y", ["rsqrt", "rsqrt"])]
        found = functions_of_tiles(kernel)
        assert [(name, used[:2]) for name, used in found] == (once if columns == 100 else each)


def asks(op: Op) -> list[str]:
    """The requests for lines to come in a kernel's text."""
    variant = find("pointwise.chain" if isinstance(op, PointwiseOp) else "rows.normalize")
    assert variant.build is not None
    text = emit(variant.build(op, default(op, SERVER), SERVER), "avx512").text
    return re.findall(r"prefetch_l\d(?=\(x)", text)


def test_several_streams_are_asked_for_into_the_first_cache_and_less_than_a_page_ahead() -> None:
    x, vector = TensorType((4096, 4096), F32), TensorType((4096,), F32)
    two = PointwiseOp(expr=Input(0) * Input(1) + Input(2), inputs=(x, vector, x), out_dtype=F32)
    one = PointwiseOp(expr=Input(0) * Input(1), inputs=(x, vector), out_dtype=F32)
    assert [asks(op) for op in (chain(4096, 4096), two, one, softmax(4096, 4096))] == [
        ["prefetch_l1"] * 3,
        ["prefetch_l1"] * 2,
        ["prefetch_l2"],
        ["prefetch_l2"],
    ]
    ahead = default(two, SERVER).integer("prefetch") * SERVER.vector_bytes
    assert 0 < ahead < SERVER.page_bytes


def test_rows_from_a_near_last_cache_stay_in_the_first_between_the_passes() -> None:
    gradient = softmax_backward(2048, 768)
    near, far = (find("rows.statistics").default_schedule(gradient, target) for target in (SMALL_L1, SERVER))
    assert near.integer("block") == 1
    assert far.integer("block") > 1


@pytest.mark.parametrize(
    ("shape", "strides", "routine"),
    [
        ((1000, 4), None, "scan_columns"),
        ((10, 100, 2), None, "scan_columns"),
        ((20, 30, 2), (2, 40, 1), "scan_columns"),
        ((1000, 5), None, "scan_rows"),  # a vector a row costs less
        ((15, 4), None, "scan_rows"),  # too few to fill a vector
        ((30, 3, 2), (2, 60, 1), "scan_columns"),
    ],
)
def test_vectors_go_across_rows_of_few_elements(shape, strides, routine):
    op = CumulativeSumOp(x=TensorType(shape, F32, None if strides is None else StridedLayout(strides)), axis=-1)
    variant = find("rows.scan")
    assert variant.default_schedule is not None
    text = emit(variant.build(op, variant.default_schedule(op, XEON), XEON), "avx512").text
    assert f"{routine}<float>(" in text


@pytest.mark.parametrize(
    ("shape", "k", "across"),
    [
        ((1845, 12), 3, 1),
        ((36855, 13), 13, 1),
        ((3000, 163), 12, 1),
        ((64, 50000), 5, 0),  # passed over by vectors
        ((1, 300000), 100, 0),  # nothing beside it
        ((2, 126), 51, 0),
    ],
)
def test_the_first_of_several_rows_are_found_side_by_side(shape, k, across):
    variant = find("rows.largest")
    assert variant.default_schedule is not None
    schedule = variant.default_schedule(LargestOp(x=TensorType(shape, F32), k=k), XEON)
    assert schedule["across"] == across
    assert not across or schedule.integer("block") % 16 == 0
