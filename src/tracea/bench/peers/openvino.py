"""OpenVINO as a peer: a model of one layer in float32, compiled for latency, operands and result bound once.

Its precision is stated: by default it computes in bf16 where the processor has units for it, which is another contract.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from tracea.bench.peers.conv import has_relu, image, is_conv
from tracea.bench.peers.peer import Allocation, Contender, Family, Peer
from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp
from tracea.runtime.buffers import aligned_empty

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["FAMILY", "in_this_thread"]


def in_this_thread(request: Any) -> Callable[[], object]:
    """Return a call that runs an inference request in the calling thread.

    ``start_async`` hands it to another thread, which on one core costs two switches, and the timer cannot tell who was
    switched out for whom. The request's own ``infer`` makes a second dictionary of the results, in Python.
    """
    infer = cast("Any", super(type(request), request)).infer
    return lambda: infer({}, share_outputs=True, decode_strings=False)


def _conv(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    openvino: Any = import_module("openvino")
    ops: Any = import_module("openvino.opset13")
    op = problem.op
    assert isinstance(op, Conv2dOp)
    x, weight, *bias = (image(array) for array in arrays)
    source = ops.parameter(list(x.shape), openvino.Type.f32)
    numbers = (list(op.stride), list(op.padding), list(op.padding), list(op.dilation))
    if op.groups == 1:
        value = ops.convolution(source, ops.constant(weight), *numbers)
    else:
        grouped = weight.reshape(op.groups, weight.shape[0] // op.groups, *weight.shape[1:])
        value = ops.group_convolution(source, ops.constant(grouped), *numbers)
    if bias:
        value = ops.add(value, ops.constant(bias[0].reshape(1, -1, 1, 1)))
    if has_relu(op):
        value = ops.relu(value)
    model = openvino.Model([value], [source], "problem")
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
    }
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    out: NDArray[np.float32] = aligned_empty(op.infer().static_shape, DType.F32)
    request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
    request.set_output_tensor(openvino.Tensor(out, shared_memory=True))
    infer = in_this_thread(request)
    shared = (x, weight, *bias, out)  # OpenVINO keeps their addresses, not them

    def run(kept: object = shared) -> None:
        infer()

    def result() -> NDArray[np.float32]:
        out.fill(float("nan"))
        run()
        return out.copy()

    return Contender(
        name="openvino f32", version=openvino.__version__, run=run, result=result, allocation=Allocation.OUT
    )


FAMILY: Final = Family(
    surroundings=lambda threads: nullcontext(),  # the number of threads is each model's own
    peers=(Peer(name="openvino.conv", supports=is_conv, build=_conv),),
)
