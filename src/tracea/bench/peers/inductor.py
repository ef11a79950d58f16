"""Inductor as a peer: a module with frozen weights, compiled once; images channels last, which it prefers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tracea.bench.peers.conv import has_relu, image, is_conv
from tracea.bench.peers.peer import Allocation, Contender, Family, Peer
from tracea.core.op import Conv2dOp

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["FAMILY"]


@contextmanager
def _surroundings(threads: int) -> Generator[None]:
    torch: Any = import_module("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_num_threads(before)


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
    with settings.patch(freezing=True):
        compiled = torch.compile(module, options={"freezing": True})
        compiled(x)
    return Contender(
        name="Inductor, frozen weights",
        version=str(torch.__version__),
        run=lambda: compiled(x),
        result=lambda: compiled(x).numpy().copy(),
        allocation=Allocation.FRESH,
    )


FAMILY: Final = Family(surroundings=_surroundings, peers=(Peer(name="inductor.conv", supports=is_conv, build=_conv),))
