"""Given: the operands of a call that was not seen before, as views and types."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from tracea.core.dtype import DType
from tracea.core.names import as_given, meant, near
from tracea.core.op import Op
from tracea.core.ops.base import check_broadcasts
from tracea.core.tensor_type import Dim, StridedLayout, TensorType
from tracea.doctor import probe_machine
from tracea.errors import InvalidDType, InvalidOp, InvalidShape, InvalidStride, ResourceExceeded
from tracea.runtime.buffers import ArrayKind, ArrayView, view
from tracea.runtime.extension import Miss, dispatcher
from tracea.runtime.index_range import IndexRange, Named
from tracea.runtime.program import Program

__all__ = [
    "ANY",
    "FLOATS",
    "FOLLOWING",
    "INDICES",
    "NARROW",
    "Given",
    "check_filter_bias",
    "check_same_dtype",
    "dispatched",
    "flag",
    "inner_remedy",
    "number",
    "word",
]

_MAY_DIFFER = "; only the bias, the residual and the result may differ"

FLOATS: Final = ("f64", "f32", "f16", "bf16")
INDICES: Final = ("i64", "i32")
NARROW: Final = (*FLOATS, "i32", "i8", "u8", "bool")  # that f64, in which elements are computed, tells apart
ANY: Final = (*FLOATS, "i64", "i32", "i8", "u8", "bool")
FOLLOWING: Final = ("the result's own type",)
_ALL_FLOATS: Final[Mapping[str, Sequence[str]]] = {}
_INDEX_REMEDIES: Final = {
    Named.ROWS: "give the rows' numbers",
    Named.CLASSES: "give the classes' numbers",
    Named.PLACES: "give what topk returned",
}


@dataclass(frozen=True, slots=True)
class Given:
    """What a caller gave, in the order of the operands; None where an optional one was left out."""

    names: tuple[str, ...]
    views: tuple[ArrayView | None, ...]
    out: ArrayView | None

    @classmethod
    def of(
        cls, names: Sequence[str], arrays: Sequence[Any], out: Any, *, takes: Mapping[str, Sequence[str]] = _ALL_FLOATS
    ) -> Self:
        """Look at each array; ``takes`` has the element types that errors name for those which take others than floats.

        Raises: InvalidDType: torch and NumPy are mixed, or what is no array. InvalidStride: a stride is negative, or
            two elements of ``out`` lie at one address. InvalidDevice. InvalidInput: a gradient is asked for.
        """
        views = tuple(
            None if array is None else view(array, name, takes.get(name, FLOATS))
            for name, array in zip(names, arrays, strict=True)
        )
        target = None if out is None else view(out, "out", takes.get("out", FLOATS))
        kinds = {found.kind for found in (*views, target) if found is not None}
        if len(kinds) > 1:
            raise InvalidDType(
                field="operands",
                got=sorted(kind.value for kind in kinds),
                expected="all torch tensors or all NumPy arrays",
                remedy="convert with torch.from_numpy or tensor.numpy(), which copy nothing",
            )
        for name, found in zip((*names, "out"), (*views, target), strict=True):
            _check_strides(name, found)
        if target is not None and _type_of(target).overlaps_itself:
            raise InvalidStride(
                field="out",
                got=target.strides,
                expected="one address per element",
                remedy="write to a tensor without broadcast axes, or give a copy",
            )
        return cls(tuple(names), views, target)

    def type(self, index: int) -> TensorType:
        """Return the type of an operand.

        Raises: InvalidDType: it was not given.
        """
        found = self.optional(index)
        if found is None:
            raise InvalidDType(
                field=self.names[index], got=None, expected="a tensor or an array", remedy="give all operands"
            )
        return found

    def optional(self, index: int) -> TensorType | None:
        """Return the type of an operand, None where it was left out."""
        found = self.views[index]
        return None if found is None else _type_of(found)

    def index_range(self, index: int, count: int, what: Named, *, ignored: int | None = None) -> IndexRange:
        """Return what the whole numbers of an operand may be, for its program to check on every call; check these.

        The operands before it are not optional: it is the program's input of the same number.

        Raises: InvalidDType: it is not of int64 or int32. InvalidIndex: a number names nothing.
        """
        dtype, found = self.type(index).dtype, self.views[index]
        if dtype not in (DType.I64, DType.I32):
            raise InvalidDType(field=self.names[index], got=dtype.value, expected=INDICES, remedy=_INDEX_REMEDIES[what])
        wanted = IndexRange(input=index, count=count, name=self.names[index], what=what, ignored=ignored)
        if found is not None:
            wanted.check(found)
        return wanted

    @property
    def kind(self) -> ArrayKind:
        """Whose arrays the operands are, and so the result."""
        return next(found.kind for found in self.views if found is not None)

    @property
    def result(self) -> TensorType | None:
        """The type of ``out`` where it was given."""
        return None if self.out is None else _type_of(self.out)

    def check_floats(self, *, one_arithmetic: bool = False) -> None:
        """Check that every operand is of floats; ``one_arithmetic``: all of them f64, or none.

        Raises: InvalidDType.
        """
        named = zip((*self.names, "out"), (*self.views, self.out), strict=True)
        given = {name: found.dtype for name, found in named if found is not None}
        first = next(iter(given.values()), DType.F32)
        for name, dtype in given.items():
            if not dtype.is_float:
                remedy = _out_of(first) if name == "out" else "convert it to floats first"
                raise InvalidDType(field=name, got=dtype.value, expected=FLOATS, remedy=remedy)
        if one_arithmetic and DType.F64 in given.values() and len(set(given.values())) > 1:
            if len({dtype is DType.F64 for name, dtype in given.items() if name != "out"}) == 1:
                self.check_result_arithmetic(first)
            raise InvalidDType(
                field="operands",
                got={name: dtype.value for name, dtype in given.items()},
                expected="f64 throughout, or not at all",
                remedy="convert all operands and out to one of the two",
            )

    def check_result_arithmetic(self, dtype: DType) -> None:
        """Check that ``out``, where it was given, is of floats, and f64 exactly where the operands' ``dtype`` is.

        Raises: InvalidDType.
        """
        if self.out is None:
            return
        found = self.out.dtype
        if not found.is_float or (found is DType.F64) != (dtype is DType.F64):
            raise InvalidDType(
                field="out",
                got={"operands": dtype.value, "out": found.value},
                expected="f64 throughout, or not at all" if found.is_float else FLOATS,
                remedy=_out_of(dtype),
            )

    def check_broadcasts(
        self, shape: tuple[Dim, ...], *indices: int, whose: str = "the result's", remedy: str = ""
    ) -> None:
        """Check that operands which are added to a result of ``shape`` broadcast to it; those left out do.

        ``whose`` and ``remedy`` are those of ``tracea.core.ops.base.check_broadcasts``.

        Raises: InvalidShape: one does not; it is called by the name that the caller gave it by.
        """
        for index in indices:
            found = self.optional(index)
            if found is not None:
                check_broadcasts(self.names[index], found.shape, shape, whose=whose, remedy=remedy)

    def check_result(self, op: Op) -> None:
        """Check that ``out``, where it was given, is what the op makes, and else that there is memory for the result.

        Raises: InvalidShape, InvalidDType. ResourceExceeded: the result is larger than this machine's memory.
        """
        self.check_result_type(op.infer())

    def result_type(self, wanted: TensorType) -> TensorType:
        """Return the type of ``out`` where it was given, and fits, else ``wanted``.

        Raises: as :meth:`check_result_type`.
        """
        self.check_result_type(wanted)
        return self.result or wanted

    def check_result_type(self, wanted: TensorType) -> None:
        """Check that ``out``, where it was given, has the shape and elements of ``wanted``, or that memory has room.

        Raises: InvalidShape, InvalidDType. ResourceExceeded: the result is larger than this machine's memory.
        """
        out = self.result
        if out is None:
            memory_bytes = probe_machine().hardware.memory_bytes
            if 0 < memory_bytes < wanted.nbytes:
                raise ResourceExceeded(
                    what=f"the result {wanted}",
                    needed_bytes=wanted.nbytes,
                    limit_bytes=memory_bytes,
                    remedy="split the operands, or give an out= that is mapped from a file",
                )
            return
        has_shape, told = out.shape == wanted.shape, {"field": "out", "got": str(out), "expected": str(wanted)}
        if not has_shape:
            raise InvalidShape(**told, remedy="give an out of the result's shape and type, or leave it out")
        if out.dtype is not wanted.dtype:
            raise InvalidDType(**told, remedy=_out_of(wanted.dtype))


def dispatched(names: Sequence[str], miss: Miss) -> Any:
    """Return the ``tracea.runtime.extension.dispatcher`` of an op whose programs know its operands by ``names``."""

    def named(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
        made = miss(arrays, out, attributes, threads)
        if not isinstance(made, Program):
            return made
        given = tuple(name for name, array in zip(names, arrays, strict=True) if array is not None)
        return replace(made, input_names=given)

    return dispatcher(len(names), named)


def _out_of(dtype: DType) -> str:
    return f"give an out of {dtype.value}, or leave it out and convert the result"


def number(name: str, value: Any, *, example: float = 1.0) -> float:
    """Return an attribute that must be a number; ``example`` is a usual one.

    Raises: InvalidOp: it is none, or none that a double can hold.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidOp(field=name, got=as_given(value), expected="a number", remedy=f"{name}={example}")
    try:
        return float(value)
    except OverflowError as error:
        raise InvalidOp(
            field=name, got=f"{value!r:.20}…", expected="at most 1.8e308", remedy=f"{name}={example}"
        ) from error


