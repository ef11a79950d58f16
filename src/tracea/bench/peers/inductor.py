"""Inductor as a peer: a module with frozen weights, compiled before it is timed; channels last, which it prefers.

It compiles in this process, without workers of its own: none of them is left to take a core from whoever is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tracea.bench.peers.conv import has_relu, image, is_conv
from tracea.bench.peers.peer import Allocation, Contender, Family, Peer
from tracea.bench.peers.torch import inference
from tracea.core.op import Conv2dOp

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["FAMILY"]

_WARM_CALLS: Final = 3  # the first compiles, the second checks its guards for the first time


def _conv(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    torch: Any = import_module("torch")
    settings: Any = import_module("torch._inductor.config")
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
    # What is left of the problems before counts against a limit of recompilations.
    import_module("torch._dynamo").reset()
    with settings.patch(freezing=True, compile_threads=1):
        compiled = torch.compile(module, options={"freezing": True})
        for _ in range(_WARM_CALLS):
            compiled(x)
    return Contender(
        name="Inductor, frozen weights",
        version=str(torch.__version__),
        run=lambda: compiled(x),
        result=lambda: compiled(x).numpy().copy(),
        allocation=Allocation.FRESH,
    )


FAMILY: Final = Family(surroundings=inference, peers=(Peer(name="inductor.conv", supports=is_conv, build=_conv),))
