"""Library ports: calls of torch's exported C shim as entries of a Program: oneDNN and MKL compete as variants."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidShape
from tracea.runtime.native import launcher

__all__ = ["LibraryCall", "LibraryFunction", "available"]


class LibraryFunction(enum.Enum):
    """A function of torch's C shim (``aoti_torch_cpu_<name>_out``); its value is the launcher's number for it."""

    MM = 0
    ADDMM = 1
    BMM = 2
    BADDBMM = 3

    @property
    def operands(self) -> int:
        """Number of operands, the output first."""
        return 3 if self in (LibraryFunction.MM, LibraryFunction.BMM) else 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCall:
    """A library function with the types of its operands, output first.

    mm: ``out = a @ b``. addmm: ``out = beta * c + alpha * (a @ b)`` with operands out, c, a, b and scalars
    ``(beta, alpha)``; bmm and baddbmm the same with one batch axis. It runs on the calling thread and uses torch's own
    threads.
    """

    function: LibraryFunction
    operands: tuple[TensorType, ...]

    def __post_init__(self) -> None:
        if len(self.operands) != self.function.operands:
            raise InvalidShape(
                field="operands",
                got=len(self.operands),
                expected=self.function.operands,
                remedy=f"{self.function.name} takes the output and then its inputs",
            )

    @property
    def name(self) -> str:
        """The shim's symbol."""
        return f"aoti_torch_cpu_{self.function.name.lower()}_out"


def available(function: LibraryFunction) -> bool:
    """Tell whether torch is loaded in this process and exports the function."""
    return launcher().library_available(function.value)
