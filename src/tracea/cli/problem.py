"""Problem flags: one op, said the same way to every verb."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

from tracea.cli.element_types import parse_dtype, parse_elements, parse_result, require_kernels
from tracea.cli.problem_flags import FLAGS_OF_KIND, KINDS, ROW_FLAGS, ProblemFlags, flag_of
from tracea.core.names import meant, near
from tracea.errors import InvalidOption

if TYPE_CHECKING:
    from tracea.core.op import Epilogue, Op
    from tracea.core.tensor_type import TensorType

__all__ = ["parse_constants", "parse_op", "parse_schedule", "refuse_problem_flags"]

_DEFAULT_EPILOGUES: Final = {"layer_norm": "weight,bias", "rms_norm": "weight"}
_NORM_EPS: Final = 1e-5


def parse_op(kind: str, flags: ProblemFlags, *, target: str | None = None) -> Op:
    """Return the op that a kind and its flags say; ``target`` is what it is for, where that is known.

    Raises:
        InvalidOption: the kind, an epilogue's term or the batch is unknown, a flag is missing or belongs elsewhere, or
            the target has no kernels for the element type.
        InvalidInput: the op refuses its sizes or its type.
    """
    if kind not in KINDS:
        raise InvalidOption(
            field="kind", got=kind, expected=KINDS, remedy=f"{meant(near(kind, KINDS))}name one of these ops"
        )
    _refuse_foreign(kind, flags)
    _refuse_negative(flags)
    match kind:
        case "gemm":
            if target is not None:
                require_kernels(flags.dtype, target)
            return _gemm(flags)
        case "conv1d" | "conv2d":
            return _convolution(kind, flags)
        case "attention" | "attention_gradient":
            return _attention(kind, flags)
        case "pointwise":
            return _pointwise(flags)
        case _:
            return _row(kind, flags)


def parse_constants(flags: ProblemFlags) -> tuple[int, ...]:
    """Return which operands of the op that :func:`parse_op` returned are known beforehand."""
    return (1,) if flags.constant_b or flags.constant_w else ()


def parse_schedule(text: str | None) -> dict[str, int | str] | None:
    """Return ``key=value,...`` as a mapping, whole numbers as such; None for None.

    Raises:
        InvalidOption: a part is no ``key=value``, or a key comes twice.
    """
    if text is None:
        return None
    values: dict[str, int | str] = {}
    for part in text.split(","):
        key, equals, value = (item.strip() for item in part.partition("="))
        if not (key and equals and value) or key in values:
            raise InvalidOption(
                field="--schedule",
                got=part,
                expected="key=value, each key once",
                remedy="separate by commas: mc=280,kc=512",
            )
        digits = value.removeprefix("-")
        if digits.isascii() and digits.isdecimal() and not _is_whole(digits):
            raise InvalidOption(
                field=f"--schedule {key}",
                got=value,
                expected="a whole number of 18 digits at most",
                remedy=f"leave {key} out for its default, or give one of its size",
            )
        values[key] = int(value) if _is_whole(digits) else value
    return values


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18  # 64 bits; Python refuses to read thousands


def refuse_problem_flags(what: str, flags: ProblemFlags) -> None:
    """Refuse flags of an op where there is none.

    Raises:
        InvalidOption: a flag was given; ``what`` is what it was given for.
    """
    given = [name for name, is_given in _given(flags).items() if is_given]
    given += ["--dtype"] if flags.dtype != ProblemFlags().dtype else []
    given += ["--epilogue"] if flags.epilogue is not None else []
    if given:
        raise InvalidOption(
            field=f"flags of {what}", got=" ".join(given), expected="none", remedy="they say one op; leave them out"
        )


def _refuse_foreign(kind: str, flags: ProblemFlags) -> None:
    own = FLAGS_OF_KIND.get(kind, ROW_FLAGS)
    foreign = [name for name, is_given in _given(flags).items() if is_given and name not in own]
    if foreign:
        raise InvalidOption(
            field=f"flags of {kind}",
            got=" ".join(foreign),
            expected=" ".join(own),
            remedy=f"leave {' and '.join(foreign)} out, or name another op than {kind}",
        )


def _refuse_negative(flags: ProblemFlags) -> None:
    for field in fields(flags):
        value = getattr(flags, field.name)
        if isinstance(value, int) and value < 0:
            raise InvalidOption(
                field=flag_of(field.name), got=value, expected="0 or more", remedy="give the number of elements"
            )


def _given(flags: ProblemFlags) -> dict[str, bool]:
    return {
        "-m": flags.m is not None,
        "-n": flags.n is not None,
        "-k": flags.k is not None,
        "--batch": bool(flags.batch),
        "--transpose-a": flags.transpose_a,
        "--transpose-b": flags.transpose_b,
        "--constant-b": flags.constant_b,
        "--out": flags.out is not None,
        "--rows": flags.rows is not None,
        "--columns": flags.columns is not None,
        "--channels": flags.channels is not None,
        "--size": flags.size is not None,
        "--filters": flags.filters is not None,
        "--kernel": flags.kernel is not None,
        "--stride": flags.stride is not None,
        "--padding": flags.padding is not None,
        "--dilation": flags.dilation is not None,
        "--groups": flags.groups is not None,
        "--channels-last": flags.channels_last,
        "--constant-w": flags.constant_w,
        "--accuracy": flags.accuracy is not None,
        "--heads": flags.heads is not None,
        "--kv-heads": flags.kv_heads is not None,
        "--seq": flags.seq is not None,
        "--kv-seq": flags.kv_seq is not None,
        "--dim": flags.dim is not None,
        "--causal": flags.causal,
        "--window": flags.window is not None,
    }


def _required(value: int | None, name: str, example: str) -> int:
    if value is None:
        raise InvalidOption(field=name, got="nothing", expected="a whole number", remedy=example)
    return value


def _gemm(flags: ProblemFlags) -> Op:
    from tracea.core.op import Epilogue, GemmOp
    from tracea.core.tensor_type import TensorType

    example = "gemm -m 2048 -n 2048 -k 2048"
    m, n, k = (
        _required(value, f"-{name}", example) for value, name in ((flags.m, "m"), (flags.n, "n"), (flags.k, "k"))
    )
    (dtype, math, wanted), batch = parse_elements(flags.dtype), _batch(flags.batch)
    result = TensorType((*batch, m, n), parse_result(flags.out, wanted))
    plain = GemmOp.of(
        m=m,
        n=n,
        k=k,
        dtype=dtype,
        batch=batch,
        transpose_a=flags.transpose_a,
        transpose_b=flags.transpose_b,
        out_dtype=result.dtype,
        math=math,
    )
    return replace(plain, epilogue=_epilogue(flags.epilogue or "", result, Epilogue.identity()))


def _convolution(kind: str, flags: ProblemFlags) -> Op:
    from tracea.core.contract import Accuracy
    from tracea.core.op import Conv2dOp, Epilogue
    from tracea.core.ops.images import no_rows, one_row
    from tracea.core.tensor_type import TensorType

    is_signal = kind == "conv1d"
    size = "4000 --filters 64 --kernel 3" if is_signal else "56 --filters 64 --kernel 3"
    example = f"{kind} --channels 64 --size {size} --padding 1"
    batch = _batch(flags.batch) or (1,)
    if len(batch) != 1:
        what = "signals" if is_signal else "images"
        raise InvalidOption(field="--batch", got=flags.batch, expected=f"a number of {what}", remedy="--batch 8")

    def extents(name: str, text: str | None, default: int | None = None) -> tuple[int, int]:
        if is_signal:
            return _of_one_row(name, text, default, example=example if default is None else f"{name} 1")
        return _pair(name, text, default, example=example if default is None else "")

    plain = Conv2dOp.of(
        batch=batch[0],
        channels=_required(flags.channels, "--channels", example),
        size=extents("--size", flags.size),
        filters=_required(flags.filters, "--filters", example),
        kernel=extents("--kernel", flags.kernel),
        stride=extents("--stride", flags.stride, 1),
        padding=extents("--padding", flags.padding, 0),
        dilation=extents("--dilation", flags.dilation, 1),
        groups=1 if flags.groups is None else flags.groups,
        dtype=parse_dtype(flags.dtype),
        channels_last=flags.channels_last,
        accuracy=Accuracy.of(flags.accuracy or Accuracy.ELEMENTWISE),
    )
    if is_signal:
        plain = replace(plain, x=one_row(no_rows(plain.x)), out=one_row(no_rows(plain.infer())))
    result = plain.infer()
    row = TensorType((*result.shape[1:2], 1, 1), result.dtype)
    return replace(plain, epilogue=_epilogue(flags.epilogue or "", result, Epilogue.identity(), row), out=result)


def _of_one_row(name: str, text: str | None, default: int | None, *, example: str) -> tuple[int, int]:
    """Return a number along a signal with what its one row has; of two numbers the first must be that."""
    row = 0 if name == "--padding" else 1
    if text is None and default is not None:
        return row, default
    first, along = _pair(name, text, example=example)
    if "," in (text or "") and first != row:
        raise InvalidOption(
            field=name,
            got=text,
            expected=f"one number, or {row} and it: a signal is an image of one row",
            remedy=f"{name} {along}, or conv2d for images",
        )
    return row, along


def _attention(kind: str, flags: ProblemFlags) -> Op:
    from tracea.core.op import AttentionGradientOp, AttentionOp
    from tracea.core.tensor_type import TensorType

    example = f"{kind} --heads 8 --seq 512 --dim 64"
    batch = _batch(flags.batch) or (1,)
    if flags.epilogue:
        remedy = f"leave it out: {example}; a fused tail is a gemm's, a conv2d's or a row's"
        raise InvalidOption(field="--epilogue", got=flags.epilogue, expected=f"none: {kind} takes none", remedy=remedy)
    if len(batch) != 1:
        raise InvalidOption(
            field="--batch", got=flags.batch, expected="a number of sequences", remedy=f"{example} --batch 8"
        )
    heads = _required(flags.heads, "--heads", example)
    seq, dim = _required(flags.seq, "--seq", example), _required(flags.dim, "--dim", example)
    kv_heads = heads if flags.kv_heads is None else flags.kv_heads
    kv_seq = seq if flags.kv_seq is None else flags.kv_seq
    q, k = ((*batch, heads, seq, dim), (*batch, kv_heads, kv_seq, dim))
    queries, keys = TensorType(q, parse_dtype(flags.dtype)), TensorType(k, parse_dtype(flags.dtype))
    forward = AttentionOp(q=queries, k=keys, v=keys, causal=flags.causal, window=flags.window)
    return forward if kind == "attention" else AttentionGradientOp(forward=forward, grad=queries, y=queries)


def _pair(name: str, text: str | None, default: int | None = None, *, example: str = "") -> tuple[int, int]:
    if text is None and default is not None:
        return default, default
    parts = [part.strip() for part in (text or "").split(",")]
    if len(parts) > 2 or not all(_is_whole(part) for part in parts):
        remedy = example or f"{name} 1, or {name} 1,2"
        raise InvalidOption(field=name, got=text or "nothing", expected="a whole number, or two", remedy=remedy)
    return int(parts[0]), int(parts[-1])


def _row(kind: str, flags: ProblemFlags) -> Op:
    from tracea.core.op import Epilogue, RowKind, RowOp
    from tracea.core.tensor_type import TensorType

    example = f"{kind} --rows 4096 --columns 4096"
    rows, columns = _required(flags.rows, "--rows", example), _required(flags.columns, "--columns", example)
    x = TensorType((rows, columns), parse_dtype(flags.dtype))
    text = _DEFAULT_EPILOGUES.get(kind, "") if flags.epilogue is None else flags.epilogue
    epilogue = _epilogue(text, x, Epilogue.identity())
    return RowOp(kind=RowKind(kind), x=(x,), epilogue=epilogue, eps=_NORM_EPS if kind.endswith("norm") else 0.0)


def _pointwise(flags: ProblemFlags) -> Op:
    from tracea.core.op import Epilogue, PointwiseOp
    from tracea.core.tensor_type import TensorType

    example = "pointwise --rows 4096 --columns 4096 --epilogue bias,gelu,residual"
    rows, columns = _required(flags.rows, "--rows", example), _required(flags.columns, "--columns", example)
    if not (flags.epilogue or "").strip():
        raise InvalidOption(field="--epilogue", got="nothing", expected="what is done to the elements", remedy=example)
    x = TensorType((rows, columns), parse_dtype(flags.dtype))
    chain = _epilogue(flags.epilogue or "", x, Epilogue.identity())
    return PointwiseOp(expr=chain.expr, inputs=(x, *chain.operands), out_dtype=x.dtype)


def _batch(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(_is_whole(part) for part in parts):
        raise InvalidOption(field="--batch", got=text, expected="whole numbers", remedy="--batch 8, or --batch 4,12")
    return tuple(int(part) for part in parts)


def _epilogue(text: str, result: TensorType, epilogue: Epilogue, row: TensorType | None = None) -> Epilogue:
    from tracea.core.expr import Input, activation, activation_names
    from tracea.core.tensor_type import TensorType

    row = row or TensorType(result.shape[-1:], result.dtype)
    for term in [part.strip() for part in text.split(",")] if text.strip() else []:
        match term:
            case "bias":
                epilogue = epilogue.then(Input(0) + Input(1), (row,))
            case "weight":
                epilogue = epilogue.then(Input(0) * Input(1), (row,))
            case "residual":
                epilogue = epilogue.then(Input(0) + Input(1), (result,))
            case "gate":
                epilogue = epilogue.then(Input(0) * Input(1), (result,))
            case _ if term in activation_names():
                epilogue = epilogue.then(activation(term))
            case _:
                known = ("bias", "weight", "residual", "gate", *activation_names())
                raise InvalidOption(
                    field="--epilogue",
                    got=term,
                    expected=known,
                    remedy=f"{meant(near(term, known))}separate by commas: --epilogue bias,gelu,residual",
                )
    return epilogue
