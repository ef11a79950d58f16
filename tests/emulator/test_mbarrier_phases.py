"""Which phase a wait or an arrival means depends on no schedule: judged from one run, compared with all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from tests.emulator.floats import floats, run

from tracea.core.dtype import DType
from tracea.emitters.cuda.emitter import emit
from tracea.emitters.kernel_source import KernelSource
from tracea.emulator import emulate
from tracea.testing.conformance.source import OUT, kernel
from tracea.testing.gpu_cases import gpu_cases
from tracea.testing.gpu_judge import GpuJudge, gemm_arguments

OVERTAKEN = "race: mbarrier phase may end before a wait for the one before"
EARLY = "race: mbarrier arrival may count for the phase before"

WAIT, ARRIVE = 0, 1
Operation = tuple[int, int, int]  # a wait or an arrival, the barrier, the parity


@dataclass(frozen=True, slots=True)
class Ring:
    """A producer's and its consumers' loops over a ring, with the places at which each can be wrong."""

    stages: int
    steps: int
    consumers: int = 1
    parity: int = 1  # that the producer adds
    offset: int = 0  # of the slot that is given back
    first: int = 0  # step in which one is

    def programs(self) -> list[list[Operation]]:
        """Return what each thread does; barriers ``full`` come before those of ``empty``."""
        n = self.stages
        producer = [
            operation
            for k in range(self.steps)
            for operation in ((WAIT, n + k % n, (k // n + self.parity) % 2), (ARRIVE, k % n, 0))
        ]
        consumer: list[Operation] = []
        for k in range(self.steps):
            consumer.append((WAIT, k % n, k // n % 2))
            if k >= self.first:
                consumer.append((ARRIVE, n + (k + self.offset) % n, 0))
        return [producer, *[consumer] * self.consumers]

    def is_the_same_in_every_order(self) -> bool:
        """Explore all interleavings: none ends in a deadlock, and each operation has one phase in all of them."""
        programs, n = self.programs(), self.stages
        counts = [1] * n + [self.consumers] * n
        start = ((0,) * len(programs), (0,) * 2 * n, tuple(counts))
        meant: dict[tuple[int, int], int] = {}
        seen, todo = {start}, [start]
        while todo:
            places, phases, missing = todo.pop()
            stuck = True
            for agent, program in enumerate(programs):
                if places[agent] == len(program):
                    continue
                what, barrier, parity = program[places[agent]]
                phase = phases[barrier]
                if what == WAIT and phase % 2 == parity:
                    continue
                stuck = False
                if meant.setdefault((agent, places[agent]), phase) != phase:
                    return False
                after = (*places[:agent], places[agent] + 1, *places[agent + 1 :])
                ended = missing[barrier] == 1
                left = counts[barrier] if ended else missing[barrier] - 1
                state = (after, phases, missing)
                if what == ARRIVE:
                    state = (after, _with(phases, barrier, phase + ended), _with(missing, barrier, left))
                if state not in seen:
                    seen.add(state)
                    todo.append(state)
            if stuck and any(place < len(program) for place, program in zip(places, programs, strict=True)):
                return False
        return True


def _with(values: Sequence[int], position: int, value: int) -> tuple[int, ...]:
    return (*values[:position], value, *values[position + 1 :])


@cache
def ring_kernel() -> KernelSource:
    """Return rings of every kind: consumers are the first warps, the producer is the last one."""
    body = """
    const uint32_t t = thread_index();
    const uint32_t warp = t / 32;
    const uint32_t stages = static_cast<uint32_t>(args.stages);
    const uint32_t steps = static_cast<uint32_t>(args.steps);
    const uint32_t consumers = static_cast<uint32_t>(args.consumers);
    if (t == 0) {
        for (uint32_t s = 0; s < stages; ++s) {
            mbarrier_init(8 * s, 1);
            mbarrier_init(64 + 8 * s, consumers);
        }
        mbarrier_fence_init();
    }
    sync_block();
    if (t % 32 == 0) {
        if (warp == 2) {
            for (uint32_t k = 0; k < steps; ++k) {
                mbarrier_wait(64 + k % stages * 8, (k / stages + static_cast<uint32_t>(args.parity)) % 2);
                mbarrier_arrive(k % stages * 8);
            }
        } else if (warp < consumers) {
            for (uint32_t k = 0; k < steps; ++k) {
                mbarrier_wait(k % stages * 8, k / stages % 2);
                if (k >= static_cast<uint32_t>(args.first)) {
                    mbarrier_arrive(64 + (k + static_cast<uint32_t>(args.offset)) % stages * 8);
                }
            }
        }
    }
    st_global<float>(args.c + t, 0.0F);
