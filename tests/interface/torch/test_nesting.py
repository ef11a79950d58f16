"""Calls of nested arguments: taken at once where they are exactly what was compiled, told why where they are not."""

from __future__ import annotations

import inspect
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import tracea
from tracea.core.dtype import DType
from tracea.core.tensor_type import TensorType
from tracea.interface.torch import module as module_module
from tracea.interface.torch.nesting import Leaf, builder_of, shapes_of, taker_of
from tracea.interface.torch.specs import ByPlace
from tracea.runtime.program import Program


class Pair(NamedTuple):
    first: Any
    second: Any


TYPES = (TensorType((2, 3), DType.F32), TensorType((4,), DType.I64))
NESTED = ({"a": Leaf(0), "b": [Leaf(1), Leaf(None, None)]}, Leaf(None, 0.0), (Leaf(None, math.nan), Leaf(None, 1)))


def given(**changed: Any) -> tuple[Any, ...]:
    x, y = torch.ones(2, 3), torch.ones(4, dtype=torch.int64)
    values = {"x": x, "y": y, "none": None, "zero": 0.0, "nan": math.nan, "one": 1, **changed}
    named = {"a": values["x"], "b": [values["y"], values["none"]]}
    return named, values["zero"], (values["nan"], values["one"])


def takes(args: Any) -> list[torch.Tensor] | None:
    taker, found = taker_of(NESTED, TYPES), []
    assert taker is not None
    return found if taker(args, found) else None


def test_what_was_compiled_is_taken_in_its_order() -> None:
    args = given()
    found = takes(args)
    assert found is not None
    assert found[0] is args[0]["a"]
    assert found[1] is args[0]["b"][0]


@pytest.mark.parametrize(
    "changed",
    [
        {"x": torch.ones(3, 2)},
        {"x": torch.ones(3, 2).T},
        {"x": torch.ones(2, 3, dtype=torch.float64)},
        {"x": torch.ones(2, 3, device="meta")},
        {"x": torch.ones(2, 3).to_sparse()},
        {"x": torch.nested.nested_tensor([torch.ones(3), torch.ones(3)], layout=torch.jagged)},
        {"x": [[1.0] * 3] * 2},
        {"x": None},
        {"none": 0},
        {"none": torch.ones(4)},
        {"zero": -0.0},
        {"zero": 0},
        {"nan": 0.0},
        {"one": True},
        {"one": 1.0},
    ],
    ids=str,
)
def test_what_differs_is_left_to_the_other_way(changed: dict[str, Any]) -> None:
    assert takes(given(**changed)) is None


def test_other_nestings_are_left_to_the_other_way() -> None:
    named, zero, pair = given()
    assert takes((named, zero, list(pair))) is None
    assert takes([named, zero, pair]) is None
    assert takes((named, zero)) is None
    assert takes(({"b": named["b"], "a": named["a"]}, zero, pair)) is None
    assert takes((OrderedDict(named), zero, pair)) is None
    assert taker_of((OrderedDict(a=Leaf(0)),), TYPES) is None
    taker, x = taker_of(Pair(Leaf(0), Leaf(None, 1)), TYPES), torch.ones(2, 3)
    assert taker is not None
    assert taker(Pair(x, 1), [])
    assert not taker((x, 1), [])
    assert not taker(Pair(x, 2), [])


@pytest.mark.parametrize(
    "structure",
    [
        Leaf(1),
        (Leaf(1), Leaf(0)),
        (Leaf(0),),
        [],
        {"y": Leaf(0), "x": ((Leaf(1), Leaf(0)), [Leaf(None, "text"), Leaf(None, None)], {})},
        (Leaf(2, is_pairs=True), Leaf(0)),
        Pair(Leaf(1), [Pair(Leaf(0), Leaf(None, 2))]),
    ],
    ids=str,
)
def test_results_are_nested_as_the_general_walk_nests_them(structure: Any) -> None:
    tensors = (torch.ones(2), torch.zeros(3), torch.ones(4, 2))
    build = builder_of(structure)
    assert build is not None

    def expected(leaf: Leaf) -> Any:
        if leaf.index is None:
            return leaf.value
        return torch.view_as_complex(tensors[leaf.index]) if leaf.is_pairs else tensors[leaf.index]

    wanted = pytree.tree_map(expected, structure)
    found = build(tensors)
    assert pytree.tree_structure(found) == pytree.tree_structure(wanted)
    for one, other in zip(pytree.tree_leaves(found), pytree.tree_leaves(wanted), strict=True):
        assert one is other or torch.equal(one, other)
    assert builder_of(OrderedDict(x=Leaf(0))) is None


def test_shapes_tell_calls_apart() -> None:
    x, y = torch.ones(2, 3), torch.ones(3, 2)
    calls = [(x,), (y,), ([x],), ((x,),), ({"a": x},), ({"b": x},), (x, None), (x, 1), (x, True), (x, 1.0), (x, "1")]
    assert len({shapes_of(each) for each in calls}) == len(calls)
    assert shapes_of((x, {"a": [1]})) == shapes_of((x * 2, {"a": [1]}))
    hash(shapes_of((x, {"a": object(), "b": {1}}, torch.nested.nested_tensor([x[0], y[:, 0]], layout=torch.jagged))))


