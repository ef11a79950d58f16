"""The peers and ours: what they compute, where results go, and what their runs leave behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tests.drawn import drawn

from tracea.bench.attention_suite import attention_problem
from tracea.bench.conv_suite import conv_problem
from tracea.bench.ours import contender as our_contender
from tracea.bench.peers import FAMILIES, openvino, peers, surroundings
from tracea.bench.peers.peer import Allocation, Peer
from tracea.bench.problem import Problem
from tracea.bench.sparse_suite import grouped_problem, low_rank_problem, sparse_problem
from tracea.bench.suites import (
    SUITES,
    chain_problems,
    face_problem,
    fused_problem,
    gemm_problem,
    prepacked_problem,
    problems,
    row_problem,
)
from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp, RowKind
from tracea.core.reference import evaluate
from tracea.errors import InvalidOption
from tracea.runtime.buffers import aligned_empty

FAMILY_NAMES = tuple(FAMILIES)
SMALL = (
    gemm_problem(24, 40, 17, "odd"),
    gemm_problem(1, 64, 33, "skinny"),
    prepacked_problem(8, 48, 32),
    fused_problem(12, 40, 24),
    face_problem(32),
    *(row_problem(kind, 7, 50) for kind in (RowKind.SOFTMAX, RowKind.LAYER_NORM, RowKind.RMS_NORM)),
    *chain_problems(7, 50),
    conv_problem(5, 7, 3, 2, 9),
    conv_problem(6, 6, 3, 1, 8, groups=6, activation=None, batch=2),
    conv_problem(6, 9, 3, 1, 8, groups=3, dilation=2),
    sparse_problem(96, 32, 0.5),
    low_rank_problem(20, 30, 40, 4),
    grouped_problem(5, 40, 32, 20),
    attention_problem("dense", 3, 20, 33, size=24),
    attention_problem("causal", 3, 20, 20, causal=True),
    attention_problem("window", 2, 30, 30, window=5),
    attention_problem("window", 2, 30, 30, window=5, causal=True),
)
MATCHES = [(problem, peer) for problem in SMALL for peer in peers(FAMILY_NAMES) if peer.supports(problem)]


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # torch's own, as Inductor is loaded
@pytest.mark.parametrize(
    ("problem", "peer"),
    [
        pytest.param(
            problem,
            peer,
            id=f"{peer.name}-{problem.name}",
            # Inductor takes twenty seconds to compile a first convolution.
            marks=[pytest.mark.slow] if peer.name.startswith("inductor") else [],
        )
        for problem, peer in MATCHES
    ],
)
def test_peer_computes_what_float64_does(problem: Problem, peer: Peer, seed: int) -> None:
    family = peer.name.partition(".")[0]
    pytest.importorskip("torch" if family == "inductor" else family)
    arrays = problem.arrays(seed)
    with surroundings(FAMILY_NAMES, 1):
        contender = peer.build(problem, arrays, 1)
        first, second = contender.result(), contender.result()
    assert first.dtype == np.float32
    np.testing.assert_allclose(first, evaluate(problem.op, arrays), rtol=2e-5, atol=2e-5)
    assert first.tobytes() == second.tobytes()  # an operand that were overwritten would show
    assert contender.version


def test_every_peer_was_compared_with_float64() -> None:
    assert {peer.name for _, peer in MATCHES} == {peer.name for peer in peers(FAMILY_NAMES)}


@pytest.mark.parametrize("allocation", Allocation)
@pytest.mark.parametrize("problem", drawn(8, SMALL, of="our contenders"), ids=lambda problem: problem.name)
def test_ours_computes_what_float64_does_in_either_kind_of_memory(
    problem: Problem, allocation: Allocation, seed: int
) -> None:
    arrays = problem.arrays(seed)
    contender = our_contender(problem, arrays, 1, allocation=allocation)
    np.testing.assert_allclose(contender.result(), evaluate(problem.op, arrays), rtol=2e-5, atol=2e-5)
    assert contender.allocation is (Allocation.FRESH if problem.face else allocation)


@pytest.mark.parametrize("problem", SMALL, ids=lambda problem: problem.name)
def test_fresh_results_are_new_memory_and_given_ones_are_not(problem: Problem) -> None:
    arrays = problem.arrays(0)
    contenders = [our_contender(problem, arrays, 1, allocation=allocation) for allocation in Allocation]
    with surroundings(("torch",), 1):
        contenders += [peer.build(problem, arrays, 1) for peer in peers(("torch",)) if peer.supports(problem)]
        for contender in contenders:
            kept = [contender.run() for _ in range(2)]
            first, second = (address(each[0] if isinstance(each, tuple) else each) for each in kept)
            assert (first == second) is (contender.allocation is Allocation.OUT), contender.name


def address(array: np.ndarray | torch.Tensor) -> int:
    return array.data_ptr() if isinstance(array, torch.Tensor) else array.ctypes.data


def test_every_problem_has_a_name_of_its_own_and_a_peer() -> None:
    for suite, rows in SUITES.items():
        assert problems(suite) is rows
        assert len({row.name for row in rows}) == len(rows)
        assert [row.name for row in rows if not any(peer.supports(row) for peer in peers(("torch",)))] == []


def test_openvino_computes_in_the_thread_that_is_timed() -> None:
    pytest.importorskip("openvino")
    problem = conv_problem(64, 64, 3, 1, 28)
    (peer,) = peers(("openvino",))
    run = peer.build(problem, problem.arrays(0), 1).run
    run()
    whole, own = time.process_time_ns(), time.thread_time_ns()
    for _ in range(50):
        run()
    own, whole = time.thread_time_ns() - own, time.process_time_ns() - whole
    assert own > 0.7 * whole


def test_a_run_of_openvino_keeps_the_memory_that_it_writes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")
    made: list[weakref.ref[np.ndarray]] = []

    def noted(shape: Sequence[int], dtype: DType) -> np.ndarray:
        made.append(weakref.ref(array := aligned_empty(shape, dtype)))
        return array

    monkeypatch.setattr(openvino, "aligned_empty", noted)
    problem = conv_problem(5, 7, 3, 2, 9)
    (peer,) = peers(("openvino",))
    run = peer.build(problem, problem.arrays(0), 1).run
    gc.collect()
    assert [array() is not None for array in made] == [True]
    run()


def test_calls_through_python_are_a_group_of_their_own() -> None:
    faces = [problem for problem in problems("gemm") if problem.group == "face"]
    assert "32x32x32 face" in [problem.name for problem in faces]
    assert all(problem.face for problem in faces)
    assert not any(problem.face for problem in problems("gemm") if problem.group != "face")


def test_operands_and_results_begin_on_cache_lines() -> None:
    for problem in SMALL:
        for array in (*problem.arrays(0), problem.result()):
            assert array.ctypes.data % 64 == 0
    assert np.isnan(SMALL[0].result()).all()


def test_operands_depend_on_the_seed_alone() -> None:
    first, again, other = (SMALL[0].arrays(seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_surroundings_leave_torch_as_it_was() -> None:
    before = torch.get_num_threads()
    with surroundings(FAMILY_NAMES, 1):
        assert torch.is_inference_mode_enabled()
        assert torch.get_num_threads() == 1
    assert not torch.is_inference_mode_enabled()
    assert torch.get_num_threads() == before


def test_unknown_names_are_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidOption, match="onnxruntime"):
        peers(("torch", "nonesuch"))
    with pytest.raises(InvalidOption, match="gemm"):
        problems("nonesuch")


def test_importing_the_benchmarks_loads_no_peer() -> None:
    code = "import sys, tracea.bench.run; print(sorted({'onnx', 'onnxruntime', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_suite_of_convolutions_has_every_layer_of_both_networks() -> None:
    from examples.cnn import MobileNetV2, ResNet50

    names = {problem.name for problem in SUITES["conv"]}
    assert len(names) == len(SUITES["conv"])
    operations = {
        (op.w.static_shape, op.stride, op.x.static_shape[2:], op.groups, op.x.shape[0])
        for op in (problem.op for problem in SUITES["conv"])
        if isinstance(op, Conv2dOp)
    }
    for model in (ResNet50, MobileNetV2):
        sizes: list[tuple[object, ...]] = []

        def seen(layer: torch.nn.Conv2d, inputs: tuple[torch.Tensor], _: torch.Tensor, into: list = sizes) -> None:
            into.append((tuple(layer.weight.shape), layer.stride, tuple(inputs[0].shape[2:]), layer.groups, 1))

        module = model().eval()
        for layer in module.modules():
            if isinstance(layer, torch.nn.Conv2d):
                layer.register_forward_hook(seen)
        with torch.inference_mode():
            module(torch.zeros(1, 3, 224, 224))
        assert set(sizes) <= operations
