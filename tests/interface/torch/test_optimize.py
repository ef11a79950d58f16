from __future__ import annotations

import copy
import gc
import io
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.drawn import drawn
from torch import nn
from torch.utils import _pytree as pytree

import tracea
from tracea.errors import InvalidInput, InvalidOption, UnsupportedNode
from tracea.flow import progress


class Line(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.call(*inputs)


def mlp(width: int = 16, hidden: int = 24) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = (q @ k.transpose(-1, -2)) * 0.25
    return scores.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), float("-inf")).softmax(-1) @ v


CASES: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "matrix": (mlp(), (values(6, 16),)),
    "three axes": (nn.Sequential(mlp(), mlp()), (values(2, 6, 16),)),
    "one row": (mlp(), (values(16),)),
    "no rows": (mlp(), (values(0, 16),)),
    "float64": (mlp().double(), (values(6, 16, dtype=torch.float64),)),
    "float16": (mlp().half(), (values(6, 16, dtype=torch.float16),)),
    "bfloat16": (mlp().bfloat16(), (values(6, 16, dtype=torch.bfloat16),)),
    "strided input": (mlp(), (values(16, 6).t(),)),
    "every other row": (mlp(), (values(12, 16)[::2],)),
    "rms norm and softmax": (nn.Sequential(nn.RMSNorm(16), nn.Softmax(-1)), (values(6, 16),)),
    "softmax of columns": (nn.LogSoftmax(0), (values(6, 16),)),
    "attention": (Line(attention), (values(2, 6, 16), values(2, 6, 16) + 1, values(2, 6, 16) - 1)),
    "reductions": (Line(lambda x: (x.mean(-1), x.sum(0), x.amax(), x.var(-1))), (values(6, 16),)),
    "pointwise": (Line(lambda x, y: torch.where(x > y, x.exp(), y.tanh()) / 3), (values(6, 16), values(16))),
    "batch norm": (nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU()), (values(6, 16),)),
    "views": (Line(lambda x: (x.t() + 1, x[1:, ::2], x.reshape(4, 24), x.chunk(2, -1))), (values(6, 16),)),
    "casts": (Line(lambda x: (x.half().float(), x > 0, x.bfloat16())), (values(6, 16),)),
    "gated": (nn.GLU(), (values(6, 16),)),
    "vectors": (Line(lambda x, y: (x @ y, torch.outer(y, y), y @ y)), (values(6, 16), values(16))),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", drawn(9, CASES, of="programs"))
def test_programs_compute_what_eager_computes(name: str) -> None:
    torch.manual_seed(3)
    module, inputs = CASES[name]
    module = module.eval()
    fast = tracea.optimize(module, inputs, budget=None, threads=1)
    with torch.inference_mode():
        expected, structure = pytree.tree_flatten(module(*inputs))
        found, found_structure = pytree.tree_flatten(fast(*inputs))
    assert found_structure == structure
    for got, wanted in zip(found, expected, strict=True):
        assert got.dtype is wanted.dtype
        # Eager rounds after each operator, a fused kernel once: a few units in the last place apart.
        unit = torch.finfo(wanted.dtype).eps if wanted.dtype.is_floating_point else 0.0
        scale = float(wanted.double().abs().max()) if wanted.numel() else 1.0
        torch.testing.assert_close(got, wanted, rtol=16 * unit, atol=16 * unit * max(scale, 1.0))


def test_a_module_without_inputs_returns_tensors() -> None:
    class Table(nn.Module):
        def __init__(self, call: Callable[..., Any]) -> None:
            super().__init__()
            self.weight = nn.Parameter(values(6, 16))
            self.call = call

        def forward(self) -> Any:
            return self.call(self.weight)

    for call in (torch.tanh, lambda w: (w.softmax(-1), w.bfloat16()), lambda w: w):
        module = Table(call)
        fast = tracea.optimize(module, (), budget=None, threads=1)
        expected, found = pytree.tree_leaves(module()), pytree.tree_leaves(fast())
        assert all(type(each) is torch.Tensor for each in found)
        torch.testing.assert_close(found, [each.detach() for each in expected])


def test_weights_are_frozen_and_inputs_are_not() -> None:
    module = nn.Linear(16, 8).eval()
    x = values(6, 16)
    fast = tracea.optimize(module, x, budget=None, threads=1)
    with torch.inference_mode():
        before = fast(x).clone()
        module.weight.add_(1.0)
        torch.testing.assert_close(fast(x), before)
        x.mul_(2.0)
        assert not torch.equal(fast(x), before)


def test_weights_of_bfloat16_are_packed_once() -> None:
    module = nn.Linear(64, 128).eval().bfloat16()
    x = values(32, 64, dtype=torch.bfloat16)
    fast = tracea.optimize(module, x, budget=None, threads=1)
    assert "_prepacked" in fast.explain()
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), module(x))


def test_results_of_two_calls_are_two_tensors() -> None:
    fast = tracea.optimize(nn.Linear(16, 8).eval(), values(6, 16), budget=None, threads=1)
    with torch.inference_mode():
        first = fast(values(6, 16))
        kept = first.clone()
        fast(values(6, 16) + 5)
    torch.testing.assert_close(first, kept)


