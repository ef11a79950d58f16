"""Every op against float64: all operands, element types, layouts and kinds of arrays, our kernels and the library's."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from tests.drawn import drawn
from tests.interface.accuracy import assert_meaning, poisoned, strided, type_of

import tracea
from tracea.core.dtype import DType
from tracea.core.expr import Input, activation_names
from tracea.core.op import Epilogue, GemmOp, RowKind, RowOp
from tracea.core.tensor_type import broadcast_shapes
from tracea.errors import InvalidOp
from tracea.interface import functional, fusion

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = ("torch", "numpy")
FLOATS = (DType.F32, DType.F64, DType.F16, DType.BF16)


@pytest.fixture(params=[False, True], ids=["ours", "library"])
def library(request):
    with tracea.ops.library(request.param):
        yield request.param


def gemm_op(a, b, *, bias=None, residual=None, activation=None, alpha=1.0, out=None):
    types = [type_of(a), type_of(b)]
    return GemmOp(
        m=a.shape[-2],
        n=b.shape[-1],
        k=a.shape[-1],
        batch=broadcast_shapes((a.shape[:-2], b.shape[:-2]), field="batch"),
        a=types[0],
        b=types[1],
        epilogue=Epilogue.of(
            alpha=alpha,
            bias=None if bias is None else type_of(bias),
            activation=activation,
            residual=None if residual is None else type_of(residual),
        ),
        out=None if out is None else type_of(out),
    )


def check_gemm(a, b, **options):
    out = options.get("out")
    result = tracea.ops.gemm(a, b, **options)
    if out is not None:
        assert result is out
    assert type(result) is type(a)
    extra = [options[name] for name in ("bias", "residual") if options.get(name) is not None]
    assert_meaning(result, gemm_op(a, b, **options), a, b, *extra)
    return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
def test_a_product_with_everything_on_it(rng, kind, dtype, library):
    a, b = strided(rng, kind, dtype, (19, 33), "rows"), strided(rng, kind, dtype, (33, 21), "rows")
    bias, residual = strided(rng, kind, dtype, (21,), "rows"), strided(rng, kind, dtype, (19, 21), "rows")
    out = poisoned(kind, dtype, (19, 21))
    check_gemm(a, b, bias=bias, residual=residual, activation="gelu", alpha=0.5, out=out)


@pytest.mark.costly
def test_random_products(rng, library):
    for _ in range(5):
        m, n, k = (int(rng.choice([1, 2, 7, 16, 30, 65])) for _ in range(3))
        batch = [(), (), (3,), (2, 3)][rng.integers(4)]
        kind, dtype = KINDS[rng.integers(2)], FLOATS[rng.integers(4)]
        layouts = [("rows", "columns", "gaps", "broadcast")[rng.integers(4)] for _ in range(4)]
        a = strided(rng, kind, dtype, (*batch, m, k), layouts[0])
        b_batch = batch if rng.integers(2) else batch[1:]
        b = strided(rng, kind, dtype, (*b_batch, k, n), layouts[1])
        options = {}
        if rng.integers(2):
            options["bias"] = strided(rng, kind, dtype, ((n,), (m, 1), (1,))[rng.integers(3)], "rows")
        if rng.integers(2):
            options["residual"] = strided(rng, kind, dtype, (*batch, m, n), layouts[2])
        if rng.integers(2):
            options["activation"] = ("relu", "silu", "tanh", "gelu_tanh")[rng.integers(4)]
        if rng.integers(2):
            options["alpha"] = float(rng.standard_normal())
        if rng.integers(2):
            options["out"] = poisoned(kind, dtype, (*batch, m, n), ("rows", "columns")[rng.integers(2)])
        check_gemm(a, b, **options)


@pytest.mark.parametrize("name", drawn(5, activation_names(), of="activations"))
def test_every_activation(rng, name):
    with tracea.ops.library(False):
        a, b = strided(rng, "torch", DType.F32, (8, 9), "rows"), strided(rng, "torch", DType.F32, (9, 16), "rows")
        check_gemm(a, b, activation=name, alpha=2.0)


@pytest.mark.parametrize("shapes", [((3, 1, 4, 5), (2, 5, 6)), ((1, 4, 5), (7, 5, 6)), ((4, 5), (2, 3, 5, 6))])
def test_batch_axes_broadcast(rng, shapes, library):
    a, b = (strided(rng, "torch", DType.F32, shape, "rows") for shape in shapes)
    torch.testing.assert_close(check_gemm(a, b), a @ b)


@pytest.mark.parametrize("extents", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)])
@pytest.mark.parametrize("kind", KINDS)
def test_an_axis_without_elements(rng, extents, kind, library):
    m, n, k = extents
    a, b = strided(rng, kind, DType.F32, (m, k), "rows"), strided(rng, kind, DType.F32, (k, n), "rows")
    bias = strided(rng, kind, DType.F32, (n,), "rows")
    check_gemm(a, b, out=poisoned(kind, DType.F32, (m, n)))
    check_gemm(a, b, bias=bias, activation="sigmoid", out=poisoned(kind, DType.F32, (m, n)))


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16], ids=lambda dtype: dtype.value)
def test_nan_and_infinity_propagate(rng, dtype, library):
    a, b = strided(rng, "numpy", dtype, (6, 70), "rows"), strided(rng, "numpy", dtype, (70, 40), "rows")
    a[0, 69], a[1, 0], a[2, 3], a[3, 3] = np.nan, np.inf, np.inf, -np.inf
    b[3, :] = 0.0  # inf · 0 is NaN
    result = check_gemm(a, b).astype(np.float64)
    assert np.isnan(result[[0, 2, 3]]).all()
    assert np.isinf(result[1]).all()
    assert np.isfinite(result[4:]).all()
    relu = tracea.ops.gemm(a, b, activation="relu").astype(np.float64)
    assert np.isnan(relu[0]).all()


def test_a_bias_may_be_wider_than_the_operands(rng):
    a, b = (strided(rng, "torch", DType.BF16, shape, "rows") for shape in ((5, 8), (8, 7)))
    check_gemm(a, b, bias=strided(rng, "torch", DType.F32, (7,), "rows"))
    check_gemm(a, b, out=poisoned("torch", DType.F32, (5, 7)))


@pytest.mark.parametrize("shape", [(), (5, 7)])  # a row and a column are among the random products
def test_a_bias_broadcasts_as_in_torch_addmm(rng, shape):
    a, b = (strided(rng, "torch", DType.F32, sides, "rows") for sides in ((5, 8), (8, 7)))
    bias = torch.randn(shape)
    wanted = torch.addmm(bias, a, b)
    torch.testing.assert_close(tracea.ops.gemm(a, b, bias=bias), wanted)
    torch.testing.assert_close(tracea.ops.gemm(a, tracea.ops.prepack(b), bias=bias), wanted)


def test_a_number_of_any_kind_is_an_alpha(rng):
    a, b = (strided(rng, "torch", DType.F32, (4, 4), "rows") for _ in range(2))
    for alpha in (2, 2.0, np.float32(2.0), np.int64(2)):
        torch.testing.assert_close(tracea.ops.gemm(a, b, alpha=alpha), 2.0 * (a @ b))
    assert tracea.ops.gemm(a, b, alpha=float("nan")).isnan().all()


def row_op(kind, x, weight=None, bias=None, eps=0.0):
    expr, operands = Input(0), []
    for operand, combine in ((weight, "mul"), (bias, "add")):
        if operand is not None:
            operands.append(type_of(operand))
            extra = Input(len(operands))
            expr = expr * extra if combine == "mul" else expr + extra
    epilogue = Epilogue(expr, tuple(operands))
    return RowOp(kind=kind, x=(type_of(x),), epilogue=epilogue, eps=eps)


@pytest.mark.costly
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", drawn(1, FLOATS, of="normalised rows"), ids=lambda dtype: dtype.value)
def test_rows_are_normalised(rng, kind, dtype):
    for columns, layout in ((1, "rows"), (37, "gaps"), (128, "columns")):
        x = strided(rng, kind, dtype, (5, columns), layout)
        weight, bias = (strided(rng, kind, dtype, (columns,), "rows") for _ in range(2))
        out = poisoned(kind, dtype, (5, columns))
        assert tracea.ops.softmax(x, out=out) is out
        assert_meaning(out, row_op(RowKind.SOFTMAX, x), x)
        found = tracea.ops.layer_norm(x, weight, bias, 1e-5)
        assert_meaning(found, row_op(RowKind.LAYER_NORM, x, weight, bias, 1e-5), x, weight, bias)
        found = tracea.ops.rms_norm(x, weight, 1e-6)
        assert_meaning(found, row_op(RowKind.RMS_NORM, x, weight, None, 1e-6), x, weight)


def test_norms_without_weights_and_with_one_of_them(rng):
    x, weight, bias = (strided(rng, "torch", DType.F32, shape, "rows") for shape in ((2, 3, 40), (40,), (40,)))
    norm = torch.nn.functional.layer_norm
    torch.testing.assert_close(tracea.ops.layer_norm(x), norm(x, (40,)))
    torch.testing.assert_close(tracea.ops.layer_norm(x, None, bias), norm(x, (40,), None, bias))
    torch.testing.assert_close(tracea.ops.layer_norm(x, weight), norm(x, (40,), weight))
    torch.testing.assert_close(tracea.ops.rms_norm(x), torch.nn.functional.rms_norm(x, (40,), None, 1e-6))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_rms_norm_without_eps_adds_what_torch_does(dtype):
    x = torch.linspace(-3e-4, 3e-4, 80).reshape(2, 40).to(dtype)  # squares about as large as the eps of float32
    torch.testing.assert_close(tracea.ops.rms_norm(x, None, None), torch.nn.functional.rms_norm(x, (40,)))
    grad = torch.ones_like(x)
    wide = x.double().clone().requires_grad_()
    y = torch.nn.functional.rms_norm(wide, (40,), None, torch.finfo(torch.promote_types(dtype, torch.float32)).eps)
    (wanted,) = torch.autograd.grad(y, wide, grad.double())
    found, _ = tracea.ops.rms_norm_backward(grad, x, None, None)
    torch.testing.assert_close(found, wanted.to(dtype), rtol=4 * torch.finfo(dtype).eps, atol=0.01)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("kind", KINDS)
def test_softmax_along_any_axis(rng, dim, kind):
    x = strided(rng, kind, DType.F32, (4, 5, 6), "rows")
    expected = torch.softmax(torch.as_tensor(x), dim)
    found = tracea.ops.softmax(x, dim)
    assert found.shape == x.shape
    torch.testing.assert_close(torch.as_tensor(found), expected)
    out = poisoned(kind, DType.F32, (4, 5, 6))
    assert tracea.ops.softmax(x, np.int64(dim), out=out) is out
    torch.testing.assert_close(torch.as_tensor(out), expected)


def test_softmax_of_extreme_rows():
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[1e38, -1e38, 0.0], [-inf, -inf, 0.0], [-inf, -inf, -inf], [nan, 0.0, 1.0], [inf, 0.0, 1.0]])
    torch.testing.assert_close(tracea.ops.softmax(x), torch.softmax(x, -1), equal_nan=True)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (0,), (2, 0, 3)])
def test_rows_without_elements(shape):
    x = torch.empty(shape)
    columns = torch.ones(shape[-1])
    for found in (tracea.ops.softmax(x), tracea.ops.layer_norm(x, columns, columns), tracea.ops.rms_norm(x, columns)):
        assert found.shape == shape


def test_the_library_can_be_kept_out(rng):
    a, b = (strided(rng, "torch", DType.F32, (96, 96), "rows") for _ in range(2))
    assert functional.library_allowed()
    with tracea.ops.library(False):
        assert not functional.library_allowed()
        seen = []
        thread = threading.Thread(target=lambda: seen.append(functional.library_allowed()))
        thread.start()
        thread.join()
        assert seen == [True]  # the policy of a thread is its own
        with tracea.ops.library(True):
            assert functional.library_allowed()
        ours = tracea.ops.gemm(a, b)
    assert functional.library_allowed()
    torch.testing.assert_close(ours, a @ b)
    with pytest.raises(InvalidOp), tracea.ops.library(False):
        tracea.ops.gemm(a, b, activation="no such")
    assert functional.library_allowed()


def test_the_policy_decides_what_is_compiled_and_what_is_remembered(rng, monkeypatch):
    asked = []

    def spy(module):
        real = module.compile_op
        monkeypatch.setattr(module, "compile_op", lambda *a, **k: asked.append(k["library"]) or real(*a, **k))

    spy(functional)
    spy(fusion)
    a, b = strided(rng, "torch", DType.F32, (11, 13), "rows"), strided(rng, "torch", DType.F32, (13, 15), "rows")
    fused = tracea.ops.fuse(["gemm", "relu"])
    for allowed in (False, True, False, True):
        with tracea.ops.library(allowed):
            torch.testing.assert_close(tracea.ops.gemm(a, b), a @ b)
            torch.testing.assert_close(fused(a, b), torch.relu(a @ b))
    assert asked == [False, False, True, True]


@pytest.mark.parametrize("given", ["no", None, 2, 0.0])
def test_a_library_is_allowed_or_not(given):
    with pytest.raises(InvalidOp, match="library"), tracea.ops.library(given):
        pass


def test_threads_share_a_signature(rng):
    a, b = (strided(rng, "torch", DType.F32, shape, "rows") for shape in ((64, 48), (48, 80)))
    expected, wrong = a @ b, []

    def work():
        for _ in range(50):
            if not torch.allclose(tracea.ops.gemm(a, b), expected, atol=1e-4):
                wrong.append(threading.get_ident())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_subclasses_and_other_producers_give_plain_results(rng):
    class Mine(torch.Tensor):
        pass

    a, b = (strided(rng, "torch", DType.F32, (4, 4), "rows") for _ in range(2))
    assert type(tracea.ops.gemm(a.as_subclass(Mine), b)) is torch.Tensor
    with torch.no_grad():
        torch.testing.assert_close(tracea.ops.gemm(a, torch.nn.Parameter(b)), a @ b)
    with torch.inference_mode():
        torch.testing.assert_close(tracea.ops.gemm(a, b.clone().requires_grad_()), a @ b)


@pytest.mark.costly
def test_two_threads_give_what_one_gives(rng):
    a, b = strided(rng, "torch", DType.F32, (130, 90), "columns"), strided(rng, "torch", DType.F32, (90, 200), "rows")
    residual, x = (
        strided(rng, "torch", DType.F32, (130, 200), "gaps"),
        strided(rng, "torch", DType.F32, (300, 257), "gaps"),
    )
    torch.set_num_threads(2)
    for allowed in (False, True):
        with tracea.ops.library(allowed):
            check_gemm(a, b, residual=residual, activation="gelu", out=poisoned("torch", DType.F32, (130, 200)))
            check_gemm(a.bfloat16(), b.bfloat16())
    weight = tracea.ops.prepack(b)
    torch.testing.assert_close(tracea.ops.gemm(a, weight), a @ b)
    assert_meaning(tracea.ops.softmax(x), row_op(RowKind.SOFTMAX, x), x)
    assert_meaning(tracea.ops.rms_norm(x, eps=1e-6), row_op(RowKind.RMS_NORM, x, eps=1e-6), x)
    chain = tracea.ops.fuse(["gelu", "mul", "add"])
    torch.testing.assert_close(chain(x, x, x), torch.nn.functional.gelu(x) * x + x)


def test_the_bias_of_a_product_is_taken_beta_times():
    a, b, bias = torch.randn(5, 7), torch.randn(7, 6), torch.randn(6)
    for beta in (0.5, -2, np.float32(3.0)):
        expected = torch.addmm(bias, a, b, beta=float(beta), alpha=2.0)
        torch.testing.assert_close(tracea.ops.gemm(a, b, bias=bias, alpha=2.0, beta=beta), expected)
        weight = tracea.ops.prepack(b)
        torch.testing.assert_close(tracea.ops.gemm(a, weight, bias=bias, alpha=2.0, beta=beta), expected)
    unread = torch.full((6,), float("nan"))
    for weight in (b, tracea.ops.prepack(b)):
        torch.testing.assert_close(tracea.ops.gemm(a, weight, bias=unread, beta=0), a @ b)
    torch.testing.assert_close(tracea.ops.prepack(b).multiply(a, bias=unread, beta=-0.0), a @ b)
    with pytest.raises(InvalidOp, match="beta"):
        tracea.ops.prepack(b).multiply(a, bias=bias, beta=True)
    with pytest.raises(InvalidOp, match="beta"):
        tracea.ops.gemm(a, b, bias=bias, beta="1")
