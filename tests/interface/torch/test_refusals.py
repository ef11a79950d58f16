from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.interface.torch.modules import inputs_of
from torch import nn

from tracea.cli import main as cli
from tracea.errors import InvalidDevice, InvalidDType, InvalidInput, UnsupportedNode
from tracea.interface.torch.capture import capture

pytestmark = pytest.mark.whole

HERE = Path(__file__)


class Unsupported(nn.Module):
    def forward(self, x):
        a = torch.logcumsumexp(x, -1)  # first
        b = torch.cummax(a, -1).values  # second
        return a + b


def line_with(owner: Any, text: str) -> int:
    lines, start = inspect.getsourcelines(owner)
    return start + next(index for index, line in enumerate(lines) if text in line)


def test_all_unsupported_nodes_are_named_with_their_lines() -> None:
    with pytest.raises(UnsupportedNode) as caught:
        capture(Unsupported(), inputs_of((3, 4)))
    error = caught.value
    assert error.location == f"{HERE}:{line_with(Unsupported, 'first')} in forward"
    assert "aten.logcumsumexp" in str(error.node)
    assert "aten.cummax" in error.remedy
    assert f"{HERE}:{line_with(Unsupported, 'second')} in forward" in error.remedy


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1  # a write
        return x * self.count


def test_a_write_to_a_buffer_is_refused() -> None:
    with pytest.raises(UnsupportedNode, match="a write to a buffer, count") as caught:
        capture(Counting(), inputs_of((3, 4)))
    assert f"{HERE}:{line_with(Counting, 'a write')}" in caught.value.location


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.Dropout(0.5), "a dropout of 0.5 in training mode"),
        (nn.BatchNorm1d(4), "a batch norm by its batch's statistics, as in training mode"),
        (nn.BatchNorm1d(4, track_running_stats=False), "a batch norm by its batch's statistics, as in training mode"),
    ],
)
def test_training_mode_is_refused(module: nn.Module, said: str) -> None:
    with pytest.raises(UnsupportedNode, match=said) as caught:
        capture(nn.Sequential(nn.Linear(4, 4), module).double().train(), inputs_of((3, 4)))
    assert "module.eval()" in caught.value.remedy


