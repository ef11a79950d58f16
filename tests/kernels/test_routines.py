"""Routines: kernels whose routines say what cannot be, or read what was packed for another one, are not proved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kernels.cases import all_cases, tile_cases
from tests.kernels.conformance import build
from tests.kernels.test_register_tiles import made, saying

from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.emitters.cpu.emitter import emit
from tracea.errors import EmitError, ProofFailed
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import equal
from tracea.semantic.nodes import Pack
from tracea.semantic.proofs import prove
from tracea.semantic.rewrite import edited, places
from tracea.semantic.tile_kernel import TileKernel

CASES = {case.name: case for case in (*all_cases(), *tile_cases())}
TILES = frozenset(case.name for case in tile_cases())


def kernel_of(name: str) -> TileKernel:
    kernel = build(CASES[name], "amx" if name in TILES else "avx512").kernel
    assert prove(kernel).facts
    return kernel


def refused(kernel: TileKernel, found: str, proof: str = "routines") -> None:
    with pytest.raises(ProofFailed, match=f"^{proof}: .*{found}"):
        prove(kernel)


@pytest.mark.parametrize(
    "name",
    [
        "packed_default_tile",
        "prepacked_rows",
        "low_rank_default",
        "low_rank_packed",
        "sparse_default",
        "grouped_default",
        "conv_default",
        "pixels_long_rows",
        "depthwise_last",
        "amx_default",
        "amx_conv_default",
        "amx_stem_default",
        "amx_sparse_default",
        "amx_sparse_bf16",
        "amx_low_rank_default",
    ],
)
def test_panels_are_read_in_the_granules_and_terms_that_they_were_packed_in(name: str) -> None:
    kernel, seen = kernel_of(name), 0
    for place, node in places(kernel.body, ()):
        if isinstance(node, Pack):
            seen += 1
            granule = 4 if node.granule == 1 else 1
            refused(edited(kernel, place, replace(node, granule=granule)), "were packed")
    assert seen


def test_what_lies_in_rows_is_not_read_as_panels_of_their_size() -> None:
    op = GemmOp.of(m=16, n=64, k=4)
    direct = made("gemm.direct", op, mr=4, nv=2, kc=4, tail=0)
    for guard in ("n", "k"):
        param = next(each for each in direct.params if each.name == guard)
        narrow = replace(direct, assumptions=direct.assumptions & equal(param % (32 if guard == "n" else 4), 0))
        assert prove(narrow).facts
        refused(saying(narrow, **{"b" if guard == "n" else "a": "panel"}), "lies where it is")
    packed = made("gemm.packed", op, mr=4, nv=2, kc=4, tail=0)
    for said in ({"a": "rows"}, {"a": "columns"}, {"b": "rows"}):
        refused(saying(packed, **said), "lies in panels")


@pytest.mark.parametrize("name", ["direct_columns", "dot_rows", "stream", "conv_default", "pixels_long_rows"])
def test_no_number_of_a_routine_is_below_one(name: str) -> None:
    kernel = kernel_of(name)
    for number in ("mr", "nr", "nv", "rows", "columns", "steps", "stride_rows"):
        said = [dict(node.intrinsic.attributes) for _, node in places(kernel.body, ()) if hasattr(node, "intrinsic")]
        if any(isinstance(each.get(number), int) for each in said):
            refused(saying(kernel, **{number: 0}), f"says {number}=0")


@pytest.mark.parametrize("name", ["amx_conv_default", "amx_stem_default"])
def test_a_routine_has_to_say_what_it_reads_and_drops(name: str) -> None:
    refused(saying(kernel_of(name), without="spare_rows"), "says spare_rows=None")


@pytest.mark.parametrize("name", ["amx_conv_bf16_last", "amx_conv_f16_planar", "amx_stem_bf16_last"])
def test_an_images_terms_hold_its_type(name: str) -> None:
    kernel = kernel_of(name)
    wide = (replace(each, dtype=DType.F32) if each.name == "x" else each for each in kernel.buffers)
    refused(replace(kernel, buffers=tuple(wide)), "a: [12] of the 3 terms of f32 are read")


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("_f64") and name not in TILES])
def test_f64_is_not_computed_in_less(name: str) -> None:
    kernel = kernel_of(name)
    for place, node in places(kernel.body, ()):
        intrinsic = getattr(node, "intrinsic", None)
        if isinstance(intrinsic, Intrinsic) and "compute" in dict(intrinsic.attributes):
            changed = tuple((dict(intrinsic.attributes) | {"compute": "f32"}).items())
            wrong = replace(node, intrinsic=replace(intrinsic, attributes=changed))  # type: ignore[call-arg]
            refused(edited(kernel, place, wrong), "is f64, the routine computes in f32")


def test_lines_of_panels_that_there_are_not_are_refused_by_name() -> None:
    with pytest.raises(EmitError, match="there are no panels"):
        emit(saying(kernel_of("direct_columns"), upcoming_lines=1), "avx512")
