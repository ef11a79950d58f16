"""torch's default device is for tensors that torch makes: calls on CPU tensors are what they are without it."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import torch

from tracea.core.dtype import DType
from tracea.runtime.buffers import ArrayKind, empty


@pytest.fixture
def _elsewhere() -> Generator[None]:
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.usefixtures("_elsewhere")
def test_results_of_cpu_tensors_are_on_the_cpu(kit) -> None:
    program = kit.sixfold()
    x = torch.ones(kit.N, device="cpu")
    for result in (program.run(x), program.run_explaining((x,), None, 0)):
        assert result.device.type == "cpu"
        assert result.eq(6).all()
    assert empty((2, 3), DType.F32, ArrayKind.TORCH).device.type == "cpu"


CALL = """
import numpy as np
import torch
program = kit.sixfold(32)
x, out = torch.ones(32), torch.empty(32)
{before}
result = program.run(x, threads=1)
assert result.device.type == "cpu" and result.eq(6).all()
{after}
assert program.runner.run(program, (x,), out, 1) is out, "the slow path serves"
assert out.eq(6).all()
"""
REFUSES = """
class Refuses(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), keywords=None):
        if getattr(function, "__self__", None) is torch.Tensor._cdata:
            raise RuntimeError("not now")
        return function(*arguments, **(keywords or {}))
mode = Refuses()
mode.__enter__()
"""


@pytest.mark.parametrize("device", ["meta", "hpu"])  # of the second there is none here: a tensor of it cannot be made
def test_the_first_call_under_a_default_device_takes_the_fast_path(in_child, device: str) -> None:
    before = f"torch.set_default_device({device!r})"
    in_child(CALL.format(before=before, after=""))
    in_child(CALL.format(before=before, after="torch.set_default_device(None)"))


def test_a_mode_that_refuses_at_the_first_call_does_not_cost_the_fast_path(in_child) -> None:
    in_child(CALL.format(before=REFUSES, after="mode.__exit__(None, None, None)"))
