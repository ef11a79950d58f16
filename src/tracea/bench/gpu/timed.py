"""TimedProblem: a product in device memory, in more copies than a cache holds, with the calls that are timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.core.op import GemmOp
from tracea.core.reference import error_bound, evaluate
from tracea.core.tensor_type import TensorType, static
from tracea.flow.gpu import upload_tables
from tracea.kernels.arguments import arguments, operand_buffers, result_buffer
from tracea.profiler.gpu_timer import Flush

if TYPE_CHECKING:
    from tracea.bench.gpu.problems import GpuProblem
    from tracea.bench.gpu.session import Session
    from tracea.flow.gpu import GpuCompiled
    from tracea.profiler.gpu_timer import DeviceTimed
    from tracea.runtime.cuda.kernel import GpuKernel

__all__ = ["TimedProblem", "row_check"]

_MOST_SETS: Final = 24
_ROWS: Final = 24
_POISON: Final = 0xFF  # NaN in every float type

Array = np.ndarray[Any, Any]


class TimedProblem:
    """Operands and results of one product on the session's device; ``close`` gives the memory back.

    Call i works on the i-th copy of the operands. All copies together, and the fill before each sample, are larger than
    the last-level cache.
    """

    def __init__(self, session: Session, problem: GpuProblem) -> None:
        self._session = session
        self.problem = problem
        self.op = problem.op
        self._kinds = [*self.op.operands, self.op.infer()]
        self._memories, self._inputs = _operands(self.op, session.settings.seed)
        nbytes = sum(_nbytes(kind) for kind in self._kinds)
        cache = session.driver.facts().l2_bytes
        self.input_sets = 2 if session.is_dry else max(1, min(_MOST_SETS, -(-2 * cache // nbytes)))
        driver, stream = session.driver, session.stream
        self._sets = [[driver.allocate(_nbytes(kind)) for kind in self._kinds] for _ in range(self.input_sets)]
        for addresses in self._sets:
            for address, memory in zip(addresses, self._memories, strict=False):
                driver.write(address, memory.tobytes(), stream=stream)
        flushed = 2**20 if session.is_dry else 2 * cache
        self.flush = Flush(driver.allocate(flushed), flushed)
        self._kernels: list[GpuKernel] = []
        self._tables: list[int] = []

    def ours(self, compiled: GpuCompiled) -> DeviceTimed:
        """Return the calls of a kernel of ours."""
        kernel = self._session.know_compiled(compiled).load(self._session.driver)
        self._kernels.append(kernel)
        tile = compiled.built.kernel
        names = [*(buffer.name for buffer in operand_buffers(tile)), result_buffer(tile).name]
        integers = arguments(tile, self.op)
        stream = self._session.stream
        listed = upload_tables(self._session.driver, compiled, self.op, stream=stream)
        self._tables += listed.values()
        bound = [
            kernel.bind(
                pointers=dict(zip(names, addresses, strict=True)), integers=integers, tables=listed, stream=stream
            )
            for addresses in self._sets
        ]
        return lambda index: kernel.start(bound[index], stream=stream)

    def peers(self) -> dict[str, DeviceTimed]:
        """Return the calls of cuBLAS, through torch's functions and through our library port; none without torch."""
        torch = self._session.torch
        if torch is None:
            return {}
        views = self._views()
        if self.op.epilogue.is_identity:
            named: dict[str, DeviceTimed] = {
                "cuBLAS by torch.mm(out=)": lambda i: torch.mm(views[i][0], views[i][1], out=views[i][-1])
            }
            port = self._library()
            return {**named, "library.cublas": port} if port is not None else named
        return {"cuBLAS and eager ops": lambda i: _eager(torch, views[i][:-1], views[i][-1])}

    def inductor(self) -> DeviceTimed | None:
        """Return the calls of the kernels that Triton makes of the same program, searched; None without torch."""
        torch = self._session.torch
        if torch is None:
            return None
        views = self._views()
        plain = self.op.epilogue.is_identity

        def program(*operands: Any) -> Any:
            return torch.mm(operands[0], operands[1]) if plain else _eager(torch, operands)

        inductor: Any = import_module("torch._inductor.config")
        inductor.max_autotune_gemm_backends = "TRITON"  # cuBLAS is a contender of its own
        compiled = torch.compile(program, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)
        compiled(*views[0][:-1])
        return lambda i: compiled(*views[i][:-1])

    def check(self, call: DeviceTimed) -> str:
        """Run a call on poisoned memory and compare rows of its result with float64; return what is wrong, or nothing.

        Only calls that write into the given result can be checked.
        """
        driver, stream = self._session.driver, self._session.stream
        address, kind = self._sets[0][-1], self._kinds[-1]
        driver.fill(address, _nbytes(kind), _POISON, stream=stream)
        call(0)
        driver.synchronize(stream)
        rows = _some_rows(static(self.op.m))
        width = kind.static_shape[-1] * kind.dtype.nbytes
        data = b"".join(driver.read(address + row * width, width, stream=stream) for row in rows)
        found = np.frombuffer(data, kind.dtype.numpy).reshape(len(rows), -1)
        return row_check(self.op, self._inputs, found, rows)

    def close(self) -> None:
        """Give all device memory back."""
        for kernel in self._kernels:
            kernel.close()
        for address in (*(each for addresses in self._sets for each in addresses), *self._tables, self.flush.address):
            self._session.driver.release(address)

    def _views(self) -> list[list[Any]]:
        driver: Any = self._session.driver  # with torch it is torch's
        return [
            [driver.tensor(address, kind) for address, kind in zip(addresses, self._kinds, strict=True)]
            for addresses in self._sets
        ]

    def _library(self) -> DeviceTimed | None:
        from tracea.errors import ToolchainMissing
        from tracea.runtime.cuda.library import LibraryPort
        from tracea.runtime.library import LibraryCall, LibraryFunction

        try:
            port = LibraryPort()
        except ToolchainMissing:
            return None
        call = LibraryCall(function=LibraryFunction.MM, operands=(self._kinds[-1], *self._kinds[:2]))
        device = self._session.settings.device
        return lambda i: port.call(call, (self._sets[i][-1], *self._sets[i][:2]), device=device)


