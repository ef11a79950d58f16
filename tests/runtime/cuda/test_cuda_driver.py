"""The driver of a real GPU on planted bindings: what it asks of NVIDIA's, and what it makes of the answers."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from tracea.errors import RunError
from tracea.runtime.cuda import cuda_driver
from tracea.runtime.cuda.cuda_driver import CudaDriver
from tracea.targets.product import product_of_device


class Code(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_NOT_FOUND = 500


class Names:
    """An enumeration of the bindings: its members are their names."""

    def __getattr__(self, name: str) -> str:
        return name


class Bindings:
    """Bindings without a driver: each function answers what is planted, and is written down."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.refused: set[str] = set()
        self.answers = {
            "cuDeviceGetCount": 1,
            "cuDevicePrimaryCtxRetain": 7,
            "cuCtxGetCurrent": 7,
            "cuDriverGetVersion": 13000,
            "cuDeviceGetAttribute": 9,
            "cuDeviceTotalMem": 2**37,
            "cuGetErrorString": b"planted",
            "cuModuleLoadData": "module",
            "cuModuleGetFunction": "function",
            "cuStreamEndCapture": "graph",
            "cuGraphInstantiate": "executable",
            **answers,
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("CU"):
            return Names()

        def answer(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, *arguments))
            if name in self.refused:
                return Code.CUDA_ERROR_NOT_FOUND, None
            return Code.CUDA_SUCCESS, self.answers.get(name)

        return answer

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] == name]


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> Bindings:
    planted = Bindings()
    monkeypatch.setattr(cuda_driver, "_api", lambda: planted)
    return planted


# cuDeviceGetName of cuda-bindings 13 fills the buffer with spaces, has the driver write into it, and returns all of it.
@pytest.mark.parametrize("answer", [b"NVIDIA H200\0" + b" " * 116, b"NVIDIA H200".ljust(128, b"\0"), b"NVIDIA H200"])
def test_a_devices_name_ends_at_its_zero(bindings: Bindings, answer: bytes) -> None:
    bindings.answers["cuDeviceGetName"] = answer
    facts = CudaDriver().facts()
    assert facts.name == "NVIDIA H200"
    product = product_of_device(facts.name)
    assert product is not None
    assert product.name == "h200"


def test_a_kernels_code_is_given_back(bindings: Bindings) -> None:
    driver = CudaDriver()
    function = driver.load(b"cubin", "kernel", shared_bytes=100_000)
    assert bindings.named("cuModuleUnload") == []
    driver.unload(function)
    assert bindings.named("cuModuleUnload") == [("cuModuleUnload", "module")]


@pytest.mark.parametrize("refused", ["cuModuleGetFunction", "cuFuncSetAttribute"])
def test_code_that_cannot_be_used_is_given_back_at_once(bindings: Bindings, refused: str) -> None:
    bindings.refused.add(refused)
    with pytest.raises(RunError, match=rf"{refused} returned CUDA_ERROR_NOT_FOUND: planted"):
        CudaDriver().load(b"cubin", "kernel", shared_bytes=100_000)
    assert bindings.named("cuModuleUnload") == [("cuModuleUnload", "module")]


def test_a_graph_is_destroyed_with_its_handle(bindings: Bindings) -> None:
    driver = CudaDriver()
    with driver.capture(5) as graphs:
        pass
    driver.replay(graphs[0], stream=5)
    assert bindings.named("cuGraphLaunch") == [("cuGraphLaunch", "executable", 5)]
    assert bindings.named("cuGraphDestroy") == [("cuGraphDestroy", "graph")]
    assert bindings.named("cuGraphExecDestroy") == []
    graphs.clear()
    assert bindings.named("cuGraphExecDestroy") == [("cuGraphExecDestroy", "executable")]


def test_what_was_captured_is_destroyed_where_it_cannot_run(bindings: Bindings) -> None:
    bindings.refused.add("cuGraphInstantiate")
    with pytest.raises(RunError, match="cuGraphInstantiate"), CudaDriver().capture(5):
        pass
    assert bindings.named("cuGraphDestroy") == [("cuGraphDestroy", "graph")]
    assert bindings.named("cuGraphExecDestroy") == []
