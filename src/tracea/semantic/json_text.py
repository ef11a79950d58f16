"""TileKernel as JSON: every node with its fields, expressions as text; to read, compare and keep, not to load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, cast

from tracea.core.expr import Expr
from tracea.semantic.index import Index
from tracea.semantic.nodes import Intrinsic
from tracea.semantic.predicate import Predicate
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["SCHEMA_VERSION", "kernel_to_dict", "kernel_to_json"]

SCHEMA_VERSION = 1


def kernel_to_dict(kernel: TileKernel) -> dict[str, Any]:
    """Return the kernel as plain JSON values: deterministic, and equal for equal kernels."""
    plain = {part.name: _plain(getattr(kernel, part.name)) for part in fields(kernel) if part.name != "op"}
    op = kernel.op
    key = getattr(op, "key", None)
    return {"schema_version": SCHEMA_VERSION, "op": key if isinstance(key, str) else None, **plain}


def kernel_to_json(kernel: TileKernel, *, indent: int | None = 1) -> str:
    """Return the kernel as JSON text."""
    return json.dumps(kernel_to_dict(kernel), indent=indent, ensure_ascii=False)


def _plain(value: Any) -> Any:
    match value:
        case Schedule():
            return dict(value.items())
        case Index() | Predicate():
            return str(value)
        case Expr():
            return value.to_dict()
        case Intrinsic():
            return {"name": value.name, "source": value.source, "attributes": dict(value.attributes)}
        case Enum():
            return value.value
        case tuple():
            return [_plain(item) for item in cast("tuple[Any, ...]", value)]
        case Mapping():
            return {str(key): _plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
        case None | bool() | int() | float() | str():
            return value
        case _ if is_dataclass(value) and not isinstance(value, type):
            named = {part.name: _plain(getattr(value, part.name)) for part in fields(value) if part.init}
            return {"node": type(value).__name__, **named}
        case _:
            return str(value)
