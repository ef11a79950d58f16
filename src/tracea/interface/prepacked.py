"""Constant weights in a kernel's own layout: packed once, multiplied many times."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from tracea.core.op import Epilogue, GemmOp
from tracea.core.tensor_type import Dim, StridedLayout, TensorType
from tracea.doctor import probe_machine
from tracea.errors import InvalidOption, InvalidShape, ResourceExceeded
from tracea.flow.compile import compile_node
from tracea.interface.operands import Given, check_same_dtype, dispatched, number
from tracea.runtime.buffers import ArrayKind, ArrayView

__all__ = ["PrepackedWeight", "prepack", "scaled_bias"]

_OPERANDS: Final = ("a", "bias", "residual")


@dataclass(slots=True, eq=False, repr=False)
class PrepackedWeight:
    """A (k, n) weight whose values are frozen: later changes of the array it was made from do not reach it.

    Each distinct left operand's shape packs the weight for the kernel that was measured, or scored, fastest for it.
    ``dispatchers`` holds those of the fused chains that multiply by it.
    """

    values: np.ndarray[Any, Any]
    kind: ArrayKind
    type: TensorType
    dispatchers: dict[Hashable, Any] = field(init=False, default_factory=dict[Hashable, Any])
    _dispatch: Any = field(init=False, default=None)
    instead_of_array: ClassVar[str] = (
        "give the array that it was packed from; a packed weight is the right factor of tracea.ops.gemm, and of "
        'tracea.ops.fuse(["gemm", …]), alone'
    )

    @property
    def shape(self) -> tuple[int, ...]:
        """The weight's logical shape, (k, n)."""
        return self.type.static_shape

    def __repr__(self) -> str:
        return f"PrepackedWeight({self.type}, {self.kind.value})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by the values: they are packed where they are used."""
        return PrepackedWeight, (self.values, self.kind, self.type)

    def multiply(
        self,
        a: Any,
        *,
        bias: Any = None,
        residual: Any = None,
        activation: str | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        out: Any = None,
    ) -> Any:
        """Return ``activation(alpha · a @ weight + beta · bias) + residual``; see ``tracea.ops.gemm``."""
        if self._dispatch is None:
            self._dispatch = dispatched(_OPERANDS, self._missed)
        beta, bias = scaled_bias(beta, bias)
        return self._dispatch(a, bias, residual, out, activation, number("alpha", alpha), beta)

    def _missed(self, arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
        given = Given.of(_OPERANDS, arrays, out)
        activation, alpha, beta = attributes
        given.check_floats(one_arithmetic=True)
        a = given.type(0)
        if a.rank < 2 or a.shape[-1] != self.shape[0]:
            raise InvalidShape(
                field="gemm",
                got={"a": a.shape, "b": self.shape},
                expected="(…, m, k) @ (k, n)",
                remedy=_remedy(a.shape, self.shape),
            )
        check_same_dtype("gemm", a, self.type)
        given.check_broadcasts((*a.shape[:-1], self.shape[1]), 1, 2)
        op = GemmOp(
            m=a.shape[-2],
            n=self.shape[1],
            k=a.shape[-1],
            batch=a.shape[:-2],
            a=a,
            b=self.type,
            epilogue=Epilogue.of(
                alpha=alpha,
                beta=beta,
                bias=given.optional(1),
                activation=activation,
                residual=given.optional(2),
            ),
            out=given.result,
        )
        given.check_result(op)
        return compile_node(op, {1: self.values}, threads=threads, library=False).program


def scaled_bias(beta: Any, bias: Any) -> tuple[float, Any]:
    """Return beta as a number, and the bias that it scales: none where it is 0.

    Raises: InvalidOp: beta is no number.
    """
    if type(beta) is not float:
        beta = number("beta", beta)
    return beta, bias if beta != 0.0 else None


def _remedy(a: tuple[Dim, ...], weight: tuple[int, ...]) -> str:
    """Return what mends a product with a packed weight, which cannot be turned any more."""
    if len(a) < 2:
        return "give a a row axis: a[None, :]"
    return "pack it turned: prepack(weight.T)" if a[-1] == weight[1] else "make the inner extents agree"


def prepack(w: Any, for_op: str = "gemm") -> PrepackedWeight:
    """Return a constant weight that is packed once for the kernels that multiply by it.

    >>> weight = prepack(w)
    >>> y = gemm(a, weight)

    Shapes: w is (k, n) with any strides; a ``torch.nn.Linear`` weight is given as ``weight.t()``.

    Raises:
        InvalidOption: ``for_op`` is not "gemm". InvalidShape: w is not a matrix. InvalidDType, InvalidDevice,
        InvalidStride. ResourceExceeded: there is no memory for a copy of its values.
    """
    if for_op != "gemm":
        raise InvalidOption(field="for_op", got=for_op, expected="gemm", remedy='prepack(w, for_op="gemm")')
    given = Given.of(("w",), (w,), None)
    given.check_floats()
    type_, found = given.type(0), given.views[0]
    if found is None or type_.rank != 2:
        raise InvalidShape(field="w", got=type_.shape, expected="(k, n)", remedy="give a matrix")
    values = _copied(found)
    strides = tuple(stride // values.itemsize for stride in values.strides)
    stored = TensorType(found.shape, found.dtype, StridedLayout(strides))
    return PrepackedWeight(values=values, kind=found.kind, type=stored)


def _copied(found: ArrayView) -> np.ndarray[Any, Any]:
    """Return a copy in the order of the array's axes: a transpose stays one, packing reads either."""
    needed, there = math.prod(found.shape) * found.dtype.nbytes, probe_machine().hardware.memory_bytes
    try:
        if 0 < there < needed:  # whatever the system may promise
            raise MemoryError
        return np.array(found.numpy(), order="K", copy=True)
    except MemoryError as error:
        raise ResourceExceeded(
            what=f"a copy of the weight {found.shape} of {found.dtype.value}",
            needed_bytes=needed,
            limit_bytes=there,
            remedy="split the weight, or give its values without expansion",
        ) from error
