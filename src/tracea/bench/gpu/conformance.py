"""Stage ``conformance``: every primitive on lane-unique bits; the device's bits are those of the vendor's tables.

The same cases hold for the emulator: where both agree with the tables, they agree with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tracea.bench.gpu.session import Item, Session, closing
from tracea.bench.gpu.settings import ItemOutcome
from tracea.errors import RunError
from tracea.runtime.cuda.kernel import GpuKernel
from tracea.runtime.nvrtc import compile_cuda
from tracea.testing.conformance import ConformanceCase, compare, conformance_cases

__all__ = ["items", "run_case"]


def items(session: Session) -> Iterator[Item]:
    """Yield an item for each case of the target."""
    for case in conformance_cases(session.target.name)[:: session.settings.every]:
        yield Item(name=case.name, run=lambda case=case: _outcome(session, case))


def _outcome(session: Session, case: ConformanceCase) -> ItemOutcome:
    mismatches = compare(case, run_case(session, case))
    return session.outcome([str(found) for found in mismatches], primitives=sorted(case.primitives))


def run_case(session: Session, case: ConformanceCase) -> Mapping[str, np.ndarray[Any, Any]]:
    """Run a case on the session's device and return its outputs."""
    driver = session.driver
    binary = compile_cuda(case.source)
    session.know(binary.cubin, case.source)
    kernel = GpuKernel(driver, case.source, binary.cubin)
    outputs = case.outputs()
    arrays = {**case.inputs, **outputs}
    addresses = {name: driver.allocate(array.nbytes) for name, array in arrays.items()}

    def close() -> None:
        kernel.close()
        for address in addresses.values():
            driver.release(address)

    with closing(close) as refused:
        for name, array in arrays.items():
            driver.write(addresses[name], np.ascontiguousarray(array).tobytes(), stream=session.stream)
        kernel.launch(stream=session.stream, pointers=addresses, integers={})
        driver.synchronize(session.stream)
        for name, array in outputs.items():
            data = driver.read(addresses[name], array.nbytes, stream=session.stream)
            array[...] = np.frombuffer(data, array.dtype).reshape(array.shape)
    if refused:
        raise RunError(kernel=case.name, detail=refused[0])
    return outputs
