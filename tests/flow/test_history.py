"""What is kept between searches survives damage: an op never fails because a record of earlier ones is broken."""

from __future__ import annotations

import math
import os
import re
import sqlite3
import subprocess
import sys
import time
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.drawn import drawn

from tracea.core.dtype import DType
from tracea.core.op import GemmOp, RowKind, RowOp
from tracea.core.tensor_type import TensorType
from tracea.doctor import host
from tracea.errors import CacheCorrupt, InvalidOption, InvalidSchedule
from tracea.flow import history
from tracea.flow.compile import compile_node, decision_for
from tracea.flow.final import final_times
from tracea.flow.history import known_variants, packable, schedule_of, store, study_key, verified
from tracea.kernels.registry import find
from tracea.optimizer.exchange import export_trials
from tracea.optimizer.priors import Hero, Provenance, load_heroes
from tracea.optimizer.storage import TrialRecord, TrialStore
from tracea.optimizer.trial import Outcome, OutcomeKind
from tracea.targets.target import for_threads

OP = GemmOp.of(m=24, n=24, k=24)


def record(variant, schedule, latency_ms=None, kind=OutcomeKind.OK, *, op=OP, constants=()):
    return store().add(
        TrialRecord(
            key=study_key(op, variant, 1, constants),
            schedule=schedule,
            outcome=Outcome(kind=kind, latency_ms=latency_ms),
            seconds=0.0,
            sampler="random",
            seed=0,
            recorded_at=time.time(),
        )
    )


@pytest.fixture(autouse=True)
def _fresh(empty_cache):
    empty_cache.mkdir(mode=0o700)


def test_the_best_of_each_variant_is_known():
    record("gemm.packed", {"mr": 6}, 2.0)
    record("gemm.packed", {"mr": 8}, 1.0)
    record("gemm.direct", {"mr": 4}, 3.0)
    record("gemm.direct", {"mr": 5}, kind=OutcomeKind.WRONG)
    known = known_variants(OP, 1)
    assert {name: (dict(each.schedule), each.latency_us) for name, each in known.items()} == {
        "gemm.packed": ({"mr": 8}, 1000.0),
        "gemm.direct": ({"mr": 4}, 3000.0),
    }
    assert known_variants(OP, 2) == {}  # another number of threads
    assert known_variants(GemmOp.of(m=24, n=24, k=25), 1) == {}


def test_a_tie_ranks_as_the_race_decided_and_shows_what_was_measured():
    ahead, behind = record("library.gemm", {}, 2.0), record("gemm.packed", {"mr": 8}, 1.0)
    store().retime(ahead, 1.5, median_ms=1.5)
    store().retime(behind, math.nextafter(1.5, 2.0), median_ms=1.49)
    found = known_variants(OP, 1)
    assert (found["library.gemm"].latency_us, found["gemm.packed"].latency_us) == (1500.0, 1490.0)
    assert found["library.gemm"].rank_us < found["gemm.packed"].rank_us


def test_what_a_comparison_was_too_noisy_to_tell_is_said_so_and_outlives_the_process():
    won, lost = record("gemm.packed", {"mr": 8}, 1.0), record("library.gemm", {}, 2.0)
    store().retime(won, 1.5, median_ms=1.5, comparison={"is_unclear": 0.0, "rounds": 240.0})
    store().retime(lost, 1.9, median_ms=1.9, comparison={"is_unclear": 1.0, "low": 0.4, "high": 2.0})
    found = known_variants(OP, 1)
    assert {name: each.is_unclear for name, each in found.items()} == {"gemm.packed": False, "library.gemm": True}
    assert {each.variant: (each.is_unclear, each.is_tie) for each in final_times(OP, 1)} == {
        "gemm.packed": (False, False),
        "library.gemm": (True, False),
    }


def test_a_tie_of_an_older_record_that_its_own_times_contradict_decides_nothing():
    """Before, an interval that held 1 was a tie however wide: the library kept 53.45 us against 21.54."""
    ahead, behind = record("library.gemm", {}, 2.0), record("gemm.packed", {"mr": 8}, 1.0)
    store().retime(ahead, 0.05345, median_ms=0.05345)
    store().retime(behind, math.nextafter(0.05345, 1.0), median_ms=0.02154)
    found = known_variants(OP, 1)
    assert found["gemm.packed"].rank_us == pytest.approx(21.54)
    assert found["gemm.packed"].rank_us < found["library.gemm"].rank_us
    assert found["gemm.packed"].is_unclear
    assert [each.variant for each in final_times(OP, 1)] == ["gemm.packed", "library.gemm"]


