"""Two-dimensional convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from tracea.core.dtype import DType
from tracea.core.ops.base import Epilogue, Op, result_type
from tracea.core.ops.gemm import accumulator_of
from tracea.core.tensor_type import Dim, TensorType, static
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["Conv2dOp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dOp(Op):
    """``out = epilogue(x * w)``: cross-correlation with zero padding, as ``torch.nn.functional.conv2d``.

    Shapes:
        x: (n, c, h, w); w: (k, c/groups, r, s); result: (n, k, p, q) with
        ``p = (h + 2·padding - dilation·(r - 1) - 1) // stride + 1``. NHWC is a layout. A bias is an epilogue operand
        (k, 1, 1).
    """

    name: ClassVar[str] = "conv2d"

    x: TensorType
    w: TensorType
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    epilogue: Epilogue = field(default_factory=Epilogue.identity)
    accumulator: DType = DType.F32
    out: TensorType | None = None

    def __post_init__(self) -> None:
        for name, least in (("stride", 1), ("padding", 0), ("dilation", 1)):
            values = getattr(self, name)
            if len(values) != 2 or min(values) < least:
                raise InvalidOp(
                    field=f"conv2d.{name}",
                    got=values,
                    expected=f"two numbers >= {least}",
                    remedy="give (rows, columns)",
                )
        self._check_channels()
        object.__setattr__(self, "accumulator", accumulator_of(self.accumulator, self.x.dtype, self.w.dtype))
        self.epilogue.check(self.shape, "conv2d")
        if result_type("conv2d", self.shape, self.x.dtype, self.out) == TensorType(self.shape, self.x.dtype):
            object.__setattr__(self, "out", None)

    def _check_channels(self) -> None:
        fits = self.x.rank == 4 and self.w.rank == 4 and self.groups >= 1
        if fits:
            channels, filters = static(self.x.shape[1]), static(self.w.shape[0])
            fits = channels == static(self.w.shape[1]) * self.groups and filters % self.groups == 0
        if not fits:
            raise InvalidShape(
                field="conv2d",
                got={"x": tuple(map(str, self.x.shape)), "w": tuple(map(str, self.w.shape)), "groups": self.groups},
                expected="x (n, c, h, w), w (k, c/groups, r, s), k a multiple of groups",
                remedy="make the channels of x and w agree",
            )
        if min(self._extents()) < 1:
            raise InvalidShape(
                field="conv2d",
                got={"h": self.x.shape[2], "w": self.x.shape[3], "result": self._extents()},
                expected="a result of at least 1×1",
                remedy="pad more, or use a smaller filter or dilation",
            )

    def _extents(self) -> tuple[int, int]:
        taps = zip(self.x.shape[2:], self.w.shape[2:], self.stride, self.padding, self.dilation, strict=True)
        p, q = (
            (static(size) + 2 * pad - gap * (static(tap) - 1) - 1) // step + 1 for size, tap, step, pad, gap in taps
        )
        return p, q

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return (self.x.shape[0], self.w.shape[0], *self._extents())

    @property
    def taps(self) -> int:
        """Products in one sum: c/groups · r · s."""
        return math.prod(self.w.static_shape[1:])

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """Image, filters, then the epilogue's."""
        return (self.x, self.w, *self.epilogue.operands)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("conv2d", self.shape, self.x.dtype, self.out)

    @property
    def flops(self) -> int:
        """Two per tap, padding counted, and the epilogue's arithmetic."""
        return self.infer().elements * (2 * self.taps + self.epilogue.expr.arithmetic)
