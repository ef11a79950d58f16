"""What a call of Python's face asks about: an op, its constants and a listener, checked before anything is run."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from numbers import Integral
from typing import Any, Final, cast

from tracea.core.graph import Graph, Node
from tracea.core.op import Op
from tracea.errors import InvalidOp, InvalidOption, InvalidShape

__all__ = ["check_constants", "check_guided", "check_library", "check_listener", "check_op", "check_timeable"]

_REMEDY: Final = "tracea.core.op has the ops, GemmOp.of(m=…, n=…, k=…) for one; graph[name].op is that of a node"


def check_op(op: Any, field: str, *, expected: str = "an op") -> Op:
    """Return what a caller gave as an op.

    Raises:
        InvalidOp: it is something else, such as an op's name.
    """
    if isinstance(op, Op):
        return op
    match op:
        case Graph():
            got, remedy = (
                "a graph",
                "give the op of a node, graph[name].op; Context.optimize_graph searches all of them",
            )
        case Node():
            got, remedy = f"the node {op.id}", "give the node's op: node.op"
        case _:
            got, remedy = repr(op) if isinstance(op, str) else op, _REMEDY
    raise InvalidOp(field=field, got=got, expected=expected, remedy=remedy)


def check_constants(op: Op, constants: Any) -> tuple[int, ...]:
    """Return the places of the operands that are known beforehand, in order, each once.

    Raises:
        InvalidOption: they are no whole numbers that count the op's operands from 0.
    """
    count = len(op.operands)
    given = tuple(cast("Iterable[Any]", constants)) if isinstance(constants, Iterable) else (constants,)
    is_listed = isinstance(constants, Iterable) and not isinstance(constants, str | bytes)
    if is_listed and all(_is_place(place, count) for place in given):
        return tuple(sorted({int(place) for place in given}))
    raise InvalidOption(
        field="constants",
        got=given if is_listed else constants,
        expected=f"places of the {count} operands of {op.name}, 0 to {count - 1}" if count else "none: no operands",
        remedy=f"constants=({count - 1},) says that the last operand is known beforehand" if count else "leave it out",
    )


def _is_place(place: Any, count: int) -> bool:
    return not isinstance(place, bool) and isinstance(place, Integral) and 0 <= int(place) < count


def check_listener(listener: Any) -> None:
    """Refuse a listener that cannot be called with a label and progress before a search has spent time on it.

    Raises:
        InvalidOption: it is neither None nor callable, or takes other arguments.
    """
    _check_called(
        "listener",
        listener,
        ("label", "progress"),
        "a function of two arguments, label and progress, or None",
        "listener=lambda label, progress: print(label, progress.done)",
    )


def check_guided(on_guidance: Any) -> None:
    """Refuse what shall hear of guidance and cannot be called with it.

    Raises:
        InvalidOption: it is neither None nor callable, or takes other arguments.
    """
    _check_called(
        "on_guidance",
        on_guidance,
        ("guidance",),
        "a function of one argument, the guidance, or None",
        "on_guidance=lambda guidance: print(guidance)",
    )


def _check_called(field: str, called: Any, arguments: tuple[str, ...], expected: str, remedy: str) -> None:
    if called is None:
        return
    taken = _signature(called)
    if callable(called) and (taken is None or _takes(taken, arguments)):
        return
    name = getattr(called, "__qualname__", type(called).__name__)
    got = called if taken is None else f"{name}{taken}"
    raise InvalidOption(field=field, got=got, expected=expected, remedy=remedy)


def _signature(called: Any) -> inspect.Signature | None:
    """Return the arguments that something takes; None where it does not say, as some functions in C."""
    try:
        return inspect.signature(called)
    except (TypeError, ValueError):
        return None


def _takes(taken: inspect.Signature, arguments: tuple[str, ...]) -> bool:
    try:
        taken.bind(*arguments)
    except TypeError:
        return False
    return True


def check_library(library: Any) -> None:
    """Refuse what is neither true nor false.

    Raises:
        InvalidOption: as said.
    """
    if not isinstance(library, bool):
        raise InvalidOption(
            field="library",
            got=library,
            expected="True | False",
            remedy="library=False keeps torch's own GEMM out, True lets it compete",
        )


def check_timeable(op: Op) -> None:
    """Refuse an op whose result has no elements: no call of it does anything that could be timed.

    Raises:
        InvalidShape: an extent of the result is 0, or symbolic.
    """
    result = op.infer()
    if result.elements == 0:
        raise InvalidShape(
            field=op.name,
            got=f"a result of {result.static_shape}: there is nothing to time",
            expected="a result of at least one element",
            remedy="make its extents 1 or more; an empty result is computed without a search",
        )
