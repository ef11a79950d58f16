"""Low-rank products as a function: two thin factors, one kernel, zero copy."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tracea.core.op import Epilogue, GemmOp, LowRankOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidShape
from tracea.flow.compile import compile_op
from tracea.interface.operands import Given, check_same_dtype, dispatched
from tracea.interface.results import compile_as_views

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["low_rank_mlp"]

_OPERANDS: Final = ("x", "a", "b", "bias")


def low_rank_mlp(x: Any, a: Any, b: Any, *, bias: Any = None, activation: str | None = None, out: Any = None) -> Any:
    """Return ``activation((x @ a) @ b + bias)``; ``x @ a`` never leaves the kernel and is kept in the sums' type.

    Shapes: x is (m, k), a (k, r), b (r, n), r at most 65536; bias broadcasts to (m, n) from the right.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for an unknown
    activation.
    """
    return _dispatch()(x, a, b, bias, out, activation)


@cache
def _dispatch() -> Any:
    return dispatched(_OPERANDS, _missed)


def _missed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OPERANDS, arrays, out)
    (activation,) = attributes
    given.check_floats(one_arithmetic=True)
    x, a, b, bias = given.type(0), given.type(1), given.type(2), given.optional(3)
    ranks = {"x": x.shape, "a": a.shape, "b": b.shape}
    if any(len(shape) != 2 for shape in ranks.values()) or x.shape[1] != a.shape[0] or a.shape[1] != b.shape[0]:
        raise InvalidShape(
            field="low_rank_mlp",
            got=ranks,
            expected="(m, k) @ (k, r) @ (r, n)",
            remedy="merge leading axes of x into its rows, and make the inner extents agree",
        )
    check_same_dtype("low_rank_mlp", x, a)
    check_same_dtype("low_rank_mlp", a, b)
    given.check_broadcasts((x.shape[0], b.shape[1]), 3)
    epilogue = Epilogue.of(bias=bias, activation=activation)
    if x.shape[1] == 0 or a.shape[1] == 0:
        return _of_nothing(given, epilogue, threads)
    op = LowRankOp(
        m=x.shape[0],
        n=b.shape[1],
        k=x.shape[1],
        r=a.shape[1],
        x=x,
        a=a,
        b=b,
        epilogue=epilogue,
        out=given.result,
    )
    given.check_result(op)
    return compile_op(op, threads=threads)


def _of_nothing(given: Given, epilogue: Epilogue, threads: int) -> Program:
    """Return the program of sums over nothing: the epilogue of 0, as that of a product of no terms."""
    x, a, b = given.type(0), given.type(1), given.type(2)
    left = TensorType((x.shape[0], 0), x.dtype)
    right = TensorType((0, b.shape[1]), b.dtype)
    op = GemmOp(m=x.shape[0], n=b.shape[1], k=0, a=left, b=right, epilogue=epilogue, out=given.result)
    given.check_result(op)
    inputs = (x, a, b, *epilogue.operands)
    return compile_as_views(
        op,
        inputs=inputs,
        output=given.result or op.infer(),
        threads=threads,
        order=(0, 2, *range(3, len(inputs))),
    )
