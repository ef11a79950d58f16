"""JSON round trip of frozen data: dataclasses to plain values and strictly back, with the path of what does not fit.

A dataclass becomes ``{"class": name, field: value, ...}``, without the fields that hold their default. An enum becomes
its value, a tuple a list, and a float that JSON cannot say becomes ``"nan"``, ``"inf"`` or ``"-inf"``.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tracea.errors import InvalidGraph

__all__ = ["Codec", "encode", "substitute"]

T = TypeVar("T")

_WORD_OF_FLOAT = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_MAX_NESTING = 160  # levels of JSON: the deepest expression, and the op and node around it


def encode(value: Any) -> Any:
    """Return ``value`` as plain JSON values."""
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case tuple() | list():
            return [encode(item) for item in cast("Iterable[Any]", value)]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [field for field in dataclasses.fields(value) if field.init]
            items = {field.name: getattr(value, field.name) for field in fields if not _is_default(value, field)}
            return {"class": type(value).__name__} | {name: encode(item) for name, item in items.items()}
        case _:
            raise InvalidGraph(
                field="json",
                got=type(value).__name__,
                expected="frozen data",
                remedy="keep arrays outside, bound by name",
            )


def _is_default(value: Any, field: dataclasses.Field[Any]) -> bool:
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return default is not dataclasses.MISSING and getattr(value, field.name) == default


class Codec:
    """Decodes plain values into the classes of an explicit tuple, and into nothing else."""

    def __init__(self, classes: Iterable[type]) -> None:
        self._classes = {cls.__name__: cls for cls in classes}

    def decode(self, data: Any, expected: type[T], where: str = "$") -> T:
        """Return the ``expected`` that ``data`` says.

        Raises:
            InvalidGraph: a missing, unknown or ill-typed field; ``field`` is its path.
            InvalidInput: the fields are well typed, but the class itself refuses their values.
        """
        return cast("T", self._decode(data, expected, where, 0))

    def _decode(self, data: Any, expected: Any, where: str, level: int) -> Any:
        if level > _MAX_NESTING:
            raise _misfit(where, "deeper nesting", f"at most {_MAX_NESTING} levels")
        origin = get_origin(expected)
        if origin in (Union, types.UnionType):
            return self._decode_union(data, get_args(expected), where, level)
        if origin is tuple:
            return self._decode_tuple(data, get_args(expected), where, level)
        if dataclasses.is_dataclass(expected):
            return self._decode_class(data, cast("type", expected), where, level)
        return _decode_scalar(data, expected, where)

    def _decode_union(self, data: Any, choices: tuple[Any, ...], where: str, level: int) -> Any:
        if data is None and type(None) in choices:
            return None
        is_class = isinstance(data, Mapping)
        name = cast("Mapping[str, Any]", data).get("class") if is_class else None
        fitting = [
            choice
            for choice in choices
            if choice is not type(None) and is_class == dataclasses.is_dataclass(choice) and self._accepts(choice, name)
        ]
        if len(fitting) != 1:
            raise _misfit(where, data, " or ".join(getattr(choice, "__name__", str(choice)) for choice in choices))
        return self._decode(data, fitting[0], where, level)

    def _accepts(self, choice: Any, name: Any) -> bool:
        if not dataclasses.is_dataclass(choice):
            return True
        found = self._classes.get(name) if isinstance(name, str) else None
        return found is not None and issubclass(found, cast("type", choice))

    def _decode_tuple(self, data: Any, items: tuple[Any, ...], where: str, level: int) -> tuple[Any, ...]:
        if not isinstance(data, list | tuple):
            raise _misfit(where, data, "a list")
        values = cast("list[Any]", data)
        kinds = [items[0]] * len(values) if len(items) == 2 and items[1] is Ellipsis else list(items)
        if len(kinds) != len(values):
            raise _misfit(where, values, f"a list of {len(kinds)}")
        pairs = zip(values, kinds, strict=True)
        return tuple(self._decode(value, kind, f"{where}[{i}]", level + 1) for i, (value, kind) in enumerate(pairs))

    def _decode_class(self, data: Any, base: type, where: str, level: int) -> Any:
        if not isinstance(data, Mapping):
            raise _misfit(where, data, f"an object of class {base.__name__}")
        given = dict(cast("Mapping[str, Any]", data))
        name = given.pop("class", None)
        cls = self._classes.get(name) if isinstance(name, str) else None
        if cls is None or not issubclass(cls, base):
            known = sorted(key for key, value in self._classes.items() if issubclass(value, base))
            raise _misfit(f"{where}.class", name, known)
        hints = _field_types(cls)
        unknown = sorted(set(given) - set(hints))
        if unknown:
            raise _misfit(f"{where}.{unknown[0]}", "an unknown field", sorted(hints))
        missing = [field for field in _required(cls) if field not in given]
        if missing:
            raise _misfit(f"{where}.{missing[0]}", "no such field", f"{cls.__name__} to have it")
        values = {key: self._decode(value, hints[key], f"{where}.{key}", level + 1) for key, value in given.items()}
        return cls(**values)


@cache
def _field_types(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


@cache
def _required(cls: type) -> tuple[str, ...]:
    absent = dataclasses.MISSING
    fields = dataclasses.fields(cls)
    return tuple(f.name for f in fields if f.init and f.default is absent and f.default_factory is absent)


def _decode_scalar(data: Any, expected: Any, where: str) -> Any:
    if isinstance(expected, type) and issubclass(expected, Enum):
        known = {member.value: member for member in expected}
        if not isinstance(data, str) or data not in known:
            raise _misfit(where, data, sorted(known))
        return known[data]
    if expected is float:
        if isinstance(data, int | float) and not isinstance(data, bool):
            return _as_float(data, where)
        if isinstance(data, str) and data in _WORD_OF_FLOAT:
            return _WORD_OF_FLOAT[data]
    elif type(data) is expected:
        return data
    raise _misfit(where, data, _name_of(expected))


def _name_of(expected: Any) -> str:
    return getattr(expected, "__name__", str(expected))


def _as_float(data: float, where: str) -> float:
    try:
        return float(data)
    except OverflowError as error:
        raise _misfit(where, "an integer beyond float64", "a float") from error


def _misfit(where: str, got: Any, expected: Any) -> InvalidGraph:
    return InvalidGraph(field=where, got=got, expected=expected, remedy="write the file with this version's to_json")


def substitute(value: T, replacements: Mapping[Any, Any]) -> T:
    """Return frozen ``value`` with each part that equals a key of ``replacements`` replaced."""
    return cast("T", _substitute(value, replacements))


def _substitute(value: Any, replacements: Mapping[Any, Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_substitute(item, replacements) for item in cast("tuple[Any, ...]", value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    if value in replacements:
        return replacements[value]
    old = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    new = {name: _substitute(item, replacements) for name, item in old.items()}
    return (
        value
        if all(new[name] is old[name] or new[name] == old[name] for name in old)
        else dataclasses.replace(value, **new)
    )
