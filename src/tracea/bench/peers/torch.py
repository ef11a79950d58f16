"""PyTorch as a peer: eager ops into ``out=``, MKL with prepacked weights, compositions where no single op exists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tracea.bench.peers.peer import Contender, Peer
from tracea.core.op import GemmOp, RowKind, RowOp

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["PEERS"]


def _mm(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, (a, b) = _setup(arrays, threads)
    out = torch.empty(a.shape[0], b.shape[1])
    return _into(torch, "torch.mm(out=)", lambda: torch.mm(a, b, out=out), out)


def _linear_mkl(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    """Source: torch/_inductor/fx_passes/mkldnn_fusion.py packs linear weights with these ops when a model is frozen."""
    torch, (a, b) = _setup(arrays, threads)
    weight = b.t().contiguous()
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, a.shape[0])
    return _fresh(torch, "torch MKL prepacked", lambda: torch.ops.mkl._mkl_linear(a, packed, weight, None, a.shape[0]))


def _fused_gemm(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, (a, b, bias, residual) = _setup(arrays, threads)
    out = torch.empty(a.shape[0], b.shape[1])
    product = torch.empty_like(out)

    def run() -> None:
        torch.addmm(bias, a, b, out=product)
        torch.ops.aten.gelu.out(product, out=product)
        torch.add(product, residual, out=out)

    return _into(torch, "torch addmm, gelu, add", run, out)


def _rows(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, tensors = _setup(arrays, threads)
    x, out = tensors[0], torch.empty_like(tensors[0])
    op = problem.op
    assert isinstance(op, RowOp)
    if op.kind is RowKind.SOFTMAX:
        return _into(torch, "torch.softmax(out=)", lambda: torch.softmax(x, -1, out=out), out)
    if op.kind is RowKind.LAYER_NORM:
        weight, bias = tensors[1:]
        mean, rstd = torch.empty(x.shape[0], 1), torch.empty(x.shape[0], 1)
        norm = torch.ops.aten.native_layer_norm.out
        shape = (x.shape[-1],)
        run = lambda: norm(x, shape, weight, bias, op.eps, out0=out, out1=mean, out2=rstd)  # noqa: E731
        return _into(torch, "torch native_layer_norm(out=)", run, out)
    weight = tensors[1]
    return _fresh(torch, "torch rms_norm", lambda: torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, op.eps))


def _chain(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, (x, second, third) = _setup(arrays, threads)
    out = torch.empty_like(x)
    aten = torch.ops.aten
    steps: dict[str, Callable[[], Any]] = {
        "gelu(x+b)+r": lambda: torch.add(aten.gelu.out(torch.add(x, second, out=out), out=out), third, out=out),
        "silu(x)*y+r": lambda: torch.add(torch.mul(aten.silu.out(x, out=out), second, out=out), third, out=out),
        "relu(x*s+b)": lambda: torch.relu_(torch.add(torch.mul(x, second, out=out), third, out=out)),
    }
    return _into(torch, "torch ops in turn (out=)", steps[problem.name.split()[0]], out)


def _setup(arrays: Sequence[NDArray[np.float32]], threads: int) -> tuple[Any, list[Any]]:
    torch: Any = import_module("torch")
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return torch, [torch.from_numpy(array) for array in arrays]


def _into(torch: Any, name: str, run: Callable[[], Any], out: Any) -> Contender:
    return Contender(
        name=name, version=torch.__version__, run=run, result=lambda: _run_and_read(run, out), allocation="out"
    )


def _run_and_read(run: Callable[[], Any], out: Any) -> NDArray[np.float32]:
    out.fill_(float("nan"))
    run()
    return out.numpy().copy()


def _fresh(torch: Any, name: str, run: Callable[[], Any]) -> Contender:
    return Contender(
        name=name, version=torch.__version__, run=run, result=lambda: run().numpy().copy(), allocation="fresh"
    )


def _is_plain_gemm(problem: Problem) -> bool:
    return isinstance(problem.op, GemmOp) and problem.op.epilogue.is_identity


PEERS: Final = (
    Peer(name="torch.mm", supports=_is_plain_gemm, build=_mm),
    Peer(
        name="torch.mkl", supports=lambda problem: _is_plain_gemm(problem) and 1 in problem.constant, build=_linear_mkl
    ),
    Peer(
        name="torch.fused",
        supports=lambda problem: isinstance(problem.op, GemmOp) and not problem.op.epilogue.is_identity,
        build=_fused_gemm,
    ),
    Peer(name="torch.rows", supports=lambda problem: isinstance(problem.op, RowOp), build=_rows),
    Peer(name="torch.chain", supports=lambda problem: problem.is_chain, build=_chain),
)
