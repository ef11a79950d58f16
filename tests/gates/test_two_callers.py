"""Two callers at once: each has to write its whole result, in whichever thread it runs."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tracea.cli.console import print_json
from tracea.core.op import GemmOp
from tracea.gates import judge
from tracea.gates.baseline import read_evidence

Array = np.ndarray[Any, Any]
OP = GemmOp.of(m=96, n=96, k=96)


def test_a_kernel_that_does_nothing_for_the_second_caller_is_refused(seed: int) -> None:
    taken = threading.Lock()

    def run(inputs: Sequence[Array], out: Array) -> None:
        if taken.acquire(blocking=False):
            try:
                np.matmul(inputs[0], inputs[1], out=out)
                sum(range(2000))  # for the other to come
            finally:
                taken.release()

    verdict = judge(run, OP, seed=seed)
    assert [check.name for check in verdict.failures] == ["right for two callers at once"]


def test_a_kernel_that_works_in_the_main_thread_alone_is_refused(seed: int) -> None:
    main = threading.main_thread()

    def run(inputs: Sequence[Array], out: Array) -> None:
        if threading.current_thread() is main:
            np.matmul(inputs[0], inputs[1], out=out)

    verdict = judge(run, OP, seed=seed)
    assert [check.name for check in verdict.failures] == ["right for two callers at once"]


def test_a_verdict_of_infinite_error_is_json_and_is_read_again(tmp_path: Path, capsys: Any) -> None:
    verdict = judge(lambda _, out: out.fill(np.inf), OP, seed=1)
    assert any(isinstance(check.figure, float) and math.isinf(check.figure) for check in verdict.failures)
    print_json(verdict.to_dict())
    assert json.loads(capsys.readouterr().out)["passed"] is False
    path = tmp_path / "verdict.json"
    path.write_text(verdict.to_json())
    assert not read_evidence(path).passed