def test_a_store_of_before_comparisons_were_kept_is_read_as_it_was(tmp_path):
    path = tmp_path / "trials.sqlite"
    with TrialStore(path) as kept:
        key = study_key(OP, "gemm.packed", 1)
        outcome = Outcome(kind=OutcomeKind.OK, latency_ms=1.0)
        row = TrialRecord(
            key=key, schedule={"mr": 8}, outcome=outcome, seconds=0.0, sampler="random", seed=0, recorded_at=1.0
        )
        kept.retime(kept.add(row), 1.5, median_ms=1.49)
        (before,) = kept.find()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("ALTER TABLE trial DROP COLUMN comparison; PRAGMA user_version = 4")
    with TrialStore(path) as kept:
        (after,) = kept.find()
        assert after == before
        assert (after.rank_ms, after.is_unclear, after.comparison) == (1.5, False, {})
        kept.retime(after.id, 1.5, median_ms=1.49, comparison={"is_unclear": 1.0})
        assert kept.find()[0].is_unclear


def test_a_comparison_outranks_single_times():
    fast = record("gemm.packed", {"mr": 8}, 1.0)
    slow = record("library.gemm", {}, 2.0)
    record("gemm.direct", {"mr": 4}, 0.5)
    store().retime(fast, 1.5)
    store().retime(slow, 1.2)
    assert {name: each.latency_us for name, each in known_variants(OP, 1).items()} == {
        "gemm.packed": 1500.0,
        "library.gemm": 1200.0,
    }


def test_what_failed_later_no_longer_counts_until_it_is_verified_again():
    record("gemm.packed", {"mr": 8}, 1.0)
    record("gemm.packed", {"mr": 8}, kind=OutcomeKind.CRASHED)
    assert verified(OP, 1) == []
    record("gemm.packed", {"mr": 8}, 1.1)
    assert [trial.record.outcome.latency_ms for trial in verified(OP, 1)] == [1.0, 1.1]


# What was measured with a weight that may be packed ahead, and without one, are two searches.

SKINNY = GemmOp.of(m=16, n=1024, k=1024)


def chosen(op=SKINNY, constants=(), **options):
    return decision_for(op, for_threads(host(), 1), threads=1, constants=constants, library=False, **options)


def fastest_schedule_of(variant, constants=()):
    return dict(chosen(variant=variant, constants=constants).schedule)


def test_a_measured_plain_schedule_says_nothing_of_constant_weights():
    unmeasured = chosen(constants=(1,))
    assert unmeasured.measurement is None
    assert unmeasured.variant == "gemm.prepacked"
    record("gemm.packed", fastest_schedule_of("gemm.packed"), 1e-6, op=SKINNY)
    assert chosen(constants=(1,)) == unmeasured
    assert chosen().variant == "gemm.packed"
    assert chosen().measurement.latency_us == pytest.approx(1e-3)


def test_a_measured_prepacked_schedule_says_nothing_of_weights_that_change():
    unmeasured = chosen()
    record("gemm.prepacked", fastest_schedule_of("gemm.prepacked", (1,)), 1.0, op=SKINNY, constants=(1,))
    record("gemm.packed", fastest_schedule_of("gemm.packed"), 2.0, op=SKINNY, constants=(1,))
    assert chosen() == unmeasured
    decision = chosen(constants=(1,))
    assert (decision.variant, decision.measurement.latency_us) == ("gemm.prepacked", 1000.0)
    assert "constant operands 1" in decision.explain()
    assert decision.to_dict()["constants"] == [1]


def test_a_program_with_constant_weights_is_made_by_what_was_measured_with_them():
    record("gemm.packed", fastest_schedule_of("gemm.packed"), 1e-6, op=SKINNY)
    w = np.ones((1024, 1024), np.float32)
    assert compile_node(SKINNY, {1: w}, threads=1, library=False).plan["y"].variant == "gemm.prepacked"
    assert compile_node(SKINNY, {}, threads=1, library=False).plan["y"].variant == "gemm.packed"


def test_a_shipped_hero_counts_for_its_constants_only(monkeypatch):
    plain = study_key(SKINNY, "", 1)
    measured = Provenance(
        hardware=dict(plain.hardware), toolchain=dict(plain.toolchain), latency_ms=1e-6, trials=1, recorded_at=1.75e9
    )
    hero = Hero(op_key=SKINNY.key, variant="gemm.packed", schedule=fastest_schedule_of("gemm.packed"), record=measured)
    unmeasured = {constants: chosen(constants=constants) for constants in ((), (1,))}
    for constants, other in (((), (1,)), ((1,), ())):
        monkeypatch.setattr(history, "_heroes", lambda: (replace(hero, constants=constants),))  # noqa: B023
        assert chosen(constants=constants).variant == "gemm.packed"
        assert chosen(constants=constants).measurement is not None
        assert chosen(constants=constants).chosen.shipped.endswith("on 2025-06-15, not here")
        assert chosen(constants=other) == unmeasured[other]


