"""Given: the operands of a call that was not seen before, as views and types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from tracea.core.op import Op
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidDType, InvalidOp, InvalidShape
from tracea.runtime.buffers import ArrayView, view

__all__ = ["Given"]


@dataclass(frozen=True, slots=True)
class Given:
    """What a caller gave, in the order of the operands; None where an optional one was left out."""

    views: tuple[ArrayView | None, ...]
    out: ArrayView | None

    @classmethod
    def of(cls, names: Sequence[str], arrays: Sequence[Any], out: Any) -> Self:
        """Look at each array.

        Raises: InvalidDType: torch and NumPy are mixed, or what is no array. InvalidDevice, InvalidStride.
        """
        views = tuple(None if array is None else view(array, name) for name, array in zip(names, arrays, strict=True))
        target = None if out is None else view(out, "out")
        kinds = {found.kind for found in (*views, target) if found is not None}
        if len(kinds) > 1:
            raise InvalidDType(
                field="operands",
                got=sorted(kind.value for kind in kinds),
                expected="all torch tensors or all NumPy arrays",
                remedy="convert with torch.from_numpy or tensor.numpy(), which copy nothing",
            )
        return cls(views, target)

    def type(self, index: int) -> TensorType:
        """Return the type of an operand.

        Raises: InvalidDType: it was not given.
        """
        found = self.optional(index)
        if found is None:
            raise InvalidDType(
                field=f"operand {index}", got=None, expected="a tensor or an array", remedy="give all operands"
            )
        return found

    def optional(self, index: int) -> TensorType | None:
        """Return the type of an operand, None where it was left out."""
        found = self.views[index]
        return None if found is None else _type_of(found)

    @property
    def result(self) -> TensorType | None:
        """The type of ``out`` where it was given."""
        return None if self.out is None else _type_of(self.out)

    def check_result(self, op: Op) -> None:
        """Check that ``out``, where it was given, is what the op makes.

        Raises: InvalidShape, InvalidDType.
        """
        wanted, out = op.infer(), self.result
        if out is None:
            return
        for error, fits in ((InvalidShape, out.shape == wanted.shape), (InvalidDType, out.dtype is wanted.dtype)):
            if not fits:
                raise error(
                    field="out", got=str(out), expected=str(wanted), remedy="give an out of the result's shape and type"
                )

    def number(self, name: str, value: Any) -> float:
        """Return an attribute that must be a number.

        Raises: InvalidOp: it is none.
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidOp(field=name, got=value, expected="a number", remedy=f"{name}=1.0")
        return float(value)


def _type_of(found: ArrayView) -> TensorType:
    return TensorType(found.shape, found.dtype, StridedLayout(found.strides))
