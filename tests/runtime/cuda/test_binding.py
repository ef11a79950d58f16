"""Binding and the driver that has no device: everything up to the GPU, on a machine without one."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from tracea.core.dtype import DType
from tracea.emitters.kernel_source import ArgumentField, GpuLaunch, KernelSource, PointerParameter, TensorMapSpec
from tracea.errors import (
    InvalidDevice,
    InvalidInput,
    InvalidShape,
    InvalidStride,
    ResourceExceeded,
    RunError,
    ToolchainMissing,
)
from tracea.runtime.cuda.binding import bind
from tracea.runtime.cuda.cuda_driver import CudaDriver
from tracea.runtime.cuda.driver import Function
from tracea.runtime.cuda.kernel import GpuKernel
from tracea.runtime.cuda.null_driver import NullDriver
from tracea.semantic.index import Const, Param, ceil_div
from tracea.semantic.tile_kernel import BufferRole
from tracea.targets.gpu import load_gpu

M, K, LDA = Param("m"), Param("k", 1), Param("lda", 1)
CUBIN = b"\x7fELF .text.copy_rows"


def source(**changes: Any) -> KernelSource:
    launch = GpuLaunch(
        threads=128,
        blocks=ceil_div(M, 64),
        shared_bytes=100_000,
        argument_bytes=192,
        arguments=(
            ArgumentField(name="a_map", kind="tensor_map", offset_bytes=0, size_bytes=128),
            ArgumentField(name="c", kind="pointer", offset_bytes=128, size_bytes=8),
            ArgumentField(name="flags", kind="pointer", offset_bytes=136, size_bytes=8),
            ArgumentField(name="m", kind="integer", offset_bytes=144, size_bytes=8),
            ArgumentField(name="scale", kind="scalar", offset_bytes=152, size_bytes=4),
        ),
        tensor_maps=(
            TensorMapSpec(
                name="a_map",
                buffer="a",
                dtype=DType.F16,
                shape=(M, K),
                strides=(LDA, Const(1)),
                box=(64, 64),
                swizzle_bytes=128,
            ),
        ),
        workspace=(("flags", 4 * M),),
        zeroed=("flags",),
    )
    values: dict[str, Any] = {
        "name": "copy_rows",
        "text": "",
        "language": "cuda",
        "isa": "sm_90a",
        "pointers": (
            PointerParameter(name="a", dtype=DType.F16, role=BufferRole.INPUT, alignment_bytes=16),
            PointerParameter(name="c", dtype=DType.F32, role=BufferRole.OUTPUT, alignment_bytes=4),
        ),
        "integers": ("m", "k", "lda"),
        "scalars": ("scale",),
        "team_scratch_bytes": Const(0),
        "thread_scratch_bytes": Const(0),
        "headers": (),
        "launch": launch,
    }
    return KernelSource(**{**values, **changes})


def kernel(driver: NullDriver) -> GpuKernel:
    return GpuKernel(driver, source(), CUBIN, assumptions=Param("lda", 1) >= 8)


def arguments(driver: NullDriver, **integers: int) -> dict[str, Any]:
    return {
        "pointers": {"a": driver.allocate(4096), "c": driver.allocate(4096)},
        "integers": {"m": 100, "k": 16, "lda": 16, **integers},
        "scalars": {"scale": 0.5},
    }


def test_the_argument_struct_holds_every_value_at_its_offset() -> None:
    driver = NullDriver(load_gpu("sm_90a"))
    call = arguments(driver)
    bound = kernel(driver).bind(**call)
    a, c = call["pointers"]["a"], call["pointers"]["c"]
    assert (bound.blocks, bound.threads, len(bound.arguments)) == (2, 128, 192)
    address, rank, element, swizzle = struct.unpack_from("<8xQBBH", bound.arguments)
    assert (address, rank, element, swizzle) == (a, 2, 2, 128)
    assert struct.unpack_from("<QQ", bound.arguments, 24) == (100, 16)  # shape
    assert struct.unpack_from("<Q", bound.arguments, 40) == (32,)  # the row's stride in bytes
    assert struct.unpack_from("<QQqf", bound.arguments, 128) == (c, bound.zeroed[0][0], 100, 0.5)
    assert bound.zeroed[0][1] == 400


def test_a_launch_zeroes_its_flags_and_is_written_down() -> None:
    driver = NullDriver(load_gpu("sm_90a"))
    one = kernel(driver)
    call = arguments(driver)
    bound = one.bind(**call)
    flags, nbytes = bound.zeroed[0]
    assert driver.read(flags, nbytes) == b"\xff" * nbytes
    one.start(bound, stream=7)
    assert driver.read(flags, nbytes) == bytes(nbytes)
    assert [(record.kernel, record.stream) for record in driver.launches] == [("copy_rows", 7)]
    one.launch(**{**call, "integers": {**call["integers"], "m": 0}})
    assert len(driver.launches) == 1, "an empty grid is no launch"


def test_workspace_is_kept_per_stream_and_grows() -> None:
    driver = NullDriver(load_gpu("sm_90a"))
    one, call = kernel(driver), arguments(driver)
    small = one.bind(**call)
    first = small.zeroed[0][0]
    assert one.bind(**call).zeroed[0][0] == first
    assert one.bind(stream=1, **call).zeroed[0][0] != first
    grown = one.bind(**{**call, "integers": {**call["integers"], "m": 5000}}).zeroed[0]
    assert grown == (grown[0], 20_000)
    assert grown[0] != first
    one.start(small)  # the smaller one's memory is still there
    one.close()
    for address in (first, grown[0]):
        with pytest.raises(InvalidInput):
            driver.release(address)


def test_a_closed_kernel_gave_its_code_back_and_is_not_started() -> None:
    waited: list[int] = []

    class Waiting(NullDriver):
        def synchronize(self, stream: int = 0) -> None:
            waited.append(stream)

        def unload(self, function: Function) -> None:
            waited.append(-1)
            super().unload(function)

    driver = Waiting(load_gpu("sm_90a"))
    launch = source().launch
    assert launch is not None
    plain = replace(launch, arguments=launch.arguments[:2], workspace=(), zeroed=())
    one = GpuKernel(driver, source(launch=plain), CUBIN)
    call = arguments(driver)
    bound = one.bind(stream=3, **call)
    one.start(bound, stream=3)
    one.close()
    assert waited == [3, -1], "code that may be running is not taken away"
    one.close()
    assert waited == [3, -1]
    with pytest.raises(RunError, match="closed"):
        one.start(bound, stream=3)
    with pytest.raises(RunError, match="closed"):
        one.bind(stream=3, **call)


def test_code_is_unloaded_once_and_not_launched_afterwards() -> None:
    driver = NullDriver(load_gpu("sm_90a"))
    bound = kernel(driver).bind(**arguments(driver))
    first, second = (driver.load(CUBIN, "copy_rows", shared_bytes=100_000) for _ in range(2))
    driver.unload(first)
    driver.launch(second, bound)
    for refused in (lambda: driver.launch(first, bound), lambda: driver.unload(first)):
        with pytest.raises(RunError, match="not loaded"):
            refused()


def test_what_a_device_could_not_do_is_refused_with_numbers() -> None:
    driver = NullDriver(load_gpu("sm_90a"))
    one, call = kernel(driver), arguments(driver)
    pointers = call["pointers"]
    with pytest.raises(InvalidStride, match="multiple of 16 bytes"):
        one.bind(**{**call, "pointers": {**pointers, "a": pointers["a"] + 2}})
    with pytest.raises(InvalidStride, match=r"stride 0 of a.*34 bytes"):
        one.bind(**{**call, "integers": {**call["integers"], "lda": 17}})
    with pytest.raises(InvalidShape, match="lda"):
        one.bind(**{**call, "integers": {**call["integers"], "lda": 4}})
    with pytest.raises(InvalidShape, match="blocks"):
        one.bind(**{**call, "integers": {**call["integers"], "m": 2**38}})
    with pytest.raises(InvalidInput, match=r"copy_rows: c"):
        one.bind(**{**call, "pointers": {"a": pointers["a"]}})
    with pytest.raises(InvalidInput, match="scale"):
        one.bind(pointers=pointers, integers=call["integers"])
    with pytest.raises(InvalidInput, match="lda"):
        bind(source(), pointers=pointers, integers={"m": 1, "k": 1}, encode=driver.encode)
    with pytest.raises(ResourceExceeded, match="shared memory"):
        NullDriver(load_gpu("sm_75")).load(CUBIN, "copy_rows", shared_bytes=100_000)
    with pytest.raises(RunError, match="no cubin"):
        driver.load(b"text", "copy_rows", shared_bytes=0)
    with pytest.raises(InvalidInput, match="memory that is allocated"):
        driver.read(pointers["c"] + 4000, 200)


def test_more_threads_than_a_block_may_have_are_refused() -> None:
    driver = NullDriver(load_gpu("sm_90a"))
    launch = source().launch
    assert launch is not None
    wide = GpuKernel(driver, source(launch=replace(launch, threads=2048)), CUBIN)
    with pytest.raises(InvalidDevice, match="2048 threads"):
        wide.launch(**arguments(driver))


def test_graphs_hold_launches_until_they_are_replayed() -> None:
    driver = NullDriver(load_gpu("sm_90a"))
    one, call = kernel(driver), arguments(driver)
    with driver.capture(3) as graphs:
        one.launch(stream=3, **call)
        one.launch(stream=3, **call)
    assert driver.launches == []
    driver.replay(graphs[0], stream=3)
    assert [record.stream for record in driver.launches] == [3, 3]


def test_no_device_has_no_time() -> None:
    driver = NullDriver(load_gpu("sm_90a"))
    first = driver.record()
    with pytest.raises(RunError, match="no device"):
        driver.elapsed_us(first, driver.record())


def test_execution_may_be_delegated() -> None:
    def fill(function: Any, bound: Any, driver: NullDriver) -> None:
        (address,) = struct.unpack_from("<Q", bound.arguments, 128)
        driver.write(address, function.name.encode())

    driver = NullDriver(load_gpu("sm_90a"), execute=fill)
    call = arguments(driver)
    kernel(driver).launch(**call)
    assert driver.read(call["pointers"]["c"], 9) == b"copy_rows"


def test_a_machine_without_a_driver_says_so() -> None:
    try:
        CudaDriver()
    except ToolchainMissing as error:
        assert "nvidia" in error.remedy.lower()  # noqa: PT017  # a machine with a GPU raises nothing
