"""A candidate with a constant operand is judged by its runs, not by what its programs are made of."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from tracea.core.op import GemmOp
from tracea.flow import evaluate
from tracea.flow.compile import Compiled, compile_node
from tracea.flow.evaluate import Candidate, judge_candidate

OP = GemmOp.of(m=6, n=48, k=40)
PACKED = Candidate(variant="gemm.prepacked")
LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p


def test_memory_that_a_program_takes_is_not_what_a_run_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    def larger(*words: Any, **named: Any) -> Compiled:
        LIBC.malloc(4096)
        return compile_node(*words, **named)

    monkeypatch.setattr(evaluate, "compile_node", larger)
    verdict = judge_candidate(OP, PACKED, constants=(1,), threads=1)
    assert verdict.passed, str(verdict)


def test_two_callers_run_at_once_and_do_not_build_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    by_callers: list[threading.Thread] = []

    def noted(*words: Any, **named: Any) -> Compiled:
        if threading.current_thread() is not threading.main_thread():
            by_callers.append(threading.current_thread())
        return compile_node(*words, **named)

    monkeypatch.setattr(evaluate, "compile_node", noted)
    verdict = judge_candidate(OP, PACKED, constants=(1,), threads=1)
    assert verdict.passed, str(verdict)
    assert any(check.name == "right for two callers at once" for check in verdict.checks)
    assert len(by_callers) <= 2, len(by_callers)  # each caller has a weight of its own
