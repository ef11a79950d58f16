"""How a module's arguments and results, nested as the user likes, become the flat tensors of a program and back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from tracea.core.dtype import DType
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidDType, InvalidInput, InvalidStride
from tracea.interface.torch.nesting import Builder, Leaf, Taker, builder_of, is_same, nested, of_leaf, taker_of
from tracea.interface.torch.types import as_pairs

__all__ = ["ByPlace", "InputSpec", "OutputSpec", "Place", "check_facts"]

_MOST_CALLS: Final = 64  # ways to name the arguments of one function that are kept


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies in its storage."""

    storage_offset: int
    storage_bytes: int
    is_view: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Place:
        """Return a strided tensor's."""
        return cls(tensor.storage_offset(), tensor.untyped_storage().nbytes(), tensor._is_view())  # pyright: ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """The structure of ``(args, kwargs)`` and the types of the tensors in it.

    ``rows`` says, by name, of how many rows an input's elements name one; ``limited`` are the positions of those and of
    other inputs that not every value of their type may be in, ``small`` what those may be at most whose integers are
    computed with. ``strides`` has those of the example's tensors where the module asks for them, and ``gradients``
    which of them asked for a gradient where it asks for that: to others it may give another result. ``places`` has
    where in its storage each lies, ``conjugated`` which are lazily so, where the module asks; ``pairs`` are the
    positions of complex ones.
    """

    tree: pytree.TreeSpec
    leaves: tuple[Leaf, ...]
    names: tuple[str, ...]
    types: tuple[TensorType, ...]
    rows: Mapping[str, int] = field(default_factory=dict[str, int])
    small: Mapping[str, int] = field(default_factory=dict[str, int])
    strides: tuple[tuple[int, ...], ...] | None = None
    gradients: tuple[bool, ...] | None = None
    places: tuple[Place, ...] | None = None
    conjugated: tuple[bool, ...] | None = None
    limited: tuple[int, ...] = field(init=False)
    pairs: tuple[int, ...] = field(init=False)
    take: Taker | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Note which inputs' values each call looks at, and how the arguments are nested."""
        given = enumerate(zip(self.types, self.names, strict=True))
        checked = {*self.small, *self.rows}
        limited = tuple(index for index, (type_, name) in given if name in checked or type_.dtype is DType.I64)
        object.__setattr__(self, "limited", limited)
        pairs = tuple(leaf.index for leaf in self.leaves if leaf.index is not None and leaf.is_pairs)
        object.__setattr__(self, "pairs", pairs)
        args, kwargs = nested(self.tree, self.leaves)
        asks = any(each is not None for each in (self.gradients, self.strides, self.places, self.conjugated))
        object.__setattr__(self, "take", None if kwargs or asks else taker_of(args, self.types))

    def taken(self, args: tuple[Any, ...]) -> list[torch.Tensor] | None:
        """Return the tensors of a call that is exactly as compiled, of which nothing else has to be asked."""
        found: list[torch.Tensor] = []
        return found if self.take is not None and self.take(args, found) else None

    def with_pairs(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the program's tensors for a call's: of complex ones the pairs of their parts."""
        if not self.pairs:
            return tensors
        return [as_pairs(tensor) if index in self.pairs else tensor for index, tensor in enumerate(tensors)]

    def flatten(self, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> list[torch.Tensor]:
        """Return the tensors of a call in the program's order, complex ones as they are.

        Raises:
            InvalidInput: the structure differs from the captured one, or a captured value does.
        """
        values, tree = pytree.tree_flatten((tuple(args), kwargs or {}))
        if tree != self.tree:
            self._check_places(args, kwargs or {})
            wanted: tuple[Sequence[Any], Mapping[str, Any]] = pytree.tree_unflatten(list(self.leaves), self.tree)
            by_place = [(f"inputs[{index}]", *pair) for index, pair in enumerate(zip(args, wanted[0], strict=True))]
            by_name = [(name, (kwargs or {})[name], value) for name, value in wanted[1].items()]
            place, found, expected = _first_difference([*by_place, *by_name]) or ("inputs", tree, self.tree)
            raise InvalidInput(
                field=place,
                got=found,
                expected=expected,
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
                if leaf.is_pairs and not value.is_complex():
                    raise InvalidDType(
                        field=self.names[leaf.index],
                        got=str(value.dtype),
                        expected="complex numbers",
                        remedy="convert it with .to(torch.complex64)",
                    )
                tensors.append(value)
            elif not is_same(value, leaf.value):
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
            named = "; parameters that have only a name keep their defaults" if {*kwargs} - {*wanted[1]} else ""
            raise InvalidInput(
                field="arguments",
                got=_counted(len(args), kwargs),
                expected=f"{_counted(len(wanted[0]), wanted[1])}: ({', '.join(places)})",
                remedy=f"call with the arguments in the places, and of the nesting, of the example inputs{named}",
            )

    def _written(self, argument: Any) -> str:
        """Return how an argument may be written: a tensor by its name, a captured value as it is."""
        if isinstance(argument, Leaf):
            return repr(argument.value) if argument.index is None else self.names[argument.index]
        kind = type(argument).__name__
        return {"tuple": "(…)", "list": "[…]", "dict": "{…}"}.get(kind, f"{kind}(…)")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """The structure of the results; several leaves may be one tensor. ``build`` nests them, where it can."""

    tree: pytree.TreeSpec
    leaves: tuple[Leaf, ...]
    build: Builder | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Look once at how the results are nested."""
        object.__setattr__(self, "build", builder_of(nested(self.tree, self.leaves)))

    def unflatten(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return the results of a run nested as the module returns them."""
        if self.build is not None:
            return self.build(tensors)
        values = [leaf.value if leaf.index is None else of_leaf(leaf, tensors[leaf.index]) for leaf in self.leaves]
        return pytree.tree_unflatten(values, self.tree)


class ByPlace:
    """Puts a call's arguments all by place, of a function's signature; what it found for some names it keeps."""

    def __init__(self, signature: inspect.Signature) -> None:
        self._signature = signature
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments, with defaults before the last that is given; () where that cannot be."""
        key = (len(args), *kwargs)
        sources = self._known.get(key)
        if sources is None:
            if len(self._known) >= _MOST_CALLS:
                self._known.clear()
            sources = self._known[key] = self._sources(len(args), [*kwargs])
        return tuple([each(args, kwargs) for each in sources])

    def _sources(self, positional: int, keywords: Sequence[str]) -> tuple[Callable[[Any, Any], Any], ...]:
        """Return for each place where its argument is found: by its place, by its name, or as the default."""
        given: dict[str, Callable[[Any, Any], Any]] = {name: partial(_by_name, name) for name in keywords}
        try:
            bound = self._signature.bind(*(partial(_by_index, index) for index in range(positional)), **given)
        except TypeError:
            return ()
        last = [*bound.arguments][-1]
        found = dict(bound.arguments)
        bound.apply_defaults()
        names = [*bound.arguments]
        names = names[: names.index(last) + 1]
        by_place = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        if any(self._signature.parameters[name].kind not in by_place for name in names):
            return ()
        return tuple(found[name] if name in found else partial(_default, bound.arguments[name]) for name in names)


def _by_index(index: int, args: Sequence[Any], _: Any) -> Any:
    return args[index]


def _by_name(name: str, _: Any, kwargs: Mapping[str, Any]) -> Any:
    return kwargs[name]


def _default(value: Any, *_: Any) -> Any:
    return value


def _counted(positional: int, keywords: Mapping[str, Any]) -> str:
    counted = f"{positional} positional argument{'' if positional == 1 else 's'}"
    return f"{counted} and {', '.join(f'{name}=' for name in keywords)}" if keywords else counted


def _difference(place: str, given: Any, wanted: Any) -> tuple[str, str, str]:
    """Return where two nestings differ first, and what there is on either side."""
    parts: list[tuple[str, Any, Any]] = []
    alike = type(given) is type(wanted) and isinstance(given, Sized) and len(given) == len(wanted)
    if alike and isinstance(given, (tuple, list)):
        parts = [(f"{place}[{index}]", *pair) for index, pair in enumerate(zip(given, wanted, strict=True))]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    elif alike and isinstance(given, dict) and [*given] == [*wanted]:
        parts = [(f"{place}[{key!r}]", given[key], wanted[key]) for key in wanted]
    return _first_difference(parts) or (place, _kind(given), _kind(wanted))


def _first_difference(parts: Sequence[tuple[str, Any, Any]]) -> tuple[str, Any, Any] | None:
    """Return the difference within the first of some places whose two values are nested otherwise; None if none is."""
    for part in parts:
        if pytree.tree_structure(part[1]) != pytree.tree_structure(part[2]):
            return _difference(*part)
    return None


def _kind(value: Any) -> str:
    """Return what a value of a nesting is, for a message."""
    if isinstance(value, Leaf):
        return "a tensor" if value.index is not None else repr(value.value)
    if isinstance(value, torch.Tensor):
        return "a tensor"
    if isinstance(value, dict):
        return f"a dict of {', '.join(map(repr, value)) or 'nothing'}"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return f"a {type(value).__name__}"


def check_facts(spec: InputSpec, tensors: Sequence[torch.Tensor]) -> None:
    """Check that the module would be told of these tensors what it was told of the examples.

    Raises:
        InvalidStride, InvalidInput: it would not; another program is to be compiled.
    """
    if spec.strides is not None:
        for tensor, wanted, name in zip(tensors, spec.strides, spec.names, strict=True):
            if tensor.layout is not torch.strided or tensor.stride() != wanted:  # of axes of one element too
                raise InvalidStride(
                    field=name,
                    got=tensor.stride() if tensor.layout is torch.strided else str(tensor.layout),
                    expected=wanted,
                    remedy="the module asks for strides: give the ones of the example inputs, or optimize it for these",
                )
    if spec.places is not None:
        for tensor, place, name in zip(tensors, spec.places, spec.names, strict=True):
            if tensor.layout is torch.strided and Place.of(tensor) != place:
                raise InvalidStride(
                    field=name,
                    got=Place.of(tensor),
                    expected=place,
                    remedy="the module asks for it: give a tensor that lies so (x.clone()), or optimize it for this",
                )
    if spec.conjugated is not None:
        for tensor, wanted, name in zip(tensors, spec.conjugated, spec.names, strict=True):
            if tensor.is_conj() is not wanted:
                remedy = "the module asks for it: give tensor.resolve_conj(), or optimize it for this"
                raise InvalidInput(field=name, got=f"is_conj() {not wanted}", expected=wanted, remedy=remedy)
    if spec.gradients is not None:
        for tensor, wanted, name in zip(tensors, spec.gradients, spec.names, strict=True):
            if tensor.requires_grad is not wanted:
                raise InvalidInput(
                    field=name,
                    got=f"requires_grad={tensor.requires_grad}",
                    expected=f"requires_grad={wanted}",
                    remedy="the module asks for it: give what the example inputs have, or optimize it for this",
                )
