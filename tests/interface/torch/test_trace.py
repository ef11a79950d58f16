"""A module that is followed without torch.export gives what torch.export gives; one that cannot be is left to it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from examples.cnn import Bottleneck, Inverted
from examples.transformer import BERT, GPT2, LLAMA, bert, gpt2_decode, gpt2_prefill, llama_block, small
from tests.interface.torch import cases
from tests.interface.torch.compare import check_capture
from tests.interface.torch.complex_cases import COMPLEX
from tests.interface.torch.image_cases import IMAGES
from tests.interface.torch.layer_cases import LAYERS
from tests.interface.torch.modules import inputs_of
from tests.interface.torch.place_cases import PLACES
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tracea.errors import UnsupportedNode
from tracea.interface.torch import capture as capture_module
from tracea.interface.torch.aten import LOWERINGS
from tracea.interface.torch.capture import Captured, capture
from tracea.interface.torch.result_basis import Unknown, type_like
from tracea.interface.torch.result_types import RESULT_TYPES, VIEWS_OF_TYPES, result_type
from tracea.interface.torch.trace import traced

pytestmark = pytest.mark.whole

CASES = cases.CASES | COMPLEX | IMAGES | LAYERS | PLACES
# What these cases give is refused by the rule, a mode of the operator that is left to torch, or torch.export.
LEFT = {"aten.index.Tensor"}.union(
    f"aten.{name}.default" for name in ("alpha_dropout", "_grouped_mm", "logical_not", "max_pool2d")
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """Return the modules that torch.export was asked for."""
    modules: list[nn.Module] = []
    exported = capture_module.exported

    def noted(module: nn.Module, *arguments: Any) -> Any:
        modules.append(module)
        return exported(module, *arguments)

    monkeypatch.setattr(capture_module, "exported", noted)
    return modules


def by_export(module: nn.Module, inputs: Any) -> Captured:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture_module, "traced", lambda *_: None)
        return capture(module, inputs)


def described(captured: Captured, module: nn.Module) -> Any:
    nodes = [(node.id, node.op, node.type, tuple(node.inputs)) for node in captured.graph]
    owned = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    constants = {
        name: tensor.data_ptr() if name in owned else str(tensor.tolist())
        for name, tensor in captured.constants.items()
    }
    outputs = [node.id for node in captured.graph.outputs]
    return nodes, outputs, captured.input_spec, captured.output_spec, captured.locations, captured.ranges, constants


def check_same(module: nn.Module, inputs: Any, asked: list[nn.Module]) -> Captured:
    captured = capture(module, inputs)
    assert not asked, "torch.export was needed"
    assert described(captured, module) == described(by_export(module, inputs), module)
    return captured


class Calls(nn.Module):
    def __init__(self, called: Callable[..., Any]) -> None:
        super().__init__()
        self.called = called

    def forward(self, *inputs: Any) -> Any:
        return self.called(*inputs)


@pytest.mark.parametrize("name", sorted({*RESULT_TYPES, *VIEWS_OF_TYPES} & {*CASES} - LEFT))
def test_an_operator_with_a_rule_gives_the_nodes_of_export(name: str, asked: list[nn.Module]) -> None:
    called, inputs, *_ = CASES[name]
    check_same(Calls(called), inputs, asked)


MODELS = {
    "bottleneck": lambda: (Bottleneck(16, 4, 2).eval(), (torch.rand(1, 16, 9, 9),)),
    "inverted": lambda: (Inverted(16, 16, 1, 6).eval(), (torch.rand(1, 16, 9, 9),)),
    "gpt2": lambda: gpt2_prefill(small(GPT2), 16),
    "gpt2 with caches": lambda: gpt2_decode(small(GPT2), 16),
    "bert": lambda: bert(small(BERT), 16),
    "llama": lambda: llama_block(small(LLAMA), 16),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_the_graph_of_export(name: str, asked: list[nn.Module]) -> None:
    check_same(*MODELS[name](), asked)


class Compared(TorchDispatchMode):
    """Compares the rule of each operator that runs with what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def typed(value: Any) -> Any:
            return type_like(value) if isinstance(value, torch.Tensor) else value

        results = func(*args, **(kwargs or {}))
        try:
            rules = result_type(func, *pytree.tree_map(typed, (args, kwargs or {})))
        except Unknown:
            return results
        for rule, result in zip(pytree.tree_leaves(rules), pytree.tree_leaves(results), strict=True):
            assert (rule.shape, rule.dtype) == (result.shape, result.dtype), func
            assert rule.stride() == result.stride() or result.numel() == 0, func
        self.known.add(str(func))
        return results


