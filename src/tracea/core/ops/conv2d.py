"""Two-dimensional convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, Final

from tracea.core.contract import Accuracy
from tracea.core.dtype import DType
from tracea.core.ops.base import Epilogue, Op, result_type
from tracea.core.ops.gemm import accumulator_of
from tracea.core.plain_shape import plain_shape
from tracea.core.tensor_type import Dim, StridedLayout, TensorType, static
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["LONG_STEP", "Conv2dOp"]

LONG_STEP: Final = 16  # pixels: longer ones are few layers', and worth looking at
# Products of a result for each of its taps: 36 of F(4, 3) for 16 results of 9 taps, of F(2, 5) for 4 results of 25.
_PLACES_OF_A_TAP: Final = {3: Fraction(36, 16 * 9), 5: Fraction(36, 4 * 25)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dOp(Op):
    """``out = epilogue(x * w)``: cross-correlation with zero padding, as ``torch.nn.functional.conv2d``.

    Shapes:
        x: (n, c, h, w); w: (k, c/groups, r, s); result: (n, k, p, q) with
        ``p = (h + 2·padding - dilation·(r - 1) - 1) // stride + 1``. Channels last is a layout of x, w or ``out``. A
        bias is an epilogue operand (k, 1, 1), a residual one of the result's shape.

    ``size`` states p and q instead: windows begin ``padding`` before the image, and what lies beyond it is zero, so
    that the two sides may be padded differently; a ``size`` that says the default becomes None. ``turned`` applies the
    taps in reverse, last row and last column first, as the gradient of a cross-correlation does. ``accuracy`` is the
    contract that the result keeps: by norm, for finite images, it may be computed by fewer products.

    Sums are kept in ``accumulator``: f32 for f32, f16 and bf16, f64 as soon as an operand is f64, integers for
    integers. An ``out`` that says the default (row-major, x's type) becomes None.
    """

    name: ClassVar[str] = "conv2d"

    x: TensorType
    w: TensorType
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    size: tuple[int, int] | None = None
    turned: bool = False
    epilogue: Epilogue = field(default_factory=Epilogue.identity)
    accumulator: DType = DType.F32
    accuracy: Accuracy = Accuracy.ELEMENTWISE
    out: TensorType | None = None

    def __post_init__(self) -> None:
        for name, least in (("stride", 1), ("padding", 0), ("dilation", 1)):
            _check_pair(name, getattr(self, name), least)
        if self.size is not None:
            _check_pair("size", self.size, 1)
        if not isinstance(self.accuracy, Accuracy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOp(
                field="conv2d.accuracy",
                got=self.accuracy,
                expected=[accuracy.value for accuracy in Accuracy],
                remedy="give an Accuracy",
            )
        self._check_channels()
        if self.size is not None and self.size == self._fitting():
            object.__setattr__(self, "size", None)
        self._shorten_steps()
        object.__setattr__(self, "accumulator", accumulator_of(self.accumulator, self.x.dtype, self.w.dtype))
        self.epilogue.check(self.shape, "conv2d")
        if result_type("conv2d", self.shape, self.x.dtype, self.out) == TensorType(self.shape, self.x.dtype):
            object.__setattr__(self, "out", None)

    def _shorten_steps(self) -> None:
        """Replace long steps where shorter ones do the same: a kernel copies the pixels that a step leads over.

        One result needs no stride, one tap no dilation. Other steps stay what they are: a kernel is built for them.
        """
        if self.size is None:
            shortest = tuple(map(min, self.stride, self._fitting((1, 1))))
        else:
            shortest = tuple(1 if n == 1 else step for n, step in zip(self.size, self.stride, strict=True))
        stride = tuple(short if step > LONG_STEP else step for step, short in zip(self.stride, shortest, strict=True))
        taps = zip(self.w.shape[2:], self.dilation, strict=True)
        dilation = tuple(1 if gap > LONG_STEP and static(tap) == 1 else gap for tap, gap in taps)
        object.__setattr__(self, "stride", stride)
        object.__setattr__(self, "dilation", dilation)

    def _check_channels(self) -> None:
        if not _is_count(self.groups) or self.groups < 1:
            raise InvalidOp(
                field="conv2d.groups", got=self.groups, expected="a number >= 1", remedy="groups=1 joins all channels"
            )
        fits = self.x.rank == 4 and self.w.rank == 4
        if fits:
            channels, filters = static(self.x.shape[1]), static(self.w.shape[0])
            fits = channels == static(self.w.shape[1]) * self.groups and filters % self.groups == 0
        if fits and self.taps < 1:
            raise InvalidShape(
                field="conv2d.w",
                got=self.w.static_shape,
                expected="at least one channel and one tap",
                remedy="a convolution of nothing is its epilogue of zero: make it a pointwise op",
            )
        if not fits:
            raise InvalidShape(
                field="conv2d",
                got={"x": plain_shape(self.x.shape), "w": plain_shape(self.w.shape), "groups": self.groups},
                expected="x (n, c, h, w), w (k, c/groups, r, s), k a multiple of groups",
                remedy=self._channels_that_agree(),
            )
        if 0 in self.x.shape[2:]:
            raise InvalidShape(
                field="conv2d.x",
                got={"h": self.x.shape[2], "w": self.x.shape[3]},
                expected="an image of at least 1×1, as torch does",
                remedy="an image of zeros, if padding alone was meant",
            )
        if min(self._extents()) < 1:
            raise InvalidShape(
                field="conv2d",
                got={
                    "h": self.x.shape[2],
                    "w": self.x.shape[3],
                    "filter": plain_shape(self.w.shape[2:]),
                    "padding": self.padding,
                    "dilation": self.dilation,
                    "result": self._extents(),
                },
                expected="a result of at least 1×1",
                remedy="pad more, or use a smaller filter or dilation",
            )

    def _channels_that_agree(self) -> str:
        """Say which groups, or which filters, would fit operands that do not."""
        if self.x.rank != 4 or self.w.rank != 4:
            return "give x and w four axes each"
        channels, filters = static(self.x.shape[1]), static(self.w.shape[0])
        each = static(self.w.shape[1])
        groups = channels // each if each > 0 and channels % each == 0 else 0
        if groups > 0 and filters % groups == 0:
            return f"groups={groups} fits this x and w"
        if groups == self.groups:
            return f"groups={groups} must divide the {filters} filters"
        if static(self.x.shape[3]) == each * self.groups != self.x.shape[2]:
            return f"the last axis of x has the {each * self.groups} channels that w takes: x.permute(0, 3, 1, 2)"
        if channels % self.groups == 0 and filters % self.groups == 0:
            return f"groups={self.groups} needs w of {channels // self.groups} channels"
        shared = ", ".join(
            str(n) for n in range(1, min(channels, filters, 64) + 1) if math.gcd(channels, filters) % n == 0
        )
        return f"groups must divide the {channels} channels of x and the {filters} filters: {shared or 'none does'}"

    def _extents(self) -> tuple[int, int]:
        return self._fitting() if self.size is None else self.size

    def _fitting(self, stride: tuple[int, int] | None = None) -> tuple[int, int]:
        steps = stride or self.stride
        taps = zip(self.x.shape[2:], self.w.shape[2:], steps, self.padding, self.dilation, strict=True)
        p, q = (
            (static(size) + 2 * pad - gap * (static(tap) - 1) - 1) // step + 1 for size, tap, step, pad, gap in taps
        )
        return p, q

    @classmethod
    def of(
        cls,
        *,
        batch: int = 1,
        channels: int,
        size: tuple[int, int],
        filters: int,
        kernel: tuple[int, int],
        stride: tuple[int, int] = (1, 1),
        padding: tuple[int, int] = (0, 0),
        dilation: tuple[int, int] = (1, 1),
        groups: int = 1,
        dtype: DType = DType.F32,
        channels_last: bool = False,
        bias: bool | TensorType = False,
        activation: str | None = None,
        residual: bool | TensorType = False,
        out_dtype: DType | None = None,
        accuracy: Accuracy = Accuracy.ELEMENTWISE,
    ) -> Conv2dOp:
        """Return a convolution of fresh operands; ``channels_last`` is the layout of x, a residual and the result.

        ``bias=True`` is (filters, 1, 1) and ``residual=True`` has the result's type. The filters are row-major.

        Raises:
            InvalidOp, InvalidShape: the extents do not make a convolution.
        """
        x = _image((batch, channels, *size), dtype, channels_last)
        w = TensorType((filters, channels // max(groups, 1), *kernel), dtype)
        plain = cls(x=x, w=w, stride=stride, padding=padding, dilation=dilation, groups=groups)
        result = _image(plain.infer().static_shape, out_dtype or dtype, channels_last)
        bias_type = TensorType((filters, 1, 1), result.dtype) if bias is True else bias or None
        residual_type = result if residual is True else residual or None
        return replace(
            plain,
            epilogue=Epilogue.of(bias=bias_type, activation=activation, residual=residual_type),
            accuracy=accuracy,
            out=result,
        )

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

    @property
    def fewest_flops(self) -> int:
        """As :attr:`flops`, with the products of Winograd's F(4, 3) or F(2, 5) where these may compute it."""
        if self.accuracy is Accuracy.ELEMENTWISE or not self.takes_fewer_products:
            return self.flops
        products = self.taps * _PLACES_OF_A_TAP[static(self.w.shape[2])]
        return self.infer().elements * (math.ceil(2 * products) + self.epilogue.expr.arithmetic)

    @property
    def takes_fewer_products(self) -> bool:
        """Whether it is of a kind that Winograd's F(m, r) compute: 3×3 or 5×5 taps in order, stride and dilation 1."""
        rows, columns = self.w.shape[2:]
        is_square = rows == columns and rows in _PLACES_OF_A_TAP
        return is_square and self.stride == (1, 1) == self.dilation and not self.turned

    @property
    def summary(self) -> str:
        """The image, the filters, the image's type, and the accuracy if it is by norm."""
        image = "x".join(str(getattr(dim, "name", dim)) for dim in self.x.shape)
        filters = "x".join(str(dim) for dim in self.w.shape)
        by_norm = "_normwise" if self.accuracy is Accuracy.NORMWISE else ""
        return f"{image}_by_{filters}_{self.x.dtype.value}{by_norm}"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_pair(name: str, values: tuple[int, int], least: int) -> None:
    fits = isinstance(values, tuple) and len(values) == 2  # pyright: ignore[reportUnnecessaryIsInstance]
    if not fits or not all(_is_count(value) and value >= least for value in values):
        raise InvalidOp(
            field=f"conv2d.{name}", got=values, expected=f"two numbers >= {least}", remedy="give (rows, columns)"
        )


def _image(shape: tuple[int, ...], dtype: DType, channels_last: bool) -> TensorType:
    if not channels_last:
        return TensorType(shape, dtype)
    _, channels, height, width = shape
    return TensorType(shape, dtype, StridedLayout((height * width * channels, 1, width * channels, channels)))
