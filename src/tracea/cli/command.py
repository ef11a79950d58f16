"""The command line of an op: the kind and the flags after which every verb means it, if there are any.

What is found was read back: :func:`tracea.cli.problem.parse_op` makes the very same op of it, strides and all. Ops that
no flags say have none, such as batch norms, reductions over columns, or a product whose one factor has no batch.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

from tracea.cli.problem import parse_op
from tracea.cli.problem_flags import ProblemFlags, flag_of
from tracea.errors import InvalidInput

if TYPE_CHECKING:
    from tracea.core.expr import Expr
    from tracea.core.op import AttentionOp, Conv2dOp, Epilogue, GemmOp, Op, PointwiseOp, RowOp

__all__ = ["command_of"]

_MOST_TERMS: Final = 6
_DEFAULTS: Final = ProblemFlags()


def command_of(op: Op, constants: Iterable[int] = ()) -> str:
    """Return an op's kind and flags, such as ``gemm -m 8 -n 8 -k 8``; empty where none say it.

    ``constants`` are the operands that are known beforehand: flags can say so of the second.
    """
    from tracea.flow.history import packable

    known = packable(op, constants)
    if known not in ((), (1,)):
        return ""
    for kind, flags in _candidates(op):
        try:
            is_it = parse_op(kind, flags).key == op.key
        except InvalidInput:  # flags that this kind has not, or a size that it refuses
            continue
        if is_it:
            flag = "constant_b" if kind == "gemm" else "constant_w"
            return _text(kind, replace(flags, **{flag: True}) if known else flags)
    return ""


def _text(kind: str, flags: ProblemFlags) -> str:
    words = [kind]
    for field in fields(flags):
        value = getattr(flags, field.name)
        if value != getattr(_DEFAULTS, field.name):
            words += [flag_of(field.name)] if value is True else [flag_of(field.name), str(value)]
    return shlex.join(words)


def _candidates(op: Op) -> Iterator[tuple[str, ProblemFlags]]:
    """Return flags that may say the op, the likeliest first."""
    from tracea.core.op import AttentionGradientOp, AttentionOp, Conv2dOp, GemmOp, PointwiseOp, RowOp

    match op:
        case GemmOp():
            yield from _products(op)
        case Conv2dOp():
            yield from _convolutions(op)
        case AttentionOp():
            yield "attention", _attention(op)
        case AttentionGradientOp():
            yield "attention_gradient", _attention(op.forward)
        case RowOp() | PointwiseOp():
            yield from _rows(op)
        case _:
            return


def _products(op: GemmOp) -> Iterator[tuple[str, ProblemFlags]]:
    terms = _terms(op.epilogue, (*op.batch, op.m, op.n))
    if terms is None:
        return
    of = ProblemFlags(
        m=_whole(op.m),
        n=_whole(op.n),
        k=_whole(op.k),
        batch=",".join(map(str, op.batch)),
        dtype=op.a.dtype.value,
        epilogue=terms or None,
    )
    for out in (None, op.infer().dtype.value):
        for a, b in ((False, False), (False, True), (True, False), (True, True)):
            yield "gemm", replace(of, transpose_a=a, transpose_b=b, out=out)


def _convolutions(op: Conv2dOp) -> Iterator[tuple[str, ProblemFlags]]:
    terms = _terms(op.epilogue, op.shape)
    if terms is None:
        return
    batch, channels, *size = op.x.static_shape
    filters, _, *kernel = op.w.static_shape
    of = ProblemFlags(
        batch=str(batch) if batch > 1 else "",
        channels=channels,
        filters=filters,
        groups=op.groups if op.groups > 1 else None,
        accuracy=op.accuracy.value if op.accuracy.value != "elementwise" else None,
        dtype=op.x.dtype.value,
        epilogue=terms or None,
    )
    steps = {"stride": (op.stride, 1), "padding": (op.padding, 0), "dilation": (op.dilation, 1)}
    for kind in ("conv2d", "conv1d"):
        said = {
            "size": _pair(kind, size),
            "kernel": _pair(kind, kernel),
            **{name: None if set(given) == {usual} else _pair(kind, given) for name, (given, usual) in steps.items()},
        }
        for last in (False, True):
            yield kind, replace(of, **said, channels_last=last)


def _attention(op: AttentionOp) -> ProblemFlags:
    (batch, heads, seq, dim), (_, kv_heads, kv_seq, _) = op.q.static_shape, op.k.static_shape
    return ProblemFlags(
        batch=str(batch) if batch > 1 else "",
        heads=heads,
        kv_heads=kv_heads if kv_heads != heads else None,
        seq=seq,
        kv_seq=kv_seq if kv_seq != seq else None,
        dim=dim,
        causal=op.causal,
        window=op.window,
        dtype=op.q.dtype.value,
    )


def _rows(op: RowOp | PointwiseOp) -> Iterator[tuple[str, ProblemFlags]]:
    from tracea.core.op import Epilogue, RowOp

    first, *others = op.operands
    is_row = isinstance(op, RowOp)
    terms = _terms(op.epilogue if is_row else Epilogue(op.expr, tuple(others)), first.shape)
    if first.rank != 2 or terms is None:
        return
    rows, columns = first.static_shape
    kind = op.kind.value if is_row else "pointwise"
    yield kind, ProblemFlags(rows=rows, columns=columns, dtype=first.dtype.value, epilogue=terms)
    yield kind, ProblemFlags(rows=rows, columns=columns, dtype=first.dtype.value)


def _terms(epilogue: Epilogue, shape: tuple[object, ...]) -> str | None:
    """Return what follows an op of a result's shape as ``--epilogue`` says it; None where it cannot."""
    from tracea.core.expr import Input, activation, activation_names

    parts, count = epilogue.expr.walk(), len(epilogue.operands)
    begun: list[tuple[Expr, int, tuple[str, ...]]] = [(Input(0), 0, ())]
    while begun:
        value, used, said = begun.pop()
        if value == epilogue.expr and used == count:
            return ",".join(said)
        if len(said) == _MOST_TERMS:
            continue
        further = [(activation(name).substitute({0: value}), used, name) for name in activation_names()]
        if used < count:
            plus, times = ("residual", "gate") if epilogue.operands[used].shape == shape else ("bias", "weight")
            operand = Input(used + 1)
            further += [(value + operand, used + 1, plus), (value * operand, used + 1, times)]
        begun += [(made, now, (*said, name)) for made, now, name in further if made != value and made in parts]
    return None


def _pair(kind: str, values: Iterable[int]) -> str:
    rows, columns = values
    return str(columns) if kind == "conv1d" or rows == columns else f"{rows},{columns}"


def _whole(extent: object) -> int | None:
    return extent if isinstance(extent, int) else None
