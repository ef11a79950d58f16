"""What distributions mean for products: along the sum, for the rows and columns of a result, for what faces a zero."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracea.core.contract import Accuracy
from tracea.core.meaning import epilogue_of
from tracea.core.op import Conv2dOp, GroupedGemmOp, LowRankOp
from tracea.gates.distribution import with_nonfinite
from tracea.gates.inputs_peaks import lone_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.dtype import DType
    from tracea.core.op import AttentionOp, BlockSparseOp, GemmOp, Op

__all__ = [
    "extreme_pixels",
    "extreme_results",
    "extreme_rows",
    "extreme_values",
    "few_steps",
    "hidden_rows",
    "into_small",
    "nothing_added",
    "scores_far_from_zero",
    "subnormal_chain",
    "subnormal_factors",
    "subnormal_pixels",
    "subnormal_values",
    "there_and_back",
    "zeros_that_face",
]

_SCORE = 200.0  # exp of it is no number of f32, and exp of less this is zero


def few_steps(op: GemmOp | GroupedGemmOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Zeros of the first factor but at the first step, the last, and two others."""
    depth = values[0].shape[-1]
    if depth == 0:
        return
    kept = np.zeros(depth)
    kept[[0, depth - 1, *rng.integers(0, depth, 2)]] = 1.0
    values[0] = rng.normal(size=values[0].shape) * kept
    values[1] = rng.normal(size=values[1].shape)


