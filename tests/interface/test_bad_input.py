"""What a caller may do wrong: the right answer, or a typed error with its numbers and a remedy; nothing is touched."""

from __future__ import annotations

import re
import warnings
from functools import wraps

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import tracea
from tracea.core.expr import Input
from tracea.errors import (
    InvalidDevice,
    InvalidDType,
    InvalidInput,
    InvalidOp,
    InvalidOption,
    InvalidShape,
    InvalidStride,
    OverlappingOutput,
    ResourceExceeded,
    TraceaError,
)

pytestmark = pytest.mark.whole

gemm = tracea.ops.gemm
softmax = tracea.ops.softmax
layer_norm = tracea.ops.layer_norm
rms_norm = tracea.ops.rms_norm
attention = tracea.ops.attention
rope = tracea.ops.rope
topk = tracea.ops.topk
cross_entropy = tracea.ops.cross_entropy

X = torch.ones(8, 8)
N = X.numpy()
Q = torch.ones(1, 2, 5, 16)
META = torch.empty(70_000, 70_000, device="meta")
STRIPE = torch.ones(1, 1).expand(2**31, 1)
UNALIGNED = np.frombuffer(bytearray(8 * 8 * 4 + 1), np.uint8)[1:].view(np.float32).reshape(8, 8)


def dual(call):
    with warnings.catch_warnings(), forward_ad.dual_level():
        warnings.filterwarnings("ignore", message=".torch.jit.script. is deprecated")  # torch's own, at the first dual
        call(X)  # one without a tangent is like any other
        return call(forward_ad.make_dual(X, X))


