"""Native code in a trace of real tensors would be a constant of it: refused, while modes that only look go on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import tracea
from tracea.errors import InvalidDevice
from tracea.runtime import extension
from tracea.runtime.program import Program

X = torch.linspace(-1, 1, 64).view(8, 8)
WEIGHT = tracea.ops.prepack(X)
STEPS = tracea.ops.fuse(["gemm", "relu"])
OPS = {
    "softmax": lambda x: tracea.ops.softmax(x),  # noqa: PLW0108  # make_fx counts the arguments of what it is given
    "gemm": lambda x: tracea.ops.gemm(X, x),
    "gemm into out": lambda x: tracea.ops.gemm(x, X, out=torch.empty(8, 8)),
    "packed": lambda x: tracea.ops.gemm(x, WEIGHT),
    "fused": lambda x: STEPS(x, X),
    "fused and packed": lambda x: STEPS(x, WEIGHT),
    "sum": lambda x: tracea.ops.sum(x, dim=1),
}
TRACERS = {
    "make_fx": lambda f: make_fx(f)(X),
    "make_fx before autograd": lambda f: make_fx(f, pre_dispatch=True)(X),
    "make_fx of fake tensors": lambda f: make_fx(f, tracing_mode="fake")(X),
    "jit.trace": lambda f: torch.jit.trace(f, X),
}


@pytest.fixture(scope="module")
def module() -> Any:
    return tracea.optimize(torch.nn.ReLU(), (X,), budget=None, threads=1, listener=lambda *_: None)


@pytest.fixture(autouse=True)
def no_notes_of_torch() -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # torch.jit is one
        yield


@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.parametrize("name", OPS)
def test_an_op_is_refused_in_a_trace(tracer: str, name: str) -> None:
    for _ in range(2):  # the second time it was seen before
        with pytest.raises(InvalidDevice, match=r"follows.*Remedy: trace the original"):
            TRACERS[tracer](OPS[name])
        OPS[name](X)


@pytest.mark.parametrize("tracer", TRACERS)
def test_an_optimized_module_is_refused_in_a_trace(tracer: str, module: Any) -> None:
    # What it was compiled for, and what it would be compiled for now.
    for call in (lambda x: module(x), lambda x: module(x[:5])):  # noqa: PLW0108  # jit.trace takes modules otherwise
        with torch.no_grad(), pytest.raises(InvalidDevice, match="follows"):
            TRACERS[tracer](call)
    torch.testing.assert_close(module(X), X.relu())


def test_a_module_is_not_optimized_in_a_trace() -> None:
    with pytest.raises(InvalidDevice, match="follows"):
        make_fx(lambda x: tracea.optimize(torch.nn.ReLU(), (x,), budget=None)(x))(X)


def test_an_op_is_refused_in_a_trace_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "_loaded", [None])
    steps = tracea.ops.fuse(["relu"])
    steps(X)
    with pytest.raises(InvalidDevice, match="follows"):
        make_fx(steps)(X)


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Counting, lambda: FlopCounterMode(display=False)], ids=["count", "flops"])
def test_modes_that_look_at_operators_change_nothing(mode: Any, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {name: op(X) for name, op in OPS.items()}

    def slow(*_: Any) -> Any:
        raise AssertionError("a call that was seen before went through Python")

    monkeypatch.setattr(Program, "run_explaining", slow)
    with mode():
        for name, op in OPS.items():
            assert torch.equal(op(X), wanted[name])
        assert torch.equal(module(X), X.relu())


def test_arrays_of_numpy_are_no_part_of_a_trace() -> None:
    constant = make_fx(lambda x: x + float(tracea.ops.sum(X.numpy(), dim=(0, 1))))(X)
    torch.testing.assert_close(constant(X + 1), X + 1 + X.sum())