def test_stated_values_go_to_the_variant_that_runs_the_op_whoever_scores_higher():
    scored = chosen(schedule={})
    assert scored.variant != "gemm.packed"
    default = fastest_schedule_of("gemm.packed")
    record("gemm.packed", {**default, "unroll": 1}, 1e-6, op=SKINNY)
    decision = chosen(schedule={"kc": 64})
    assert (decision.variant, dict(decision.schedule)) == ("gemm.packed", {**default, "kc": 64})
    assert decision.reason.endswith("schedule stated")
    with pytest.raises(InvalidOption, match=r"gemm\.packed"):
        chosen(schedule={"rows": 8})
    with pytest.raises(InvalidSchedule, match="kc"):
        chosen(schedule={"kc": "deep"})
    with pytest.raises(InvalidOption, match="library"):
        chosen(schedule={"kc": 64}, variant="library.gemm")


def test_a_shipped_schedule_is_whole_so_that_what_is_printed_of_it_makes_the_same_kernel():
    ours = [hero for hero in load_heroes() if hero.schedule]
    assert ours
    for hero in ours:
        rows, *others = (int(part) for part in re.search(r"\d+(x\d+)+", hero.op_key)[0].split("x"))
        if hero.op_key.startswith("gemm"):
            op = GemmOp.of(m=rows, n=others[0], k=others[1])
        else:
            op = RowOp(kind=RowKind.LAYER_NORM, x=(TensorType((rows, *others), DType.F32),))
        assert set(hero.schedule) == set(find(hero.variant).default_schedule(op, for_threads(host(), 1))), hero


def test_one_measurement_here_puts_all_shipped_times_aside(monkeypatch, empty_cache):
    plain = study_key(SKINNY, "", 1)
    measured = Provenance(
        hardware=dict(plain.hardware), toolchain=dict(plain.toolchain), latency_ms=1e-6, trials=1, recorded_at=1.75e9
    )
    hero = Hero(op_key=SKINNY.key, variant="gemm.packed", schedule=fastest_schedule_of("gemm.packed"), record=measured)
    monkeypatch.setattr(history, "_heroes", lambda: (hero,))
    assert chosen().chosen.shipped
    record("gemm.direct", fastest_schedule_of("gemm.direct"), 2.0, op=SKINNY)
    assert (chosen().variant, chosen().chosen.shipped) == ("gemm.direct", "")
    assert chosen().reason.startswith("the fastest measured: 2")


def test_a_shipped_winner_of_a_similar_op_says_that_it_is_shipped(monkeypatch, empty_cache):
    plain = study_key(SKINNY, "", 1)
    measured = Provenance(
        hardware=dict(plain.hardware), toolchain=dict(plain.toolchain), latency_ms=2.189, trials=1, recorded_at=1.75e9
    )
    other = replace(SKINNY, epilogue=GemmOp.of(m=SKINNY.m, n=SKINNY.n, k=SKINNY.k, bias=True).epilogue)
    hero = Hero(op_key=other.key, variant="gemm.packed", schedule=fastest_schedule_of("gemm.packed"), record=measured)
    monkeypatch.setattr(history, "_heroes", lambda: (hero,))
    (found,) = history.winners(SKINNY, "gemm.packed", 1)
    assert found.shipped == measured.where_and_when


def test_constants_that_no_variant_packs_do_not_part_a_search():
    assert packable(GemmOp.of(m=8, n=8, k=8, bias=True), (2, 1)) == (1,)
    assert packable(GemmOp.of(m=8, n=8, k=8, bias=True), (2,)) == ()
    rows = RowOp(kind=RowKind.LAYER_NORM, x=(TensorType((6, 40), OP.a.dtype),), eps=1e-5)
    assert study_key(rows, "rows.normalize", 1, (1, 2)) == study_key(rows, "rows.normalize", 1)


def test_values_that_no_kernel_has_are_left_out():
    assert dict(schedule_of({"mr": 6, "split": "rows", "share": 0.5})) == {"mr": 6, "split": "rows"}