"""
    names = ("stages", "steps", "consumers", "parity", "offset", "first")
    options = {"threads": 96, "shared_bytes": 128, "isa": "sm_90a"}
    return kernel(body, pointers={"c": (DType.F32, OUT)}, integers=names, **options)


def found(ring: Ring, seed: int) -> frozenset[str]:
    """Return what one schedule shows of a ring, but for slots that are given back and not taken again."""
    integers = {name: getattr(ring, name) for name in Ring.__slots__}
    report = emulate(ring_kernel(), {"c": np.zeros(96, np.float32)}, integers, schedules=(seed,))
    return report.kinds - {"mbarrier phase left unfinished"}


def rings() -> Iterator[Ring]:
    for stages, steps, consumers in product((1, 2, 3), (1, 2, 3, 4, 7), (1, 2)):
        for parity, offset, first in product((0, 1), range(stages), (0, 1, 2)):
            yield Ring(stages, steps, consumers, parity, offset, first)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_one_schedule_says_of_every_ring_what_all_interleavings_say(seed: int) -> None:
    verdicts = {ring: ring.is_the_same_in_every_order() for ring in rings()}
    assert 60 < sum(verdicts.values()) < len(verdicts) - 60
    assert [(ring, found(ring, seed)) for ring, right in verdicts.items() if right is bool(found(ring, seed))] == []


def test_an_arrival_for_a_slot_that_was_not_filled_is_seen_in_every_order_of_warps() -> None:
    ring = Ring(stages=3, steps=4, offset=2, first=1)  # as the kernel of wgmma: slot k - 1, from step 1
    assert ring.is_the_same_in_every_order()
    early = replace(ring, offset=1)
    assert not early.is_the_same_in_every_order()
    for seed in range(16):
        assert found(ring, seed) == set()
        assert OVERTAKEN in found(early, seed), seed
    assert found(early, 0) == {OVERTAKEN}  # the order of warps is one in which it goes well
    assert found(early, 3) == {OVERTAKEN, "deadlock"}  # consumers first


def test_an_arrival_that_may_be_too_early_is_reported_where_it_is_not() -> None:
    body = """
    const uint32_t t = thread_index();
    if (t == 0) {
        mbarrier_init(0, 2);
        mbarrier_fence_init();
    }
    sync_block();
    if (t == 0) {
        mbarrier_arrive(0);
    }
    if (t == 32) {
        mbarrier_arrive(0);
        WAIT
        mbarrier_arrive(0);
    }
    if (t == 0) {
        mbarrier_wait(0, 0);
        mbarrier_arrive(0);
    }
    st_global<float>(args.c + t, ld_global<float>(args.a + t));
"""
    wait = floats(body.replace("WAIT", "mbarrier_wait(0, 0);"), shared_bytes=8, isa="sm_90a")
    assert run(wait)[0].clean
    report, _ = run(floats(body.replace("WAIT", ""), shared_bytes=8, isa="sm_90a"), schedules=(0,))
    assert EARLY in report.kinds


def test_copies_land_as_late_or_as_early_as_they_may() -> None:
    body = """
    const uint32_t t = thread_index();
    cp_async<4>(4 * t, args.a + t);
    cp_async_commit();
    st_global<float>(args.c + t, ld_shared<float>(4 * t));
    cp_async_wait<0>();
"""
    source = floats(body, shared_bytes=256)
    late, given = run(source, schedules=(0,))
    assert "lax wait: read of a copy's destination before it has landed" in late.kinds
    assert np.isnan(given["c"]).all()
    early, given = run(source, schedules=(1,))
    assert "lax wait: read of a copy's destination before it has landed" in early.kinds
    assert np.array_equal(given["c"], given["a"])


@cache
def wgmma_kernel() -> tuple[KernelSource, GpuJudge]:
    case = next(case for case in gpu_cases() if case.name == "gemm.wgmma sm_90a")
    made = case.kernel()
    call = gemm_arguments(made, m=64, n=64, k=96, params=case.params)
    return emit(made, case.target), GpuJudge(calls=(call,), emit=lambda changed: emit(changed, case.target))


def test_a_slot_of_wgmma_that_is_given_back_before_it_was_filled_is_reported_by_the_first_schedule() -> None:
    source, judge = wgmma_kernel()
    release = "release_slot(empty + (k_step + 2) % 3 * 8);"
    assert source.text.count(release) == 1
    early = replace(source, text=source.text.replace(release, release.replace("+ 2", "+ 1")))
    assert judge.of_text(source) is None
    assert judge.of_text(early) == f"emulator: {OVERTAKEN}"
    (call,) = judge.calls
    report = emulate(early, call.fresh(), call.params, schedules=(3,))
    assert report.kinds == {OVERTAKEN, "deadlock"}