REFUSED = {
    "vectors": (lambda: gemm(X[0], X), InvalidShape),
    "a scalar": (lambda: gemm(torch.tensor(1.0), X), InvalidShape),
    "inner extents": (lambda: gemm(X, torch.ones(7, 8)), InvalidShape),
    "batch extents": (lambda: gemm(torch.ones(2, 8, 8), torch.ones(3, 8, 8)), InvalidShape),
    "bias": (lambda: gemm(X, X, bias=torch.ones(7)), InvalidShape),
    "bias that enlarges": (lambda: gemm(X, X, bias=torch.ones(2, 8, 8)), InvalidShape),
    "residual": (lambda: gemm(X, X, residual=torch.ones(8, 9)), InvalidShape),
    "out shape": (lambda: gemm(X, X, out=torch.empty(8, 9)), InvalidShape),
    "out rank": (lambda: gemm(X, X, out=torch.empty(64)), InvalidShape),
    "out type": (lambda: softmax(X, out=torch.empty(8, 8, dtype=torch.int32)), InvalidDType),
    "weight": (lambda: layer_norm(X, torch.ones(7)), InvalidShape),
    "weight of rank 2": (lambda: rms_norm(X, X), InvalidShape),
    "norm of a scalar": (lambda: rms_norm(torch.tensor(1.0)), InvalidInput),
    "no such axis": (lambda: softmax(X, 2), InvalidShape),
    "an axis by name": (lambda: softmax(X, "rows"), InvalidShape),
    "a true axis": (lambda: softmax(X, True), InvalidShape),
    "an axis of half": (lambda: softmax(X, 0.5), InvalidShape),
    "an axis beyond 64 bits": (lambda: softmax(X, 10**30), InvalidShape),
    "mixed types": (lambda: gemm(X, X.double()), InvalidDType),
    "mixed half types": (lambda: gemm(X.half(), X.bfloat16()), InvalidDType),
    "f32 bias on f64": (lambda: gemm(X.double(), X.double(), bias=X[0]), InvalidDType),
    "f64 out of f32": (lambda: gemm(X, X, out=torch.empty(8, 8, dtype=torch.float64)), InvalidDType),
    "integers": (lambda: gemm(X.int(), X.int()), InvalidDType),
    "booleans": (lambda: softmax(X.bool()), InvalidDType),
    "complex": (lambda: gemm(X.cfloat(), X.cfloat()), InvalidDType),
    "8-bit floats": (lambda: gemm(X.to(torch.float8_e4m3fn), X.to(torch.float8_e4m3fn)), InvalidDType),
    "8-bit floats of NumPy": (lambda: softmax(N.astype(ml_dtypes.float8_e4m3fn)), InvalidDType),
    "longdouble": (lambda: softmax(N.astype(np.longdouble)), InvalidDType),
    "objects": (lambda: softmax(np.array([[object()]])), InvalidDType),
    "text": (lambda: softmax(np.array([["a"]])), InvalidDType),
    "swapped bytes": (lambda: softmax(N.astype(">f4")), InvalidDType),
    "a list": (lambda: gemm([[1.0]], [[1.0]]), InvalidDType),
    "nothing": (lambda: gemm(None, X), InvalidDType),
    "a number": (lambda: softmax(3.5), InvalidDType),
    "a module": (lambda: softmax(np), InvalidDType),
    "torch and NumPy": (lambda: gemm(X, N), InvalidDType),
    "out of the other kind": (lambda: gemm(X, X, out=N.copy()), InvalidDType),
    "a masked array": (lambda: softmax(np.ma.masked_array(N, N > 0)), InvalidDType),
    "70 000² of nothing": (lambda: gemm(META, META), InvalidDevice),
    "70 000² of nothing in rows": (lambda: softmax(META), InvalidDevice),
    "out of nothing": (lambda: gemm(X, X, out=torch.empty(8, 8, device="meta")), InvalidDevice),
    "a sparse tensor": (lambda: gemm(X.to_sparse(), X), InvalidStride),
    "a flipped array": (lambda: gemm(N[::-1], N), InvalidStride),
    "flipped columns": (lambda: softmax(N[:, ::-1]), InvalidStride),
    "a flipped out": (lambda: gemm(N, N, out=np.empty((8, 8), np.float32)[::-1]), InvalidStride),
    "strides of half an element": (lambda: softmax(np.zeros((8, 2), "f4,u1")["f0"]), InvalidStride),
    "unaligned": (lambda: softmax(UNALIGNED), InvalidStride),
    "a read-only out": (lambda: gemm(N, N, out=np.broadcast_to(np.float32(0), (8, 8))), InvalidStride),
    "an expanded out": (lambda: gemm(X, X, out=torch.empty(8, 1).expand(8, 8)), InvalidStride),
    "out is an input": (lambda: gemm(X, X, out=X), OverlappingOutput),
    "out is a view of an input": (lambda: gemm(X[:4, :4], X[:4, :4], out=X[2:6, 2:6]), OverlappingOutput),
    "out is the residual": (lambda: gemm(X, X, residual=N_OUT, out=N_OUT), OverlappingOutput),
    "out on itself": (lambda: softmax(X, out=X), OverlappingOutput),
    "a gradient": (lambda: gemm(X.clone().requires_grad_(), X), InvalidInput),
    "a gradient of a weight": (lambda: layer_norm(X, torch.nn.Parameter(torch.ones(8))), InvalidInput),
    "a gradient of a prepacked weight": (lambda: tracea.ops.prepack(torch.nn.Parameter(X)), InvalidInput),
    "2^62 elements": (lambda: gemm(STRIPE, STRIPE.t()), InvalidShape),
    "2^63 elements": (lambda: gemm(STRIPE, torch.ones(1, 1).expand(1, 2**32)), InvalidShape),
    "more than memory": (lambda: gemm(STRIPE[: 2**20], STRIPE[: 2**20].t()), ResourceExceeded),
    "alpha of text": (lambda: gemm(X, X, alpha="1; import os"), InvalidOp),
    "alpha of a tensor": (lambda: gemm(X, X, alpha=torch.tensor(2.0)), InvalidOp),
    "alpha beyond doubles": (lambda: gemm(X, X, alpha=10**400), InvalidOp),
    "negative eps": (lambda: layer_norm(X, eps=-1.0), InvalidOp),
    "eps is no number": (lambda: rms_norm(X, eps=float("nan")), InvalidOp),
    "eps of text": (lambda: rms_norm(X, eps="1e-5"), InvalidOp),
    "prepack of a vector": (lambda: tracea.ops.prepack(X[0]), InvalidShape),
    "prepack of integers": (lambda: tracea.ops.prepack(X.int()), InvalidDType),
    "prepack for what is not there": (lambda: tracea.ops.prepack(X, for_op="attention"), InvalidOption),
    "prepack of nothing": (lambda: tracea.ops.prepack(None), InvalidDType),
    "prepack of more than memory": (
        lambda: tracea.ops.prepack(torch.ones(1, 1).expand(2**30, 2**30)),
        ResourceExceeded,
    ),
    "prepack of more than memory in NumPy": (
        lambda: tracea.ops.prepack(np.broadcast_to(np.float32(1), (2**30, 2**30))),
        ResourceExceeded,
    ),
    "a prepacked weight on the left": (lambda: gemm(tracea.ops.prepack(X), X), InvalidDType),
    "a prepacked weight of another type": (lambda: gemm(X.half(), tracea.ops.prepack(X)), InvalidDType),
    "a prepacked weight of another k": (lambda: gemm(X[:, :7], tracea.ops.prepack(X)), InvalidShape),
    "nothing to fuse": (lambda: tracea.ops.fuse([]), InvalidOp),
    "a product in the middle": (lambda: tracea.ops.fuse(["relu", "gemm"]), InvalidOp),
    "a step that is a function": (lambda: tracea.ops.fuse([torch.mm]), InvalidOp),
    "a step of the name of ours": (lambda: tracea.ops.fuse([torch.relu]), InvalidOp),
    "a norm of the name of ours": (lambda: tracea.ops.fuse([torch.rms_norm]), InvalidOp),
    "a step that wraps ours": (lambda: tracea.ops.fuse([wraps(tracea.ops.layer_norm)(lambda x: 0 * x)]), InvalidOp),
    "a thousand steps": (lambda: tracea.ops.fuse(["gelu"] * 1000), InvalidOp),
    "too many operands": (lambda: tracea.ops.fuse(["add"] * 40), InvalidOp),
    "too few operands": (lambda: tracea.ops.fuse(["gemm", "add"])(X, X), InvalidShape),
    "vectors to a fused product": (lambda: tracea.ops.fuse(["gemm"])(X[0], X), InvalidShape),
    "integers beyond 32 bits to fused steps": (lambda: tracea.ops.fuse(["maximum"])(X.long(), X.long()), InvalidDType),
    "no operand": (tracea.ops.fuse(["relu"]), InvalidInput),
    "nothing to a fused step": (lambda: tracea.ops.fuse(["relu"])(None), InvalidInput),
    "a dual tensor": (lambda: dual(lambda x: gemm(x, X)), InvalidInput),
    "a dual tensor in rows": (lambda: dual(softmax), InvalidInput),
    "integers to a fused norm": (lambda: tracea.ops.fuse(["rms_norm", "mul"])(X.int(), X[0].int()), InvalidDType),
}
N_OUT = torch.ones(8, 8)


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_remedy(name):
    call, expected = REFUSED[name]
    with pytest.raises(expected) as caught:
        call()
    error = caught.value
    assert isinstance(error, TraceaError)
    assert error.remedy
    assert len(str(error)) < 3_000
    assert X.eq(1).all()
    assert N_OUT.eq(1).all()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gemm(X, X, bias=torch.ones(7)), "bias: got (7,), expected a shape that broadcasts to (8, 8)"),
        (lambda: gemm(X, X, residual=torch.ones(3, 8)), "residual: got (3, 8), expected"),
        (lambda: gemm(X, X, bias=torch.ones(2, 8, 8)), "bias: got (2, 8, 8), expected"),
        (lambda: gemm(X, tracea.ops.prepack(X), bias=torch.ones(7)), "bias: got (7,), expected"),
        (
            lambda: rope(torch.ones(2, 5, 16), torch.ones(5, 16), torch.ones(5, 16)),
            "cos: got (5, 16), expected a shape that broadcasts to (2, 5, 8), where 8 is half the width of x's last",
        ),
        (lambda: rope(torch.ones(5, 16), torch.ones(5, 8), torch.ones(5, 16)), "cos[..., :8] and sin[..., :8]"),
        (lambda: rope(torch.ones(5, 16), torch.ones(5, 16), torch.ones(5, 8), interleaved=True), "cos[..., ::2] and"),
        (
            lambda: attention(Q, Q, Q, mask=torch.ones(3, 3)),
            "mask: got (3, 3), expected a shape that broadcasts to (1, 2, 5, 5), the scores' (batch, heads, s, t). "
            "Remedy: make each axis, counted from the last, 1 or the scores': t counts the keys",
        ),
        (lambda: topk(X, 9), "k: got 9, expected 0 to 8: the elements along dim. Remedy: k=8"),
        (lambda: topk(torch.ones(2, 300), 301), "k: got 301, expected 0 to 300"),
        (
            lambda: topk(torch.ones(2, 0), 1),
            "k: got 1, expected 0 to 0: the elements along dim. Remedy: k=0",
        ),
        (lambda: topk(torch.tensor(1.0), 2), "k: got 2, expected 1: a number"),
        (lambda: topk(torch.ones(3), -1), "Remedy: give a k from 0 to the number of elements along dim"),
        (
            lambda: cross_entropy(torch.ones(2, 5), torch.tensor([1, 7])),
            "target: got 7, expected 0 to 4, of 5 classes. Remedy: count from 0; give the logits a class for each",
        ),
        (
            lambda: attention(Q, Q, Q, score=Input(0) + Input(1)),
            "score: got Input(1) with 0 operands, expected Input(0), the scaled product, alone. "
            "Remedy: give operands= an array",
        ),
        (
            lambda: attention(Q, Q[:, :, :3], Q[:, :, :3], lengths=[5]),
            "lengths: got 1 sequences, 5 keys, expected 1 sequences, 3 keys. Remedy: give key_lengths=",
        ),
        (
            lambda: attention(Q, Q, Q, lengths=[5], block_mask=torch.ones(1, 1, dtype=torch.bool)),
            "causal, window, mask and score go with them",
        ),
        (lambda: layer_norm(X, eps="a"), "eps: got 'a', expected a number. Remedy: eps=1e-05"),
        (lambda: gemm(X, X, alpha="a"), "alpha: got 'a', expected a number. Remedy: alpha=1.0"),
    ],
)
def test_an_argument_is_called_by_its_name(call, said):
    with pytest.raises(InvalidInput) as caught:
        call()
    assert said in str(caught.value)


