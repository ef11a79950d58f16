"""tracea.ops.fuse: a chain of steps as one kernel.

>>> block = fuse(["gemm", "add", "gelu", "add"])
>>> y = block(a, b, bias, residual)

The first step may be "gemm" (two operands, the second an array or a weight of ``prepack``), "softmax", "layer_norm",
"rms_norm" (one, without weights) or elementwise. Each later step is elementwise on the value so far: an activation or
function by name takes no operand, "add", "sub", "mul", "div", "maximum" and "minimum" take the next one. Integers of at
most 32 bits pass through elementwise steps: computed in f64, and cut to the type's range at the end, where torch would
wrap around. Results of elementwise steps lie as those of torch or NumPy do (``tracea.interface.layouts``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input, activation, activation_names, maximum, minimum
from tracea.core.op import Epilogue, GemmOp, Op, PointwiseOp, RowKind, RowOp
from tracea.core.tensor_type import TensorType, broadcast_shapes
from tracea.errors import InvalidDType, InvalidOp, InvalidShape
from tracea.flow.compile import compile_node, compile_op
from tracea.interface.layouts import kept_layout
from tracea.interface.operands import FOLLOWING, NARROW, Given, check_same_dtype, dispatched
from tracea.interface.policy import library_allowed
from tracea.interface.prepacked import PrepackedWeight
from tracea.runtime.buffers import ArrayKind
from tracea.targets.unknown import meant, near

__all__ = ["Fused", "elementwise_steps", "fuse"]

_BINARY: Final[dict[str, Callable[[Expr, Expr], Expr]]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "maximum": maximum,
    "minimum": minimum,
}
_ROWS: Final = {"softmax": RowKind.SOFTMAX, "layer_norm": RowKind.LAYER_NORM, "rms_norm": RowKind.RMS_NORM}
_MOST_OPERANDS: Final = 16  # that the dispatcher takes


def elementwise_steps() -> tuple[str, ...]:
    """Return the names of the steps that may stand at any place."""
    return (*_BINARY, *activation_names())


def fuse(steps: Sequence[str | Callable[..., Any]]) -> Fused:
    """Return a callable that runs the steps as one kernel: gemm, softmax or a norm first, then elementwise ones.

    A step is a name, such as "gelu" or "add"; the first may be ``tracea.ops.gemm``, ``softmax``, ``layer_norm`` or
    ``rms_norm`` itself. Norms take their usual ``eps``, 1e-5 (layer_norm) and 1e-6 (rms_norm); with another, a Graph
    fuses the same.

    Raises: InvalidOp: no step, or one that is not known or not possible at its place.
    """
    if isinstance(steps, str) or not isinstance(steps, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOp(field="steps", got=steps, expected="a list of steps", remedy='fuse(["gemm", "relu"])')
    return Fused(tuple(step if isinstance(step, str) else _named(step) for step in steps))


def _named(step: Any) -> str:
    """Return the name of a function of ``tracea.ops``; of anything else, however it is called, what is no step's."""
    from tracea.interface import functional  # which imports this module

    for name in ("gemm", *_ROWS):
        if getattr(functional, name) is step:
            return name
    name = getattr(step, "__name__", "") if callable(step) else ""
    return f"{getattr(step, '__module__', '')}.{name}" if name else repr(step)


