"""Nothing is compiled while something is timed: a compiler on the core beside takes caches, bandwidth and clock.

The compiler is a script that notes when it ran, the search's child notes when it timed. The clock is the system's, in
nanoseconds, the same for all processes.
"""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
import pytest

import tracea
from tracea.core.op import GemmOp
from tracea.doctor import host
from tracea.flow import evaluate, final, tuning
from tracea.flow.compile import compile_node
from tracea.kernels import registry
from tracea.optimizer import Budget
from tracea.runtime import compiler
from tracea.runtime.toolchain import find_compiler
from tracea.targets.target import for_threads

Interval: TypeAlias = tuple[int, int]

NOTING_COMPILER = """#!/bin/sh
case "$*" in *-shared*) ;; *) exec {real} "$@";; esac
began=$(date +%s%N)
{real} "$@"
code=$?
echo "[$began, $(date +%s%N)]" >> {log}
exit $code
"""


def overlapping(compiled: list[Interval], timed: list[Interval]) -> list[tuple[Interval, Interval]]:
    return [(one, other) for one, other in product(compiled, timed) if one[0] < other[1] and other[0] < one[1]]


def read(log: Path) -> list[Interval]:
    return [tuple(json.loads(line)) for line in log.read_text(encoding="utf-8").splitlines()]


def test_intervals_that_share_a_moment_are_found() -> None:
    assert overlapping([(0, 2)], [(2, 3)]) == []
    assert overlapping([(0, 3), (8, 9)], [(2, 4), (5, 8)]) == [((0, 3), (2, 4))]
    assert overlapping([(3, 4)], [(2, 9)]) == [((3, 4), (2, 9))]


@pytest.mark.costly
@pytest.mark.usefixtures("empty_cache")
def test_no_candidate_is_compiled_while_another_is_timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = shutil.which(find_compiler().command[0])
    compilations, timings = tmp_path / "compilations", tmp_path / "timings"
    compiler = tmp_path / "g++"
    compiler.write_text(NOTING_COMPILER.format(real=real, log=compilations), encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("TRACEA_CXX", str(compiler))
    monkeypatch.setenv("TRACEA_TEST_TIMINGS", str(timings))
    monkeypatch.setattr(tuning, "EVALUATE", "tests.flow.planted:evaluate_noting")
    monkeypatch.setattr(final, "RANK", "tests.flow.planted:rank_noting")
    tuned = tracea.tune(GemmOp.of(m=20, n=28, k=36), budget=Budget(trials=4), variant="gemm.direct")
    assert tuned.fresh == 4
    compiled, timed = read(compilations), read(timings)
    assert len(compiled) >= 4  # one for each schedule
    assert len(timed) >= 5  # the first alone, three beside it, the final
    assert overlapping(compiled, timed) == []


@pytest.mark.costly
@pytest.mark.usefixtures("empty_cache")
def test_what_is_compiled_ahead_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    op = GemmOp.of(m=20, n=28, k=36)
    variant = registry.find("gemm.packed")
    assert variant.space is not None
    schedules = [schedule.key for schedule in variant.space(op, for_threads(host(), 1))][:3]
    candidates = tuple(evaluate.Candidate(variant="gemm.packed", schedule=schedule) for schedule in schedules)
    request = evaluate.Request(op=op.to_dict(), constants=(), threads=1, seed=3, candidates=candidates, ahead=True)
    assert evaluate.evaluate(msgspec.to_builtins(request)) == {}
    small = compile_node(GemmOp.of(m=3, n=4, k=5), {}, threads=1).program
    small.run(np.ones((3, 5), np.float32), np.ones((5, 4), np.float32))  # which compiles what runs kernels

    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler, "run_compiler", refuse)
    for candidate in candidates:
        alone = msgspec.structs.replace(request, candidates=(candidate,), ahead=False)
        assert evaluate.evaluate(msgspec.to_builtins(alone))["kind"] == "ok"


def test_what_cannot_be_compiled_ahead_is_left_to_its_trial() -> None:
    candidate = evaluate.Candidate(variant="gemm.packed", schedule="mr=0")
    op = GemmOp.of(m=20, n=28, k=36).to_dict()
    request = evaluate.Request(op=op, constants=(), threads=1, seed=3, candidates=(candidate,), ahead=True)
    assert evaluate.evaluate(msgspec.to_builtins(request)) == {}
