"""Two results a place: complex products, rotations of neighbours and of halves, broadcasts, other strides and types."""

from __future__ import annotations

from tests.kernels.conformance import Case

from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input, Unary, UnaryFunction
from tracea.core.op import PairsOp
from tracea.core.tensor_type import StridedLayout, TensorType

F32, F64, BF16 = DType.F32, DType.F64, DType.BF16
ID = "pointwise.pairs"
A, B, C, D = (Input(index) for index in range(4))
PRODUCT: tuple[Expr, Expr] = (A * C - B * D, A * D + B * C)


def tensor(*shape: int, dtype: DType = F32, strides: tuple[int, ...] | None = None) -> TensorType:
    return TensorType(shape, dtype, None if strides is None else StridedLayout(strides))


def pairs(
    parts: tuple[Expr, Expr], *inputs: TensorType, out: TensorType | None = None, halves: bool = False
) -> PairsOp:
    first, second = parts
    dtype = inputs[0].dtype if out is None else out.dtype
    return PairsOp(first=first, second=second, inputs=inputs, out_dtype=dtype, out=out, halves=halves)


def product(*shape: int, dtype: DType = F32) -> PairsOp:
    """The product of complex numbers of which one factor lies in pairs and the other one in parts."""
    steps = [2]
    for dim in reversed(shape[1:]):
        steps.insert(0, steps[0] * dim)
    whole, part = tensor(*shape, dtype=dtype, strides=tuple(steps)), tensor(*shape, dtype=dtype)
    return pairs(PRODUCT, whole, whole, part, part)


def rotation(batch: int, positions: int, heads: int, half: int, *, halves: bool = False) -> PairsOp:
    """Pairs of each position turned by one angle of all heads, as they lie in a projection's wider rows."""
    pitch = 2 * half * heads + 6
    x = tensor(batch, positions, heads, half, strides=(positions * pitch, pitch, 2 * half, 1 if halves else 2))
    table = tensor(positions, 1, half)
    return pairs(PRODUCT, x, x, table, table, halves=halves)


def pairs_cases() -> tuple[Case, ...]:
    sines = (Unary(UnaryFunction.SIN, A), Unary(UnaryFunction.COS, A))
    placed = tensor(5, 6, 26, strides=(40, 200, 1))
    return (
        Case.of("pairs_product", ID, product(9, 101), block=2),
        Case.of("pairs_pieces", ID, product(1, 333), split="columns", block=48, tasks=1),
        Case.of("pairs_rotation", ID, rotation(2, 7, 3, 20), block=2),
        Case.of("pairs_turned_tasks", ID, rotation(9, 5, 2, 9), tasks=0),
        Case.of("pairs_f64", ID, product(4, 37, dtype=F64)),
        Case.of("pairs_bf16", ID, product(4, 53, dtype=BF16)),
        Case.of("pairs_sines", ID, pairs(sines, tensor(7, 40)), streaming=1),
        Case.of("pairs_placed", ID, pairs((A, -B), tensor(5, 6, 13), tensor(13), out=placed)),
        Case.of("pairs_widened", ID, pairs((A + 1.0, B), tensor(3, 5, dtype=BF16), tensor(3, 1))),
        Case.of("pairs_one_place", ID, pairs((A, -A), tensor(19, 1), halves=True)),
        Case.of("pairs_one_place_apart", ID, pairs((A, -A), tensor(19, 1), out=tensor(19, 2, strides=(5, 1)))),
        Case.of("pairs_f16", ID, product(3, 40, dtype=DType.F16)),
        Case.of("pairs_halves", ID, rotation(2, 7, 3, 20, halves=True), block=2),
        Case.of(
            "pairs_halves_in_pieces",
            ID,
            pairs((A, A * A), tensor(333), halves=True),
            split="columns",
            block=48,
            tasks=1,
        ),
        Case.of(
            "pairs_halves_f64", ID, pairs((A, -B), tensor(5, 6, 13, dtype=F64), tensor(13, dtype=F64), halves=True)
        ),
        Case.of("pairs_halves_placed", ID, pairs((A, -B), tensor(5, 6, 13), tensor(13), out=placed, halves=True)),
    )


def pairs_golden() -> tuple[Case, ...]:
    """The rotations of a projection of 512 tokens."""
    return (
        Case.of(ID, ID, rotation(1, 512, 32, 64)),
        Case.of(f"{ID}.halves", ID, rotation(1, 512, 32, 64, halves=True)),
    )
