"""Pooling of images: the largest or the mean of each window, channel by channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, cast

from tracea.core.ops.base import Op, result_type
from tracea.core.plain_shape import axes_remedy, plain_shape
from tracea.core.tensor_type import Dim, TensorType, static
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["Pool2dOp", "PoolKind", "check_pair", "check_windows"]


class PoolKind(Enum):
    """What becomes of a window; MAX hands a NaN on."""

    MAX = "max"
    AVERAGE = "average"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool2dOp(Op):
    """``out[n, c, p, q]`` is the largest, or the mean, of the window of x that begins at ``p·stride - padding``.

    Shapes:
        x: (n, c, h, w); result: (n, c, p, q) with ``p = (h + 2·padding - kernel) // stride + 1``, one more where
        ``ceil`` and a window that begins in the image or before it would be cut off.

    A stride beyond the image and its padding becomes their extent. What lies outside of the image is not pooled. A mean
    divides by the elements of the window: with ``count_padding`` those of the padding count, but not what a ``ceil``
    adds beyond it.
    """

    name: ClassVar[str] = "pool2d"

    kind: PoolKind
    x: TensorType
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    ceil: bool = False
    count_padding: bool = True
    out: TensorType | None = None

    def __post_init__(self) -> None:
        for name, least in (("kernel", 1), ("stride", 1), ("padding", 0)):
            check_pair(f"pool2d.{name}", getattr(self, name), least)
        if self.x.rank != 4:
            raise InvalidShape(
                field="pool2d.x",
                got=plain_shape(self.x.shape),
                expected="(n, c, h, w)",
                remedy=axes_remedy("x", self.x.rank, 4, "one image"),
            )
        sizes = dict(zip("hw", self.x.shape[2:], strict=True))
        check_windows("pool2d", sizes, self.kernel, self.stride, self.padding, ceil=self.ceil)
        # A step across the whole image and its padding, or a window that reaches beyond both, leaves one window, and so
        # does every longer step.
        along = zip(self.x.shape[2:], self.padding, self.kernel, self.stride, strict=True)
        steps = tuple(min(step, max(static(dim) + 2 * pad, size)) for dim, pad, size, step in along)
        object.__setattr__(self, "stride", steps)
        if result_type("pool2d", self.shape, self.x.dtype, self.out) == TensorType(self.shape, self.x.dtype):
            object.__setattr__(self, "out", None)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        along = zip(self.x.shape[2:], self.kernel, self.stride, self.padding, strict=True)
        return (*self.x.shape[:2], *(_windows(*each, ceil=self.ceil) for each in along))

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The image."""
        return (self.x,)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("pool2d", self.shape, self.x.dtype, self.out)

    def window(self, axis: int, place: int) -> tuple[int, int, int]:
        """Return the first element of a window along rows (0) or columns (1), one past its last, and its length."""
        size = static(self.x.shape[2 + axis])
        first = place * self.stride[axis] - self.padding[axis]
        end = first + self.kernel[axis]
        inside = max(first, 0), min(end, size)
        counted = min(end, size + self.padding[axis]) - first if self.count_padding else inside[1] - inside[0]
        return *inside, counted

    @property
    def flops(self) -> int:
        """One for each element of each window, padding counted."""
        return self.infer().elements * self.kernel[0] * self.kernel[1]


def check_windows(
    op: str,
    sizes: Mapping[str, Dim],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    *,
    ceil: bool,
) -> tuple[int, ...]:
    """Return how many windows ``op`` has along each of the axes of ``sizes``, which may be a signal's one.

    Raises:
        InvalidOp: windows would be of padding alone. InvalidShape: there is no window, or nothing to pool.
    """
    if any(2 * pad > size for pad, size in zip(padding, kernel, strict=True)):
        raise InvalidOp(
            field=f"{op}.padding",
            got=_plain(padding),
            expected=f"at most half of the window {_plain(kernel)}",
            remedy="pad less: a window of padding alone has no value",
        )
    along = zip(sizes.values(), kernel, stride, padding, strict=True)
    counts = tuple(_windows(*each, ceil=ceil) for each in along)
    if min(counts) < 1 or 0 in sizes.values():
        raise InvalidShape(
            field=op,
            got={**sizes, "window": _plain(kernel), "padding": _plain(padding), "result": _plain(counts)},
            expected="an image and a result of at least 1×1"
            if len(sizes) > 1
            else "a signal and a result of at least 1",
            remedy="pad more, or use a smaller window",
        )
    return counts


def _plain(numbers: Sequence[int]) -> Any:
    """Return numbers as messages show them: that of one axis by itself."""
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def _windows(dim: Dim, size: int, step: int, pad: int, *, ceil: bool) -> int:
    steps = static(dim) + 2 * pad - size
    whole = -(-steps // step) if ceil else steps // step
    # The last window begins in the image or in the padding before it.
    return whole + 1 - int(ceil and whole * step >= static(dim) + pad)


def check_pair(field: str, values: Any, least: int) -> None:
    """Check that values are two whole numbers from ``least`` on.

    Raises:
        InvalidOp: they are not.
    """
    pair = cast("tuple[Any, ...]", values) if isinstance(values, tuple) else ()
    if len(pair) != 2 or not all(type(value) is int and value >= least for value in pair):
        raise InvalidOp(field=field, got=values, expected=f"two numbers >= {least}", remedy="give (rows, columns)")
