"""Element by element ops, views, and where a graph's tensors come from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from tracea.core.dtype import DType
from tracea.core.expr import Expr
from tracea.core.ops.base import Op, result_type
from tracea.core.ops.rows import check_prologue
from tracea.core.plain_shape import plain_shape
from tracea.core.tensor_type import Dim, StridedLayout, SymbolicDim, TensorType, broadcast_shapes, static
from tracea.errors import InvalidDType, InvalidShape, InvalidStride

__all__ = ["PointwiseOp", "SourceKind", "SourceOp", "ViewKind", "ViewOp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseOp(Op):
    """``out = expr(inputs...)`` element by element; inputs broadcast by NumPy's rules.

    The result is row-major unless ``out`` says other strides; an ``out`` that says the default becomes None.
    """

    name: ClassVar[str] = "pointwise"

    expr: Expr
    inputs: tuple[TensorType, ...]
    out_dtype: DType
    out: TensorType | None = None

    def __post_init__(self) -> None:
        check_prologue("pointwise", self.inputs, self.expr)
        shape = self.shape  # raises where the inputs do not broadcast
        if self.out is None:
            return
        if self.out.dtype is not self.out_dtype:
            raise InvalidDType(
                field="pointwise.out", got=self.out.dtype, expected=self.out_dtype, remedy="state one element type"
            )
        if result_type("pointwise", shape, self.out_dtype, self.out) == TensorType(shape, self.out_dtype):
            object.__setattr__(self, "out", None)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return broadcast_shapes((x.shape for x in self.inputs), field="pointwise.inputs")

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The inputs."""
        return self.inputs

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("pointwise", self.shape, self.out_dtype, self.out)

    @property
    def flops(self) -> int:
        """The expression's arithmetic per element."""
        return self.infer().elements * self.expr.arithmetic


class ViewKind(Enum):
    """Another way to index the same memory."""

    RESHAPE = "reshape"
    PERMUTE = "permute"
    SLICE = "slice"
    EXPAND = "expand"
    WINDOWS = "windows"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOp(Op):
    """The same memory under other indices: no arithmetic, no bytes.

    Fields by kind:
        RESHAPE and EXPAND take ``shape``; PERMUTE takes ``axes`` (axis i of the result is axis ``axes[i]`` of x);
        SLICE takes ``starts``, ``shape`` and ``steps``: index i of the result is ``start + i*step`` of x, so a step of
        -1 flips;
        WINDOWS takes one number each of ``axes``, ``shape`` and ``steps``: along that axis index i of the result is the
        window of so many elements that begins at ``i*step`` of x, and the window's own axis is the last.
    """

    name: ClassVar[str] = "view"

    kind: ViewKind
    x: TensorType
    shape: tuple[Dim, ...] = ()
    axes: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _ = self.infer()

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The tensor that is viewed."""
        return (self.x,)

    @property
    def flops(self) -> int:
        """None."""
        return 0

    @property
    def bytes(self) -> int:
        """None."""
        return 0

    @property
    def offset_elements(self) -> int:
        """Where the view's first element lies, from x's first element."""
        if self.kind is not ViewKind.SLICE or not self.starts:
            return 0
        if any(dim == 0 for dim in self.shape):
            return 0  # of an empty view nothing is read
        return sum(start * stride for start, stride in zip(self.starts, self.x.strides, strict=True))

    def infer(self) -> TensorType:
        """Return the result's type.

        Raises:
            InvalidShape: the view asks for elements that x does not have.
            InvalidStride: no strides express the reshape.
        """
        match self.kind:
            case ViewKind.RESHAPE:
                return _reshaped(self.x, self.shape)
            case ViewKind.PERMUTE:
                return self.x.permuted(self.axes)
            case ViewKind.SLICE:
                return self._sliced()
            case ViewKind.EXPAND:
                return self._expanded()
            case ViewKind.WINDOWS:
                return self._windows()

    def _sliced(self) -> TensorType:
        x, rank = self.x, self.x.rank
        whole = all(type(number) is int for number in (*self.starts, *self.steps))
        fits = whole and len(self.starts) == len(self.steps) == len(self.shape) == rank and 0 not in self.steps
        for start, step, size, dim in zip(self.starts, self.steps, self.shape, x.shape, strict=False):
            if size == dim and start == 0 and step == 1:
                continue
            last = start + (static(size) - 1) * step
            fits = fits and (size == 0 or (0 <= start < static(dim) and 0 <= last < static(dim)))
        if not fits:
            raise InvalidShape(
                field="view.slice",
                got={"starts": self.starts, "shape": self.shape, "steps": self.steps},
                expected=f"whole numbers: indices within {plain_shape(x.shape)}, steps not 0",
                remedy="give start, size and step for each axis",
            )
        if self.shape == x.shape and set(self.steps) <= {1}:
            return x
        # Along an axis of one index no step is taken, so that a step back does no harm.
        steps = (abs(step) if size == 1 else step for step, size in zip(self.steps, self.shape, strict=True))
        strides = tuple(stride * step for stride, step in zip(x.strides, steps, strict=True))
        return TensorType(self.shape, x.dtype, StridedLayout(strides))

    def _expanded(self) -> TensorType:
        x = self.x
        if broadcast_shapes((x.shape, self.shape), field="view.expand") != self.shape:
            raise InvalidShape(
                field="view.expand",
                got=plain_shape(x.shape),
                expected=f"a shape that broadcasts to {plain_shape(self.shape)}",
                remedy="expand to the larger shape",
            )
        if self.shape == x.shape:
            return x
        padded = (1,) * (len(self.shape) - x.rank) + x.shape
        steps = (0,) * (len(self.shape) - x.rank) + x.strides
        strides = tuple(
            0 if dim == 1 and wide != 1 else step for dim, wide, step in zip(padded, self.shape, steps, strict=True)
        )
        return TensorType(self.shape, x.dtype, StridedLayout(strides))

    def _windows(self) -> TensorType:
        x, numbers = self.x, (self.axes, self.shape, self.steps)
        fits = all(len(each) == 1 and type(each[0]) is int for each in numbers)
        axis, size, step = (static(each[0]) if fits else 0 for each in numbers)
        extent = static(x.shape[axis]) if fits and 0 <= axis < x.rank else 0
        if not (fits and 1 <= size <= extent and step >= 1):
            raise InvalidShape(
                field="view.windows",
                got={"axes": self.axes, "shape": self.shape, "steps": self.steps},
                expected=f"an axis of {plain_shape(x.shape)}, a size from 1 to its extent, and a step of 1 or more",
                remedy="give one axis, the size of its windows, and the step from one to the next",
            )
        shape, strides = list(x.shape), list(x.strides)
        shape[axis] = (extent - size) // step + 1
        strides[axis] *= step
        return TensorType((*shape, size), x.dtype, StridedLayout((*strides, x.strides[axis])))


class SourceKind(Enum):
    """Who gives a graph's tensor: the caller of each run, or whoever binds the program once."""

    INPUT = "input"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOp(Op):
    """A tensor that enters the graph; its data are bound by the node's id."""

    name: ClassVar[str] = "source"

    kind: SourceKind
    type: TensorType

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """None."""
        return ()

    def infer(self) -> TensorType:
        """Return the tensor's type."""
        return self.type

    @property
    def flops(self) -> int:
        """None."""
        return 0

    @property
    def bytes(self) -> int:
        """None: who reads it counts it."""
        return 0


