"""Tuples, lists and dicts of a call's arguments and of its results, taken apart and put together for what was compiled.

It says yes or no of what most calls are, within a few microseconds; :mod:`tracea.interface.torch.specs` says why not.
"""

from __future__ import annotations

import operator
import struct
from collections import namedtuple
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, cast

import torch
from torch.utils import _pytree as pytree

from tracea.core.tensor_type import StridedLayout, TensorType, static
from tracea.interface.torch.types import torch_dtype_of

__all__ = ["Builder", "Leaf", "Taker", "builder_of", "is_same", "nested", "of_leaf", "shapes_of", "taker_of"]

Taker: TypeAlias = Callable[[Any, list[torch.Tensor]], bool]
Builder: TypeAlias = Callable[[Sequence[torch.Tensor]], Any]
_PLAIN: Final = frozenset({type(None), bool, int, float, str})
_NESTINGS: Final[frozenset[Any]] = frozenset({tuple, list, dict})


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf of a structure: the tensor of that index, or, without an index, a value that was captured.

    ``is_pairs`` says that the leaf is complex, and the program's tensor the pairs of its parts.
    """

    index: int | None
    value: Any = None
    is_pairs: bool = False


def is_same(value: Any, captured: Any) -> bool:
    """Tell whether a program of the one value computes what one of the other does: NaN is itself, -0.0 is not 0.0."""
    if type(value) is not type(captured):
        return False
    if isinstance(value, float):
        return struct.pack("=d", value) == struct.pack("=d", captured)
    if isinstance(value, complex):
        return is_same(value.real, captured.real) and is_same(value.imag, captured.imag)
    return bool(value == captured)


def shapes_of(argument: Any) -> Hashable:
    """Return what tells calls apart that other programs take: nesting, shapes of tensors, and plain values."""
    if isinstance(argument, torch.Tensor):
        return None if argument.is_nested else argument.shape  # which a nested one has not
    kind = cast("type[Any]", type(argument))
    if kind is tuple or kind is list or _is_named(kind):
        return kind, *map(shapes_of, argument)
    if kind is dict:
        return kind, *argument, *map(shapes_of, argument.values())
    return (kind, argument) if kind in _PLAIN else kind


def nested(tree: pytree.TreeSpec, leaves: Sequence[Leaf]) -> Any:
    """Return leaves nested as a tree says, of tuples, named or not, lists and dicts; None in place of all else.

    What else there is is made by code of the user's, which may look at its parts.
    """
    return _nested(tree, iter(leaves))


def _nested(tree: pytree.TreeSpec, leaves: Iterator[Leaf]) -> Any:
    if tree.is_leaf():
        return next(leaves)
    parts = [_nested(each, leaves) for each in tree.children()]
    if tree.type is dict:
        return dict(zip(tree.context, parts, strict=True))
    if tree.type in _NESTINGS:
        return parts if tree.type is list else tuple(parts)
    return tree.context._make(parts) if tree.type is namedtuple else None  # which no code of the user's takes apart


def taker_of(structure: Any, types: Sequence[TensorType]) -> Taker | None:
    """Return what appends a call's tensors to a list and tells whether they are exactly what was compiled.

    ``structure`` nests leaves as the arguments are nested. None where another nesting than of tuples, named or not,
    lists and dicts is there, or a type that has more than a shape and strides.
    """
    if isinstance(structure, Leaf):
        if structure.index is None:
            return _value_taker(structure.value)
        type_ = types[structure.index]
        if not isinstance(type_.layout, StridedLayout | None):
            return None
        return _tensor_taker(*_as_torch(type_, is_pairs=structure.is_pairs))
    kind = cast("type[Any]", type(structure))
    if not _is_nesting(kind):
        return None
    takers = [taker_of(part, types) for part in (structure.values() if kind is dict else structure)]
    if any(each is None for each in takers):
        return None
    parts = cast("list[Taker]", takers)
    return _dict_taker([*structure], parts) if kind is dict else _sequence_taker(kind, parts)


def builder_of(structure: Any) -> Builder | None:
    """Return what nests a program's results as leaves are nested in ``structure``; None for other nestings."""
    if isinstance(structure, Leaf):
        return _leaf_builder(structure)
    kind = cast("type[Any]", type(structure))
    if not _is_nesting(kind):
        return None
    values = list(structure.values() if kind is dict else structure)
    if kind is tuple and len(values) > 1 and all(_is_tensor(each) for each in values):
        return operator.itemgetter(*(each.index for each in values))
    builders = [builder_of(each) for each in values]
    if any(each is None for each in builders):
        return None
    parts = cast("list[Builder]", builders)
    if kind is dict:
        return partial(_build_dict, [*structure], parts)
    return partial(_build_sequence, cast("Any", kind)._make if _is_named(kind) else kind, parts)


