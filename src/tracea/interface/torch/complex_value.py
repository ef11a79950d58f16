"""A complex value while a module is lowered: two tensors of its shape, its real and its imaginary parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from tracea.core.graph import Node

if TYPE_CHECKING:
    from tracea.interface.torch.lowering import Lowering, Operand

__all__ = ["PARTS", "Complex", "has_complex", "nodes_of", "of_shape", "whole"]

PARTS: Final = ("real", "imag")


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex value; a part that is a number is that everywhere."""

    real: Operand
    imag: Operand

    @classmethod
    def of(cls, operand: Any) -> Complex:
        """Return an operand of any kind as a complex one."""
        if isinstance(operand, complex):
            return cls(operand.real, operand.imag)
        return operand if isinstance(operand, Complex) else cls(operand, 0.0)

    @property
    def is_real(self) -> bool:
        """Whether the imaginary part is 0 whatever the run."""
        return not isinstance(self.imag, Node) and self.imag == 0


def has_complex(value: Any) -> bool:
    """Tell whether an argument, or a tensor of torch's, is complex or a list with something that is."""
    if isinstance(value, list | tuple):
        return any(map(has_complex, cast("Sequence[Any]", value)))
    return value.is_complex() if isinstance(value, torch.Tensor) else isinstance(value, Complex | complex)


def nodes_of(value: Any) -> list[Node]:
    """Return the graph's tensors that a lowered value is: one, two, or none."""
    parts = (value.real, value.imag) if isinstance(value, Complex) else (value,)
    return [each for each in parts if isinstance(each, Node)]


def whole(low: Lowering, real: Operand, imag: Operand) -> Complex:
    """Return the current node's result, each part a tensor of its shape."""
    return Complex(of_shape(low, real), of_shape(low, imag))


def of_shape(low: Lowering, part: Operand) -> Node:
    """Return a part as a tensor of the current node's shape and element type."""
    if not isinstance(part, Node):
        return low.filled(float(part), low.shape)
    return low.expand(low.cast(part, low.dtype), low.shape)
