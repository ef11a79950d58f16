"""What a module holds, before and after a run of its forward: what forward changes, no program of one run computes."""

from __future__ import annotations

import inspect
import random
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final, cast

import numpy as np
import torch

from tracea.interface.torch.location import is_users

__all__ = ["State"]

_NUMBERS: Final = (bool, int, float, complex, str, bytes, type(None))
_WHOLE: Final = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, Enum, torch.dtype, torch.device)
_COPYING: Final = (
    *("__copy__", "__deepcopy__", "__getstate__", "__setstate__", "__reduce__", "__reduce_ex__"),
    *("__getnewargs__", "__getnewargs_ex__"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a module holds, by the place where it is.

    ``held`` has tensors and objects by themselves, numbers and texts by their value; ``containers`` has each dict and
    list beside a copy of it; ``copied_in_their_way`` names what says itself how it is to be copied.
    """

    held: Mapping[str, Any]
    containers: tuple[tuple[Any, Any], ...]
    copied_in_their_way: tuple[str, ...]

    @classmethod
    def of(cls, module: torch.nn.Module) -> State:
        """Return the state of a module and of all that it reaches, as far as a copy of it would."""
        held: dict[str, Any] = {}
        containers: list[tuple[Any, Any]] = []
        peculiar: list[str] = []
        seen: set[int] = set()
        kinds: dict[type, bool] = {}  # to look through a class takes longer than all the rest
        held |= _random_state()
        waiting: list[tuple[str, Any]] = [("", module)]
        while waiting:
            place, value = waiting.pop()
            held[place] = _token(value)
            if isinstance(value, (*_NUMBERS, *_WHOLE, torch.Tensor)) or id(value) in seen:
                continue
            seen.add(id(value))
            kind = type(cast("object", value))
            if kind not in kinds:
                kinds[kind] = _is_copied_in_its_way(kind)
            if kinds[kind]:
                peculiar.append(place)
            for container in _containers(value):
                containers.append((container, container.copy()))
            waiting += [(f"{place}.{name}" if place else name, part) for name, part in _parts(value)]
        return cls(held=held, containers=tuple(containers), copied_in_their_way=tuple(peculiar))

    def changed(self, later: State) -> str | None:
        """Return a place that holds something else, or is not in both; None if there is none."""
        for place, value in self.held.items():
            if place not in later.held or not _is_same(value, later.held[place]):
                return place
        return next((place for place in later.held if place not in self.held), None)

    def rebound(self, later: State) -> str | None:
        """Return a place of a tensor that holds something else; None if there is none."""
        for place, value in self.held.items():
            if isinstance(value, torch.Tensor) and later.held.get(place) is not value:
                return place
        return None

    def restore(self) -> None:
        """Put back what dicts, lists and deques held."""
        for container, before in self.containers:
            container.clear()
            if isinstance(container, dict):
                cast("dict[Any, Any]", container).update(before)
            else:
                container.extend(before)


def _token(value: Any) -> Any:
    """Return what tells whether the value is still the same: itself, or what it holds where that has no places."""
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        return f"{array.shape} {array.dtype.str}".encode() + array.tobytes()
    if isinstance(value, set | frozenset | bytearray):
        return cast("Any", value).copy()
    if isinstance(value, Iterator | random.Random):
        return object()  # the next use of it is another: nothing is the same
    return value


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    by_value = (*_NUMBERS, set, frozenset, bytearray)
    return type(one) is type(other) and isinstance(one, by_value) and bool(one == other)


def _random_state() -> dict[str, Any]:
    """Return what tells whether random numbers were drawn that are none of torch's, which are operators."""
    drawn: dict[str, Any] = {"random numbers of Python": hash(random.getstate())}
    numpys = sys.modules.get("numpy.random")  # which numpy imports when it is first asked for
    if numpys is not None:
        state: Any = numpys.get_state(legacy=False)["state"]
        drawn["random numbers of NumPy"] = b"".join(
            each.tobytes() if isinstance(each, np.ndarray) else str(each).encode() for each in state.values()
        )
    return drawn


def _containers(value: Any) -> list[Any]:
    own = getattr(value, "__dict__", None)
    return [each for each in (value, own) if isinstance(each, dict) or type(each) in (list, deque)]


def _parts(value: Any) -> list[tuple[str, Any]]:
    """Return what a value holds, each by its name within it."""
    parts: list[tuple[str, Any]] = []
    items: Any = value  # of whatever kind
    is_module = isinstance(value, torch.nn.Module)
    if isinstance(items, dict):
        for index, (key, part) in enumerate(cast("dict[Any, Any]", items).items()):
            name = key if isinstance(key, str) else f"[{index}]"
            parts += [(name, part), (f"[{index}] key", key)]  # the order of the keys is part of what it holds
    elif isinstance(items, list | tuple | deque):
        parts += [(str(index), part) for index, part in enumerate(cast("list[Any]", items))]
        parts.append(("length", len(cast("list[Any]", items))))
    kind: type[Any] = type(cast("object", value))
    if kind.__module__.partition(".")[0] == "torch" and not is_module:
        return parts
    for name, part in cast("dict[str, Any]", getattr(cast("object", value), "__dict__", {})).items():
        if name in ("_parameters", "_buffers", "_modules") and is_module:
            parts += [*part.items(), (f"names of {name}", part)]
        else:
            parts.append((name, part))
    for base in kind.__mro__:
        if is_module and not base.__module__.startswith(("torch.", "builtins")):
            numbers = [(name, each) for name, each in vars(base).items() if isinstance(each, _NUMBERS)]
            parts += [(f"{base.__name__}.{name}", each) for name, each in numbers]
        names = vars(base).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__") and hasattr(cast("object", value), name):
                parts.append((name, getattr(cast("object", value), name)))
    return parts


def _is_copied_in_its_way(kind: type) -> bool:
    """Tell whether a class of the user's says how its objects are copied: the copy need not be alike."""
    for name in _COPYING:
        method = inspect.getattr_static(kind, name, None)
        code = getattr(getattr(method, "__func__", method), "__code__", None)
        if code is not None and is_users(code.co_filename):
            return True
    return False