@pytest.mark.parametrize("damage", ["garbage", "half", "pages"])
def test_a_damaged_store_is_renewed_with_one_warning(empty_cache, damage):
    for index in range(200):
        record("gemm.packed", {"mr": index}, 1.0 + index)
    path = store().path
    store().close()
    history._store_at.cache_clear()
    content = path.read_bytes()
    for side_file in ("-wal", "-shm"):
        path.with_name(path.name + side_file).unlink(missing_ok=True)
    changed = {
        "garbage": b"not a database " * 1000,
        "half": content[: len(content) // 2],
        "pages": content[:4096] + bytes(len(content) - 4096),
    }
    path.write_bytes(changed[damage])
    with pytest.warns(CacheCorrupt) as caught:
        assert known_variants(OP, 1) == {}
    assert len(caught) == 1
    assert list(path.parent.glob("*.damaged-*"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record("gemm.packed", {"mr": 6}, 2.0)
        assert set(known_variants(OP, 1)) == {"gemm.packed"}


def test_several_processes_renew_one_store(empty_cache):
    path = store().path
    store().close()
    path.write_bytes(b"not a database " * 1000)
    code = (
        "import warnings; warnings.simplefilter('ignore');"
        "from tracea.core.op import GemmOp; from tracea.flow.history import known_variants;"
        "assert known_variants(GemmOp.of(m=3, n=3, k=3), 1) == {}"
    )
    children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [child.wait(120) for child in children] == [0] * 4
    assert len(list(path.parent.glob("*.damaged-*"))) == 1


@pytest.mark.costly
@pytest.mark.parametrize("place", drawn(2, ["a file", "below a file", "a dangling link", "no permission"], of="places"))
def test_without_a_usable_place_ops_run_and_trials_last_as_long_as_the_process(tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    where = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "cache",
        "a dangling link": tmp_path / "link",
        "no permission": Path("/proc/tracea"),
    }[place]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_PLACE],
        env={**os.environ, "TRACEA_CACHE_DIR": str(where)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["7.0", "1", "1"], done.stderr  # the result, trials kept, warnings


WITHOUT_A_PLACE = """
import warnings
import numpy as np
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import tracea
    from tests.flow.test_history import record
    from tracea.flow.history import store
    print(tracea.ops.gemm(np.ones((5, 7), np.float32), np.ones((7, 2), np.float32))[0, 0])
    record("gemm.packed", {"mr": 8}, 1.0)
    print(len(store().find()))
print(len([each for each in caught if issubclass(each.category, tracea.TraceaWarning)]))
"""


# After a toolchain change: what was best before is advice, measured again first.


def of_toolchain(text):
    """The identity of this machine after an upgrade of its compiler."""
    return replace(history._identity(), toolchain=text)


def upgraded(monkeypatch, text):
    identity = of_toolchain(text)
    monkeypatch.setattr(history, "_identity", lambda: identity)


def test_after_a_toolchain_change_the_best_few_are_recalled_and_decide_nothing(monkeypatch):
    for mr, latency in ((4, 3.0), (6, 1.0), (8, 2.0), (10, 4.0)):
        record("gemm.packed", {"mr": mr}, latency)
    record("gemm.direct", {"mr": 5}, 1.5)
    record("gemm.direct", {"mr": 7}, 0.5)
    record("gemm.direct", {"mr": 7}, kind=OutcomeKind.WRONG)  # failed later
    record("library.gemm", {}, 0.1)
    assert history.recalled(OP, 1) == ()  # nothing has changed
    upgraded(monkeypatch, "another compiler")
    assert known_variants(OP, 1) == {}
    best = (("gemm.packed", {"mr": 6}), ("gemm.direct", {"mr": 5}), ("gemm.packed", {"mr": 8}))
    assert history.recalled(OP, 1) == best
    assert history.recalled(OP, 2) == ()
    assert history.recalled(OP, 1, (1,)) == ()


def test_a_comparison_of_before_outranks_what_a_search_said(monkeypatch):
    record("gemm.packed", {"mr": 6}, 1.0)
    store().retime(record("gemm.packed", {"mr": 8}, 2.0), 2.5)
    upgraded(monkeypatch, "another compiler")
    assert [schedule["mr"] for _, schedule in history.recalled(OP, 1)] == [8, 6]


def test_what_is_imported_is_recalled_after_what_was_measured_here(monkeypatch, tmp_path):
    record("gemm.packed", {"mr": 6}, 5.0)
    export_trials(store().find(), tmp_path / "trials.jsonl")
    (elsewhere,) = store().find()
    hostile = ("x\n#include </etc/passwd>", "a;rm -rf", "")
    for index, schedule in enumerate(({"mr": 12}, *({"mr": word} for word in hostile), {"mr\n;": 1})):
        key = replace(elsewhere.record.key, hardware={"fingerprint": f"another machine {index}", "threads": 1})
        store().merge([(replace(elsewhere.record, key=key, schedule=schedule), None)])
    assert [trial.record.schedule for trial in verified(OP, 1)] == [{"mr": 6}]
    assert [schedule["mr"] for _, schedule in history.recalled(OP, 1)] == [12]
    upgraded(monkeypatch, "another compiler")
    assert [schedule["mr"] for _, schedule in history.recalled(OP, 1)] == [6, 12]
    assert known_variants(OP, 1) == {}