def row_check(op: GemmOp, inputs: Sequence[Array], found: Array, rows: Sequence[int]) -> str:
    """Compare rows of a result with float64 and the accuracy contract; return what is wrong, or nothing."""
    m, n, k = static(op.m), static(op.n), static(op.k)
    count = len(rows)
    chosen: list[Array] = []
    kinds: list[TensorType] = []
    for index, (kind, values) in enumerate(zip(op.operands, inputs, strict=True)):
        by_row = index == 0 or (index > 1 and kind.rank == 2 and kind.static_shape[0] == m)
        chosen.append(values[list(rows)] if by_row else values)
        kinds.append(TensorType(chosen[-1].shape, kind.dtype))
    epilogue = replace(op.epilogue, operands=tuple(kinds[2:]))
    part = GemmOp(
        m=count, n=n, k=k, a=kinds[0], b=kinds[1], epilogue=epilogue, accumulator=op.accumulator, math=op.math
    )
    expected = np.asarray(evaluate(part, chosen), np.float64)
    bound = np.broadcast_to(error_bound(part, chosen), expected.shape)
    got = found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(got - expected) <= bound)
    if not wrong.any():
        return ""
    row, column = (int(each) for each in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements wrong, the first ({rows[row]}, {column}): got "
        f"{got[row, column]:g}, expected {expected[row, column]:g} within {bound[row, column]:g}"
    )


def _some_rows(m: int) -> list[int]:
    """Return rows of all parts of a result: the first, the last, and others at distances that no tile divides."""
    spread = [round(i * (m - 1) / max(1, _ROWS - 1)) for i in range(_ROWS)]
    return sorted(set(spread))


def _operands(op: GemmOp, seed: int) -> tuple[list[Array], list[Array]]:
    """Return each operand's memory, and its logical view: standard normal, b scaled so that results stay near 1."""
    rng = np.random.default_rng(seed)
    memories: list[Array] = []
    views: list[Array] = []
    for index, kind in enumerate(op.operands):
        low, high = kind.extent
        scale = max(1, static(op.k)) ** -0.5 if index == 1 else 1.0
        values = rng.standard_normal(high - low, dtype=np.float32) * np.float32(scale)
        memory = values.astype(kind.dtype.numpy)
        strides = tuple(stride * kind.dtype.nbytes for stride in kind.strides)
        memories.append(memory)
        views.append(
            np.ndarray(kind.static_shape, memory.dtype, memory.view(np.uint8).data, -low * kind.dtype.nbytes, strides)
        )
    return memories, views


def _nbytes(kind: TensorType) -> int:
    low, high = kind.extent
    return (high - low) * kind.dtype.nbytes


def _eager(torch: Any, operands: Sequence[Any], out: Any = None) -> Any:
    """Compute the fused problem as a program of torch's functions; the bias is cuBLAS's own epilogue."""
    a, b, bias, residual = operands
    product = torch.nn.functional.linear(a, b.t(), bias)
    activated = torch.nn.functional.gelu(product)
    return torch.add(activated, residual) if out is None else torch.add(activated, residual, out=out)