class Cached(nn.Module):
    """Twelve layers' keys and values go in and come out one longer, as a model that generates text has them."""

    def forward(self, x: torch.Tensor, cache: Any = None, scale: float = 1.0, *, shift: float = 0.0) -> Any:
        grown = tuple((torch.cat((k, x), 0), torch.cat((v, x * scale + shift), 0)) for k, v in cache or ())
        return {"sum": sum((k.sum(0) + v.sum(0) for k, v in grown), x.sum(0)), "cache": grown}


def cache_of(length: int, layers: int = 12) -> Any:
    return tuple((torch.randn(length, 8), torch.randn(length, 8)) for _ in range(layers))


def test_a_cache_of_many_layers_runs_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, cache = Cached().eval(), torch.randn(1, 8), cache_of(5)
    fast = tracea.optimize(model, (x, cache), budget=None)
    longer = cache_of(6)
    fast(x, longer)  # compiles

    def explained(*_: Any) -> Any:
        raise AssertionError("the call took the slow way")

    monkeypatch.setattr(Program, "run_explaining", explained)
    monkeypatch.setattr(module_module.OptimizedModule, "_run_other", explained)
    for each in (cache, longer, cache):
        torch.testing.assert_close(fast(x, each), model(x, each))
        torch.testing.assert_close(fast(cache=each, x=x), model(x, each))


@dataclass
class Checked:
    """A container that looks at its parts, as many do."""

    x: torch.Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.x, torch.Tensor):
            raise TypeError("x must be a tensor")


def test_containers_that_look_at_their_parts_hold_tensors_alone() -> None:
    torch.export.register_dataclass(Checked)

    class Doubled(nn.Module):
        def forward(self, given: Checked) -> Any:
            return [Checked(given.x * 2), {"x": given.x + 1}]

    x = torch.randn(3)
    fast = tracea.optimize(Doubled(), (Checked(x),), budget=None)
    (doubled, more) = fast(Checked(x))
    assert torch.equal(doubled.x, x * 2)
    assert torch.equal(more["x"], x + 1)


class Turned(tuple[Any, ...]):
    """A tuple whose parts torch is told of from the last to the first."""

    __slots__ = ()
    _fields = ("a", "b")


def test_a_tuple_that_is_registered_is_taken_apart_as_it_says() -> None:
    pytree.register_pytree_node(
        Turned,
        lambda given: ([given[1], given[0]], None),
        lambda parts, _: Turned(reversed([*parts])),
        serialized_type_name="tests.Turned",
        flatten_with_keys_fn=lambda given: (
            [(pytree.SequenceKey(1), given[1]), (pytree.SequenceKey(0), given[0])],
            None,
        ),
    )

    class Difference(nn.Module):
        def forward(self, given: Any) -> Any:
            return Turned((given[0] - given[1], given[1]))

    x = torch.randn(3)
    fast = tracea.optimize(Difference(), (Turned((x, x * 3)),), budget=None)
    found = fast(Turned((x, x * 3)))
    torch.testing.assert_close(found[0], x - x * 3)
    torch.testing.assert_close(found[1], x * 3)


def test_values_of_a_call_find_their_program_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, cache = Cached().eval(), torch.randn(1, 8), cache_of(3, layers=1)
    fast = tracea.optimize(model, (x, cache, 2.0), budget=None)
    torch.testing.assert_close(fast(x, cache, 3.0), model(x, cache, 3.0))
    torch.testing.assert_close(fast(x, scale=4.0, cache=cache), model(x, cache, 4.0))
    torch.testing.assert_close(fast(x), model(x))  # of no cache, with defaults
    monkeypatch.setattr(fast, "_recompile", None)
    for scale in (4.0, 2.0, 3.0):
        torch.testing.assert_close(fast(x, cache, scale), model(x, cache, scale))
        torch.testing.assert_close(fast(x, cache, scale=scale), model(x, cache, scale))


def test_arguments_are_put_in_the_places_of_their_names() -> None:
    def forward(x: Any, mask: Any = None, past: Any = "past", *, flag: bool = False) -> None: ...

    by_place = ByPlace(inspect.signature(forward))
    for _ in range(2):  # found, and known
        assert by_place((), {"x": 1}) == (1,)
        assert by_place((), {"past": 3, "x": 1}) == (1, None, 3)
        assert by_place((1,), {"past": 3}) == (1, None, 3)
        assert by_place((1,), {"mask": 2}) == (1, 2)
        assert by_place((1, 2), {"mask": 2}) == ()
        assert by_place((1,), {"flag": True}) == ()
        assert by_place((1,), {"other": True}) == ()
    for count in range(200):
        assert by_place((1,), {f"name{count}": True}) == ()
    assert len(by_place._known) <= 64
