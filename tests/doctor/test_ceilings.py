"""The measured ceilings: real numbers, kept per fingerprint."""

from __future__ import annotations

import ctypes
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tracea.core.dtype import DType
from tracea.doctor import Ceilings, kept_ceilings, measure_ceilings, measured_ceilings, probe_machine
from tracea.doctor import ceilings as ceilings_module  # the module
from tracea.doctor.fork_join import fork_join_us
from tracea.errors import InvalidOption
from tracea.profiler.load import Load
from tracea.runtime.toolchain import find_compiler


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer and smaller runs: the figures are lower, everything else is the same."""
    monkeypatch.setattr(ceilings_module, "_PEAK_REPEATS", 3)
    monkeypatch.setattr(ceilings_module, "_MEMORY_REPEATS", 1)
    monkeypatch.setattr(ceilings_module, "_MOST_BYTES", 64 * 1024**2)
    monkeypatch.setattr(ceilings_module, "_CACHE_REPEATS", 2)


@pytest.mark.usefixtures("quick", "empty_cache")
def test_the_ceilings_are_measured_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = probe_machine()
    first = measured_ceilings(machine)
    threads = sorted({1, machine.cores_usable})
    wanted = {(isa, dtype, n) for isa in machine.hardware.isas for dtype in ("f32", "f64") for n in threads}
    assert {(row.isa, row.dtype, row.threads) for row in first.peaks} == wanted
    assert {(row.pattern, row.threads) for row in first.bandwidths} == {
        (p, n) for p in ("copy", "read") for n in threads
    }
    assert all(row.gflops > 0.1 for row in first.peaks)
    assert all(row.gbytes > 0.1 for row in first.bandwidths)
    levels = {row.level: row for row in first.caches}
    assert {1, 2} <= set(levels)
    target = machine.target
    assert levels[1].working_set_bytes <= target.l1d_bytes < levels[2].working_set_bytes <= target.l2_bytes
    if 3 in levels:
        assert levels[2].working_set_bytes < levels[3].working_set_bytes <= target.l3_bytes
    assert (first.fork_join_us is None) == (machine.cores_usable == 1)
    has_tiles = "amx_bf16" in machine.target.features
    assert [row.threads for row in first.tiles] == (threads if has_tiles else [])
    if has_tiles:  # a product of tiles is 32 times the operations of a vector's, at a quarter of their rate or better
        assert first.tile_peak() is not None
        assert first.tile_peak() > 4 * first.peak("avx512")

    def forbidden(*_: object) -> Ceilings:
        raise AssertionError("measured again")

    monkeypatch.setattr(kept_ceilings, "measure", forbidden)
    monkeypatch.setattr(kept_ceilings, "measure_load", lambda: None)  # other tests may come and go
    assert measured_ceilings(machine) == first
    with pytest.raises(AssertionError, match="measured again"):
        measured_ceilings(machine, again=True)


@pytest.mark.usefixtures("empty_cache")
def test_the_peak_loop_takes_time_in_proportion_to_its_iterations() -> None:
    # A compiler that saw through the loop would make this constant, and the peak infinite.
    machine = probe_machine()
    for isa in machine.hardware.isas:
        library = ceilings_module._library(isa, find_compiler())
        run = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(library.address("tracea_peak_f32"))

        def best(iterations: int, run: object = run) -> float:
            times: list[float] = []
            for _ in range(25):
                start = time.perf_counter()
                run(iterations)  # type: ignore[operator]
                times.append(time.perf_counter() - start)
            return min(times)

        assert 4 < best(80_000) / best(10_000) < 16


@pytest.mark.usefixtures("empty_cache")
def test_the_products_of_tiles_are_right_and_take_time_in_proportion_to_their_number() -> None:
    if "amx_bf16" not in probe_machine().target.features:
        pytest.skip("this machine has no matrix tiles")
    library = ceilings_module._tile_library(find_compiler())
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("tracea_peak_flops_bf16"))() == 6 * 2 * 16 * 16 * 32
    run = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(library.address("tracea_peak_bf16"))
    assert run(0) == run(1_000) == 0.0  # ones times pairs of one and minus one

    def best(iterations: int) -> float:
        times: list[float] = []
        for _ in range(25):
            start = time.perf_counter()
            run(iterations)
            times.append(time.perf_counter() - start)
        return min(times)

    assert 4 < best(80_000) / best(10_000) < 16


def test_one_thread_of_avx512_keeps_up_with_avx2_on_a_machine_that_has_both() -> None:
    machine = probe_machine()
    if not {"avx512", "avx2"} <= set(machine.hardware.isas):
        pytest.skip("this machine does not have both")
    found = measured_ceilings(machine)
    # Zen 4 makes 512 bits in two halves: there both are as fast, but for the last digits of a measurement.
    assert found.peak("avx512") > 0.9 * found.peak("avx2")
    assert found.peak("avx2") > found.peak("plain")
    assert found.peak("avx512", DType.F32) > found.peak("avx512", DType.F64)


def example() -> Ceilings:
    return Ceilings(
        fingerprint="f",
        peaks=(ceilings_module.Peak(isa="avx2", dtype="f32", threads=1, gflops=100.0),),
        bandwidths=(ceilings_module.Bandwidth(pattern="copy", threads=1, gbytes=10.0, working_set_bytes=1),),
        date="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        load=0.0,
    )


def test_half_precision_has_the_peak_of_the_type_it_computes_in() -> None:
    assert example().peak("avx2", DType.BF16) == 100.0
    assert example().roofline("avx2").ridge == 10.0


def test_what_was_not_measured_is_refused_with_what_was() -> None:
    with pytest.raises(InvalidOption, match=r"avx2.*f32.*1"):
        example().peak("avx512")
    with pytest.raises(InvalidOption, match="copy"):
        example().bandwidth("read")


def test_tiles_have_a_peak_of_their_own_for_each_number_of_threads() -> None:
    tiles = (ceilings_module.Peak(isa="amx", dtype="bf16", threads=1, gflops=3_500.0),)
    found = msgspec.structs.replace(example(), tiles=tiles)
    assert (found.tile_peak(), found.tile_peak(threads=2), example().tile_peak()) == (3_500.0, None, None)
    assert found.peak("avx2", DType.BF16) == 100.0  # of vectors


def test_ceilings_survive_json_and_refuse_other_fields(tmp_path: Path) -> None:
    text = msgspec.json.encode(example())
    assert msgspec.json.decode(text, type=Ceilings) == example()
    with pytest.raises(msgspec.ValidationError, match="unknown"):
        msgspec.json.decode(text[:-1] + b',"unknown":1}', type=Ceilings)


@pytest.mark.usefixtures("empty_cache")
def test_a_smaller_cache_reads_faster() -> None:
    machine = probe_machine()
    library = ceilings_module._library(machine.hardware.isas[0], find_compiler())
    rates = {row.level: row.gbytes for row in ceilings_module._caches(library, machine)}
    assert rates[1] > rates[2]
    # A read is 64 bytes a cycle and port at most: no clock and no machine of today reads a core's cache this fast.
    assert max(rates.values()) < 2_000


def test_a_fork_join_takes_longer_than_a_call_and_less_than_a_time_slice() -> None:
    isa, compiler = probe_machine().hardware.isas[0], find_compiler()
    assert fork_join_us(1, isa, compiler) is None
    found = fork_join_us(2, isa, compiler)
    assert found is not None
    assert 0.01 < found < 10_000


@pytest.mark.usefixtures("empty_cache")
def test_what_was_measured_under_load_is_measured_again_once_it_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, busy, now = probe_machine(), [1.5], [1.5]
    measured: list[float] = []
    age = [timedelta(hours=1)]

    def measure(*_: object) -> Ceilings:
        measured.append(busy[0])
        date = (datetime.now(UTC) - age[0]).isoformat(timespec="seconds")
        return msgspec.structs.replace(example(), busy_cores=busy[0], date=date)

    monkeypatch.setattr(kept_ceilings, "measure", measure)
    monkeypatch.setattr(kept_ceilings, "measure_load", lambda: Load(busy_cores=now[0], cores=2))
    assert measured_ceilings(machine).busy_cores == 1.5
    assert measured_ceilings(machine).busy_cores == 1.5  # still busy
    assert measured == [1.5]
    now[0] = 0.0
    again = measured_ceilings(machine)  # quiet at its start, and disturbed later
    assert (again.busy_cores, again.attempts, len(measured)) == (1.5, 2, 2)
    busy[0] = 0.05
    assert measured_ceilings(machine).busy_cores == 0.05
    assert measured_ceilings(machine).busy_cores == 0.05
    assert len(measured) == 3
    busy[0], age[0] = 1.5, timedelta(0)
    assert measure_ceilings(machine).busy_cores == 1.5
    assert measured_ceilings(machine).busy_cores == 0.05  # what was reached on a quiet machine stays
    assert len(measured) == 4


@pytest.mark.usefixtures("empty_cache")
def test_the_wait_for_a_quiet_machine_begins_with_the_last_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, measured, age, now = probe_machine(), [], [timedelta(hours=1)], [1.5]

    def measure(*_: object) -> Ceilings:
        measured.append(1)
        date = (datetime.now(UTC) - age[0]).isoformat(timespec="seconds")
        return msgspec.structs.replace(example(), busy_cores=1.5, date=date)

    monkeypatch.setattr(kept_ceilings, "measure", measure)
    monkeypatch.setattr(kept_ceilings, "measure_load", lambda: Load(busy_cores=now[0], cores=2))
    measured_ceilings(machine)
    now[0], age[0] = 0.0, timedelta(0)
    assert measured_ceilings(machine).attempts == 2
    assert measured_ceilings(machine).attempts == 2  # a moment ago: the cost is bounded
    assert len(measured) == 2
    assert measured_ceilings(machine, again=True).attempts == 1


def figures(scale: float, *, fork_join_us: float, busy_cores: float) -> Ceilings:
    read = ceilings_module.Bandwidth(pattern="read", threads=1, gbytes=15.8 * scale, working_set_bytes=1)
    first = ceilings_module.CacheBandwidth(level=1, gbytes=300.0 * scale, working_set_bytes=1)
    return msgspec.structs.replace(
        example(), bandwidths=(read,), caches=(first,), fork_join_us=fork_join_us, busy_cores=busy_cores
    )


@pytest.mark.usefixtures("empty_cache")
def test_a_measurement_under_load_takes_nothing_from_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = probe_machine()
    quiet = figures(1.0, fork_join_us=5.0, busy_cores=0.0)
    # Under load: a fifth of the bandwidth, but the peak was better for a moment.
    faster = ceilings_module.Peak(isa="avx2", dtype="f32", threads=1, gflops=120.0)
    busy = msgspec.structs.replace(figures(0.2, fork_join_us=4_000.0, busy_cores=2.0), peaks=(faster,))
    answers = [quiet, busy]
    monkeypatch.setattr(kept_ceilings, "measure", lambda *_: answers.pop(0))
    monkeypatch.setattr(kept_ceilings, "measure_load", lambda: None)
    assert measured_ceilings(machine) == quiet
    assert measure_ceilings(machine) == busy  # what that run states of itself
    assert measured_ceilings(machine) == msgspec.structs.replace(quiet, peaks=(faster,))


def test_figures_of_other_work_are_not_compared() -> None:
    before, now = figures(1.0, fork_join_us=5.0, busy_cores=0.0), figures(0.5, fork_join_us=9.0, busy_cores=0.0)
    smaller = tuple(msgspec.structs.replace(row, working_set_bytes=2) for row in now.bandwidths)
    found = kept_ceilings.better_of(before, msgspec.structs.replace(now, bandwidths=smaller))
    assert [row.gbytes for row in found.bandwidths] == [7.9]
    assert ([row.gbytes for row in found.caches], found.fork_join_us) == ([300.0], 5.0)


@pytest.mark.usefixtures("empty_cache")
def test_a_measurement_that_is_interrupted_leaves_what_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = probe_machine()
    monkeypatch.setattr(kept_ceilings, "measure", lambda *_: example())
    monkeypatch.setattr(kept_ceilings, "measure_load", lambda: None)
    measured_ceilings(machine)

    def interrupted(*_: object) -> Ceilings:
        raise KeyboardInterrupt

    monkeypatch.setattr(kept_ceilings, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure_ceilings(machine)
    assert measured_ceilings(machine) == example()


def test_one_thread_has_at_least_the_peak_that_it_had_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # One core alone was held back by a neighbour, and was not a moment later, beside the second one.
    rates = {1: (80.0, 80.0), 2: (100.0, 190.0)}
    monkeypatch.setattr(ceilings_module, "_rates", lambda library, dtype, team: rates[len(team)])
    found = ceilings_module._peaks([("avx2", "f32", None)], ((0,), (0, 1)))
    assert [(row.threads, row.gflops) for row in found] == [(1, 100.0), (2, 190.0)]