def test_other_shapes_are_compiled_when_they_come() -> None:
    module = mlp().eval()
    fast = tracea.optimize(module, values(6, 16), budget=None, threads=1)
    with torch.inference_mode():
        for shape in ((3, 16), (2, 3, 16), (6, 16)):
            torch.testing.assert_close(fast(values(*shape)), module(values(*shape)))


def test_what_cannot_be_captured_is_said_before_anything_is_compiled() -> None:
    with pytest.raises(UnsupportedNode, match=r"aten\.conv_transpose3d"):
        tracea.optimize(nn.ConvTranspose3d(3, 4, 3), torch.zeros(1, 3, 8, 8, 8), budget=None)
    with pytest.raises(InvalidInput, match=r"torch\.nn\.Module"):
        tracea.optimize(lambda x: x, values(3), budget=None)  # type: ignore[arg-type]


class Difference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x - 2 * y + 3 * self.weight


def test_an_example_given_twice_does_not_tie_the_inputs() -> None:
    module = Difference().eval()
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    with torch.inference_mode():
        for examples in ((a, a), (module.weight, a), (a, module.weight.detach())):
            fast = tracea.optimize(module, examples, budget=None, threads=1)
            torch.testing.assert_close(fast(a, b), module(a, b))


def test_eight_threads_call_one_module_with_shapes_that_are_new_to_it() -> None:
    module = mlp().eval()
    inputs = [torch.randn(rows, 16) for rows in (3, 8, 17)]
    with torch.inference_mode():
        expected = [module(x) for x in inputs]
        fast = tracea.optimize(module, (inputs[0],), budget=None, threads=1)

    def work(number: int) -> bool:
        with torch.inference_mode():
            found = [torch.allclose(fast(inputs[i % 3]), expected[i % 3], atol=1e-5) for i in range(number, number + 9)]
        return all(found)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_what_is_compiled_without_a_search_says_its_steps_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_QUICK_S", 0.0)
    tracea.optimize(mlp(), (values(5, 16),), budget=None)
    said = capsys.readouterr().err
    assert "export Sequential" in said
    assert "fuse 4 nodes" in said
    tracea.optimize(mlp(), (values(5, 16),), budget=None, listener=lambda *_: None)
    assert capsys.readouterr().err == ""


def test_a_program_does_not_keep_the_module_alive() -> None:
    module = Line(torch.relu)
    fast, kept = tracea.optimize(module, values(2, 3), budget=None, threads=1), weakref.ref(module)
    del module
    gc.collect()
    assert kept() is None, "its weights would be in memory twice"
    assert fast(values(2, 3)).min() >= 0


@pytest.mark.parametrize("library", ["x", None, 1])
def test_a_library_that_is_no_truth_value_is_refused(library: Any) -> None:
    with pytest.raises(InvalidOption, match=r"library: got .*, expected True"):
        tracea.optimize(nn.ReLU(), (values(2, 3),), budget=None, library=library)
    graph = tracea.Graph()
    graph.add_pointwise("relu", graph.add_input((2, 3)))
    with pytest.raises(InvalidOption, match=r"library: got .*, expected True"):
        tracea.Context().optimize_graph(graph, library=library)


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, scale: float = 2.0, shift: torch.Tensor | None = None) -> torch.Tensor:
        return x * scale if shift is None else x * scale + shift


def test_keywords_name_parameters_of_forward() -> None:
    x, shift = values(3, 4), values(4)
    fast = tracea.optimize(Scaled(), (x,), budget=None, threads=1, listener=lambda *_: None)
    for given in ({"x": x}, {"shift": shift, "x": x}, {"x": x, "scale": 3.0}):
        torch.testing.assert_close(fast(**given), Scaled()(**given))
    torch.testing.assert_close(copy.copy(fast)(x, shift=shift), Scaled()(x, shift=shift))
    with pytest.raises(InvalidInput, match="nothing="):
        fast(x, nothing=shift)
    with pytest.raises(InvalidInput, match="x="):
        fast(x, x=x)


class OnlyWrites:
    """A standard error that can do no more than a caller's own, which hands lines to a log."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("kind", ["none", "closed", "only writes"])
def test_standard_streams_of_any_kind_leave_optimize_and_later_calls_alone(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    closed = io.StringIO()
    closed.close()
    stream = {"none": None, "closed": closed, "only writes": OnlyWrites()}[kind]
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, stream)
    module = torch.nn.Linear(19, 23)
    optimized = tracea.optimize(module, (torch.randn(3, 19),), budget=None)
    x = torch.randn(5, 19)
    torch.testing.assert_close(optimized(x), module(x).detach())


def test_a_call_that_compiles_for_long_says_so_unless_a_listener_hears(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_QUICK_S", 0.0)
    for listener in (None, lambda *_: None):
        optimized = tracea.optimize(mlp(), (values(5, 16),), budget=None, listener=listener)
        capsys.readouterr()
        optimized(values(7, 16))
        said = capsys.readouterr().err
        assert ("(7x16): another program of Sequential, without a search\nexport Sequential" in said) == (not listener)
