"""Input distributions: each makes one kind of wrong kernel visible that random numbers alone would let through.

Here is what a distribution means for any one operand; what it means for an op is in ``tracea.gates.inputs``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.gates.guarded import GuardedArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.dtype import DType
    from tracea.core.tensor_type import TensorType

__all__ = ["OF_SOME_OPS", "Distribution", "draw", "store", "with_nonfinite", "with_nonfinite_apart"]

_SMALL: Final = 100.0  # of integers whose sums and products stay numbers of their type
_FEW: Final = 8  # elements of which three would leave none
_MANY: Final = 24  # places of an axis of which six leave most


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
    OFFSET = "offset"  # each row about a mean far from zero: cancellation, and a maximum that starts from zero, show
    EXTREME = "extreme"  # results next to the largest and the smallest numbers: clamps, scaling and flushing show
    EVERYWHERE = "everywhere"  # every result is NaN once and infinite once: one that is cleared or clamped shows
    SPECIAL = "special"  # rows of one infinity, ties of infinities, zeros that face them, NaN in small operands


# Others have a meaning for every op; these only where the table of inputs gives them one.
OF_SOME_OPS: Final = frozenset(
    {Distribution.OFFSET, Distribution.EXTREME, Distribution.EVERYWHERE, Distribution.SPECIAL}
)


def draw(shape: tuple[int, ...], distribution: Distribution, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw one operand, before what the op asks for and before it is rounded to its type."""
    match distribution:
        case Distribution.INTEGER:
            return rng.integers(-3, 4, shape).astype(np.float64)
        case Distribution.ZERO:
            return np.zeros(shape)
        case Distribution.LARGE:
            # exp(60) is a number of f32 and its square is not: what squares an exponential before dividing overflows.
            return rng.uniform(-60.0, 60.0, shape)
        case Distribution.WIDE:
            return rng.normal(size=shape) * np.exp2(rng.uniform(-6.0, 6.0, shape))
        case Distribution.NONFINITE:
            return with_nonfinite(rng.normal(size=shape), rng)
        case Distribution.EDGES:
            return rng.normal(size=shape) * (rng.random(shape) < 0.1)
        case Distribution.DENORMAL:
            # Squares of true subnormals vanish in any f32 arithmetic: only products and copies take those.
            return rng.normal(size=shape) * 2.0**-20
        case _:
            return rng.normal(size=shape)


def with_nonfinite(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Replace up to three elements, few enough that most results stay finite: none of a small operand."""
    flat = values.reshape(-1)
    if flat.size >= 8:
        places = rng.choice(flat.size, 3, replace=False)
        flat[places] = rng.permutation([np.nan, np.inf, -np.inf])
    return values


def with_nonfinite_apart(
    values: NDArray[np.float64], rng: np.random.Generator, *, last: bool = False
) -> NDArray[np.float64]:
    """Replace three elements or six that share no place of any axis, as far as it has so many; of a few elements one.

    None hides another then: NaN beside an infinity in one sum, or both infinities there, would be NaN all the same.
    With ``last`` one NaN is the last element of all: tails of rows, columns and sums are other code than their middle.
    """
    if values.size < _FEW:
        if values.size:
            values.reshape(-1)[int(rng.integers(values.size))] = np.nan
        return values
    count = 6 if all(extent == 1 or extent >= _MANY for extent in values.shape) else 3
    # The first is NaN: the last element, or any as the others are, which have the places before the last one then.
    drawn = [rng.choice(max(1, extent - last), count, replace=extent - last < count) for extent in values.shape]
    for axis, extent in enumerate(values.shape):
        drawn[axis][0] = extent - 1 if last else drawn[axis][0]
    values[tuple(drawn)] = np.resize([np.nan, np.inf, -np.inf], count)
    return values


def store(values: NDArray[np.float64], operand: TensorType, *, whole: bool = False) -> NDArray[Any]:
    """Round to the storage type; integers and booleans take small whole numbers, or any with ``whole``."""
    dtype: DType = operand.dtype
    if dtype.is_float:
        with np.errstate(over="ignore"):
            stored = values.astype(dtype.numpy)
    else:
        low, high = (dtype.lowest, dtype.largest) if whole else (max(dtype.lowest, -_SMALL), min(dtype.largest, _SMALL))
        rounded = np.nan_to_num(np.rint(values), nan=0.0, posinf=1.0, neginf=0.0)
        stored = np.clip(rounded, low, high).astype(dtype.numpy)
    if not operand.overlaps_itself:
        return stored
    # Elements that share an address have one value: what is left after all of them were written.
    shared = GuardedArray.of(operand)
    shared.fill(stored)
    return shared.array.copy()
