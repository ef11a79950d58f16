"""Input distributions: each makes one kind of wrong kernel visible that random numbers alone would let through."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from tracea.core.op import GemmOp
from tracea.gates.guarded import GuardedArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.dtype import DType
    from tracea.core.op import Op
    from tracea.core.tensor_type import TensorType

__all__ = ["Distribution", "generate"]


class Distribution(Enum):
    """How the inputs of a run are drawn."""

    NORMAL = "normal"  # the usual case
    INTEGER = "integer"  # small integers: sums are exact in any order, so one missing or doubled term shows
    EDGES = "edges"  # few steps of the reduction count, the first and last among them: the bound is small
    ZERO = "zero"  # the smallest bound there is: anything left over shows
    LARGE = "large"  # sums pass far beyond f16 and come back, so a narrow accumulator overflows
    DENORMAL = "denormal"  # subnormal operands of a normal result: a flush to zero shows
    WIDE = "wide"  # magnitudes over many powers of two: the order of a sum shows in its bits
    NONFINITE = "nonfinite"  # some NaN and infinities, which must come out where they belong and nowhere else


def generate(op: Op, distribution: Distribution, rng: np.random.Generator) -> tuple[NDArray[Any], ...]:
    """Draw logical inputs of ``op``, contiguous and in their storage types."""
    shapes = [operand.static_shape for operand in op.operands]
    floats = [_draw(shape, distribution, rng) for shape in shapes]
    if isinstance(op, GemmOp):
        _shape_products(op, distribution, floats, rng)
    return tuple(_store(values, operand) for values, operand in zip(floats, op.operands, strict=True))


def _draw(shape: tuple[int, ...], distribution: Distribution, rng: np.random.Generator) -> NDArray[np.float64]:
    match distribution:
        case Distribution.INTEGER:
            return rng.integers(-3, 4, shape).astype(np.float64)
        case Distribution.ZERO:
            return np.zeros(shape)
        case Distribution.LARGE:
            # exp(±60) and its square stay within f32: an op with exp in it is tried at its extremes, not beyond.
            return rng.uniform(-60.0, 60.0, shape)
        case Distribution.WIDE:
            return rng.normal(size=shape) * np.exp2(rng.uniform(-6.0, 6.0, shape))
        case Distribution.NONFINITE:
            return _with_nonfinite(rng.normal(size=shape), rng)
        case Distribution.EDGES:
            return rng.normal(size=shape) * (rng.random(shape) < 0.1)
        case Distribution.DENORMAL:
            # Squares of true subnormals vanish in any f32 arithmetic: only products (below) take those.
            return rng.normal(size=shape) * 2.0**-20
        case Distribution.NORMAL:
            return rng.normal(size=shape)


def _with_nonfinite(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Replace up to three elements, few enough that most results stay finite."""
    flat = values.reshape(-1)
    if flat.size >= 8:
        places = rng.choice(flat.size, 3, replace=False)
        flat[places] = rng.permutation([np.nan, np.inf, -np.inf])
    return values


def _shape_products(
    op: GemmOp, distribution: Distribution, values: list[NDArray[np.float64]], rng: np.random.Generator
) -> None:
    """Give the two factors of a matrix product what the distribution means along K."""
    a, b = values[0], values[1]  # (..., M, K) and (..., K, N)
    depth = a.shape[-1]
    if depth == 0:
        return
    match distribution:
        case Distribution.EDGES:
            kept = np.zeros(depth)
            kept[[0, depth - 1, *rng.integers(0, depth, 2)]] = 1.0
            values[0] = rng.normal(size=a.shape) * kept
            values[1] = rng.normal(size=b.shape)
        case Distribution.LARGE:
            if not op.a.dtype.is_float:
                # What wraps and is taken back is right again: integers of one sign end where they are largest.
                values[0] = rng.uniform(50.0, 100.0, a.shape)
                values[1] = rng.uniform(50.0, 100.0, b.shape)
                return
            # The second half takes back what the first half summed: 200 · 200 · K/2 at the turn, moderate at the end.
            half = depth // 2
            values[0] = rng.uniform(200.0, 300.0, a.shape)
            values[1] = rng.uniform(200.0, 300.0, b.shape)
            values[0][..., half : 2 * half] = -values[0][..., :half]
            values[1][..., half : 2 * half, :] = values[1][..., :half, :] + rng.normal(size=b[..., :half, :].shape)
        case Distribution.DENORMAL:
            # In a few rows only: processors take some hundred cycles for a vector with a subnormal in it.
            tiny = op.a.dtype.smallest * 2.0 ** rng.integers(1, 6)
            rows = [0, -1, *rng.integers(0, a.shape[-2], 2)] if a.shape[-2] else []
            values[0] = np.zeros(a.shape)
            values[0][..., rows, :] = np.rint(rng.normal(size=(*a.shape[:-2], len(rows), depth)) * 4.0) * tiny
            values[1] = rng.normal(size=b.shape) * (0.1 * op.b.dtype.largest**0.5)
        case _:
            pass


def _store(values: NDArray[np.float64], operand: TensorType) -> NDArray[Any]:
    """Round to the storage type; integers and booleans take small whole numbers."""
    dtype: DType = operand.dtype
    if dtype.is_float:
        with np.errstate(over="ignore"):
            stored = values.astype(dtype.numpy)
    else:
        whole = np.nan_to_num(np.rint(values), nan=0.0, posinf=1.0, neginf=0.0)
        stored = np.clip(whole, max(dtype.lowest, -100.0), min(dtype.largest, 100.0)).astype(dtype.numpy)
    if not operand.overlaps_itself:
        return stored
    # Elements that share an address have one value: what is left after all of them were written.
    shared = GuardedArray.of(operand)
    shared.fill(stored)
    return shared.array.copy()