class Fused:
    """A chain of steps; call it with the operands in the order in which the steps take them, and ``out=``."""

    def __init__(self, steps: tuple[str, ...]) -> None:
        known = ["gemm", *_ROWS, *elementwise_steps()]
        for position, step in enumerate(steps):
            if step not in known or (position > 0 and (step == "gemm" or step in _ROWS)):
                possible = known if position == 0 else [*elementwise_steps()]
                guess = "" if step in known else meant(near(step, possible))
                raise InvalidOp(
                    field=f"steps[{position}]",
                    got=step,
                    expected=possible,
                    remedy=f"{guess}a product or a normalisation comes first, elementwise steps after it; "
                    "steps are names, the first may be a function of tracea.ops",
                )
        if not steps:
            raise InvalidOp(field="steps", got=0, expected="at least one", remedy='fuse(["gemm", "relu"])')
        self.steps = steps
        self._heads = 2 if steps[0] == "gemm" else 1
        self._tail = steps[1:] if steps[0] == "gemm" or steps[0] in _ROWS else steps
        self.operands = self._heads + sum(step in _BINARY for step in self._tail)
        if self.operands > _MOST_OPERANDS:
            raise InvalidOp(
                field="steps",
                got=f"{self.operands} operands",
                expected=f"at most {_MOST_OPERANDS}",
                remedy="fuse the steps in two parts",
            )
        self._names = tuple(f"operand {index}" for index in range(self.operands))
        self._names_beside_weight = (*self._names[:1], *self._names[2:])  # the weight, operand 1, is in the program
        self._tail_expr = self._expr()
        self._dispatch = dispatched(self._names, self._missed)

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        """Run the chain.

        Raises: InvalidShape: another number of operands, or shapes that do not fit. InvalidDType, InvalidDevice,
        OverlappingOutput.
        """
        if len(operands) != self.operands:
            raise InvalidShape(
                field="operands",
                got=len(operands),
                expected=self.operands,
                remedy=f"the steps are {', '.join(self.steps)}",
            )
        if self._heads == 2 and type(operands[1]) is PrepackedWeight:
            return self._multiply(operands[0], operands[1], operands[2:], out)
        return self._dispatch(*operands, out, library_allowed())

    def _multiply(self, a: Any, weight: PrepackedWeight, extras: tuple[Any, ...], out: Any) -> Any:
        dispatch = weight.dispatchers.get(self.steps)
        if dispatch is None:
            dispatch = weight.dispatchers[self.steps] = dispatched(
                self._names_beside_weight, partial(self._packed, weight)
            )
        return dispatch(a, *extras, out)

    def _packed(
        self, weight: PrepackedWeight, arrays: tuple[Any, ...], out: Any, _: tuple[Any, ...], threads: int
    ) -> Any:
        given = Given.of(self._names_beside_weight, arrays, out)
        given.check_floats(one_arithmetic=True)
        types = [given.type(index) for index in range(len(arrays))]
        if DType.F64 in (types[0].dtype, weight.type.dtype):
            check_same_dtype("gemm", types[0], weight.type)
        op = self._op([types[0], weight.type, *types[1:]], given.result, given.kind)
        given.check_result(op)
        return compile_node(op, {1: weight.values}, threads=threads, library=False).program

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by the steps: programs are made where they run."""
        return fuse, (list(self.steps),)

    def __repr__(self) -> str:
        return f"fuse({list(self.steps)!r})"

    def _expr(self) -> Expr:
        """Return the elementwise tail over Input(0), the head's value, and Input(i), the i-th further operand."""
        value: Expr = Input(0)
        taken = 0
        for step in self._tail:
            if step in _BINARY:
                taken += 1
                value = _BINARY[step](value, Input(taken))
            else:
                value = activation(step).substitute({0: value})
        return value

    def _missed(self, arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
        (allowed,) = attributes
        is_elementwise = self.steps[0] != "gemm" and self.steps[0] not in _ROWS
        takes = dict.fromkeys(self._names, NARROW) | {"out": FOLLOWING} if is_elementwise else {}
        given = Given.of(self._names, arrays, out, takes=takes)
        if not is_elementwise:
            given.check_floats(one_arithmetic=self.steps[0] == "gemm")
        else:
            self._refuse_wide_integers(given)
        op = self._op([given.type(index) for index in range(self.operands)], given.result, given.kind)
        given.check_result(op)
        return compile_op(op, threads=threads, library=allowed)

    def _refuse_wide_integers(self, given: Given) -> None:
        for index in range(self.operands):
            if given.type(index).dtype is DType.I64:
                raise InvalidDType(
                    field=f"operand {index}",
                    got="i64",
                    expected="floats, or integers of at most 32 bits: steps compute in f64, exact within ±2^53 = "
                    "9007199254740992",
                    remedy="convert it to int32, or to float64 if its rounding is meant",
                )

    def _op(self, types: list[TensorType], out: TensorType | None, kind: ArrayKind) -> Op:
        extras = tuple(types[self._heads :])
        epilogue = Epilogue(self._tail_expr, extras)
        head = self.steps[0]
        if head == "gemm":
            a, b = types[:2]
            if a.rank < 2 or b.rank < 2:
                raise InvalidShape(
                    field="gemm", got=(a.rank, b.rank), expected="matrices", remedy="give (…, m, k), (…, k, n)"
                )
            batch = broadcast_shapes((a.shape[:-2], b.shape[:-2]), field="gemm.batch")
            return GemmOp(
                m=a.shape[-2], n=b.shape[-1], k=a.shape[-1], batch=batch, a=a, b=b, epilogue=epilogue, out=out
            )
        if head in _ROWS:
            row = _ROWS[head]
            if types[0].rank == 0:
                raise InvalidShape(
                    field="operand 0", got=(), expected="rows: a tensor with axes", remedy="give a number as x[None]"
                )
            return RowOp(kind=row, x=(types[0],), epilogue=epilogue, eps=row.usual_eps, out=out)
        op = PointwiseOp(expr=epilogue.expr, inputs=tuple(types), out_dtype=types[0].dtype)
        wanted = op.infer()
        if out is None:
            return replace(op, out=self._layout(types, kind))
        is_stated = (out.shape, out.dtype) == (wanted.shape, wanted.dtype)
        return replace(op, out=out) if is_stated else op  # of another type: refused by the caller's name of it

    def _layout(self, types: list[TensorType], kind: ArrayKind) -> TensorType:
        """Return the type of the result of elementwise steps, as it lies where each step is a call of its own."""
        value, *others = types
        for step in self._tail:
            operands = (value, others.pop(0)) if step in _BINARY else (value,)
            value = kept_layout(operands, value.dtype, kind)
        return value