@pytest.mark.parametrize(
    ("module", "said", "remedy"),
    [
        ("model", "got str,", "give the module, then its example inputs: optimize(module, (x,))"),
        (nn.Linear, "got the class Linear,", "make a module of it: Linear(...)"),
        (torch.relu, "got builtin_function_or_method,", "put the function into the forward of a module"),
    ],
)
def test_what_is_no_module_is_told_what_makes_one(module: Any, said: str, remedy: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        capture(module, inputs_of((3, 4)))
    assert caught.value.remedy == remedy


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_module_of_torch_jit_is_asked_for_as_it_was_written() -> None:
    scripted = torch.jit.script(nn.Linear(4, 4).double())
    for module, name in ((scripted, "module"), (nn.Sequential(nn.ReLU(), scripted), "module.1")):
        with pytest.raises(InvalidInput, match=f"{name}: got a RecursiveScriptModule of torch.jit, exp") as caught:
            capture(module, inputs_of((3, 4)))
        assert "give the original module" in caught.value.remedy


class Branches(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # decides
            return x
        return -x


def test_a_branch_on_values_is_refused_with_the_line() -> None:
    with pytest.raises(UnsupportedNode) as caught:
        capture(Branches(), inputs_of((3, 4)))
    assert caught.value.location == f"{HERE}:{line_with(Branches, 'decides')} in forward"


def test_what_export_cannot_follow_leaves_nothing_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    class Reads(nn.Module):
        def forward(self, x):
            return x + float(x.sum())

    with pytest.raises(UnsupportedNode):
        capture(Reads(), inputs_of((3, 4)))
    assert capfd.readouterr() == ("", "")


class Casts(nn.Module):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.T  # within


def test_an_autocast_region_is_refused_with_a_line_inside() -> None:
    with pytest.raises(UnsupportedNode, match="autocast") as caught:
        capture(Casts(), inputs_of((3, 4)))
    assert caught.value.location == f"{HERE}:{line_with(Casts, 'within')} in forward"


def test_a_module_of_torch_itself_is_named() -> None:
    with pytest.raises(UnsupportedNode, match=r"aten\.conv_transpose3d.* at the module \(ConvTranspose3d\)"):
        capture(nn.ConvTranspose3d(3, 4, 3), torch.zeros(1, 3, 8, 8, 8))


def test_a_stock_module_is_named_by_its_path_and_the_line_that_asked() -> None:
    with pytest.raises(UnsupportedNode) as caught:
        capture(nn.Sequential(nn.ReLU(), nn.ConvTranspose3d(3, 4, 3)), torch.zeros(1, 3, 8, 8, 8))  # asked here
    line = next(i for i, text in enumerate(HERE.read_text().splitlines(), 1) if "# asked here" in text)
    asked = f"{HERE}:{line} in test_a_stock_module_is_named_by_its_path_and_the_line_that_asked"
    assert caught.value.location == f"module '1' (ConvTranspose3d), captured at {asked}"


def test_a_number_that_only_a_run_knows_is_refused() -> None:
    class Reads(nn.Module):
        def forward(self, x):
            return x * x.sum().item()  # a number

    with pytest.raises(UnsupportedNode, match="a number that only a run knows") as caught:
        capture(Reads(), inputs_of((3, 4)))
    assert caught.value.location == f"{HERE}:{line_with(Reads, 'a number')} in forward"


def test_the_size_of_a_dynamic_axis_is_no_number_of_an_expression() -> None:
    class Adds(nn.Module):
        def forward(self, x):
            return x.sum(0) + x.shape[0]

    with pytest.raises(UnsupportedNode, match="a number that only a run knows"):
        capture(Adds(), inputs_of((3, 4)), dynamic=({0: torch.export.Dim("rows", min=1, max=64)},))


def test_parameters_that_are_not_initialized_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"weight: got .*lazy module.* Remedy: call module\(\*example_inputs\)"):
        capture(nn.LazyLinear(4), inputs_of((3, 4)))


def test_other_devices_are_refused() -> None:
    with pytest.raises(InvalidDevice, match=r"weight: got meta.*to_empty"):
        capture(nn.Linear(4, 4, device="meta"), inputs_of((3, 4)))
    with pytest.raises(InvalidDevice, match=r"example_inputs\[0\]: got meta.*a tensor of that shape on the CPU"):
        capture(nn.Linear(4, 4), torch.empty(70_000, 70_000, device="meta"))


def test_unknown_element_types_are_refused() -> None:
    with pytest.raises(InvalidDType, match="int16"):
        capture(nn.Identity(), torch.zeros(3, dtype=torch.int16))


def test_sparse_tensors_are_refused() -> None:
    with pytest.raises(InvalidInput, match="to_dense"):
        capture(nn.Identity(), torch.eye(3).to_sparse())


@pytest.mark.parametrize(
    ("inputs", "given", "said"),
    [
        ((), "none", "missing a required argument|missing 1 required positional argument"),
        ((torch.zeros(3, 5),), r"\(3, 5\) of torch.float32", "cannot be multiplied|reduction dim"),
        ((torch.zeros(3, 4),) * 2, r"\(3, 4\) of torch.float32, \(3, 4\)", "positional arguments"),
        ((torch.zeros(3, 4).double(),), r"\(3, 4\) of torch.float64", "same dtype"),
        ("x", "str", "must be Tensor, not str"),
        (None, "NoneType", "must be Tensor, not NoneType"),
    ],
)
def test_inputs_that_the_module_refuses_are_told_so(inputs: Any, given: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"example_inputs: got {given}.* Linear raises .*({said})") as caught:
        capture(nn.Linear(4, 2), inputs)
    assert "unknown line" not in str(caught.value)
    assert "module(*example_inputs)" in caught.value.remedy


def test_a_module_that_cannot_be_captured_is_left_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    class Counts(nn.Module):
        seen = 0

        def forward(self, x):
            self.seen += 1
            print("called")
            x.add_(1)
            return x if float(x.sum() + torch.rand(())) > 0 else -x

    module, x, before = Counts(), torch.zeros(3), torch.get_rng_state()
    with pytest.raises(UnsupportedNode):
        capture(module, (x,))
    assert module.seen == 0
    assert capfd.readouterr().out == "called\n"
    assert x.eq(0).all()
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("thing", [None, 3, "model", lambda x: x])
def test_what_is_no_module_is_refused(thing: Any) -> None:
    with pytest.raises(InvalidInput, match=r"torch\.nn\.Module"):
        capture(thing, inputs_of((3, 4)))


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(8), nn.Dropout(0.5)])
def test_training_mode_is_one_problem_that_names_the_layer(layer: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(8, 8), layer).train()
    said = rf"in training mode at module '1' \({type(layer).__name__}\), captured at .*Remedy: call module\.eval\(\)"
    with pytest.raises(UnsupportedNode, match=said) as caught:
        capture(module, (torch.randn(4, 8),))
    assert "; also " not in str(caught.value)


def test_a_command_is_no_line_of_the_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n"
        "def build():\n"
        "    module = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ConvTranspose3d(2, 2, 2)).eval()\n"
        "    return module, (torch.randn(1, 2, 3, 3, 3),)\n",
        encoding="utf-8",
    )
    assert cli.main(["explain", f"{model}:build", "--no-measure"]) == cli.BAD_USAGE
    said = capsys.readouterr().err
    assert "at module '1' (ConvTranspose3d)" in said
    assert "captured at" not in said
    assert "cyclopts" not in said


class Among(nn.Module):
    """One operator that there is not, among some that are captured as what torch makes of them."""

    def forward(self, x):
        y = torch.addcmul(x, x, x, value=0.5) + (x > 0).to(x.dtype) * x.tril()
        y = y + torch.logsumexp(x, -1, keepdim=True)
        return torch.erfinv(y) + torch.where(x > 1.0, x, 0.0) + torch.histc(x, 4)  # both


