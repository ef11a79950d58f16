"""ONNX Runtime as a peer: a node or a few, operands bound once, constant weights as prepacked initializers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tracea.bench.peers.conv import has_relu, image, is_conv
from tracea.bench.peers.peer import Allocation, Contender, Family, Peer
from tracea.core.dtype import DType
from tracea.core.op import AttentionOp, Conv2dOp, GemmOp, RowKind, RowOp
from tracea.runtime.buffers import aligned_empty

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["FAMILY"]

_OPSET: Final = 17  # the first with LayerNormalization
_LATE_OPSET: Final = 23  # the first with Attention and RMSNormalization; Gelu is of 20

# A node: what it is, what it reads (operand n is "x<n>", the result of node n from one on "step<n>"), its attributes.
_Node: TypeAlias = "tuple[str, tuple[str, ...], Mapping[str, Any]]"

_CHAINS: Final[Mapping[str, tuple[_Node, ...]]] = {
    "gelu(x+b)+r": (("Add", ("x0", "x1"), {}), ("Gelu", ("step1",), {}), ("Add", ("step2", "x2"), {})),
    "silu(x)*y+r": (
        ("Sigmoid", ("x0",), {}),
        ("Mul", ("x0", "step1"), {}),
        ("Mul", ("step2", "x1"), {}),
        ("Add", ("step3", "x2"), {}),
    ),
    "relu(x*s+b)": (("Mul", ("x0", "x1"), {}), ("Add", ("step1", "x2"), {}), ("Relu", ("step2",), {})),
}


def _matmul(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    return _session(problem, (("MatMul", ("x0", "x1"), {}),), arrays, threads)


def _rows(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    op = problem.op
    assert isinstance(op, RowOp)
    node: _Node = {
        RowKind.SOFTMAX: ("Softmax", ("x0",), {"axis": -1}),
        RowKind.LAYER_NORM: ("LayerNormalization", ("x0", "x1", "x2"), {"epsilon": op.eps}),
        RowKind.RMS_NORM: ("RMSNormalization", ("x0", "x1"), {"epsilon": op.eps}),
    }[op.kind]
    opset = _LATE_OPSET if op.kind is RowKind.RMS_NORM else _OPSET
    return _session(problem, (node,), arrays, threads, opset=opset)


def _chain(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    return _session(problem, _CHAINS[problem.name.split()[0]], arrays, threads, opset=_LATE_OPSET)


def _conv(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    """A convolution, which is fused with the ReLU behind it; images row-major, its own layout inside."""
    op = problem.op
    assert isinstance(op, Conv2dOp)
    x, weight, *bias = (image(array) for array in arrays)
    attributes: dict[str, Any] = {
        "strides": list(op.stride),
        "pads": [*op.padding, *op.padding],
        "dilations": list(op.dilation),
        "group": op.groups,
    }
    nodes: list[_Node] = [("Conv", tuple(f"x{index}" for index in range(len(arrays))), attributes)]
    if has_relu(op):
        nodes.append(("Relu", ("step1",), {}))
    return _session(problem, nodes, (x, weight, *(each.reshape(-1) for each in bias)), threads)


def _attention(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    op = problem.op
    assert isinstance(op, AttentionOp)
    node: _Node = ("Attention", ("x0", "x1", "x2"), {"is_causal": int(op.causal)})
    return _session(problem, (node,), arrays, threads, opset=_LATE_OPSET)


def _session(
    problem: Problem,
    nodes: Sequence[_Node],
    arrays: Sequence[NDArray[np.float32]],
    threads: int,
    *,
    opset: int = _OPSET,
) -> Contender:
    onnx: Any = import_module("onnx")
    onnxruntime: Any = import_module("onnxruntime")

    helper, f32 = onnx.helper, onnx.TensorProto.FLOAT
    names = [f"x{index}" for index in range(len(arrays))]
    steps = [*(f"step{index}" for index in range(1, len(nodes))), "y"]
    shape = list(problem.op.infer().static_shape)
    graph = helper.make_graph(
        [
            helper.make_node(kind, list(read), [step], **attributes)
            for (kind, read, attributes), step in zip(nodes, steps, strict=True)
        ],
        "problem",
        [
            helper.make_tensor_value_info(name, f32, list(array.shape))
            for index, (name, array) in enumerate(zip(names, arrays, strict=True))
            if index not in problem.constant
        ],
        [helper.make_tensor_value_info("y", f32, shape)],
        [onnx.numpy_helper.from_array(arrays[index], names[index]) for index in problem.constant],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Its workers spin while a run lasts, as at their best, but not on into the batch of the contender after it.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for index, (name, array) in enumerate(zip(names, arrays, strict=True)):
        if index not in problem.constant:
            binding.bind_cpu_input(name, array)
    out: NDArray[np.float32] = aligned_empty(problem.op.infer().static_shape, DType.F32)
    binding.bind_output("y", "cpu", 0, out.dtype.type, shape, out.ctypes.data)
    run = partial(session.run_with_iobinding, binding)

    def result() -> NDArray[np.float32]:
        out.fill(float("nan"))
        run()
        return out.copy()

    label = "onnxruntime prepacked" if problem.constant else "onnxruntime"
    return Contender(name=label, version=onnxruntime.__version__, run=run, result=result, allocation=Allocation.OUT)


def _is_plain_gemm(problem: Problem) -> bool:
    return isinstance(problem.op, GemmOp) and problem.op.epilogue.is_identity and not problem.face


def _has_attention(problem: Problem) -> bool:
    return isinstance(problem.op, AttentionOp) and problem.op.window is None


FAMILY: Final = Family(
    surroundings=lambda threads: nullcontext(),  # the number of threads is each session's own
    peers=(
        Peer(name="onnxruntime.matmul", supports=_is_plain_gemm, build=_matmul),
        Peer(name="onnxruntime.rows", supports=lambda problem: isinstance(problem.op, RowOp), build=_rows),
        Peer(name="onnxruntime.chain", supports=lambda problem: problem.is_chain, build=_chain),
        Peer(name="onnxruntime.attention", supports=_has_attention, build=_attention),
        Peer(name="onnxruntime.conv", supports=is_conv, build=_conv),
    ),
)
