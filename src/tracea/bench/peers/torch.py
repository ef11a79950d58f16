"""PyTorch as a peer: eager ops into ``out=``, MKL with prepacked weights, compositions where no single op exists.

All of it runs in inference mode, on calls bound ahead: what torch spends on autograd and on Python is at its least.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

from tracea.bench.peers.conv import conv_numbers, has_relu, image, is_conv
from tracea.bench.peers.peer import Allocation, Contender, Family, Peer
from tracea.core.op import AttentionOp, BlockSparseOp, Conv2dOp, GemmOp, GroupedGemmOp, LowRankOp, RowKind, RowOp

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["FAMILY", "fresh", "inference", "into", "is_plain_attention", "operands_and_result", "within"]


@contextmanager
def inference(threads: int) -> Generator[None]:
    """Let torch run on so many threads, in inference mode, and take both back."""
    torch: Any = import_module("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


def _mm(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, (a, b, out) = operands_and_result(problem, arrays)
    return into(torch, "torch.mm(out=)", partial(torch.mm, a, b, out=out), out)


def _face_mm(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, (a, b, _) = operands_and_result(problem, arrays)
    return fresh(torch, "torch.mm", lambda: torch.mm(a, b))


def _linear_mkl(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    """Source: torch/_inductor/fx_passes/mkldnn_fusion.py packs linear weights with these ops when a model is frozen."""
    torch, (a, b, _) = operands_and_result(problem, arrays)
    weight = b.t().contiguous()
    packed = torch.ops.mkl._mkl_reorder_linear_weight.default(weight, a.shape[0])
    linear = torch.ops.mkl._mkl_linear.default
    return fresh(torch, "torch MKL prepacked", partial(linear, a, packed, weight, None, a.shape[0]))


def _fused_gemm(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, (a, b, bias, residual, out) = operands_and_result(problem, arrays)
    product = torch.from_numpy(problem.result())
    gelu = torch.ops.aten.gelu.out

    def run() -> Any:
        torch.addmm(bias, a, b, out=product)
        gelu(product, out=product)
        return torch.add(product, residual, out=out)

    return into(torch, "torch addmm, gelu, add", run, out)


def _rows(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, (x, *vectors, out) = operands_and_result(problem, arrays)
    op = problem.op
    assert isinstance(op, RowOp)
    if op.kind is RowKind.SOFTMAX:
        return into(torch, "torch.softmax(out=)", partial(torch.softmax, x, -1, out=out), out)
    shape = (x.shape[-1],)
    if op.kind is RowKind.LAYER_NORM:
        weight, bias = vectors
        mean, rstd = torch.empty(x.shape[0], 1), torch.empty(x.shape[0], 1)
        norm = torch.ops.aten.native_layer_norm.out
        run = partial(norm, x, shape, weight, bias, op.eps, out0=out, out1=mean, out2=rstd)
        return into(torch, "torch native_layer_norm(out=)", run, out)
    # torch.rms_norm returns new memory and makes several temporaries: these steps are two to four times as fast.
    scale = torch.empty(x.shape[0], 1)
    norm, product, weight = torch.linalg.vector_norm, torch.mul, vectors[0]

    def run() -> Any:
        norm(x, dim=-1, keepdim=True, out=scale)
        scale.square_().mul_(1 / x.shape[-1]).add_(op.eps).rsqrt_()
        product(x, scale, out=out)
        return out.mul_(weight)

    return into(torch, "torch norm, mul, mul (out=)", run, out)


def _chain(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, (x, second, third, out) = operands_and_result(problem, arrays)
    aten = torch.ops.aten
    gelu, silu = aten.gelu.out, aten.silu.out
    steps: dict[str, Callable[[], Any]] = {
        "gelu(x+b)+r": lambda: torch.add(gelu(torch.add(x, second, out=out), out=out), third, out=out),
        "silu(x)*y+r": lambda: torch.add(torch.mul(silu(x, out=out), second, out=out), third, out=out),
        "relu(x*s+b)": lambda: torch.relu_(torch.add(torch.mul(x, second, out=out), third, out=out)),
    }
    return into(torch, "torch ops in turn (out=)", steps[problem.name.split()[0]], out)


def _conv(problem: Problem, arrays: Sequence[NDArray[np.float32]], *, last: bool) -> Contender:
    torch: Any = import_module("torch")
    op = problem.op
    assert isinstance(op, Conv2dOp)
    order = torch.channels_last if last else torch.contiguous_format
    x, weight, bias = _conv_tensors(torch, arrays, order)
    numbers, conv2d, relu_ = conv_numbers(op), torch.conv2d, torch.relu_
    call = partial(conv2d, x, weight, bias, *numbers)
    run = (lambda: relu_(call())) if has_relu(op) else call
    return fresh(torch, f"torch.conv2d {'channels last' if last else 'row-major'}", run)


def _conv_onednn(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    """Source: torch/_inductor/fx_passes/mkldnn_fusion.py packs filters and fuses with these ops in frozen models."""
    torch: Any = import_module("torch")
    op = problem.op
    assert isinstance(op, Conv2dOp)
    x, weight, bias = _conv_tensors(torch, arrays, torch.channels_last)
    stride, padding, dilation, groups = conv_numbers(op)
    packed = torch.ops.mkldnn._reorder_convolution_weight(weight, padding, stride, dilation, groups, list(x.shape))
    call = torch.ops.mkldnn._convolution_pointwise.default
    activation = "relu" if has_relu(op) else "none"
    run = partial(call, x, packed, bias, padding, stride, dilation, groups, activation, [], "")
    return fresh(torch, "torch oneDNN prepacked", run)


def _conv_tensors(torch: Any, arrays: Sequence[NDArray[np.float32]], order: Any) -> tuple[Any, Any, Any]:
    x, weight, *bias = (torch.from_numpy(image(array)) for array in arrays)
    return x.to(memory_format=order), weight.to(memory_format=order), bias[0].reshape(-1) if bias else None


def _masked_mm(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    """The dense product, zeros and all."""
    torch, (a, b, *_, out) = operands_and_result(problem, arrays)
    return into(torch, "torch.mm(out=)", partial(torch.mm, a, b, out=out), out)


def _thin(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, (x, a, b, out) = operands_and_result(problem, arrays)
    inner, mm = torch.empty(x.shape[0], a.shape[1]), torch.mm
    return into(torch, "torch.mm twice (out=)", lambda: mm(mm(x, a, out=inner), b, out=out), out)


def _experts(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    """A product for each group that has rows, one after the other."""
    torch, (x, weights, first, number, out) = operands_and_result(problem, arrays)
    ends = _ends(first, number, len(weights))
    slices = [(group, slice(begin, end)) for group, (begin, end) in enumerate(pairwise((0, *ends))) if begin < end]
    parts = [(x[rows], weights[group], out[rows]) for group, rows in slices]
    mm = torch.mm

    def run() -> Any:
        for a, b, c in parts:
            mm(a, b, out=c)
        return out

    return into(torch, "torch.mm(out=) for each", run, out)


def _grouped_mm(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, (x, weights, first, number, _) = operands_and_result(problem, arrays)
    offsets = torch.tensor(_ends(first, number, len(weights)), dtype=torch.int32)
    return fresh(torch, "torch._grouped_mm", partial(torch._grouped_mm, x, weights, offs=offsets))


def _ends(first: Any, number: Any, count: int) -> list[int]:
    """Return the row behind each group's last one: a group may be several parts, or none."""
    begins, groups = first.tolist(), number.tolist()
    rows: dict[int, int] = {}
    for begin, end, group in zip(begins[:-1], begins[1:], groups, strict=True):
        rows[group] = rows.get(group, 0) + end - begin
    return list(accumulate(rows.get(group, 0) for group in range(count)))