def flag(name: str, value: Any) -> bool:
    """Return an attribute that is true or false.

    Raises: InvalidOp: it is neither.
    """
    if (not isinstance(value, int) or value not in (0, 1)) and type(value) is not np.bool_:
        raise InvalidOp(
            field=name, got=as_given(value), expected="True | False", remedy=f"{name}=True, or {name}=False"
        )
    return bool(value)


def word(name: str, value: Any, known: Sequence[str]) -> str:
    """Return an attribute that must be one of the known words.

    Raises: InvalidOp: it is none of them.
    """
    if isinstance(value, str) and value in known:
        return str(value)
    guess = meant(near(value, known)) if isinstance(value, str) else ""
    raise InvalidOp(
        field=name, got=value, expected=tuple(known), remedy=f'{guess}name one of these, such as {name}="{known[0]}"'
    )


def inner_remedy(a: Sequence[Dim], b: Sequence[Dim], names: tuple[str, str] = ("a", "b")) -> str:
    """Return what mends two factors of at least two axes whose inner extents differ: the other orientation, if it fits.

    A weight of torch's linear layers is (n, k).
    """
    left, right = (
        f"{name}.T" if len(shape) == 2 else f"{name}.swapaxes(-1, -2)"
        for name, shape in zip(names, (a, b), strict=True)
    )
    if a[-1] == b[-1]:
        return f"give {right} in place of {names[1]}: so the inner extents agree"
    if a[-2] == b[-2]:
        return f"give {left} in place of {names[0]}: so the inner extents agree"
    if a[-2] == b[-1]:
        return f"exchange {names[0]} and {names[1]}, or give {left} and {right}: so the inner extents agree"
    return "make the inner extents agree"