def test_every_rule_says_what_torch_returns() -> None:
    compared = Compared()
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # x.T of three axes
        for called, inputs, *_ in CASES.values():
            with compared:
                called(*inputs)
    rules = {*RESULT_TYPES, *VIEWS_OF_TYPES}
    assert rules <= {*LOWERINGS}
    assert rules & {*CASES} - LEFT <= compared.known
    assert len(rules & compared.known) > 100


BAD = {
    "linear": nn.functional.linear,
    "types": lambda x, y: nn.functional.linear(x, y.double()),
    "matmul": lambda x, y: x @ y,
    "shapes": lambda x, y: x + y,
    "conv": lambda x, y: nn.functional.conv2d(x[None, None], y[None, None], groups=2),
    "norm": lambda x, y: nn.functional.layer_norm(x, (5,)),
    "batch norm": lambda x, y: nn.functional.batch_norm(x, y[0], y[0]),
    "pool": lambda x, y: nn.functional.max_pool2d(x[None, None], 9),
    "padding": lambda x, y: nn.functional.max_pool2d(x[None, None], 2, padding=2),
    "cat": lambda x, y: torch.cat([x, y]),
    "softmax": lambda x, y: x.softmax(2),
    "mean": lambda x, y: x.mean([0, 0]),
    "view": lambda x, y: x.t().view(-1),
    "attention": lambda x, y: nn.functional.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None]),
    "mask": lambda x, y: x.masked_fill(y.bool(), 0.0),
    "where": lambda x, y: torch.where(x, y, y),
    "embedding": nn.functional.embedding,
}


@pytest.mark.parametrize("name", BAD)
def test_what_torch_refuses_has_no_trace(name: str) -> None:
    inputs = (torch.ones(3, 4), torch.ones(2, 5))
    with pytest.raises((RuntimeError, IndexError, TypeError)):
        BAD[name](*inputs)
    assert traced(Calls(BAD[name]), inputs) is None


