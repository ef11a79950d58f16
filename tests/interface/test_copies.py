"""What is copied or pickled works, or says what to do instead; what is printed is one line."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.autograd import forward_ad

import tracea
from tracea.errors import InvalidInput, InvalidOption

X = torch.ones(4, 8)


@pytest.fixture(scope="module")
def fast():
    return tracea.optimize(torch.nn.Linear(8, 3).eval(), (X,), budget=None, threads=1)


@pytest.fixture(scope="module")
def program():
    graph = tracea.Graph()
    graph.add_gemm(m=4, n=3, k=8)
    return tracea.Context(threads=1).optimize_graph(graph)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_module_runs_the_same_programs(fast, how):
    other = how(fast)
    assert other is not fast
    with torch.inference_mode():
        assert torch.equal(other(X), fast(X))
        assert torch.equal(other(X[:2]), fast(X[:2]))  # each compiles what is new to it


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_fused_steps_and_prepacked_weights_cross_processes(how):
    steps, weight = tracea.ops.fuse(["gemm", "relu"]), tracea.ops.prepack(X.t())
    expected = torch.relu(X @ X.t())
    for _ in range(2):  # before and after their first use
        assert torch.equal(how(steps)(X, X.t()), steps(X, X.t()))
        torch.testing.assert_close(tracea.ops.gemm(X, how(weight), activation="relu"), expected)
        tracea.ops.gemm(X, weight)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_program_is_the_program(program, how):
    assert how(program) is program
    assert how(program.program) is program.program


def test_native_code_is_not_pickled_and_the_error_says_what_to_save(fast, program):
    for value, remedy in ((fast, "state_dict"), (program, "tracea.load"), (program.program, "save")):
        with pytest.raises(InvalidOption, match="pickle") as caught:
            pickle.dumps(value)
        assert remedy in caught.value.remedy


def test_state_dict_is_the_original_modules_and_none_is_loaded():
    model = torch.nn.Sequential(torch.nn.Linear(8, 3), torch.nn.BatchNorm1d(3)).eval()
    fast = tracea.optimize(model, (X,), budget=None, threads=1)
    wanted, found = model.state_dict(), fast.state_dict()
    assert [*found] == [*wanted]
    assert all(torch.equal(found[name], value) for name, value in wanted.items())
    assert [*torch.nn.Sequential(torch.nn.Identity(), fast).state_dict()] == [f"1.{name}" for name in wanted]
    assert not [*fast.parameters()]
    with torch.no_grad():
        before = fast(X)
        found["0.weight"].zero_()
        assert torch.equal(fast.state_dict()["0.weight"], wanted["0.weight"])
        holder = torch.nn.Sequential(fast, torch.nn.Linear(3, 2))
        for load in (
            lambda: fast.load_state_dict({}),
            lambda: copy.copy(fast).load_state_dict(found, strict=False),
            lambda: holder.load_state_dict(holder.state_dict()),
        ):
            with pytest.raises(InvalidOption, match=r"got load_state_dict.*original module"):
                load()
        holder.load_state_dict({"1.bias": torch.zeros(2)}, strict=False)
        assert torch.equal(fast(X), before)
        model.load_state_dict(copy.deepcopy(fast).state_dict())


def test_what_is_printed_is_one_line(fast, program):
    values = [fast, program, program.program, program.plan, tracea.Context(), tracea.Graph(), tracea.Budget()]
    values += [tracea.ops.prepack(X), tracea.ops.fuse(["relu"]), tracea.DType.F32]
    for value in values:
        text = repr(value)
        assert "\n" not in text
        assert " object at 0x" not in text
        assert len(text) < 200
    assert repr(program) == "PlannedProgram(f32[4×8], f32[8×3] -> f32[4×3], 1 calls, threads=1)"
    assert "f32[4×8]" in repr(fast)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, at a dual
def test_a_dual_tensor_is_refused_where_its_tangent_would_be_lost(fast):
    with forward_ad.dual_level(), torch.no_grad():
        dual = forward_ad.make_dual(X, X)
        for call in (lambda: fast(dual), lambda: tracea.optimize(torch.nn.ReLU(), (dual,), budget=None)):
            with pytest.raises(InvalidInput, match="dual"):
                call()
        assert fast(X).shape == (4, 3)


class Larger(torch.nn.Module):
    def forward(self, x, y):
        return x > y


def test_integers_that_f64_cannot_tell_apart_are_refused_with_the_number():
    wide, small = torch.tensor([2**53 + 1, 5]), torch.tensor([2**53, -3])
    fast = tracea.optimize(Larger(), (small, small), budget=None, threads=1)
    assert fast(small, small - 1).tolist() == [True, True]
    for inputs in ((wide, small), (small, -wide)):
        with pytest.raises(InvalidInput, match=r"9007199254740993.*2\^53"):
            fast(*inputs)