def check_same_dtype(field: str, first: TensorType, second: TensorType, *, others: str = _MAY_DIFFER) -> None:
    """Check that two factors have one element type; ``others`` says which operands may have another.

    Raises: InvalidDType.
    """
    if first.dtype is not second.dtype:
        raise InvalidDType(
            field=field,
            got=f"{first.dtype.value} and {second.dtype.value}",
            expected="operands of one element type",
            remedy=f"cast one of them{others}",
        )


def check_filter_bias(bias: TensorType | None, weight: TensorType) -> None:
    """Check that a bias, where it was given, has one value for each filter.

    Raises: InvalidShape.
    """
    if bias is not None and bias.shape != weight.shape[:1]:
        raise InvalidShape(
            field="bias", got=bias.shape, expected=weight.shape[:1], remedy="give one value for each filter"
        )


def _check_strides(name: str, found: ArrayView | None) -> None:
    if found is not None and found.shape and min(_strides(found)) < 0:
        raise InvalidStride(
            field=name,
            got=found.strides,
            expected="strides of 0 or more",
            remedy="copy the flipped array: numpy.ascontiguousarray",
        )


def _strides(found: ArrayView) -> tuple[int, ...]:
    """Return the strides, 0 where none is taken: whatever an array says of such an axis means nothing."""
    if 0 in found.shape:
        return (0,) * len(found.shape)
    return tuple(stride if dim > 1 else 0 for dim, stride in zip(found.shape, found.strides, strict=True))


def _type_of(found: ArrayView) -> TensorType:
    if 0 in found.shape:
        return TensorType(found.shape, found.dtype)
    return TensorType(found.shape, found.dtype, StridedLayout(_strides(found)))
