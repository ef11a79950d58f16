from __future__ import annotations

import numpy as np
import pytest

from tracea.core.accuracy import sum_constant
from tracea.core.dtype import DType
from tracea.core.expr import Input, activation, activation_names
from tracea.core.op import (
    AttentionOp,
    Conv2dOp,
    Epilogue,
    GemmOp,
    Op,
    PointwiseOp,
    ReduceKind,
    ReduceOp,
    RowKind,
    RowOp,
    ViewKind,
    ViewOp,
)
from tracea.core.reference import error_bound, evaluate
from tracea.core.tensor_type import SymbolicDim, TensorType
from tracea.errors import InvalidShape

torch = pytest.importorskip("torch")
functional = torch.nn.functional
F32, F64 = DType.F32, DType.F64


def types(*arrays: np.ndarray, dtype: DType = F32) -> tuple[TensorType, ...]:
    return tuple(TensorType(array.shape, dtype) for array in arrays)


def draw(rng: np.random.Generator, *shape: int, dtype: type = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def within(op: Op, inputs: list[np.ndarray], got: object, **options: bool) -> None:
    value, bound = evaluate(op, inputs), error_bound(op, inputs, **options)
    error = np.abs(np.asarray(got, dtype=np.float64) - value)
    assert np.isfinite(bound).all()
    assert (error <= bound).all(), (error / np.maximum(bound, 1e-300)).max()


ROWS = {
    RowKind.SOFTMAX: lambda x: x.softmax(-1),
    RowKind.LOG_SOFTMAX: lambda x: x.log_softmax(-1),
    RowKind.LAYER_NORM: lambda x: functional.layer_norm(x, x.shape[-1:], eps=1e-5),
    RowKind.RMS_NORM: lambda x: functional.rms_norm(x, x.shape[-1:], eps=1e-5),
}
REDUCTIONS = {
    ReduceKind.SUM: lambda x: x.sum((0, 2)),
    ReduceKind.MEAN: lambda x: x.mean((0, 2)),
    ReduceKind.MAX: lambda x: x.amax((0, 2)),
    ReduceKind.MIN: lambda x: x.amin((0, 2)),
    ReduceKind.PRODUCT: lambda x: x.prod(2).prod(0),
}


@pytest.mark.parametrize("kind", RowKind)
@pytest.mark.parametrize("width", [1, 7, 768])
def test_rows_agree_with_torch_in_f64_and_f32_stays_within_the_bound(kind: RowKind, width: int, rng) -> None:
    x = draw(rng, 5, width) * 10
    op = RowOp(kind=kind, x=types(x), eps=1e-5)
    np.testing.assert_allclose(evaluate(op, [x]), ROWS[kind](torch.from_numpy(x).double()), rtol=1e-11, atol=1e-13)
    if kind is not RowKind.LAYER_NORM or width > 1:
        within(op, [x], ROWS[kind](torch.from_numpy(x)))


@pytest.mark.parametrize("kind", ReduceKind)
def test_reductions_agree_with_torch(kind: ReduceKind, rng) -> None:
    x = draw(rng, 6, 5, 7)
    op = ReduceOp(kind=kind, x=types(x), axes=(0, -1))
    np.testing.assert_allclose(
        evaluate(op, [x]), REDUCTIONS[kind](torch.from_numpy(x).double()), rtol=1e-12, atol=1e-14
    )
    within(op, [x], REDUCTIONS[kind](torch.from_numpy(x)))


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (7, 5, 3), (16, 33, 512), (3, 4, 0), (0, 4, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_gemm_agrees_with_torch_within_the_bound(m: int, n: int, k: int, dtype: str, rng) -> None:
    kind, ours = getattr(torch, dtype), DType.parse(dtype)
    a, b, bias, residual = (torch.from_numpy(draw(rng, *s)).to(kind) for s in ((m, k), (n, k), (n,), (m, n)))
    op = GemmOp.of(m=m, n=n, k=k, dtype=ours, transpose_b=True, bias=True, activation="gelu", residual=True)
    inputs = [x.double().numpy() for x in (a, b.T, bias, residual)]
    exact = functional.gelu(a.double() @ b.double().T + bias.double()) + residual.double()
    np.testing.assert_allclose(evaluate(op, inputs), exact, rtol=1e-10, atol=1e-12)
    wide = torch.float64 if ours is F64 else torch.float32
    fused = (functional.gelu(a.to(wide) @ b.to(wide).T + bias.to(wide)) + residual.to(wide)).to(kind)
    within(op, inputs, fused.double())


@pytest.mark.parametrize("fault", ["missing term", "stale element", "off by one", "f16 sum"])
def test_the_bound_rejects_faults(fault: str, rng) -> None:
    a, b = draw(rng, 24, 2048), draw(rng, 2048, 24)
    op = GemmOp.of(m=24, n=24, k=2048)
    bound, value = error_bound(op, [a, b]), evaluate(op, [a, b])
    wrong = {
        "missing term": a[:, :-1] @ b[:-1],
        "stale element": np.where(np.eye(24) == 1, 0.0, a @ b),
        "off by one": a[:, 1:] @ b[:-1],
        "f16 sum": (a @ b).astype(np.float16),
    }[fault]
    assert (np.abs(wrong.astype(np.float64) - value) > bound).any()


@pytest.mark.parametrize("count", [1, 100, 2000])
def test_products_next_to_zero_may_lose_a_subnormal_each_and_no_more(count: int, rng) -> None:
    """Every product is a subnormal of a few units: each is rounded to a whole one, and flushing is far out."""
    a = rng.uniform(0.5, 1.0, (8, count)).astype(np.float32) * np.float32(2.0**-100)
    b = rng.uniform(0.5, 1.0, (count, 8)).astype(np.float32) * np.float32(2.0**-44)
    op = GemmOp.of(m=8, n=8, k=count)
    total = np.zeros((8, 8), np.float32)
    for step in range(count):
        total += np.outer(a[:, step], b[step])
    expected, bound = evaluate(op, [a, b]), error_bound(op, [a, b])
    assert (np.abs(total - expected) <= bound).all()
    assert count == 1 or (np.abs(expected) > 4.0 * bound).all()
    assert (error_bound(op, [a, np.zeros_like(b)]) == 0.0).all(), "what is zero loses nothing"


def test_the_worst_case_bound_holds_for_constant_data() -> None:
    a = np.full((1, 4096), 0.1, dtype=np.float32)
    b = np.full((4096, 1), 0.1, dtype=np.float32)
    total = np.float32(0)
    for _ in range(4096):  # one long chain, whose roundings all go the same way
        total = np.float32(total + np.float32(np.float32(0.1) * np.float32(0.1)))
    within(GemmOp.of(m=1, n=1, k=4096), [a, b], [[total]], worst_case=True)
    assert sum_constant(4096, F32, worst_case=True) > sum_constant(4096, F32)


def test_batches_broadcast(rng) -> None:
    a, b = draw(rng, 2, 1, 3, 4), draw(rng, 5, 4, 6)
    op = GemmOp(m=3, n=6, k=4, batch=(2, 5), a=types(a)[0], b=types(b)[0])
    np.testing.assert_allclose(evaluate(op, [a, b]), a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("name", activation_names())
def test_f32_activations_stay_within_the_bound(name: str, rng) -> None:
    x = np.concatenate([draw(rng, 4000) * 4, np.linspace(-30, 30, 601, dtype=np.float32)])
    op = PointwiseOp(expr=activation(name), inputs=types(x), out_dtype=F32)
    peers = {
        "identity": lambda t: t,
        "gelu_tanh": lambda t: functional.gelu(t, approximate="tanh"),
        "quick_gelu": lambda t: t * torch.sigmoid(1.702 * t),
        "squared_relu": lambda t: torch.relu(t) ** 2,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        **{function: getattr(torch, function) for function in ("exp", "sin", "cos")},
    }
    within(op, [x], (peers.get(name) or getattr(functional, name))(torch.from_numpy(x)))


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [
        ((1, 1), (0, 0), (1, 1), 1),
        ((2, 1), (1, 2), (1, 2), 2),
        ((3, 2), (2, 0), (2, 1), 4),
        ((1, 1), (1, 1), (1, 1), 8),
    ],
)
def test_conv2d_agrees_with_torch(stride, padding, dilation, groups: int, rng) -> None:
    x, w, bias = draw(rng, 2, 8, 11, 9), draw(rng, 16, 8 // groups, 3, 3), draw(rng, 16, 1, 1)
    op = Conv2dOp(
        x=types(x)[0],
        w=types(w)[0],
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        epilogue=Epilogue.of(bias=types(bias)[0]),
    )

    def peer(kind: object) -> object:
        tensors = [torch.from_numpy(v).to(kind) for v in (x, w, bias.reshape(16))]
        return functional.conv2d(*tensors, stride=stride, padding=padding, dilation=dilation, groups=groups)

    np.testing.assert_allclose(evaluate(op, [x, w, bias]), peer(torch.float64), rtol=1e-11, atol=1e-12)
    within(op, [x, w, bias], peer(torch.float32))


PADDED = {
    "square": ((1, 1), (1, 1), (1, 1), 1, None, False),
    "depthwise": ((1, 1), (1, 1), (1, 1), 4, None, False),
    "dilated, strided, grouped": ((2, 1), (2, 3), (2, 2), 2, None, False),
    "turned, one side padded more": ((1, 2), (1, 0), (1, 1), 2, (8, 5), True),
    "no padding": ((2, 1), (0, 0), (1, 1), 1, None, False),
}


@pytest.mark.parametrize("form", PADDED)
def test_nothing_is_claimed_where_a_tap_outside_of_the_image_is_not_finite(form: str, rng) -> None:
    """Zero times infinity is NaN for who holds the padding, and nothing for who skips it; inside both must agree."""
    stride, padding, dilation, groups, size, turned = PADDED[form]
    x, w = draw(rng, 2, 4, 7, 8), draw(rng, 8, 4 // groups, 3, 3)
    w[1, 0, 0, 2], w[6, -1, 1, 1], w[3, 0, 2, 0] = np.inf, -np.inf, np.nan
    op = Conv2dOp(
        x=types(x)[0],
        w=types(w)[0],
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        size=size,
        turned=turned,
        epilogue=Epilogue.of(activation="sigmoid"),  # bounded: an enclosure through it alone would claim 0 to 1
    )
    bound = error_bound(op, [x, w])
    for k, p, q in np.ndindex(*bound.shape[1:]):
        odd = [(2 - r, 2 - s) if turned else (r, s) for _, r, s in np.argwhere(~np.isfinite(w[k]))]
        rows = [p * stride[0] + r * dilation[0] - padding[0] for r, _ in odd]
        columns = [q * stride[1] + s * dilation[1] - padding[1] for _, s in odd]
        outside = any(not (0 <= row < 7 and 0 <= column < 8) for row, column in zip(rows, columns, strict=True))
        # An infinity times a sum of unknown sign may be either infinity before the sigmoid: bounded, not claimed.
        assert np.isinf(bound[:, k, p, q]).all() or not outside, (k, p, q)
        assert (bound[:, k, p, q] == 0.0).all() or outside or not np.isnan(w[k]).any(), (k, p, q)
    assert np.isinf(bound[:, [0, 2, 4, 5, 7]]).sum() == 0, "a filter of numbers is claimed everywhere"


def test_what_a_query_does_not_see_is_no_part_of_its_sum_and_nothing_is_claimed_of_zero_times_it(rng) -> None:
    q, k, v = draw(rng, 1, 1, 8, 4), draw(rng, 1, 1, 8, 4), draw(rng, 1, 1, 8, 3)
    v[0, 0, 1, 0], v[0, 0, 5, 0], v[0, 0, 0, 1] = np.inf, np.nan, -np.inf
    op = AttentionOp(**dict(zip("qkv", types(q, k, v), strict=True)), causal=True)
    value, bound = evaluate(op, [q, k, v])[0, 0], error_bound(op, [q, k, v])[0, 0]
    assert np.isfinite(value[0, 0])
    assert (value[1:5, 0] == np.inf).all()
    assert np.isnan(value[5:, 0]).all()
    assert np.isinf(bound[:5, 0]).all(), "they hide a key whose value is not finite"
    assert (bound[5:, 0] == 0.0).all(), "they see every such key"
    assert (value[:, 1] == -np.inf).all()
    assert (bound[:, 1] == 0.0).all()
    assert np.isfinite(value[:, 2]).all()
    assert (bound[:, 2] < 1e-4).all()


def test_nothing_is_claimed_of_faint_weights_times_what_is_not_finite_nor_of_sums_beyond_the_largest_number(
    rng,
) -> None:
    q, k, v = draw(rng, 1, 1, 8, 4), np.zeros((1, 1, 8, 4), np.float32), draw(rng, 1, 1, 8, 3)
    q[..., 0] = 2.0  # times a key's first element, times 1 / sqrt(4): the score
    k[0, 0, 2, 0], k[0, 0, 3, 0] = -95.0, -60.0
    v[0, 0, 2, 0], v[0, 0, 3, 1], v[..., 2] = np.inf, np.inf, 1e38
    op = AttentionOp(**dict(zip("qkv", types(q, k, v), strict=True)))
    value, bound = evaluate(op, [q, k, v])[0, 0], error_bound(op, [q, k, v])[0, 0]
    assert (value[:, 0] == np.inf).all()
    assert np.isinf(bound[:, 0]).all(), "a weight of e^-95 may be flushed"
    assert (value[:, 1] == np.inf).all()
    assert (bound[:, 1] == 0.0).all(), "one of e^-60 may not"
    assert np.isinf(bound[:, 2]).all(), "seven of 1e38 are summed before they are divided"
    v[..., 2] = 1e37
    assert (error_bound(op, [q, k, v])[0, 0][:, 2] < 1e34).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 4])
def test_attention_agrees_with_torch(causal: bool, window: int | None, rng) -> None:
    q, k, v = draw(rng, 2, 6, 9, 16), draw(rng, 2, 2, 9, 16), draw(rng, 2, 2, 9, 5)
    op = AttentionOp(**dict(zip("qkv", types(q, k, v), strict=True)), causal=causal, window=window, scale=0.3)
    distance = np.subtract.outer(np.arange(9), np.arange(9))
    seen = np.ones((9, 9), dtype=bool)
    seen &= distance >= 0 if causal else True
    seen &= np.abs(distance) < window if window else True

    def peer(kind: object) -> object:
        tensors = [torch.from_numpy(x).to(kind) for x in (q, k, v)]
        return functional.scaled_dot_product_attention(
            *tensors, attn_mask=torch.from_numpy(seen), scale=0.3, enable_gqa=True
        )

    np.testing.assert_allclose(evaluate(op, [q, k, v]), peer(torch.float64), rtol=1e-10, atol=1e-12)
    within(op, [q, k, v], peer(torch.float32))


@pytest.mark.parametrize("kind", [RowKind.SOFTMAX, RowKind.LOG_SOFTMAX])
def test_extreme_rows_mean_what_they_mean_in_torch(kind: RowKind) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[-inf, -inf, -inf], [inf, 0, 0], [nan, 0, 0], [-inf, 0, 0], [1e300, -1e300, 0]])
    op = RowOp(kind=kind, x=types(x, dtype=F64))
    np.testing.assert_allclose(evaluate(op, [x]), ROWS[kind](torch.from_numpy(x)), rtol=1e-12)
    assert (error_bound(op, [x])[:3] == 0).all()  # NaN is expected exactly