def _attention(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    """Torch chooses its flash kernel where it can; it has no window, which is a mask of booleans there."""
    torch, (q, k, v, _) = operands_and_result(problem, arrays)
    op = problem.op
    assert isinstance(op, AttentionOp)
    given: dict[str, Any] = {"scale": op.scale, "enable_gqa": q.shape[1] != k.shape[1]}
    if op.window is None:
        given["is_causal"] = op.causal
    else:
        queries, keys = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
        given["attn_mask"] = within(queries, keys, op.window, causal=op.causal)
    attend = torch.nn.functional.scaled_dot_product_attention
    return fresh(torch, "torch SDPA", partial(attend, q, k, v, **given))


def within(queries: Any, keys: Any, window: int, *, causal: bool) -> Any:
    """Return which of the keys at positions ``keys`` the queries at ``queries`` see in a window."""
    near = (queries - keys).abs() < window
    return near & (queries >= keys) if causal else near


def operands_and_result(problem: Problem, arrays: Sequence[NDArray[np.float32]]) -> tuple[Any, list[Any]]:
    """Return torch and, as tensors on the same memory, the operands and a place for the result."""
    torch: Any = import_module("torch")
    return torch, [torch.from_numpy(array) for array in (*arrays, problem.result())]


def into(torch: Any, name: str, run: Callable[[], Any], out: Any) -> Contender:
    """Return the contender whose runs write into ``out``."""

    def result() -> NDArray[np.float32]:
        out.fill_(float("nan"))
        run()
        return out.numpy().copy()

    return Contender(name=name, version=str(torch.__version__), run=run, result=result, allocation=Allocation.OUT)


def fresh(torch: Any, name: str, run: Callable[[], Any]) -> Contender:
    """Return the contender whose runs return new memory."""
    return Contender(
        name=name,
        version=str(torch.__version__),
        run=run,
        result=lambda: run().numpy().copy(),
        allocation=Allocation.FRESH,
    )


def _is_plain_gemm(problem: Problem) -> bool:
    return isinstance(problem.op, GemmOp) and problem.op.epilogue.is_identity


def is_plain_attention(problem: Problem) -> bool:
    """Whether every key that is seen is told by its position, and its score is the scaled product."""
    op = problem.op
    return isinstance(op, AttentionOp) and op.score.is_identity and op.spans is None


def _has_aligned_groups(problem: Problem) -> bool:
    """Whether torch takes the groups: it refuses rows that are no multiple of 16 bytes."""
    op = problem.op
    return isinstance(op, GroupedGemmOp) and op.n % 4 == op.k % 4 == 0


FAMILY: Final = Family(
    surroundings=inference,
    peers=(
        Peer(name="torch.mm", supports=lambda problem: _is_plain_gemm(problem) and not problem.face, build=_mm),
        Peer(name="torch.face", supports=lambda problem: _is_plain_gemm(problem) and problem.face, build=_face_mm),
        Peer(
            name="torch.mkl",
            supports=lambda problem: _is_plain_gemm(problem) and 1 in problem.constant,
            build=_linear_mkl,
        ),
        Peer(
            name="torch.fused",
            supports=lambda problem: isinstance(problem.op, GemmOp) and not problem.op.epilogue.is_identity,
            build=_fused_gemm,
        ),
        Peer(name="torch.rows", supports=lambda problem: isinstance(problem.op, RowOp), build=_rows),
        Peer(name="torch.chain", supports=lambda problem: problem.is_chain, build=_chain),
        Peer(name="torch.masked", supports=lambda problem: isinstance(problem.op, BlockSparseOp), build=_masked_mm),
        Peer(name="torch.thin", supports=lambda problem: isinstance(problem.op, LowRankOp), build=_thin),
        Peer(name="torch.experts", supports=lambda problem: isinstance(problem.op, GroupedGemmOp), build=_experts),
        Peer(name="torch.grouped", supports=_has_aligned_groups, build=_grouped_mm),
        Peer(name="torch.sdpa", supports=is_plain_attention, build=_attention),
        Peer(name="torch.conv", supports=is_conv, build=lambda p, a, _: _conv(p, a, last=False)),
        Peer(name="torch.conv_last", supports=is_conv, build=lambda p, a, _: _conv(p, a, last=True)),
        Peer(name="torch.conv_onednn", supports=is_conv, build=_conv_onednn),
    ),
)