class Norms(nn.Module):
    """Batch norms that are shared, read elsewhere, hooked, and of a subclass."""

    class Own(nn.BatchNorm2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 2.0

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.one, self.own, self.hooked = nn.BatchNorm2d(3), Norms.Own(3), nn.BatchNorm2d(3)
        self.same = self.one
        scale = nn.Parameter(torch.rand(3))
        self.hooked.register_forward_hook(lambda _, given, result: result + given[0] * scale[:, None, None])
        for norm in (self.one, self.own, self.hooked):
            norm.running_mean.uniform_(-1.0, 1.0)
            norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.same(self.conv(self.one(x)))
        x = x + self.one.weight[:, None, None] + self.one.running_mean.exp()[:, None, None]
        return self.hooked(self.own(x))


@pytest.mark.parametrize("hooked", [False, True])
def test_norms_whose_parameters_are_read_elsewhere_are_right(hooked: bool, asked: list[nn.Module]) -> None:
    torch.manual_seed(0)
    module, inputs = Norms().double().eval(), inputs_of((2, 3, 5, 4))
    if not hooked:
        module.hooked._forward_hooks.clear()
    with torch.no_grad():
        module.one.weight.uniform_(0.5, 2.0)
    check_capture(capture(module, inputs), module, inputs)
    assert bool(asked) == hooked, "a view of a tensor outside the module is left to export"


class Mixed(nn.Module):
    """Nested arguments, numbers, masks made in forward, buffers, tied weights, parts of one product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.register_buffer("shift", torch.ones(6), persistent=False)
        self.plain = torch.arange(6.0, dtype=torch.float64)

    def forward(self, x: torch.Tensor, more: dict[str, Any], *rest: torch.Tensor, factor: float = 2.0) -> Any:
        keep = torch.ones(len(x), len(x), dtype=torch.bool).tril()
        left, right = self.second(self.first(x)).chunk(2, -1)
        scores = (left @ right.T).masked_fill(~keep, float("-inf")).softmax(-1)
        y = scores @ (x + self.shift + self.plain) * factor + more["bias"][0] + torch.tensor(0.5, dtype=torch.float64)
        return {"y": y, "again": (y, x), "rest": [*rest], "number": more["number"], "size": len(x), "none": None}


def test_nested_arguments_and_constants_are_those_of_export(asked: list[nn.Module]) -> None:
    x, bias, one, two = inputs_of((5, 6), (6,), (2,), (3,))
    module = Mixed().double().eval()
    captured = capture(module, (x, {"bias": (bias,), "number": 3}, one, two))
    assert not asked
    check_capture(captured, module, (x, {"bias": (bias,), "number": 3}, one, two))
    other = by_export(module, (x, {"bias": (bias,), "number": 3}, one, two))
    assert (captured.input_spec, captured.output_spec) == (other.input_spec, other.output_spec)


def kept(values: list[torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def keep(x: torch.Tensor) -> torch.Tensor:
        values.append(x * 2)
        return values[-1] + 1

    return keep


def caught(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * float(x.sum())
    except Exception:
        return x


def caught_list(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * len(x.tolist())
    except Exception:
        return x


def caught_memory(x: torch.Tensor) -> torch.Tensor:
    try:
        return x.share_memory_() * 2
    except Exception:
        return x


def with_grad_mode(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        return x * 2


def cast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x.T


def with_gradients(x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(lambda y: (y * y).sum())(x)


def rebound(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.data = x * 3
    return y


LEAVING: dict[str, Callable[[torch.Tensor], Any]] = {
    "a number": lambda x: x * x.sum().item(),
    "a branch": lambda x: x if x.sum() > 0 else -x,
    "memory": lambda x: x * len(x.numpy()),
    "an address": lambda x: x * (x.data_ptr() != 0),
    "a number that is caught": caught,
    "a list that is caught": caught_list,
    "memory that is caught": caught_memory,
    "autocast": cast,
    "a mode of gradients": with_grad_mode,
    "gradients": with_gradients,
    "other data": rebound,
    "kept": kept([]),
    "random": lambda x: x + torch.rand(3),
    "no rule": lambda x: x.prod(0),
    "meta": lambda x: x + torch.ones(3, device="meta"),
    "an object": lambda x: (x, object()),
    "transposed": lambda x: x.data.t_(),
}


@pytest.mark.parametrize("name", LEAVING)
def test_what_only_export_follows_is_left_to_it(name: str) -> None:
    assert traced(Calls(LEAVING[name]), (torch.ones(3, 3),)) is None


class Keeps(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x * 2
        return self.last + 1


class Replaces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = self.state + x
        return self.state * 2


@pytest.mark.parametrize("module", [Keeps(), Replaces()])
def test_a_module_that_keeps_a_value_is_left_to_export_and_as_it_was(module: nn.Module) -> None:
    before = dict(vars(module))
    assert traced(module, (torch.ones(3),)) is None
    assert vars(module) == before
    if isinstance(module, Replaces):  # the next call would compute something else
        with pytest.raises(UnsupportedNode):
            capture(module, (torch.ones(3),))
    else:
        capture(module, (torch.ones(3),))
    assert vars(module) == before


def test_tensors_of_kinds_of_their_own_are_left_to_export() -> None:
    class Own(torch.Tensor):
        pass

    assert traced(nn.ReLU(), (torch.ones(3).as_subclass(Own),)) is None
    module = nn.Linear(3, 3, bias=False)
    module.weight = nn.Parameter(torch.ones(3, 3).as_subclass(Own))
    assert traced(module, (torch.ones(3),)) is None


def test_what_forward_says_appears_once(capfd: pytest.CaptureFixture[str]) -> None:
    def says(x: torch.Tensor) -> torch.Tensor:
        print("said")
        warnings.warn("heard", UserWarning, stacklevel=1)
        return x + 1

    for called in (says, lambda x: says(x).prod(0)):
        with pytest.warns(UserWarning, match="heard") as heard:
            capture(Calls(called), (torch.ones(3),))
        assert len([each for each in heard if each.category is UserWarning]) == 1
        assert capfd.readouterr().out == "said\n"


@pytest.mark.parametrize("lacking", [(torch.Tensor, "_make_wrapper_subclass"), (torch.fx, "Graph")])
def test_a_torch_without_what_a_trace_needs_is_asked_for_its_export(
    lacking: tuple[Any, str], asked: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, inputs = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double().eval(), inputs_of((2, 4))
    capture_module.exported(module, inputs)  # which imports what it needs
    asked.clear()
    with monkeypatch.context() as patch:
        patch.setattr(*lacking, None)
        assert traced(module, inputs) is None
    monkeypatch.setattr(capture_module, "traced", lambda *_: None)
    check_capture(capture(module, inputs), module, inputs)
    assert asked == [module]


def test_a_trace_does_not_import_torchs_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from torch import nn\n"
        "from tracea.interface.torch.capture import capture\n"
        "body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU6(), nn.MaxPool2d(2), nn.Flatten())\n"
        "model = nn.Sequential(body, nn.Linear(4, 5), nn.LayerNorm(5), nn.Softmax(-1)).eval()\n"
        "capture(model, torch.ones(1, 3, 4, 4))\n"
        "print([name for name in ('torch._dynamo', 'sympy') if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
