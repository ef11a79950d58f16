"""Tensor types: a shape, an element type and a layout in memory.

A 2×3 matrix stored by columns is ``TensorType((2, 3), DType.F32, StridedLayout((1, 2)))``: a transpose is a layout,
not an op.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias, cast

from tracea.core.codec import Codec, encode, substitute
from tracea.core.dtype import DType
from tracea.core.plain_shape import plain_shape
from tracea.errors import InvalidDType, InvalidInput, InvalidShape, InvalidStride

__all__ = [
    "BlockedLayout",
    "Dim",
    "Layout",
    "StridedLayout",
    "SymbolicDim",
    "TensorType",
    "bind_dims",
    "broadcast_shapes",
    "static",
]

MAX_BYTES = 2**63 - 1  # offsets are int64


@dataclass(frozen=True, slots=True)
class SymbolicDim:
    """An extent that is known when the program runs; two of the same name are the same number."""

    name: str
    minimum: int = 0
    maximum: int | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise InvalidShape(
                field="SymbolicDim.name", got=self.name, expected="an identifier", remedy="name it like a variable"
            )
        if self.minimum < 0 or (self.maximum is not None and self.maximum < self.minimum):
            raise InvalidShape(
                field=f"bounds of {self.name}",
                got=(self.minimum, self.maximum),
                expected="0 <= minimum <= maximum",
                remedy="give bounds that some extent meets",
            )

    def check(self, extent: int) -> int:
        """Return ``extent`` if it is within the bounds.

        Raises:
            InvalidShape: it is not.
        """
        if extent < self.minimum or (self.maximum is not None and extent > self.maximum):
            raise InvalidShape(
                field=self.name,
                got=extent,
                expected=f"{self.minimum} <= {self.name} <= {'any' if self.maximum is None else self.maximum}",
                remedy="give an extent within the bounds that the graph was built with",
            )
        return extent


Dim: TypeAlias = int | SymbolicDim


@dataclass(frozen=True, slots=True)
class StridedLayout:
    """Element ``(i, j)`` lies ``i*strides[0] + j*strides[1]`` elements from the first; 0 and negative are allowed."""

    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockedLayout:
    """Axes cut into blocks that are stored whole, zero-padded at the end of the axis.

    ``blocks=((1, 16),)`` on N×C×H×W is N, C/16, H, W, 16 ("NCHW16c"). Stored row-major: first one outer index per
    axis, in ``order`` (default: as the axes come), then the blocks as listed. Panels of 32 columns of a K×N matrix,
    one panel after the other, are ``BlockedLayout(blocks=((1, 32),), order=(1, 0))``.
    """

    blocks: tuple[tuple[int, int], ...]
    order: tuple[int, ...] | None = None


Layout: TypeAlias = StridedLayout | BlockedLayout


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape, element type and layout; None is row-major contiguous, and a StridedLayout that says so becomes None."""

    shape: tuple[Dim, ...]
    dtype: DType
    layout: Layout | None = None

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "shape", tuple(_checked_dim(dim, axis, self.shape) for axis, dim in enumerate(self.shape))
        )
        if not isinstance(self.dtype, DType):  # pyright: ignore[reportUnnecessaryIsInstance]
            known = DType.parse(self.dtype)  # refuses what names none
            remedy = f'use DType.parse("{known.value}")'
            raise InvalidDType(field="dtype", got=self.dtype, expected="a DType", remedy=remedy)
        if isinstance(self.layout, StridedLayout):
            self._check_strides(self.layout)
        elif isinstance(self.layout, BlockedLayout):
            self._check_blocks(self.layout)
        if self.is_static and self.storage_bytes > MAX_BYTES:
            raise InvalidShape(
                field="shape",
                got=self.shape,
                expected=f"at most {MAX_BYTES} bytes",
                remedy="offsets are 64-bit: split the tensor",
            )

    def _check_strides(self, layout: StridedLayout) -> None:
        if len(layout.strides) != self.rank:
            raise InvalidStride(
                field="strides",
                got=layout.strides,
                expected=f"{self.rank} strides for shape {self.shape}",
                remedy="one an axis",
            )
        contiguous = _row_major(self.shape)
        if all(
            dim == 1 or stride == want for dim, stride, want in zip(self.shape, layout.strides, contiguous, strict=True)
        ):
            object.__setattr__(self, "layout", None)

    def _check_blocks(self, layout: BlockedLayout) -> None:
        axes_fit = all(0 <= axis < self.rank and size >= 1 for axis, size in layout.blocks)
        order_fits = layout.order is None or sorted(layout.order) == list(range(self.rank))
        if not axes_fit or not order_fits:
            raise InvalidStride(
                field="layout",
                got=encode(layout),
                expected=f"axes 0..{self.rank - 1}, sizes >= 1, order a permutation of the axes",
                remedy="block an axis that the tensor has",
            )

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every extent is a number."""
        return all(isinstance(dim, int) for dim in self.shape)

    @property
    def dims(self) -> tuple[SymbolicDim, ...]:
        """The symbolic extents."""
        return tuple(dim for dim in self.shape if isinstance(dim, SymbolicDim))

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as numbers.

        Raises:
            InvalidShape: an extent is symbolic.
        """
        return tuple(static(dim) for dim in self.shape)

    @property
    def elements(self) -> int:
        """Number of logical elements."""
        return math.prod(self.static_shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the logical elements, without padding or gaps."""
        return self.elements * self.dtype.nbytes

    @property
    def distinct_elements(self) -> int:
        """Number of elements in memory: an axis of stride 0 counts once."""
        if not isinstance(self.layout, StridedLayout) or self.elements == 0:
            return self.elements
        pairs = zip(self.static_shape, self.layout.strides, strict=True)
        return math.prod(dim for dim, stride in pairs if stride != 0)

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements.

        Raises:
            InvalidStride: the layout is blocked.
            InvalidShape: a stride depends on a symbolic extent.
        """
        if isinstance(self.layout, BlockedLayout):
            raise InvalidStride(
                field="layout", got=encode(self.layout), expected="a strided layout", remedy="unpack the tensor first"
            )
        if self.layout is not None:
            return self.layout.strides
        return tuple(_known(stride, self.shape) for stride in _row_major(self.shape))

    @property
    def storage_shape(self) -> tuple[int, ...]:
        """Extents in storage order: of a blocked layout the outer extents, then the blocks; else the shape."""
        if not isinstance(self.layout, BlockedLayout):
            return self.static_shape
        outer = list(self.static_shape)
        for axis, size in self.layout.blocks:
            outer[axis] = -(-outer[axis] // size)
        order = range(self.rank) if self.layout.order is None else self.layout.order
        return (*(outer[axis] for axis in order), *(size for _, size in self.layout.blocks))

    @property
    def extent(self) -> tuple[int, int]:
        """Lowest and one past the highest element offset that an index reaches, from the first element."""
        if not isinstance(self.layout, StridedLayout):
            return 0, math.prod(self.storage_shape)
        if self.elements == 0:
            return 0, 0
        reach = [(dim - 1) * stride for dim, stride in zip(self.static_shape, self.layout.strides, strict=True)]
        return sum(min(r, 0) for r in reach), 1 + sum(max(r, 0) for r in reach)

    @property
    def storage_bytes(self) -> int:
        """Bytes from the lowest to the highest element, gaps and padding included."""
        low, high = self.extent
        return (high - low) * self.dtype.nbytes

    @property
    def is_contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps."""
        return self.layout is None

    @property
    def overlaps_itself(self) -> bool:
        """Whether two indices may reach one element: by a stride of 0, or by strides that interleave."""
        if not isinstance(self.layout, StridedLayout) or self.elements == 0:
            return False
        reach = 0
        for stride, dim in sorted(
            (abs(s), d) for s, d in zip(self.layout.strides, self.static_shape, strict=True) if d > 1
        ):
            if stride <= reach:
                return True
            reach += stride * (dim - 1)
        return False

    def contiguous(self) -> TensorType:
        """Return the row-major type of the same shape."""
        return TensorType(self.shape, self.dtype)

    def with_dtype(self, dtype: DType) -> TensorType:
        """Return the type with other elements, same layout."""
        return TensorType(self.shape, dtype, self.layout)

    def permuted(self, axes: Sequence[int]) -> TensorType:
        """Return the type of the transpose that has axis ``axes[i]`` of this one as axis ``i``."""
        if sorted(axes) != list(range(self.rank)):
            raise InvalidShape(
                field="axes",
                got=tuple(axes),
                expected=f"a permutation of 0..{self.rank - 1}",
                remedy="name each axis once",
            )
        strides = self.strides
        return TensorType(
            tuple(self.shape[axis] for axis in axes), self.dtype, StridedLayout(tuple(strides[axis] for axis in axes))
        )

    def bind(self, values: Mapping[str, int]) -> TensorType:
        """Return the type with symbolic extents replaced by numbers; names that are not given stay."""
        return bind_dims(self, values)

    def to_dict(self) -> dict[str, Any]:
        """Return the type as plain JSON values."""
        return encode(self)

    @staticmethod
    def from_dict(data: Any) -> TensorType:
        """Return the type that :meth:`to_dict` wrote."""
        return Codec(TYPE_CLASSES).decode(data, TensorType)

    def __str__(self) -> str:
        """Render as ``f32[128×768]``, with the layout where it is not row-major."""
        dims = "×".join(dim.name if isinstance(dim, SymbolicDim) else str(dim) for dim in self.shape)
        match self.layout:
            case StridedLayout(strides=strides):
                return f"{self.dtype.value}[{dims}; strides {','.join(map(str, strides))}]"
            case BlockedLayout(blocks=blocks):
                return f"{self.dtype.value}[{dims}; blocks {' '.join(f'{axis}:{size}' for axis, size in blocks)}]"
            case None:
                return f"{self.dtype.value}[{dims}]"


TYPE_CLASSES: tuple[type, ...] = (SymbolicDim, StridedLayout, BlockedLayout, TensorType)


def static(dim: Dim) -> int:
    """Return an extent as a number.

    Raises:
        InvalidShape: it is symbolic.
    """
    if isinstance(dim, int):
        return dim
    raise InvalidShape(
        field=dim.name,
        got="a symbolic extent",
        expected="a number",
        remedy=f'bind it: graph.bind({{"{dim.name}": 128}})',
    )


def bind_dims(value: Any, values: Mapping[str, int]) -> Any:
    """Return frozen data (a type, an op) with each SymbolicDim named in ``values`` replaced by its checked number."""
    found: dict[SymbolicDim, int] = {}
    _collect_dims(value, values, found)
    return substitute(value, found) if found else value


def _collect_dims(value: Any, values: Mapping[str, int], found: dict[SymbolicDim, int]) -> None:
    if isinstance(value, SymbolicDim):
        if value.name in values:
            found[value] = value.check(values[value.name])
    elif isinstance(value, tuple):
        for item in cast("tuple[Any, ...]", value):
            _collect_dims(item, values, found)
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            _collect_dims(getattr(value, part.name), values, found)


def broadcast_shapes(shapes: Iterable[tuple[Dim, ...]], field: str = "shapes") -> tuple[Dim, ...]:
    """Return the shape that all broadcast to by NumPy's rules; a symbolic extent fits 1 and itself.

    Raises:
        InvalidShape: two extents of one axis differ and neither is 1.
    """
    all_shapes = tuple(shapes)
    rank = max((len(shape) for shape in all_shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in all_shapes:
        for back, dim in enumerate(reversed(shape), start=1):
            if result[-back] == 1:
                result[-back] = dim
            elif dim not in (1, result[-back]):
                raise InvalidShape(
                    field=field,
                    got=all_shapes,
                    expected="shapes that broadcast together",
                    remedy="make each axis equal or 1",
                )
    return tuple(result)


def _checked_dim(dim: Any, axis: int, shape: Sequence[Any]) -> Dim:
    if isinstance(dim, SymbolicDim):
        return dim
    try:
        extent = dim.__index__() if not isinstance(dim, bool) else -1
    except AttributeError:
        extent = -1
    if extent < 0:
        raise InvalidShape(
            field=f"shape[{axis}]",
            got=tuple(shape),
            expected="extents >= 0 or SymbolicDim",
            remedy="give whole, non-negative extents",
        )
    return extent


def _row_major(shape: Sequence[Dim]) -> tuple[int | None, ...]:
    # None: the stride depends on a symbolic extent. A stride of an empty tensor is that of the same tensor with
    # extents of 1.
    strides: list[int | None] = []
    step: int | None = 1
    for dim in reversed(shape):
        strides.append(step)
        step = step * max(dim, 1) if isinstance(dim, int) and step is not None else None
    return tuple(reversed(strides))


def _known(stride: int | None, shape: tuple[Dim, ...]) -> int:
    if stride is None:
        error: InvalidInput = InvalidShape(
            field="shape",
            got=plain_shape(shape),
            expected="numbers right of the first axis",
            remedy="bind the symbolic extents",
        )
        raise error
    return stride