def test_nan_and_infinity_propagate_through_gemm() -> None:
    a = np.array([[np.nan, 0.0], [np.inf, 1.0], [1.0, 1.0]])
    op = GemmOp.of(m=3, n=1, k=2, dtype=F64, activation="relu")
    np.testing.assert_array_equal(evaluate(op, [a, np.array([[1.0], [2.0]])]), [[np.nan], [np.inf], [3.0]])


def test_empty_reductions_have_their_neutral_values() -> None:
    x = np.zeros((2, 0))
    assert (evaluate(ReduceOp(kind=ReduceKind.SUM, x=types(x), axes=(1,)), [x]) == 0).all()
    assert np.isnan(evaluate(ReduceOp(kind=ReduceKind.MEAN, x=types(x), axes=(1,)), [x])).all()


@pytest.mark.parametrize(("batch", "groups"), [(0, 1), (0, 4), (2, 4), (2, 2)])
def test_convolutions_of_no_image_and_of_groups_mean_what_they_mean_in_torch(rng, batch: int, groups: int) -> None:
    op = Conv2dOp.of(
        batch=batch, channels=4, size=(5, 6), filters=8, kernel=(3, 2), stride=(2, 1), padding=(1, 0), groups=groups
    )
    x, w = (draw(rng, *type_.static_shape).astype(np.float64) for type_ in (op.x, op.w))
    peer = torch.nn.functional.conv2d(*map(torch.from_numpy, (x, w)), None, op.stride, op.padding, groups=groups)
    np.testing.assert_allclose(evaluate(op, [x, w]), peer, rtol=1e-10, atol=1e-12)
    assert error_bound(op, [x, w]).shape == peer.shape


