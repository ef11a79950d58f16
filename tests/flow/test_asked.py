"""What is no op, no operand, no budget or nothing to time is refused by type and number before anything is run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tracea
from tracea.cli.main import BAD_USAGE, main
from tracea.core.op import GemmOp
from tracea.errors import InvalidOp, InvalidOption, InvalidShape
from tracea.flow import explanation, search, tuning, verify
from tracea.flow.asked import check_constants, check_listener
from tracea.flow.verify import verify_op

OP = GemmOp.of(m=4, n=8, k=8, bias=True)
EMPTY = GemmOp.of(m=0, n=8, k=8)
GRAPH = tracea.Graph()
NODE = GRAPH.add_gemm(m=4, n=8, k=8, name="product")


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a search, an explanation or a verdict would begin, or the machine would be looked at."""

    def begun(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was run")

    monkeypatch.setattr(tuning, "_searched", begun)
    monkeypatch.setattr(search, "note_load", begun)
    monkeypatch.setattr(explanation, "_here", begun)
    monkeypatch.setattr(verify, "_verify_here", begun)
    monkeypatch.setattr("tracea.profiler.load.measure_load", begun)


@pytest.mark.parametrize("face", [tracea.tune, tracea.explain, verify_op], ids=["tune", "explain", "verify"])
@pytest.mark.parametrize("constants", [(9,), (3,), (-1,), 1, "1", (True,), (1.0,), None], ids=repr)
@pytest.mark.usefixtures("nothing_runs")
def test_a_constant_is_the_place_of_an_operand(face: Callable[..., Any], constants: Any) -> None:
    with pytest.raises(InvalidOption, match="places of the 3 operands of gemm, 0 to 2") as caught:
        face(OP, constants=constants)
    assert caught.value.field == "constants"
    assert check_constants(OP, (2,)) == (2,)  # which the remedy names


def test_constants_are_sorted_and_may_be_numbers_of_numpy() -> None:
    assert check_constants(OP, iter([2, np.int64(1), 2])) == (1, 2)


REFUSED: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "tune a name": (InvalidOp, "tune: got 'gemm', expected an op", lambda: tracea.tune("gemm")),  # type: ignore[arg-type]
    "tune a graph": (InvalidOp, "got a graph, .*graph.name..op", lambda: tracea.tune(GRAPH)),  # type: ignore[arg-type]
    "tune a node": (InvalidOp, "got the node product, .*node.op", lambda: tracea.tune(NODE)),  # type: ignore[arg-type]
    "explain a name": (InvalidOp, "explain: got 'gemm', expected an op, a", lambda: tracea.explain("gemm")),  # type: ignore[call-overload]
    "explain a number": (InvalidOp, "explain: got 5", lambda: tracea.explain(5)),  # type: ignore[call-overload]
    "verify a name": (InvalidOp, "verify: got 'gemm'", lambda: verify_op("gemm")),  # type: ignore[arg-type]
    "a number as a graph's constants": (
        InvalidOption,
        "none for a graph",
        lambda: tracea.explain(GRAPH, constants=1),  # type: ignore[call-overload]
    ),
    "a number as a budget": (
        InvalidOption,
        r"budget: got 5, .* None: 50 trials. Remedy: budget=tracea.Budget\(trials=5\)",
        lambda: tracea.tune(OP, budget=5),  # type: ignore[arg-type]
    ),
    "a number that listens to tune": (InvalidOption, "listener: got 5", lambda: tracea.tune(OP, listener=5)),  # type: ignore[arg-type]
    "a number that listens to optimize": (
        InvalidOption,
        "listener: got 5",
        lambda: tracea.optimize(torch.nn.ReLU(), (torch.ones(2),), listener=5),  # type: ignore[arg-type]
    ),
    "a listener of one argument to tune": (
        InvalidOption,
        r"listener: got .*<lambda>\(progress\), expected a function of two arguments, label and progress",
        lambda: tracea.tune(OP, listener=lambda progress: None),  # type: ignore[misc, arg-type]
    ),
    "one who hears of guidance with three arguments": (
        InvalidOption,
        r"on_guidance: got .*<lambda>\(a, b, c\), expected a function of one argument, the guidance",
        lambda: tracea.tune(OP, on_guidance=lambda a, b, c: None),  # type: ignore[misc, arg-type]
    ),
    "a listener that needs a name to optimize": (
        InvalidOption,
        r"listener: got .*<lambda>\(label, progress, \*, file\)",
        lambda: tracea.optimize(torch.nn.ReLU(), (torch.ones(2),), listener=lambda label, progress, *, file: None),  # type: ignore[misc, arg-type]
    ),
    "a listener of nothing to a graph": (
        InvalidOption,
        r"listener: got .*<lambda>\(\)",
        lambda: tracea.Context().optimize_graph(GRAPH, {}, listener=lambda: None),  # type: ignore[misc, arg-type]
    ),
    "nothing to time": (InvalidShape, r"a result of \(0, 8\): there is nothing to time", lambda: tracea.tune(EMPTY)),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.usefixtures("nothing_runs")
def test_it_is_refused_before_anything_is_run(name: str) -> None:
    error, said, call = REFUSED[name]
    with pytest.raises(error, match=said):
        call()


def heard(*words: object, label: str = "") -> None: ...


@pytest.mark.parametrize(
    "listener",
    [None, print, heard, max, functools.partial(heard, label="a")],
    ids=["none", "print", "function", "no signature", "partial"],
)
def test_a_listener_that_takes_two_arguments_or_does_not_say_is_taken(listener: Any) -> None:
    check_listener(listener)


@pytest.mark.usefixtures("nothing_runs")
def test_the_verb_refuses_what_has_nothing_to_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "gemm", "-m", "0", "-n", "8", "-k", "8"]) == BAD_USAGE
    assert "there is nothing to time" in capsys.readouterr().err
