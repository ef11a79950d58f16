"""Inductor as a peer: what a user would write, compiled before it is timed; convolutions frozen, channels last.

It compiles in this process, without workers of its own: none of them is left to take a core from whoever is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tracea.bench.peers.conv import has_relu, image, is_conv
from tracea.bench.peers.peer import Allocation, Contender, Family, Peer
from tracea.bench.peers.torch import fresh, inference, into, is_plain_attention, operands_and_result, within
from tracea.core.op import AttentionOp, Conv2dOp, RowKind, RowOp

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["FAMILY"]

_WARM_CALLS: Final = 3  # the first compiles, the second checks its guards for the first time


def _conv(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch: Any = import_module("torch")
    op = problem.op
    assert isinstance(op, Conv2dOp)
    x, weight, *bias = (torch.from_numpy(image(array)) for array in arrays)
    layer = torch.nn.Conv2d(
        x.shape[1],
        weight.shape[0],
        tuple(weight.shape[2:]),
        op.stride,
        op.padding,
        op.dilation,
        op.groups,
        bias=bool(bias),
    )
    layer.weight.data = weight
    if bias:
        layer.bias.data = bias[0].reshape(-1)
    module = torch.nn.Sequential(layer, torch.nn.ReLU()) if has_relu(op) else layer
    module = module.eval().to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)
    compiled = _compiled(module, (x,))
    return Contender(
        name="Inductor, frozen weights",
        version=str(torch.__version__),
        run=lambda: compiled(x),
        result=lambda: compiled(x).numpy().copy(),
        allocation=Allocation.FRESH,
    )


def _rows(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, (x, *vectors, out) = operands_and_result(problem, arrays)
    op, functional = problem.op, torch.nn.functional
    assert isinstance(op, RowOp)
    shape = (x.shape[-1],)

    def softmax(x: Any) -> Any:
        return torch.softmax(x, -1)

    def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
        return functional.layer_norm(x, shape, weight, bias, op.eps)

    def rms_norm(x: Any, weight: Any) -> Any:
        return functional.rms_norm(x, shape, weight, op.eps)

    steps = {RowKind.SOFTMAX: softmax, RowKind.LAYER_NORM: layer_norm, RowKind.RMS_NORM: rms_norm}
    return _into(torch, steps[op.kind], (x, *vectors), out)


def _chain(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch, (*operands, out) = operands_and_result(problem, arrays)
    functional = torch.nn.functional

    def gelu(x: Any, b: Any, r: Any) -> Any:
        return functional.gelu(x + b) + r

    def silu(x: Any, y: Any, r: Any) -> Any:
        return functional.silu(x) * y + r

    def relu(x: Any, s: Any, b: Any) -> Any:
        return functional.relu(x * s + b)

    steps = {"gelu(x+b)+r": gelu, "silu(x)*y+r": silu, "relu(x*s+b)": relu}
    return _into(torch, steps[problem.name.split()[0]], operands, out)


def _attention(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    """PyTorch's call, compiled; a window as a block mask, of which only blocks that are seen are computed."""
    torch, (q, k, v, _) = operands_and_result(problem, arrays)
    op = problem.op
    assert isinstance(op, AttentionOp)
    grouped = q.shape[1] != k.shape[1]
    if op.window is None:
        sdpa = torch.nn.functional.scaled_dot_product_attention

        def attend(q: Any, k: Any, v: Any) -> Any:
            return sdpa(q, k, v, is_causal=op.causal, scale=op.scale, enable_gqa=grouped)

        name = "Inductor"
    else:
        flex: Any = import_module("torch.nn.attention.flex_attention")
        window, causal = op.window, op.causal

        def seen(batch: Any, head: Any, query: Any, key: Any) -> Any:
            return within(query, key, window, causal=causal)

        mask = flex.create_block_mask(seen, None, None, q.shape[2], k.shape[2], device="cpu")

        def attend(q: Any, k: Any, v: Any) -> Any:
            return flex.flex_attention(q, k, v, block_mask=mask, scale=op.scale, enable_gqa=grouped)

        name = "Inductor flex_attention"
    compiled = _compiled(attend, (q, k, v))
    return fresh(torch, name, lambda: compiled(q, k, v))


def _into(torch: Any, function: Callable[..., Any], operands: Sequence[Any], out: Any) -> Contender:
    def step(out: Any, *operands: Any) -> Any:
        return out.copy_(function(*operands))

    compiled = _compiled(step, (out, *operands))
    return into(torch, "Inductor", lambda: compiled(out, *operands), out)


def _compiled(function: Any, arguments: Sequence[Any]) -> Any:
    torch: Any = import_module("torch")
    settings: Any = import_module("torch._inductor.config")
    # What is left of the problems before counts against a limit of recompilations.
    import_module("torch._dynamo").reset()
    with settings.patch(freezing=True, compile_threads=1):
        compiled = torch.compile(function, options={"freezing": True})
        for _ in range(_WARM_CALLS):
            compiled(*arguments)
    return compiled


FAMILY: Final = Family(
    surroundings=inference,
    peers=(
        Peer(name="inductor.conv", supports=is_conv, build=_conv),
        Peer(name="inductor.rows", supports=lambda problem: isinstance(problem.op, RowOp), build=_rows),
        Peer(name="inductor.chain", supports=lambda problem: problem.is_chain, build=_chain),
        Peer(name="inductor.attention", supports=is_plain_attention, build=_attention),
    ),
)
