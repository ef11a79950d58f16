"""As which type torch reads the operands of one operator.

A number, and a tensor without axes, take the type of the tensors that have axes: ``x > 0.1`` of a bfloat16 tensor
compares with 0.10009765625. Comparisons, additions, powers, and what only chooses or moves round it so; products,
quotients and activations read it as float32, which they compute in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from tracea.core.dtype import DType
from tracea.core.expr import Cast, Expr, Input
from tracea.core.graph import Node
from tracea.interface.torch.functions import floor
from tracea.interface.torch.types import dtype_of, torch_dtype_of

if TYPE_CHECKING:
    from tracea.interface.torch.lowering import Lowering, Operand

__all__ = ["NARROW", "as_stored", "common_type", "read_as", "rounded"]

NARROW: Final = (DType.F16, DType.BF16)
_BITS: Final = {DType.U8: 8, DType.I8: 8, DType.I32: 32}


def common_type(left: Operand, right: Operand) -> DType:
    """Return the type in which torch compares two operands."""
    return dtype_of(torch.result_type(_like(left), _like(right)), "comparison")


def rounded(number: float, dtype: DType) -> float:
    """Return a number as torch makes one of a tensor's type of it: floats rounded, integers wrapped around."""
    wide = torch.float64 if isinstance(number, float) else torch.int64
    return torch.tensor(number, dtype=wide, device="cpu").to(torch_dtype_of(dtype)).item()


def as_stored(expr: Expr, x: Node) -> Expr:
    """Return an expression of ``Input(0)``, which is x, as one of x rounded to its type where that has 16 bits.

    A kernel that computes x on its way keeps more of it, and what jumps, as a comparison does, tells.
    """
    return expr.substitute({0: Cast(Input(0), x.type.dtype)}) if x.type.dtype in NARROW else expr


def read_as(low: Lowering, dtype: DType, *operands: Operand, stored: bool = False) -> tuple[list[Expr], list[Operand]]:
    """Return the terms that stand for the operands in a type, and the operands that they are of, in order.

    Terms are numbered as the operands are. A number that only a run knows stays what it is. ``stored`` has tensors read
    as they would be stored (``as_stored``).
    """
    terms: list[Expr] = []
    read: list[Operand] = []
    for index, given in enumerate(operands):
        operand, term = low.number_of(given), Input(index)
        if not isinstance(operand, Node):
            is_number = isinstance(operand, int | float)  # pyright: ignore[reportUnnecessaryIsInstance]
            operand = rounded(operand, dtype) if is_number else operand
        else:
            if stored and operand.type.dtype in NARROW:
                term = Cast(term, operand.type.dtype)
            if dtype is DType.F64 and operand.type.dtype.is_float:
                operand = low.cast(operand, dtype)  # a value of f64 on the way, so that f64 is computed in
            elif not dtype.holds(operand.type.dtype):
                is_wider = dtype in _BITS and not operand.type.dtype.is_float
                term = _wrapped(term, dtype) if is_wider else Cast(term, dtype)
        terms.append(term)
        read.append(operand)
    return terms, read


def _wrapped(x: Expr, dtype: DType) -> Expr:
    """Return whole numbers wrapped around to a narrower type, as torch reads a tensor without axes beside integers."""
    span = 2.0 ** _BITS[dtype]
    low = 0.0 if dtype is DType.U8 else -span / 2.0
    return x - floor((x - low) / span) * span


def _like(operand: Operand) -> torch.Tensor | float:
    if not isinstance(operand, Node):
        return operand
    return torch.empty((0,) * min(operand.type.rank, 1), dtype=torch_dtype_of(operand.type.dtype), device="cpu")