def _build_dict(keys: list[Any], parts: Sequence[Builder], tensors: Sequence[torch.Tensor]) -> dict[Any, Any]:
    return dict(zip(keys, [part(tensors) for part in parts], strict=True))


def _build_sequence(kind: Callable[[list[Any]], Any], parts: Sequence[Builder], tensors: Sequence[torch.Tensor]) -> Any:
    return kind([part(tensors) for part in parts])


def of_leaf(leaf: Leaf, tensor: torch.Tensor) -> torch.Tensor:
    """Return a program's tensor as the module's: of pairs the complex numbers."""
    if leaf.is_pairs and not tensor.numel():  # of any strides
        return tensor.new_empty(tensor.shape[:-1], dtype=tensor.dtype.to_complex())
    return torch.view_as_complex(tensor) if leaf.is_pairs else tensor


def _is_nesting(kind: type[Any]) -> bool:
    return kind in _NESTINGS or _is_named(kind)


def _is_named(kind: type[Any]) -> bool:
    """Tell whether a type is a named tuple, made from its parts in order."""
    return kind.__bases__ == (tuple,) and hasattr(kind, "_fields")


def _as_torch(type_: TensorType, *, is_pairs: bool) -> tuple[tuple[Any, ...], torch.dtype, tuple[Any, ...] | None]:
    """Return shape, element type and strides (None: row-major) of what a call gives for a tensor of the program."""
    dtype, layout = torch_dtype_of(type_.dtype), type_.layout
    strides = layout.strides if isinstance(layout, StridedLayout) else None
    if not is_pairs:
        return type_.shape, dtype, strides
    of_pairs = None if strides is None else tuple(static(step) // 2 for step in strides[:-1])
    return type_.shape[:-1], dtype.to_complex(), of_pairs


def _tensor_taker(shape: tuple[Any, ...], dtype: torch.dtype, strides: tuple[Any, ...] | None) -> Taker:
    def take(given: Any, found: list[torch.Tensor]) -> bool:
        if (
            isinstance(given, torch.Tensor)
            and given.dtype is dtype
            and given.layout is torch.strided
            and given.is_cpu
            and not given.is_nested  # which has no shape
            and given.shape == shape
            and (given.is_contiguous() if strides is None else given.stride() == strides)
        ):
            found.append(given)
            return True
        return False

    return take


def _value_taker(captured: Any) -> Taker:
    if captured is None:
        return lambda given, _: given is None
    return lambda given, _: is_same(given, captured)


def _sequence_taker(kind: type, parts: Sequence[Taker]) -> Taker:
    count = len(parts)

    def take(given: Any, found: list[torch.Tensor]) -> bool:
        if type(given) is not kind or len(given) != count:
            return False
        for part, each in zip(parts, given, strict=True):  # noqa: SIM110  # all() costs a generator a call
            if not part(each, found):
                return False
        return True

    return take


def _dict_taker(keys: list[Any], parts: Sequence[Taker]) -> Taker:
    def take(given: Any, found: list[torch.Tensor]) -> bool:
        if type(given) is not dict:
            return False
        named = cast("dict[Any, Any]", given)
        return [*named] == keys and all(part(each, found) for part, each in zip(parts, named.values(), strict=True))

    return take


def _is_tensor(structure: Any) -> bool:
    return isinstance(structure, Leaf) and structure.index is not None and not structure.is_pairs


def _leaf_builder(leaf: Leaf) -> Builder:
    index = leaf.index
    if index is None:
        return lambda _: leaf.value
    return operator.itemgetter(index) if _is_tensor(leaf) else lambda tensors: of_leaf(leaf, tensors[index])