def _reshaped(x: TensorType, shape: tuple[Dim, ...]) -> TensorType:
    result = TensorType(shape, x.dtype)
    if _count(x.shape) != _count(result.shape):
        raise InvalidShape(
            field="view.reshape",
            got=plain_shape(shape),
            expected=f"as many elements as {plain_shape(x.shape)}",
            remedy="reshape keeps the number of elements",
        )
    if x.layout is None:
        return result
    if x.shape == result.shape:
        return x
    strides = _reshaped_strides(x.static_shape, x.strides, result.static_shape)
    if strides is None:
        raise InvalidStride(
            field="view.reshape",
            got={"shape": x.shape, "strides": x.strides},
            expected=f"strides that can be read as {shape}",
            remedy="copy first: a pointwise op of Input(0) makes it row-major",
        )
    return TensorType(shape, x.dtype, StridedLayout(strides))


def _count(shape: tuple[Dim, ...]) -> tuple[int, list[str]]:
    symbolic = sorted(dim.name for dim in shape if isinstance(dim, SymbolicDim))
    return math.prod(dim for dim in shape if isinstance(dim, int)), symbolic


def _reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[int, ...] | None:
    if 0 in shape:
        return TensorType(wanted, DType.U8).strides
    # Merge axes that lie behind one another into runs; each wanted axis must be cut from one run.
    runs: list[list[int]] = []  # [extent, stride of its last element]
    for dim, stride in zip(shape, strides, strict=True):
        if dim == 1:
            continue
        if runs and runs[-1][1] == stride * dim:
            runs[-1] = [runs[-1][0] * dim, stride]
        else:
            runs.append([dim, stride])
    result: list[int] = []
    left, step = runs.pop() if runs else [1, 1]
    for dim in reversed(wanted):
        if dim != 1 and left == 1 and runs:
            left, step = runs.pop()
        if left % dim:
            return None
        result.append(step)
        left //= dim
        step *= dim
    return tuple(reversed(result)) if left == 1 and not runs else None
