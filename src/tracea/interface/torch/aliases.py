"""Which values of a trace share memory, so that a write in place is followed: relu_ as relu.

The value that is written to is what the operator without a write returns, from then on. The others that shared its
memory are not rebuilt: they are stale, and a module that reads one afterwards is left to torch.export.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch
from torch._ops import OpOverload

from tracea.interface.torch.export import operator_name

__all__ = ["Shared", "hands_on", "returning"]

# What these return may be their operand's memory, of which their schemas say nothing.
_UNSAID: Final = frozenset(
    f"aten.{name}.default" for name in ("_unsafe_view", "dropout", "feature_dropout", "alpha_dropout")
)


@dataclass(slots=True)
class Shared:
    """Values of one memory; ``is_given`` says that others hold it: it is an input's, or a tensor's of the module.

    ``is_by_strides`` says that of inputs with other strides it would be two memories.
    """

    is_given: bool = False
    is_by_strides: bool = False
    values: list[weakref.ref[Any]] = field(default_factory=list["weakref.ref[Any]"])

    def add(self, value: Any) -> None:
        """Count a value among them."""
        self.values.append(weakref.ref(value))

    def others(self, value: Any) -> list[Any]:
        """Return the living ones but this."""
        living = [each() for each in self.values]
        return [each for each in living if each is not None and each is not value]


def hands_on(called: OpOverload[..., Any]) -> bool:
    """Tell whether what an operator returns may share its first operand's memory."""
    returns = called._schema.returns  # pyright: ignore[reportPrivateUsage]
    return any(each.alias_info is not None for each in returns) or operator_name(called) in _UNSAID


@cache
def returning(called: OpOverload[..., Any]) -> OpOverload[..., Any] | None:
    """Return the operator that returns what another writes to its first argument alone: relu of relu_; None of others.

    ``x.add_(y)`` is ``add.Tensor`` of the same arguments.
    """
    schema: Any = called._schema  # pyright: ignore[reportPrivateUsage]
    name = schema.name.rpartition("::")[2]
    written = [each.alias_info is not None and each.alias_info.is_write for each in schema.arguments]
    if not name.endswith("_") or name.endswith("__") or written.index(True) != 0 or written.count(True) != 1:
        return None
    packet: Any = getattr(torch.ops.aten, name.removesuffix("_"), None)
    overload = schema.overload_name or "default"
    if packet is None or overload not in packet.overloads():
        return None
    other: Any = getattr(packet, overload)
    is_same = _arguments(schema) == _arguments(other._schema)
    return other if is_same and not other._schema.is_mutable and len(other._schema.returns) == 1 else None


def _arguments(schema: Any) -> list[tuple[str, str]]:
    """Return names and types; the first one's name is torch's own affair."""
    return [(each.name if place else "", str(each.type)) for place, each in enumerate(schema.arguments)]
