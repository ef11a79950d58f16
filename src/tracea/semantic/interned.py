"""Nodes of which equal ones are one object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from threading import RLock
from typing import Any, Final
from weakref import WeakValueDictionary

__all__ = ["Interned", "made_of"]

_LIVING: Final[WeakValueDictionary[tuple[Any, ...], Any]] = WeakValueDictionary()
_MAKING: Final = RLock()  # how a node is spelled makes others


class Interned(type):
    """Makes one object of the same arguments, as long as it lives: ``is`` tells equality, and hashing costs nothing.

    For frozen dataclasses with ``eq=False`` and a slot for weak references.
    """

    __match_args__: tuple[str, ...]

    def __call__(cls, *args: Any, **named: Any) -> Any:
        """Return the node of these parts, by place or by name, defaults filled in."""
        given = args if not named and len(args) == len(cls.__match_args__) else _in_order(cls, args, named)
        key = (cls, *given)
        known = _LIVING.get(key)
        if known is None:
            with _MAKING:
                known = _LIVING.get(key)
                if known is None:
                    known = _LIVING[key] = super().__call__(*given)
        return known


def made_of(node: Any) -> tuple[Any, ...]:
    """Return what a node was made of, by place."""
    return tuple(getattr(node, name) for name in node.__match_args__)


def _in_order(cls: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
    wanted = [each for each in fields(cls) if each.init][len(args) :]
    values = (*args, *(named.get(each.name, each.default) for each in wanted))
    if len(values) != len(cls.__match_args__) or MISSING in values or named.keys() - {each.name for each in wanted}:
        raise TypeError(f"{cls.__name__}{args} with {dict(named)}: it is made of {', '.join(cls.__match_args__)}")
    return values