def test_a_node_of_a_graph_is_called_by_its_name():
    graph = tracea.Graph()
    with pytest.raises(InvalidShape, match=r"product\.bias: got \(7,\), expected .* \(4, 8\)"):
        graph.add_gemm(m=4, n=8, k=16, bias=graph.add_input((7,)), name="product")


HOSTILE = [
    '"; rm -rf /',
    "relu\0",
    "",
    " relu",
    "RELU",
    "\u0440elu",
    "relu\n#include <cstdlib>",
    "%s%n",
    "x" * 10_000_000,
    "__class__",
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:16]))
def test_a_hostile_activation_is_a_name_that_is_not_known(text):
    for call in (
        lambda: gemm(X, X, activation=text),
        lambda: gemm(X, tracea.ops.prepack(X), activation=text),
        lambda: tracea.ops.fuse(["gemm", text]),
        lambda: tracea.Graph().add_gemm(m=2, n=2, k=2, activation=text),
    ):
        with pytest.raises(InvalidOp) as caught:
            call()
        assert "relu" in str(caught.value)
        assert len(str(caught.value)) < 3_000


@pytest.mark.parametrize("activation", [3, b"relu", torch.relu, ["relu"], object(), float("nan")])
def test_an_activation_that_is_no_text(activation):
    with pytest.raises(InvalidOp):
        gemm(X, X, activation=activation)


