"""The suites: which problems are timed, by name."""

from __future__ import annotations

from typing import Final

from tracea.bench.attention_suite import attention_problems
from tracea.bench.conv_suite import conv_by_norm_problems, conv_problems
from tracea.bench.problem import Problem
from tracea.bench.sparse_suite import sparse_problems
from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input, activation
from tracea.core.names import meant, near
from tracea.core.op import Epilogue, GemmOp, PointwiseOp, RowKind, RowOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOption

__all__ = [
    "SUITES",
    "chain_problems",
    "face_problem",
    "fused_problem",
    "gemm_problem",
    "prepacked_problem",
    "problems",
    "row_problem",
]

_SQUARES: Final = (2048, 1024, 512, 256, 128, 64, 32)
_TRANSFORMER: Final = ((512, 3072, 768), (512, 768, 3072), (512, 768, 768), (128, 3072, 768))
_SKINNY: Final = ((8192, 64, 64), (1, 4096, 4096), (16, 4096, 4096), (1, 1000, 2048))
_ODD: Final = ((100, 37, 53), (257, 513, 129), (1000, 1000, 31))
_FACES: Final = (32, 128)
_ROWS: Final = ((4096, 4096), (512, 768))


def problems(suite: str, only: str | None = None) -> tuple[Problem, ...]:
    """Return a suite's problems: all, or those whose name or group contains ``only``.

    ``only`` may be several parts with bars between: ``1x1@7|7x7`` is all whose name contains one of the two. An
    underscore is as good as a space, and a space as an underscore: ``softmax_512x768`` needs no quotes.

    Raises:
        InvalidOption: there is no suite of that name, or no problem's name or group contains a part.
    """
    if suite not in SUITES:
        raise InvalidOption(
            field="suite",
            got=suite,
            expected=[*sorted(SUITES), "gpu"],
            remedy=f"{meant(near(suite, (*SUITES, 'gpu')))}name a suite that exists",
        )
    every = SUITES[suite]
    if only is None:
        return every
    parts = only.split("|")
    named = {part: [each for each in every if part and _is_named(each, part)] for part in parts}
    unknown = [part for part, found in named.items() if not found]
    if unknown:
        raise InvalidOption(
            field="only",
            got="|".join(unknown),
            expected=[*(each.name for each in every), *dict.fromkeys(each.group for each in every)],
            remedy="name a part of a problem's name or of its group's, or several with | between",
        )
    return tuple(each for each in every if any(each in found for found in named.values()))


def _is_named(problem: Problem, part: str) -> bool:
    return any(part.replace("_", " ") in name.replace("_", " ") for name in (problem.name, problem.group))


def gemm_problem(m: int, n: int, k: int, group: str) -> Problem:
    """A product with both operands given anew in each call."""
    return Problem(name=f"{m}x{n}x{k}", group=group, op=GemmOp.of(m=m, n=n, k=k))


def prepacked_problem(m: int, n: int, k: int) -> Problem:
    """A product with a constant weight, in each contender's own layout."""
    return Problem(name=f"{m}x{n}x{k} prepacked", group="prepacked", op=GemmOp.of(m=m, n=n, k=k), constant=(1,))


def fused_problem(m: int, n: int, k: int) -> Problem:
    """A product with bias, GELU and residual."""
    op = GemmOp.of(m=m, n=n, k=k, bias=True, activation="gelu", residual=True)
    return Problem(name=f"{m}x{n}x{k} bias+gelu+residual", group="epilogue", op=op)


def face_problem(size: int) -> Problem:
    """A product through the public Python functions: the row of what a call costs beside its arithmetic."""
    op = GemmOp.of(m=size, n=size, k=size)
    return Problem(name=f"{size}x{size}x{size} face", group="face", op=op, face=True)


def row_problem(kind: RowKind, rows: int, columns: int) -> Problem:
    """A normalisation along the rows, with the weight and bias that it usually has."""
    x, vector = TensorType((rows, columns), DType.F32), TensorType((columns,), DType.F32)
    epilogue = {
        RowKind.SOFTMAX: Epilogue.identity(),
        RowKind.LAYER_NORM: Epilogue(Input(0) * Input(1) + Input(2), (vector, vector)),
        RowKind.RMS_NORM: Epilogue(Input(0) * Input(1), (vector,)),
    }[kind]
    eps = 0.0 if kind is RowKind.SOFTMAX else 1e-5
    op = RowOp(kind=kind, x=(x,), epilogue=epilogue, eps=eps)
    return Problem(name=f"{kind.value} {rows}x{columns}", group="rows", op=op, yardstick="torch")


def _chain(name: str, expr: Expr, rows: int, columns: int, vectors: tuple[bool, ...]) -> Problem:
    x, vector = TensorType((rows, columns), DType.F32), TensorType((columns,), DType.F32)
    op = PointwiseOp(expr=expr, inputs=tuple(vector if is_vector else x for is_vector in vectors), out_dtype=DType.F32)
    return Problem(name=f"{name} {rows}x{columns}", group="chains", op=op, yardstick="torch")


def chain_problems(rows: int, columns: int) -> tuple[Problem, ...]:
    """Chains of element by element steps, each over three operands."""
    x, second, third = Input(0), Input(1), Input(2)
    gelu = activation("gelu").substitute({0: x + second})
    silu = activation("silu").substitute({0: x}) * second
    scaled = activation("relu").substitute({0: x * second + third})
    return (
        _chain("gelu(x+b)+r", gelu + third, rows, columns, (False, True, False)),
        _chain("silu(x)*y+r", silu + third, rows, columns, (False, False, False)),
        _chain("relu(x*s+b)", scaled, rows, columns, (False, True, True)),
    )


SUITES: Final[dict[str, tuple[Problem, ...]]] = {
    "attention": attention_problems(),
    "conv": conv_problems(),
    "conv-normwise": conv_by_norm_problems(),
    "gemm": (
        *(gemm_problem(size, size, size, "squares") for size in _SQUARES),
        *(gemm_problem(*shape, "transformer") for shape in _TRANSFORMER),
        *(gemm_problem(*shape, "skinny") for shape in _SKINNY),
        *(gemm_problem(*shape, "odd") for shape in _ODD),
        *(prepacked_problem(m, 4096, 4096) for m in (8, 16, 32, 64)),
        *(face_problem(size) for size in _FACES),
        fused_problem(512, 3072, 768),
    ),
    "rows": tuple(
        problem
        for rows, columns in _ROWS
        for problem in (
            row_problem(RowKind.SOFTMAX, rows, columns),
            row_problem(RowKind.LAYER_NORM, rows, columns),
            row_problem(RowKind.RMS_NORM, rows, columns),
            *chain_problems(rows, columns),
        )
    ),
    "sparse": sparse_problems(),
}
