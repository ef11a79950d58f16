"""What a capture depends on beside the module: torch's modes, the tensors that its code reaches, what holds no weights.

A module is captured again for inputs of another shape. Whatever holds at that time, the weights and the types of the
program are to be those of the time at which the module was optimized.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Generator, Hashable
from dataclasses import dataclass
from typing import Any, Final, cast

import torch
from torch.utils import _pytree as pytree

from tracea.errors import InvalidInput

__all__ = ["Contents", "Modes", "OutsideTensors", "frozen_copy", "sharing_copy"]

_DEVICE: Final = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """What decides the types that a module computes in: autocast of the CPU, and the type of numbers without one."""

    autocast: bool
    autocast_dtype: torch.dtype
    default_dtype: torch.dtype

    @classmethod
    def now(cls) -> Modes:
        """Return the modes of this thread."""
        return cls(
            autocast=torch.is_autocast_enabled(_DEVICE),
            autocast_dtype=torch.get_autocast_dtype(_DEVICE),
            default_dtype=torch.get_default_dtype(),
        )

    @contextlib.contextmanager
    def restored(self) -> Generator[None]:
        """Have these modes within a ``with`` block."""
        before = torch.get_default_dtype()
        if before is not self.default_dtype:
            torch.set_default_dtype(self.default_dtype)
        try:
            with torch.autocast(_DEVICE, dtype=self.autocast_dtype, enabled=self.autocast, cache_enabled=False):
                yield
        finally:
            if before is not self.default_dtype:
                torch.set_default_dtype(before)


class OutsideTensors:
    """Tensors that are no parameters or buffers of the module, each copied when a capture first meets it.

    A hook's weights, a global of the user's: whatever is written to them later, every program reads the copy.
    """

    def __init__(self) -> None:
        # The tensor itself is kept too: while it lives, no other can lie where it does.
        self._copies: dict[Hashable, tuple[torch.Tensor, torch.Tensor]] = {}

    def frozen(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the copy of a tensor, told by its place in memory."""
        if tensor.device.type != _DEVICE or tensor.layout is not torch.strided or tensor.numel() == 0:
            return tensor  # nothing to freeze, or refused by its name later
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if place not in self._copies:
            self._copies[place] = (tensor, tensor.detach().clone())
        return self._copies[place][1]


def frozen_copy(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy whose weights stay as they are now.

    What cannot be copied and is no weight (a lock, a file, a generator) is shared with the original. What is no module
    is returned as it is: capture says what it is.

    Raises:
        InvalidInput: a part of the module refuses to be copied.
    """
    if not isinstance(module, torch.nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        return module
    try:
        return _with_attributes(module, copy.deepcopy(module))
    except Exception:
        known: dict[int, Any] = {}
        _enter(module, known, set())
    try:
        return _with_attributes(module, copy.deepcopy(module, known))
    except Exception as error:
        name, reason = _refusing(module, known) or ("module", error)
        raise InvalidInput(
            field=name,
            got=f"{type(reason).__name__}: {reason}"[:200],
            expected="a module that copy.deepcopy can copy, so that its weights stay as they are now",
            remedy="keep what cannot be copied out of the module, or give its class a __deepcopy__",
        ) from error


def sharing_copy(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy that has the module's own parameters and buffers, and shares what cannot be copied.

    Raises:
        Exception: what a part of the module raises that refuses to be copied.
    """
    known: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    _enter(module, known, set(known))
    return copy.deepcopy(module, known)


def _with_attributes(module: torch.nn.Module, alone: torch.nn.Module) -> torch.nn.Module:
    """Return the copy with what the user wrote on the module's parameters, which torch leaves out of a copy."""
    copies = dict(alone.named_parameters(remove_duplicate=False))
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if name in copies and copies[name] is not parameter:
            vars(copies[name]).update(copy.deepcopy(vars(parameter)))
    return alone


def _enter(value: Any, known: dict[int, Any], seen: set[int]) -> None:
    """Enter into a deepcopy's memo what it cannot copy: tensors with a history as values, other objects as they are."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if not value.is_leaf:
            known[id(value)] = value.detach().clone()
    elif isinstance(value, torch.nn.Module):
        for part in vars(value).values():
            _enter(part, known, seen)
    elif isinstance(value, dict):
        for part in cast("dict[Any, Any]", value).values():
            _enter(part, known, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in cast("list[Any]", value):
            _enter(part, known, seen)
    else:
        try:
            copy.deepcopy(value, dict(known))
        except Exception:
            known[id(value)] = value


def _refusing(module: torch.nn.Module, known: dict[int, Any]) -> tuple[str, Exception] | None:
    """Return the innermost module that cannot be copied even so, and what it says."""
    named: list[tuple[str, torch.nn.Module]] = [*cast("Any", module).named_modules()]
    for name, inner in reversed(named):
        try:
            copy.deepcopy(inner, dict(known))
        except Exception as error:
            return name or "module", error
    return None


class Contents:
    """What the lists, dicts and objects among a call's arguments hold before the call."""

    def __init__(self, given: tuple[Any, ...]) -> None:
        self._held = [(each, *pytree.tree_flatten(each)) for each in given]

    def changed(self) -> str | None:
        """Return which argument holds something else now; None if none does."""
        for number, (each, leaves, spec) in enumerate(self._held):
            now, structure = pytree.tree_flatten(each)
            if structure != spec or any(one is not other for one, other in zip(leaves, now, strict=True)):
                return f"what the {type(each).__name__} of argument {number} holds"
        return None