@pytest.mark.parametrize(
    "out",
    [
        torch.full((8, 9), 7.0),
        torch.full((8, 8), 7, dtype=torch.int32),
        torch.full((8,), 7.0),
        torch.full((9, 8), 7.0).t(),
    ],
)
def test_out_is_untouched_by_a_call_that_fails(out):
    with pytest.raises(TraceaError):
        gemm(X, X, out=out)
    with pytest.raises(TraceaError):
        softmax(X, out=out)
    assert out.eq(7).all()


def test_a_failed_call_leaves_the_next_one_alone():
    for _ in range(3):
        with pytest.raises(InvalidShape):
            gemm(X, X[:7])
        assert gemm(X, X).eq(8).all()


def test_tensors_that_are_traced_have_no_memory():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), pytest.raises(InvalidDevice):
        gemm(torch.ones(4, 4), torch.ones(4, 4))
    with pytest.raises(TraceaError):
        torch.func.vmap(lambda x: gemm(x, X))(torch.ones(3, 8, 8))
    with pytest.raises(TraceaError):
        torch.func.grad(lambda x: gemm(x, X).sum())(X)


def test_a_flipped_axis_of_one_element_is_not_flipped():
    row = np.arange(8, dtype=np.float32).reshape(1, 8)[::-1]
    np.testing.assert_allclose(gemm(row, np.eye(8, dtype=np.float32)), row)