def test_views_mean_what_numpy_means(rng) -> None:
    x = draw(rng, 4, 6)
    flip = ViewOp(kind=ViewKind.SLICE, x=types(x)[0], starts=(1, 5), shape=(2, 6), steps=(2, -1))
    np.testing.assert_array_equal(evaluate(flip, [x]), x[1::2, ::-1])
    expand = ViewOp(kind=ViewKind.EXPAND, x=types(x)[0], shape=(3, 4, 6))
    np.testing.assert_array_equal(evaluate(expand, [x]), np.broadcast_to(x, (3, 4, 6)))
    windows = ViewOp(kind=ViewKind.WINDOWS, x=types(x)[0], axes=(1,), shape=(3,), steps=(2,))
    np.testing.assert_array_equal(evaluate(windows, [x]), np.stack([x[:, :3], x[:, 2:5]], 1))


def test_rounded_results_are_values_of_the_storage_type(rng) -> None:
    x = draw(rng, 64)
    op = PointwiseOp(expr=Input(0) / 3.0, inputs=types(x), out_dtype=DType.BF16)
    rounded = evaluate(op, [x], rounded=True)
    np.testing.assert_array_equal(DType.BF16.round(rounded), rounded)
    assert (np.abs(rounded - evaluate(op, [x])) <= error_bound(op, [x])).all()


def test_symbolic_extents_come_from_the_arrays(rng) -> None:
    rows = SymbolicDim("rows", maximum=8)
    op = GemmOp.of(m=rows, n=3, k=4)
    assert evaluate(op, [draw(rng, 5, 4), draw(rng, 4, 3)]).shape == (5, 3)
    with pytest.raises(InvalidShape, match="8"):
        evaluate(op, [draw(rng, 9, 4), draw(rng, 4, 3)])


def test_inputs_must_fit_the_operands(rng) -> None:
    op = GemmOp.of(m=2, n=3, k=4)
    for inputs in ([draw(rng, 2, 4)], [draw(rng, 2, 4), draw(rng, 3, 4)], [draw(rng, 2, 4)] * 3):
        with pytest.raises(InvalidShape):
            evaluate(op, inputs)
