"""One kernel once, in its own process, under a vendor's tool: ``python -m tracea.bench.gpu.one_kernel REQUEST``."""

from __future__ import annotations

import sys

import msgspec
import numpy as np

from tracea.bench.gpu.correctness import default_schedule
from tracea.core.op import GemmOp
from tracea.flow.gpu import DeviceRun, compile_for_gpu
from tracea.gates.case import build_cases
from tracea.gates.distribution import Distribution
from tracea.runtime.cuda.cuda_driver import CudaDriver
from tracea.semantic.schedule import Schedule
from tracea.targets.gpu import load_gpu
from tracea.testing.gpu_matrix import Problem

__all__ = ["OneKernel", "main"]


class OneKernel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is run: a variant on a target with a product of these extents; without a schedule the default one."""

    target: str
    variant: str
    element: str
    m: int
    n: int
    k: int
    transpose_b: bool = True
    changes: dict[str, int] = {}
    device: int = 0

    def op(self) -> GemmOp:
        """Return the product."""
        return Problem(m=self.m, n=self.n, k=self.k, transpose_b=self.transpose_b).op(self.element)

    def schedule(self) -> Schedule:
        """Return its schedule."""
        changed: dict[str, int | str] = dict(self.changes)
        return default_schedule(self.variant, self.op(), load_gpu(self.target)).with_values(**changed)


def main(text: str) -> int:
    """Run the kernel of a request in JSON once; 0 where its result is right, else 1."""
    asked = msgspec.json.decode(text, type=OneKernel)
    op = asked.op()
    compiled = compile_for_gpu(op, asked.variant, asked.schedule(), load_gpu(asked.target))
    (case,) = build_cases(op, np.random.default_rng(0), (Distribution.INTEGER,))
    out = np.zeros(op.infer().static_shape, op.infer().dtype.numpy)
    run = DeviceRun(CudaDriver(asked.device), compiled)
    run(case.inputs, out)
    run.close()
    return 0 if bool(np.all(np.abs(out.astype(np.float64) - case.expected) <= case.bound)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
