"""The seven kernels that the vocabulary must carry: interpreted, proved, printed; refused without any one wait."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from objects import (
    flash_attention,
    halo_conv,
    implicit_conv,
    packed_gemm,
    registry_gemm,
    sm80_gemm,
    sm90_gemm,
    stream_k,
)

from tracea.errors import InvalidInput, ProofFailed, RunError
from tracea.semantic.index import Param
from tracea.semantic.interpreter import interpret
from tracea.semantic.json_text import kernel_to_json
from tracea.semantic.nodes import Barrier
from tracea.semantic.nodes_async import (
    AwaitFlag,
    CommitGroup,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    SignalFlag,
    WaitGroup,
    WgmmaCommit,
    WgmmaWait,
)
from tracea.semantic.printer import print_kernel
from tracea.semantic.proofs import prove
from tracea.semantic.tile_kernel import TileKernel
from tracea.testing.mutants import without

SEVEN = (packed_gemm, halo_conv, sm80_gemm, sm90_gemm, flash_attention, implicit_conv, stream_k)
ASYNCHRONOUS = (sm80_gemm, sm90_gemm, flash_attention, implicit_conv, stream_k)
CPU = (packed_gemm, halo_conv)
WAITS = (Barrier, WaitGroup, MbarrierWait, WgmmaWait, AwaitFlag)
ANNOUNCEMENTS = (CommitGroup, MbarrierArrive, MbarrierExpect, WgmmaCommit, SignalFlag)
STAGES = Param("stages", 1, 64)
AT_LEAST_TWO = Param("stages", 2, 64)


def check(module: ModuleType, kernel: TileKernel, seed: int = 0, threads: int = 2, **size: object) -> None:
    arrays, params = module.arguments(seed=seed, **size)
    outputs = interpret(kernel, arrays, params, seed=seed, threads=threads)
    for name, wanted in module.expected(arrays, params).items():
        tolerance = 2e-3 if module is flash_attention else 1e-4  # its weights are rounded to f16
        np.testing.assert_allclose(outputs[name], wanted, rtol=tolerance, atol=tolerance)


def name_of(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("module", SEVEN, ids=name_of)
def test_every_schedule_of_executors_gives_the_reference(module: ModuleType, seed: int) -> None:
    check(module, module.build(), seed=seed, threads=seed + 1)


@pytest.mark.parametrize("module", SEVEN, ids=name_of)
def test_the_proofs_pass(module: ModuleType) -> None:
    certificate = prove(module.build())
    proofs = {fact.proof for fact in certificate.facts}
    assert {"bounds", "coverage", "division", "races", "scratch", "shapes", "width"} <= proofs
    assert ("slots" in proofs) == (module in ASYNCHRONOUS)
    assert json.dumps(certificate.to_dict())


@pytest.mark.parametrize("k", [1, 16, 17, 40, 90])
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("module", [sm80_gemm, sm90_gemm], ids=name_of)
def test_all_stage_and_trip_counts_give_the_reference(module: ModuleType, stages: int, k: int) -> None:
    check(module, module.build(stages), seed=stages, k=k)


@pytest.mark.parametrize(
    "kernel",
    [
        lambda: sm80_gemm.build(STAGES, single=True),
        lambda: sm80_gemm.build(AT_LEAST_TWO, single=False),
        lambda: sm80_gemm.build(1),
        lambda: sm90_gemm.build(STAGES, in_flight=0),
        lambda: sm90_gemm.build(AT_LEAST_TWO, in_flight=1),
        lambda: sm90_gemm.build(1),
        lambda: flash_attention.build(AT_LEAST_TWO),
        lambda: implicit_conv.build(AT_LEAST_TWO),
    ],
)
def test_slots_are_safe_for_every_stage_count_and_trip_count(kernel: Callable[[], TileKernel]) -> None:
    assert prove(kernel()).about("slots")


@pytest.mark.parametrize(
    "kernel",
    [
        lambda: sm80_gemm.build(STAGES, single=False),
        lambda: sm80_gemm.build(1, single=False),
        lambda: sm90_gemm.build(STAGES, in_flight=1),
        lambda: sm90_gemm.build(1, in_flight=1),
        lambda: flash_attention.build(STAGES),
    ],
)
def test_a_pipeline_that_needs_two_stages_is_refused_with_one(kernel: Callable[[], TileKernel]) -> None:
    with pytest.raises(ProofFailed, match="slots"):
        prove(kernel())


@pytest.mark.parametrize("module", ASYNCHRONOUS, ids=name_of)
def test_every_wait_is_needed(module: ModuleType) -> None:
    mutants = list(without(module.build(), WAITS))
    assert mutants
    for mutant in mutants:
        with pytest.raises(ProofFailed):
            prove(mutant.kernel)


@pytest.mark.parametrize("module", ASYNCHRONOUS, ids=name_of)
def test_every_commit_arrival_and_signal_is_needed(module: ModuleType) -> None:
    mutants = list(without(module.build(), ANNOUNCEMENTS))
    assert mutants
    for mutant in mutants:
        with pytest.raises(ProofFailed):
            prove(mutant.kernel)


def test_every_team_barrier_is_needed() -> None:
    mutants = list(without(packed_gemm.build(), Barrier))
    assert len(mutants) == 2
    for mutant in mutants:
        with pytest.raises(ProofFailed, match="races"):
            prove(mutant.kernel)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 4, 4), (7, 9, 8), (20, 5, 13)])
def test_tails_of_the_packed_gemm(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    check(packed_gemm, packed_gemm.build(), m=m, n=n, k=k, threads=3)


@pytest.mark.parametrize("workers", [1, 2, 5, 20])
def test_stream_k_with_any_number_of_workers(workers: int) -> None:
    check(stream_k, stream_k.build(), workers=workers, seed=workers)


def test_stream_k_refuses_workers_without_a_share() -> None:
    arrays, params = stream_k.arguments(m=1, n=1, k=1, workers=2)
    with pytest.raises(InvalidInput, match="assumptions"):
        interpret(stream_k.build(), arrays, params)


def test_the_registrys_own_packed_gemm_is_interpreted_and_proved() -> None:
    kernel = registry_gemm.build()
    assert prove(kernel).about("reduction")
    arrays, params = registry_gemm.arguments()
    found = interpret(kernel, arrays, params, threads=3)["c"].astype(np.float64)
    wanted = registry_gemm.expected(arrays, params)["c"].astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=2**-7, atol=2**-9)


def test_an_access_out_of_bounds_stops_the_interpreter() -> None:
    arrays, params = packed_gemm.arguments()
    arrays["bias"] = arrays["bias"][:-1]
    with pytest.raises(InvalidInput, match="bias"):
        interpret(packed_gemm.build(), arrays, params)


def test_a_lost_arrival_is_a_deadlock_that_names_who_waits() -> None:
    mutant = next(without(sm90_gemm.build(2), MbarrierArrive))
    arrays, params = sm90_gemm.arguments()
    with pytest.raises(RunError, match=r"deadlock: .*producer 0 waits for parity"):
        interpret(mutant.kernel, arrays, params)


@pytest.mark.parametrize("module", SEVEN, ids=name_of)
def test_text_and_json_are_deterministic_and_complete(module: ModuleType) -> None:
    kernel = module.build()
    text = print_kernel(kernel)
    assert text == print_kernel(module.build())
    leaves = sum(not node.children() for node in kernel.body.walk())
    assert len(text.splitlines()) > leaves
    assert "object at 0x" not in text
    assert "Binary(" not in text
    data = json.loads(kernel_to_json(kernel))
    assert data["schema_version"] == 1
    assert [buffer["name"] for buffer in data["buffers"]] == [buffer.name for buffer in kernel.buffers]
    assert "object at 0x" not in json.dumps(data)
