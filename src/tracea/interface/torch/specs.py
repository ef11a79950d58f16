"""How a module's arguments and results, nested as the user likes, become the flat tensors of a program and back."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidInput

__all__ = ["InputSpec", "Leaf", "OutputSpec", "in_places"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf of a structure: the tensor of that index, or, without an index, a value that was captured."""

    index: int | None
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """The structure of ``(args, kwargs)`` and the types of the tensors in it.

    ``rows`` says, by name, of how many rows an input's elements name one. ``strides_matter`` where the module asks for
    them, and ``gradients`` has which tensors asked for a gradient where it asks for that: to others it may give another
    result.
    """

    tree: pytree.TreeSpec
    leaves: tuple[Leaf, ...]
    names: tuple[str, ...]
    types: tuple[TensorType, ...]
    rows: Mapping[str, int] = field(default_factory=dict[str, int])
    strides_matter: bool = False
    gradients: tuple[bool, ...] | None = None

    def flatten(self, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> list[torch.Tensor]:
        """Return the tensors of a call in the program's order.

        Raises:
            InvalidInput: the structure differs from the captured one, or a captured value does.
        """
        values, tree = pytree.tree_flatten((tuple(args), kwargs or {}))
        if tree != self.tree:
            self._check_places(args, kwargs or {})
            raise InvalidInput(
                field="inputs",
                got=_described(tree),
                expected=_described(self.tree),
                remedy="call with the same nesting of tuples, lists and dicts as the example inputs",
            )
        tensors: list[torch.Tensor] = []
        for position, (value, leaf) in enumerate(zip(values, self.leaves, strict=True)):
            if leaf.index is not None:
                if not isinstance(value, torch.Tensor):
                    raise InvalidInput(
                        field=self.names[leaf.index],
                        got=type(value).__name__,
                        expected="a torch.Tensor",
                        remedy="convert it with torch.as_tensor",
                    )
                tensors.append(value)
            elif not _is_same(value, leaf.value):
                raise InvalidInput(
                    field=f"inputs[{position}]",
                    got=value,
                    expected=leaf.value,
                    remedy="a value that is no tensor is part of the compiled program: capture again with the new one",
                )
        return tensors

    def _check_places(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Check that a call has as many arguments as the captured one, and the same keywords.

        Raises:
            InvalidInput: it has others.
        """
        wanted: tuple[Sequence[Any], Mapping[str, Any]] = pytree.tree_unflatten(list(self.leaves), self.tree)
        places = [self._written(argument) for argument in wanted[0]]
        places += [f"{name}={self._written(argument)}" for name, argument in wanted[1].items()]
        if (len(args), [*kwargs]) != (len(wanted[0]), [*wanted[1]]):
            raise InvalidInput(
                field="arguments",
                got=_counted(len(args), kwargs),
                expected=f"{_counted(len(wanted[0]), wanted[1])}: ({', '.join(places)})",
                remedy="call with the arguments in the places, and of the nesting, of the example inputs",
            )

    def _written(self, argument: Any) -> str:
        """Return how an argument may be written: a tensor by its name, a captured value as it is."""
        if isinstance(argument, Leaf):
            return repr(argument.value) if argument.index is None else self.names[argument.index]
        kind = type(argument).__name__
        return {"tuple": "(…)", "list": "[…]", "dict": "{…}"}.get(kind, f"{kind}(…)")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """The structure of the results; several leaves may be one tensor."""

    tree: pytree.TreeSpec
    leaves: tuple[Leaf, ...]

    def unflatten(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return the results of a run nested as the module returns them."""
        values = [leaf.value if leaf.index is None else tensors[leaf.index] for leaf in self.leaves]
        return pytree.tree_unflatten(values, self.tree)


def in_places(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a call's arguments all by place, with defaults before the last that is given; () where that cannot be."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return ()
    given = [*bound.arguments]
    bound.apply_defaults()
    last = [*bound.arguments].index(given[-1])
    names = [*bound.arguments][: last + 1]
    by_place = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    if any(signature.parameters[name].kind not in by_place for name in names):
        return ()
    return tuple(bound.arguments[name] for name in names)


def _counted(positional: int, keywords: Mapping[str, Any]) -> str:
    counted = f"{positional} positional argument{'' if positional == 1 else 's'}"
    return f"{counted} and {', '.join(f'{name}=' for name in keywords)}" if keywords else counted


def _is_same(value: Any, captured: Any) -> bool:
    """Tell whether a program of the one value computes what one of the other does: NaN is itself, -0.0 is not 0.0."""
    if type(value) is not type(captured):
        return False
    if isinstance(value, float):
        return struct.pack("=d", value) == struct.pack("=d", captured)
    if isinstance(value, complex):
        return _is_same(value.real, captured.real) and _is_same(value.imag, captured.imag)
    return bool(value == captured)


def _described(tree: pytree.TreeSpec) -> str:
    text = " ".join(str(tree).split())
    return text.replace("TreeSpec(", "(").replace(" None, ", " ")
