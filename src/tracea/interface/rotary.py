"""Rotary position embedding as a function: pairs of elements turned by angles that tables of cos and sin give."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tracea.core.arithmetic import is_stored_as_computed
from tracea.core.expr import Expr, Input
from tracea.core.op import PairsOp, PointwiseOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidShape
from tracea.flow.sections import Part, Section, compile_sections
from tracea.interface.operands import Given, dispatched, flag

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["rope", "rope_backward"]

_TABLES: Final = ("cos", "sin")
# What the two elements of a pair become: x0 cos - x1 sin, x1 cos + x0 sin.
_TURNED: Final[tuple[Expr, Expr]] = (
    Input(0) * Input(2) - Input(1) * Input(3),
    Input(1) * Input(2) + Input(0) * Input(3),
)
_TURNED_BACK: Final[tuple[Expr, Expr]] = (
    Input(0) * Input(2) + Input(1) * Input(3),
    Input(1) * Input(2) - Input(0) * Input(3),
)


def rope(x: Any, cos: Any, sin: Any, *, interleaved: bool = False, out: Any = None) -> Any:
    """Return x with each pair of the last axis turned: ``(x0 cos - x1 sin, x1 cos + x0 sin)``.

    A pair is an element of the first half and the one half of the axis further (GPT-NeoX, Llama); ``interleaved``, two
    neighbours (GPT-J, RoFormer).

    Shapes: x is (..., positions, d), d even; cos and sin broadcast to (..., positions, d / 2), such as (positions,
    d / 2).

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch("x")(x, cos, sin, out, flag("interleaved", interleaved), False)


def rope_backward(grad: Any, cos: Any, sin: Any, *, interleaved: bool = False, out: Any = None) -> Any:
    """Return the gradient of :func:`rope` for x, each pair turned back: ``(g0 cos + g1 sin, g1 cos - g0 sin)``.

    Shapes: as :func:`rope`, grad being alike its result.

    Raises: as :func:`rope`.
    """
    return _dispatch("grad")(grad, cos, sin, out, flag("interleaved", interleaved), True)


@cache
def _dispatch(name: str) -> Any:
    return dispatched((name, *_TABLES), _missed)


def _missed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    interleaved, is_back = attributes
    name = "grad" if is_back else "x"
    given = Given.of((name, *_TABLES), arrays, out)
    given.check_floats()
    x, tables = given.type(0), (given.type(1), given.type(2))
    if x.rank == 0 or x.static_shape[-1] % 2:
        raise InvalidShape(
            field=name, got=x.shape, expected="(..., positions, d), d even", remedy="turn an even number of elements"
        )
    half = x.static_shape[-1] // 2
    kept = f"[..., {'::2' if interleaved else f':{half}'}]"
    given.check_broadcasts(
        (*x.shape[:-1], half),
        1,
        2,
        whose=f"where {half} is half the width of {name}'s last axis: one angle a pair",
        remedy=f"give one angle for each pair; of tables that have each angle twice, cos{kept} and sin{kept}",
    )
    y = given.result or TensorType(x.shape, x.dtype)
    given.check_result_type(TensorType(x.shape, x.dtype))
    turned = _TURNED_BACK if is_back else _TURNED

    def part(whole: TensorType) -> tuple[TensorType, int]:
        """Return the type of one element of each pair, and how far the other one is."""
        step = whole.strides[-1]
        strides = (*whole.strides[:-1], 2 * step if interleaved else step)
        return TensorType((*whole.shape[:-1], half), whole.dtype, StridedLayout(strides)), step * (
            1 if interleaved else half
        )

    (source, apart), (result, between) = part(x), part(y)
    parts, inputs = (Part(0), Part(0, apart), Part(1), Part(2)), (source, source, *tables)
    # What pointwise.pairs stores, else a kernel for each part.
    if y.strides[-1] == 1 and is_stored_as_computed(y.dtype, (type_.dtype for type_ in inputs)):
        first, second = turned
        op = PairsOp(first=first, second=second, inputs=inputs, out_dtype=y.dtype, halves=not interleaved, out=y)
        return compile_sections(
            [Section(op=op, operands=parts)], inputs=(x, *tables), output=y, threads=threads, name="rope"
        )
    sections = [
        Section(
            op=PointwiseOp(expr=expr, inputs=inputs, out_dtype=y.dtype, out=result),
            operands=parts,
            offset=between * position,
        )
        for position, expr in enumerate(turned)
    ]
    return compile_sections(sections, inputs=(x, *tables), output=y, threads=threads, name="rope")
