"""What is kept between searches survives damage: an op never fails because a record of earlier ones is broken."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings

import pytest

from tracea.core.op import GemmOp
from tracea.errors import CacheCorrupt
from tracea.flow.history import known_variants, schedule_of, store, study_key, verified
from tracea.optimizer.storage import TrialRecord
from tracea.optimizer.trial import Outcome, OutcomeKind

OP = GemmOp.of(m=24, n=24, k=24)


def record(variant, schedule, latency_ms=None, kind=OutcomeKind.OK):
    return store().add(
        TrialRecord(
            key=study_key(OP, variant, 1),
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


def test_values_that_no_kernel_has_are_left_out():
    assert dict(schedule_of({"mr": 6, "split": "rows", "share": 0.5})) == {"mr": 6, "split": "rows"}


@pytest.mark.parametrize("damage", ["garbage", "half", "pages"])
def test_a_damaged_store_is_renewed_with_one_warning(empty_cache, damage):
    for index in range(200):
        record("gemm.packed", {"mr": index}, 1.0 + index)
    path = store().path
    store().close()
    from tracea.flow import history

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