def test_unsupported_strides_of_an_empty_array_do_not_matter():
    assert gemm(np.zeros((0, 8), np.float32)[:, ::-1], N).shape == (0, 8)


class Produced:
    """A DLPack producer whose answers are given."""

    def __init__(self, capsule=lambda: np.ones((3, 4), np.float32).__dlpack__(), place=(1, 0)):
        self.capsule, self.place = capsule, place

    def __dlpack__(self, **_):
        return self.capsule()

    def __dlpack_device__(self):
        return self.place


def raising():
    raise KeyError("no capsule")


class Elsewhere(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise IndexError("not here")


@pytest.mark.parametrize(
    ("array", "error", "said", "cause"),
    [
        (lambda: Produced(raising), InvalidDType, "Produced, which raises KeyError: 'no capsule'", KeyError),
        (lambda: Produced(lambda: 5), InvalidDType, "Produced, which raises ValueError", ValueError),
        (lambda: Produced(place=None), InvalidDevice, "None of Produced.__dlpack_device__()", None),
        (lambda: Produced(place=(1,)), InvalidDevice, "two numbers", None),
        (lambda: Produced(place="xy"), InvalidDType, "Produced, which raises ValueError", ValueError),
        (
            lambda: torch.ones(3, 4).as_subclass(Elsewhere),
            InvalidDType,
            "Elsewhere, which raises IndexError",
            IndexError,
        ),
    ],
    ids=["raises", "no capsule", "no device", "one number", "text", "subclass"],
)
def test_what_an_array_itself_raises_is_said_and_chained(array, error, said, cause):
    for call in (softmax, lambda x: gemm(np.ones((2, 3), np.float32), x), tracea.ops.prepack):
        with pytest.raises(error) as caught:
            call(array())
        assert said in str(caught.value)
        assert caught.value.__cause__ is None if cause is None else type(caught.value.__cause__) is cause
    if error is InvalidDevice:
        np.testing.assert_allclose(softmax(Produced()), 0.25)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sofmax", "tracea.ops has no 'sofmax': did you mean softmax?"),
        ("gelu", r"tracea.ops has no 'gelu': it is a step, as in tracea.ops.fuse(['gelu'])"),
        ("qqqq", "tracea.ops has no 'qqqq'"),
        ("matmul", "tracea.ops has no 'matmul': did you mean gemm?"),
    ],
)
def test_an_op_that_there_is_not_is_told_by_its_public_name(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=f"^{re.escape(said)}") as caught:
        getattr(tracea.ops, name)
    assert "interface" not in str(caught.value)
    assert not hasattr(tracea.ops, name)


def test_a_misspelt_name_of_the_package_is_told_what_is_near() -> None:
    with pytest.raises(AttributeError, match="no attribute 'optimise': did you mean optimize"):
        tracea.optimise  # noqa: B018
