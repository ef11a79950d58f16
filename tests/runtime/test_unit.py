"""Kernels of one code are compiled once, many in several units at once, of which none outlives another's failure."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import filelock
import pytest

import tracea.runtime.compiler as compiler_module
from tracea import targets
from tracea.core.dtype import DType
from tracea.core.op import RowKind, RowOp
from tracea.core.tensor_type import TensorType
from tracea.errors import CompileError, InvalidOption
from tracea.flow.kernel import build
from tracea.kernels.registry import candidates
from tracea.runtime import at_once as at_once_module
from tracea.runtime.at_once import GivenUp, at_once, beside, check_wanted
from tracea.runtime.cache import default_store
from tracea.runtime.compiler import compile
from tracea.runtime.compiler_process import run_compiler
from tracea.runtime.unit import by_code, in_units

PLAIN = targets.load("plain")
DIGEST = "0123456789abcdef0123"


def softmax(rows, columns):
    op = RowOp(kind=RowKind.SOFTMAX, x=(TensorType((rows, columns), DType.F32),))
    variant = candidates(op, PLAIN)[0]
    return build(op, variant.id, variant.default_schedule(op, PLAIN), PLAIN).source


def test_ops_of_other_extents_are_one_code_under_one_name():
    one, other = softmax(400, 300), softmax(400, 310)
    assert one.name != other.name
    assert one.text != other.text
    assert by_code(one).name == by_code(other).name != one.name
    assert by_code(one).text == by_code(other).text
    assert one.name not in by_code(one).text
    assert by_code(by_code(one)) == by_code(one)
    changed = replace(other, text=other.text.replace("softmax_rows", "log_softmax_rows"))
    assert changed.text != other.text
    assert by_code(changed).name != by_code(one).name


def test_a_name_without_a_digest_stays_and_has_one_text(kit):
    source = kit.scale_source("scale")
    assert by_code(source) == source
    with pytest.raises(InvalidOption, match="one text for each name"):
        in_units([source, replace(source, text="int other;")])
    assert compile([]) == ()


def test_units_hold_each_code_once_and_do_not_depend_on_the_order(kit):
    sources = [kit.scale_source(f"scale_{i:020x}") for i in range(5)] + [kit.scale_source(f"s{i}") for i in range(30)]
    units = in_units(sources)
    assert sum(map(len, units)) == 31  # five names of one code
    assert max(map(len, units)) <= 8
    assert in_units(sources[::-1]) == units


def test_kernels_of_one_code_share_an_address_and_a_new_shape_compiles_nothing(kit, empty_cache, monkeypatch):
    monkeypatch.setattr(compiler_module._registry, "libraries", {})
    first, second = compile([kit.scale_source(f"scale_{DIGEST}"), kit.scale_source(f"scale_{DIGEST[::-1]}")])
    assert first.address == second.address
    assert (first.name, second.name) == (f"scale_{DIGEST}", f"scale_{DIGEST[::-1]}")
    monkeypatch.setattr(compiler_module, "run_compiler", lambda *_: pytest.fail("it was compiled again"))
    (third,) = compile([kit.scale_source(f"scale_{'7' * 20}")], before=lambda: pytest.fail("it was said to compile"))
    assert third.address == first.address


def test_several_units_are_told_once_and_all_kernels_run_in_order(kit, empty_cache, monkeypatch):
    monkeypatch.setattr(compiler_module._registry, "libraries", {})
    sources = [kit.scale_source(f"many{i}") for i in range(17)]
    told = []
    kernels = compile(sources, before=lambda: told.append(1))
    assert told == [1]
    assert [kernel.name for kernel in kernels] == [source.name for source in sources]
    assert len({kernel.library.path for kernel in kernels}) == 3
    assert len({kernel.address for kernel in kernels}) == 17


def test_a_unit_that_fails_is_the_error_of_all(kit, empty_cache, monkeypatch):
    monkeypatch.setattr(compiler_module._registry, "libraries", {})
    sources = [kit.scale_source(f"many{i}") for i in range(16)]
    sources[9] = replace(sources[9], text="this is no C++;")
    with pytest.raises(CompileError, match=r"before .this."):
        compile(sources)


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(at_once_module.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def test_calls_at_once_answer_in_their_order(two_cores):
    meeting = threading.Barrier(2)

    def call(number):
        meeting.wait(timeout=30)  # both are made before one returns
        return number

    assert at_once([lambda: call(1), lambda: call(2)]) == [1, 2]
    assert at_once([]) == []


def test_what_runs_beside_a_failure_ends_with_it(two_cores, tmp_path):
    begun = threading.Event()
    ended = []

    def fails():
        assert begun.wait(timeout=30)
        raise ValueError("the first failure")

    def waits():
        begun.set()
        try:
            run_compiler(["sleep", "60"], 60.0, tmp_path)
        except GivenUp:
            ended.append(True)
            raise

    never = []
    began = time.monotonic()
    with pytest.raises(ValueError, match="the first failure"):
        at_once([waits, fails, lambda: never.append(1)])
    assert time.monotonic() - began < 30
    assert ended == [True]
    check_wanted()  # here nothing was given up


def test_a_call_runs_beside_a_block_and_ends_with_one_that_fails(tmp_path):
    begun = threading.Event()
    with beside(lambda: (begun.set(), 7)[1]) as made:
        assert begun.wait(timeout=30)
        assert made() == 7
    with pytest.raises(ZeroDivisionError), beside(lambda: 1 // 0) as made:
        made()
    ended = []

    def waits():
        begun.set()
        with pytest.raises(GivenUp):
            run_compiler(["sleep", "60"], 60.0, tmp_path)
        ended.append(True)

    def fails():
        with beside(lambda: at_once([waits])):
            assert begun.wait(timeout=30)
            raise ValueError("a proof failed")

    begun.clear()
    began = time.monotonic()
    with pytest.raises(ValueError, match="a proof"):
        fails()
    assert time.monotonic() - began < 30
    assert ended == [True]


def test_a_wait_for_what_another_process_builds_ends_with_the_block(empty_cache):
    store = default_store()
    store.prepare()
    key, begun, ended = "waited-for", threading.Event(), []

    def waits():
        begun.set()
        with pytest.raises(GivenUp):
            store.entry(key, lambda _: pytest.fail("it was built"), {})
        ended.append(True)

    def fails():
        with beside(waits):
            assert begun.wait(timeout=30)
            raise ValueError("interrupted")

    began = time.monotonic()
    with filelock.FileLock(store.root / "v1" / "locks" / f"{key}.lock"), pytest.raises(ValueError, match="interrupted"):
        fails()
    assert time.monotonic() - began < 30
    assert ended == [True]
