"""The catalogue of planted kernels: each is refused by the check meant for it, by a search's gates too, never timed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from tests.gates import planted
from tests.gates.planted import PLANTED
from tests.gates.test_planted_native_kernels import MEANT_FOR

from tracea.core.op import GemmOp
from tracea.gates import QUICK, Run, judge, time_verified
from tracea.runtime.program import Program

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    return planted.programs()


@pytest.fixture(scope="module")
def kernels(programs: dict[str, Program]) -> dict[str, Run]:
    return {name: planted.run_of(program, PLANTED[name].threads) for name, program in programs.items()}


def test_there_are_at_least_25_of_them() -> None:
    assert len(PLANTED.keys() | MEANT_FOR.keys()) >= 25


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_kernel_is_refused_by_the_check_meant_for_it(kernels: dict[str, Run], name: str, seed: int) -> None:
    verdict = judge(kernels[name], PLANTED[name].op, subject=name, seed=seed)
    assert not verdict.passed, str(verdict)
    assert PLANTED[name].check in ["", *(failure.name for failure in verdict.failures)], str(verdict)


# What a search's three distributions and two repeats let through; the winner of a search is judged by everything.
LEFT_TO_THE_FULL_GATES = {
    "nan_swallowed",
    "infinity_clamped",
    "denormals_flushed",
    "relu_swallows_nan",
    "input_damaged",
    "i16_wraps",
    "residual_forgotten",
    "wrong_now_and_then",
    "result_in_static_storage",
    "file_left_open",
}


@pytest.mark.parametrize("name", [name for name in PLANTED if name not in LEFT_TO_THE_FULL_GATES])
def test_a_searchs_quick_gates_refuse_it_too(kernels: dict[str, Run], name: str, seed: int) -> None:
    assert not judge(kernels[name], PLANTED[name].op, seed=seed, distributions=QUICK, hashes=2, runs=2).passed


def test_none_of_them_is_ever_timed(kernels: dict[str, Run], seed: int) -> None:
    for op in {wrong.op for wrong in PLANTED.values()}:
        names = [name for name, wrong in PLANTED.items() if wrong.op == op]
        found = time_verified({name: kernels[name] for name in names}, op, seed=seed)
        assert not found.measurements, op.key


def test_what_is_wrong_with_two_threads_only_is_right_with_one(programs: dict[str, Program], seed: int) -> None:
    """The fault is in the kernel and not in the test around it; a verdict holds for the threads that it was given."""
    for name in ("thread_dependent", "missing_barrier", "lost_update"):
        verdict = judge(planted.run_of(programs[name], 1), PLANTED[name].op, seed=seed)
        assert verdict.passed, str(verdict)


@pytest.fixture
def another_stream() -> Iterator[Run]:
    """A run that hands its work to another stream and comes back at once: nobody waits for it."""
    under_way: list[threading.Thread] = []

    def run(inputs: Sequence[Array], out: Array) -> None:
        for thread in under_way:
            thread.join()  # as the next launch on that stream would
        under_way.clear()
        copies = [array.copy() for array in inputs]

        def work() -> None:
            time.sleep(0.002)
            with np.errstate(all="ignore"):
                np.matmul(*copies, out=out)

        under_way.append(threading.Thread(target=work))
        under_way[0].start()

    yield run
    for thread in under_way:
        thread.join()


def test_work_on_another_stream_that_nobody_waits_for_is_refused(another_stream: Run, seed: int) -> None:
    verdict = judge(another_stream, GemmOp.of(m=21, n=53, k=100), seed=seed)
    assert "every output written" in [failure.name for failure in verdict.failures], str(verdict)