def test_only_the_operators_that_nothing_expresses_are_named() -> None:
    with pytest.raises(UnsupportedNode) as caught:
        capture(Among(), inputs_of((4, 4)))
    assert caught.value.node == "aten.erfinv.default: no op expresses it"
    assert caught.value.location == f"{HERE}:{line_with(Among, '# both')} in forward"
    assert re.findall(r"aten\.\w+\.\w+", caught.value.remedy) == ["aten.histc.default"]


def test_an_operator_is_named_as_it_was_written_though_a_part_of_it_is_what_nothing_expresses() -> None:
    class Apart(nn.Module):
        def forward(self, x):
            return torch.cdist(x, x * 2)

    with pytest.raises(UnsupportedNode) as caught:
        capture(Apart(), inputs_of((4, 4)))
    assert re.findall(r"aten\.\w+\.\w+", str(caught.value)) == ["aten.cdist.default"]


class Squeezes(nn.Module):
    def forward(self, x):
        x.mul_(2.0)
        x.squeeze_()  # the caller's tensor
        return x + 1.0


class Transposes(nn.Module):
    def forward(self, x, y):
        y = torch.nn.functional.normalize(y, dim=-1)
        x.lerp_(x, 0.5)
        x.t_()
        return y


class Attempts(nn.Module):
    def forward(self, x):
        try:
            return x.view(5, 7)
        except RuntimeError:
            return x * 5.0


@pytest.mark.parametrize(
    ("module", "shapes", "said"),
    [
        (Squeezes(), ((1, 3),), "given another shape in place"),
        (Squeezes(), ((2, 1, 3),), "given another shape in place"),
        (Transposes(), ((2, 3), (4,)), "shape|size"),
        (Attempts(), ((3, 4),), "raised while torch followed it"),
    ],
)
def test_an_input_of_another_shape_and_an_attempt_that_fails_are_refused(
    module: nn.Module, shapes: tuple[tuple[int, ...], ...], said: str
) -> None:
    with pytest.raises(UnsupportedNode, match=said) as caught:
        capture(module, inputs_of(*shapes))
    assert HERE.name in caught.value.location


def _sorted(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = x + 1.0
    return torch.cummax(y, -1).values  # of a function


class OfLambda(nn.Module):
    forward = lambda _, x: torch.cummax(x, -1).values  # noqa: E731  # of the class


class Assigned(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        kinds: dict[str, Any] = {
            "of a lambda": lambda x: torch.cummax(x, -1).values,  # of a lambda
            "of a method": self.run,
            "of a function": functools.partial(_sorted, self),
        }
        self.forward = kinds[kind]

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cummax(x, -1).values  # of a method


@pytest.mark.parametrize("kind", ["of the class", "of a lambda", "of a method", "of a function"])
@pytest.mark.parametrize("inner", [False, True], ids=["module", "submodule"])
def test_a_line_of_a_forward_of_another_name_is_told(kind: str, inner: bool) -> None:
    module = OfLambda() if kind == "of the class" else Assigned(kind)
    before = vars(module).get("forward")
    with pytest.raises(UnsupportedNode, match=r"aten\.cummax") as caught:
        capture(nn.Sequential(nn.ReLU(), module) if inner else module, inputs_of((3, 4)))
    owner = {"of the class": OfLambda, "of a function": _sorted}.get(kind, Assigned)
    assert caught.value.location == f"{HERE}:{line_with(owner, f'  # {kind}')} in forward"
    assert vars(module).get("forward") is before


def test_a_forward_of_another_name_has_its_lines_where_torch_export_is_not_needed() -> None:
    class Adds(nn.Module):
        forward = lambda _, x: x + 1.0  # noqa: E731

    located = capture(Adds(), inputs_of((3, 4))).locations
    assert [line for name, line in located.items() if name == "add"] == [
        f"{HERE}:{line_with(Adds, 'x + 1')} in forward"
    ]


@dataclasses.dataclass
class Scores:
    scores: torch.Tensor


@pytest.mark.parametrize(
    ("line", "given", "said"),
    [
        (
            lambda x: Scores(x * 2.0),
            torch.ones(3),
            "a Scores among the results of forward.*Remedy: return tensors alone",
        ),
        (lambda x: {"a": [Scores(x * 2.0)]}, torch.ones(3), "a Scores among the results"),
        (lambda x: {x * 2.0}, torch.ones(3), "a set among the results.* in tuples, lists, dicts or named tuples"),
        (lambda x: x.scores * 2.0, Scores(torch.ones(3)), "a Scores among the arguments.*Remedy: give tensors alone"),
    ],
    ids=["dataclass", "nested", "set", "argument"],
)
def test_objects_that_are_no_structure_of_torch_are_told_what_is(line: Any, given: Any, said: str) -> None:
    class Line(nn.Module):
        def forward(self, x):
            return line(x)

    with pytest.raises(UnsupportedNode, match=said) as caught:
        capture(Line(), (given,))
    assert ("register_dataclass(Scores)" in caught.value.remedy) is ("Scores" in said)
    assert caught.value.location.startswith(f"{HERE}:")