def single_taps(op: Conv2dOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Of accuracy by norm: filters of one tap of one channel, under pixels of one size and either sign.

    The transforms of a tile's other pixels then have to cancel, and no other channel hides what they leave.
    """
    if op.accuracy is Accuracy.ELEMENTWISE:
        return  # the zeros of both, as drawn: what is left of a neighbour shows
    image, filters = values[0].shape, values[1].shape
    values[0] = rng.choice((-1.0, 1.0), image) * rng.uniform(0.99, 1.0, image)
    taps = np.zeros((filters[0], values[1][0].size))
    taps[np.arange(filters[0]), rng.integers(0, taps.shape[1], filters[0])] = rng.normal(size=filters[0])
    values[1] = taps.reshape(filters)


def there_and_back(op: GemmOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """The second half takes back what the first half summed: 200 · 200 · K/2 at the turn, moderate at the end."""
    a, b = values[0], values[1]
    if not op.a.dtype.is_float:
        # What wraps and is taken back is right again: integers of one sign end where they are largest.
        values[0] = rng.uniform(50.0, 100.0, a.shape)
        values[1] = rng.uniform(50.0, 100.0, b.shape)
        return
    half = a.shape[-1] // 2
    values[0] = rng.uniform(200.0, 300.0, a.shape)
    values[1] = rng.uniform(200.0, 300.0, b.shape)
    values[0][..., half : 2 * half] = -values[0][..., :half]
    values[1][..., half : 2 * half, :] = values[1][..., :half, :] + rng.normal(size=b[..., :half, :].shape)


def subnormal_factors(
    op: GemmOp | BlockSparseOp | GroupedGemmOp, values: list[NDArray[np.float64]], rng: np.random.Generator
) -> None:
    """Rows of subnormals that meet large columns, and columns of subnormals that meet large rows.

    In a few rows and columns only: processors take some hundred cycles for a vector with a subnormal in it.
    """
    a, b = values[0], values[1]
    if not _all_floats(op) or not a.size or not b.size:
        return
    (tiny_a, large_a), (tiny_b, large_b) = _tiny_and_large(op, a.shape[-1], rng)
    count, columns = a.shape[-2], b.shape[-1]
    rows = rng.permutation(count)[:4] if count > 1 else np.zeros(1, np.int64)
    cut = rows.size // 2 if count > 1 else int(rng.integers(2))
    values[0] = np.zeros(a.shape)
    for some, size in ((rows[:cut], None), (rows[cut:], large_a)):
        drawn = rng.normal(size=(*a.shape[:-2], some.size, a.shape[-1]))
        values[0][..., some, :] = np.rint(drawn * 4.0) * tiny_a if size is None else drawn * size
    values[1] = rng.normal(size=b.shape) * large_b
    tiny = rng.permutation(columns)[:2] if columns > 1 else _part(1, rng)
    values[1][..., tiny] = np.rint(rng.normal(size=(*b.shape[:-1], tiny.size)) * 4.0) * tiny_b
    drawn, rest = list(values), np.ones(count, np.bool_)
    rest[rows] = False
    nothing_added(op, values)
    for added, before in zip(values[2:], drawn[2:], strict=True):
        if added.shape[-2:] == (count, columns):  # who skips rows of zeros must not forget what is added to them
            added[..., rest, :] = before[..., rest, :]


def subnormal_chain(op: LowRankOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Rows of x that are subnormal meet large columns of a; subnormal ones meet large rows, in half of the results."""
    x, a, b = values[:3]
    if not _all_floats(op) or not x.size or not a.size or not b.size:
        return
    (tiny_x, large_x), (tiny_a, large_a) = _tiny_and_large(op, a.size, rng)
    count, (_, rank) = x.shape[0], a.shape
    rows, part = rng.permutation(count)[:4], _part(rank, rng)
    values[0] = np.zeros(x.shape)
    values[0][rows[::2]] = np.rint(rng.normal(size=x[rows[::2]].shape) * 4.0) * tiny_x
    values[0][rows[1::2]] = rng.normal(size=x[rows[1::2]].shape) * math.sqrt(large_x)
    values[1] = rng.normal(size=a.shape) * math.sqrt(large_a)
    values[1][:, part] = np.rint(rng.normal(size=a[:, part].shape) * 4.0) * tiny_a
    only = np.ones(rank, np.bool_)
    only[part] = False
    # No other columns of a reach these results.
    values[2][np.ix_(only, _part(b.shape[1], rng))] = 0.0
    nothing_added(op, values)


def subnormal_pixels(op: Conv2dOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Large pixels in the upper half of an image, some subnormal ones below; filters of either kind meet them."""
    x, w = values[0], values[1]
    if not _all_floats(op) or not x.size or not w.size:
        return
    (tiny_x, large_x), (tiny_w, large_w) = _tiny_and_large(op, op.taps, rng)
    upper = x.shape[2] // 2 if x.shape[2] > 1 else int(rng.integers(2))
    values[0] = np.rint(rng.normal(size=x.shape) * 4.0) * (rng.random(x.shape) < 0.25) * tiny_x
    values[0][:, :, :upper] = rng.normal(size=x[:, :, :upper].shape) * large_x
    values[1] = rng.normal(size=w.shape) * large_w
    tiny = rng.permutation(w.shape[0])[:2] if w.shape[0] > 3 else rng.permutation(w.shape[0])[: w.shape[0] // 2]
    values[1][tiny] = np.rint(rng.normal(size=(tiny.size, *w.shape[1:])) * 4.0) * tiny_w
    nothing_added(op, values)


def nothing_added(op: Op, values: list[NDArray[np.float64]]) -> None:
    """Make operands of an epilogue zero where that leaves the sum in the result: no flush shows beside a bias of 1."""
    if isinstance(op, GroupedGemmOp):
        expr, places = op.expr, [2] if op.bias is not None else []
    else:
        epilogue = epilogue_of(op)
        expr, count = epilogue.expr, len(epilogue.operands)
        places = list(range(len(values) - count, len(values)))
    kept = [1.0] * len(places)
    for index, place in enumerate(places):
        without = [0.0 if at == index else extra for at, extra in enumerate(kept)]
        with np.errstate(all="ignore"):
            zero, other = (float(expr.evaluate([np.float64(main), *map(np.float64, without)])) for main in (0.0, 0.5))
        if np.isfinite([zero, other]).all() and zero != other:
            kept = without
            values[place] = np.zeros(values[place].shape)


def extreme_results(
    op: GemmOp | BlockSparseOp | GroupedGemmOp, values: list[NDArray[np.float64]], rng: np.random.Generator
) -> None:
    """Sums of one sign, in most rows next to the largest number, in few rows and half of the columns subnormal."""
    a, b = values[0], values[1]
    if not _all_floats(op) or not a.size or not b.size:
        return
    high, low = _ends(op, a.shape[-1])
    values[0] = rng.uniform(0.5, 1.0, a.shape) * _signs((*a.shape[:-1], 1), rng)
    values[1] = rng.uniform(0.5, 1.0, b.shape) * _signs((*b.shape[:-2], 1, b.shape[-1]), rng)
    rows = a.shape[-2]
    small = rng.permutation(rows)[:2] if rows > 2 else _part(rows, rng)
    size = np.full((rows, 1), min(high, op.operands[0].dtype.largest / 2.0))
    size[small], less = _powers(low, op.operands[0].dtype, op.operands[1].dtype)
    values[0] *= size
    values[1][..., _part(b.shape[-1], rng)] *= less
    nothing_added(op, values)


def extreme_rows(op: LowRankOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """The same of two products in turn, whose first one stays between."""
    x, a, b = values[:3]
    if not _all_floats(op) or not x.size or not a.size or not b.size:
        return
    high, low = _ends(op, a.size)
    values[0] = rng.uniform(0.5, 1.0, x.shape) * _signs((x.shape[0], 1), rng)
    values[1], values[2] = (rng.uniform(0.5, 1.0, factor.shape) for factor in (a, b))
    values[2] *= _signs((1, b.shape[1]), rng)
    size = np.full((x.shape[0], 1), min(high, op.x.dtype.largest / 2.0))
    size[_part(x.shape[0], rng)], less = _powers(low, op.x.dtype, op.b.dtype)
    values[0] *= size
    values[2][:, _part(b.shape[1], rng)] *= less


def extreme_pixels(op: Conv2dOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Sums of one sign: next to the largest number, and of every other row of pixels from the middle on subnormal.

    By norm as large as the transforms leave room for: what lies beyond is not claimed.
    """
    x, w = values[0], values[1]
    if not _all_floats(op) or not x.size or not w.size:
        return
    high, low = _ends(op, op.taps)
    high /= 1.0 if op.accuracy is Accuracy.ELEMENTWISE else 2.0**17
    values[0] = rng.uniform(0.5, 1.0, x.shape)
    values[1] = rng.uniform(0.5, 1.0, w.shape) * _signs((w.shape[0], 1, 1, 1), rng)
    size = np.full((x.shape[2], 1), min(high, op.x.dtype.largest / 2.0))
    size[x.shape[2] // 2 :], less = _powers(low, op.x.dtype, op.w.dtype)
    values[0] *= size
    values[1][_part(w.shape[0], rng)] *= less
    nothing_added(op, values)


def zeros_that_face(
    op: GemmOp | BlockSparseOp | GroupedGemmOp | Conv2dOp | LowRankOp,
    values: list[NDArray[np.float64]],
    rng: np.random.Generator,
) -> None:
    """Half of all factors are zeros, some of what they face is not finite: zero times that is NaN and not zero."""
    last = 2 if isinstance(op, LowRankOp) else 1
    for index in range(last + 1):
        values[index] *= rng.random(values[index].shape) < 0.5
    # Of few rows or columns three elements would leave none to see anything else by, such as a NaN of a small bias.
    # The factor between two others makes every result NaN.
    outer = {0: math.prod(values[0].shape[:-1]), last: values[last].shape[-1]}
    images = isinstance(op, Conv2dOp)
    chosen = [index for index, lines in outer.items() if images or lines >= 8] or [last * int(rng.integers(2))]
    for index in chosen:
        with_nonfinite(values[index], rng)
    _zero_lines(op, values[0], values[last], rng)
    into_small(values, rng)


def _zero_lines(op: Any, first: NDArray[np.float64], last: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Make a row of the first factor and a column of the last one zeros throughout; of images a filter.

    Who skips such a line, as of a mask or of padding, gives zero where it faces what is not finite.
    """
    if isinstance(op, Conv2dOp):
        if len(last) > 1:
            last[int(rng.integers(len(last)))] = 0.0
        return
    rows, columns = int(first.shape[-2]), int(last.shape[-1])
    if rows > 1:
        first[..., int(rng.integers(rows)), :] = 0.0
    if columns > 1:
        last[..., int(rng.integers(columns))] = 0.0


def scores_far_from_zero(op: AttentionOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """All scores of a head lie about a number of one sign: a running maximum that starts from zero keeps it.

    Every other query sees one key far above the others: a maximum that leaves out the last keys overflows there.
    """
    q, k = values[0], values[1]
    scale = op.softmax_scale
    if not q.shape[3] or scale == 0.0:
        return
    size = math.sqrt(_SCORE / abs(scale))
    sign = math.copysign(1.0, scale) * np.resize([-1.0, 1.0], k.shape[1])
    q[..., 0] = size
    k[..., 0] = (size * sign)[:, None]
    lone_keys(q, k, (math.log(op.q.dtype.compute.largest) + 12.0) / scale, rng)


def extreme_values(op: AttentionOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Values of one sign a column, as large as leaves room for the sum of all before it is divided by the weights'."""
    v, kind = values[2], op.v.dtype
    keys = max(1, v.shape[2])
    most = min(kind.largest, op.infer().dtype.largest, kind.compute.largest / keys) / 4.0
    values[2] = rng.uniform(0.5, 1.0, v.shape) * _signs((*v.shape[:2], 1, v.shape[3]), rng) * most


def subnormal_values(op: AttentionOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Half of the columns of V hold subnormals of one sign: their weighted sums are subnormal as well, and not zero."""
    v, kind = values[2], op.v.dtype
    columns = rng.permutation(v.shape[3])[: (v.shape[3] + 1) // 2]
    tiny = rng.uniform(0.25, 0.9, (*v.shape[:3], columns.size)) * _signs((*v.shape[:2], 1, columns.size), rng)
    values[2][..., columns] = tiny * (kind.smallest / kind.eps)


def hidden_rows(op: AttentionOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """A query that sees no key, others only their last ones, where the score has an operand that says so.

    -inf for others here and there. A kernel that walks blocks of keys meets hidden blocks then, the first ones too.
    """
    queries, keys = op.q.static_shape[2], op.k.static_shape[2]
    for operand, array in zip(op.score.operands, values[3:], strict=False):
        count = operand.static_shape[-2] if operand.rank > 1 else 0
        if not array.size or operand.static_shape[-1] != keys or count not in (1, queries):
            continue
        never, seen = (-np.inf, float(rng.normal())) if operand.dtype.is_float else (0.0, 1.0)
        array[rng.random(array.shape) < 0.3] = never
        kinds: list[int] = (rng.permutation(4) if count == 1 else np.arange(4)).tolist()
        for number, row in enumerate(rng.permutation(count)[: 1 + (count + 1) // 2]):
            end = min(int(row) + 1, keys) if op.causal and count == queries else keys
            kind = 0 if number == 0 else 1 + number % 3  # one query sees nothing
            hidden = (end, end - 1, end // 2, end - end // 4)[kinds[kind]]
            array[..., row, :hidden] = never
            if hidden < end:
                array[..., row, end - 1] = seen


def into_small(values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Put what is not finite into operands of fewer than eight elements too; into single numbers now and then."""
    for array in values:
        if 1 < array.size < 8 or (array.size == 1 and rng.integers(4) == 0):
            array.reshape(-1)[int(rng.integers(array.size))] = rng.choice([np.nan, np.inf, -np.inf])


def _all_floats(op: Any) -> bool:
    return all(kind.dtype.is_float for kind in (*op.operands[:2], op.infer()))


def _ends(op: Any, terms: int) -> tuple[float, float]:
    """Return a term of which so many make a quarter of the largest result, and the exponent of one of a subnormal."""
    kind: DType = op.infer().dtype
    high = min(kind.largest, op.accumulator.largest) / (4.0 * terms)
    return high, math.log2(kind.smallest / kind.eps) - 4.0 - math.log2(terms)


def _powers(exponent: float, first: DType, second: DType) -> tuple[float, float]:
    """Return two powers of two, each a normal number of its type, whose product has the exponent if there are such."""
    least, rest = (math.log2(dtype.smallest / dtype.eps) + 1.0 for dtype in (first, second))
    own = max(0.75 * exponent, least)
    return 2.0**own, 2.0 ** max(exponent - own, rest)


def _tiny_and_large(op: Any, terms: int, rng: np.random.Generator) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return of each factor a subnormal and a size, two of which make sums of so many terms that are numbers."""
    most = math.sqrt(op.accumulator.largest / (8.0 * max(terms, 1)))
    kinds: list[DType] = [operand.dtype for operand in op.operands[:2]]
    first, second = [
        (kind.smallest * 2.0 ** int(rng.integers(1, 6)), min(0.1 * kind.largest**0.5, most)) for kind in kinds
    ]
    return first, second


def _signs(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.choice([-1.0, 1.0], shape)


def _part(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return every other place; of one place that one or none."""
    return np.arange(1, count, 2) if count > 1 else np.arange(int(rng.integers(2)) * count)
