"""The library port of GPUs: its calls run on the host here; without a CUDA build of torch it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp, MatrixMath
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidShape, RunError, ToolchainMissing
from tracea.kernels.library import LIBRARY_CUBLAS, LIBRARY_GEMM
from tracea.runtime.cuda.library import LibraryPort, loaded_library
from tracea.runtime.library import LibraryCall, LibraryFunction
from tracea.targets import load
from tracea.targets.gpu import load_gpu

F32 = np.float32


def matrix(*shape: int, layout: StridedLayout | None = None) -> TensorType:
    return TensorType(shape, DType.F32, layout)


@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build of torch, which the port takes")
def test_without_a_cuda_build_of_torch_the_port_refuses_with_what_it_looked_for() -> None:
    with pytest.raises(ToolchainMissing, match=r"libtorch_cuda\.so.*CUDA build of torch"):
        LibraryPort()


def test_a_library_that_is_not_loaded_is_not_loaded_by_asking() -> None:
    assert loaded_library("libtorch_cpu.so") is not None
    assert loaded_library("libno_such_library.so") is None


def test_a_product_lands_at_its_address(rng: np.random.Generator) -> None:
    a, b_t = rng.standard_normal((5, 7), F32), rng.standard_normal((3, 7), F32)
    c = np.full((5, 3), np.nan, F32)
    call = LibraryCall(
        function=LibraryFunction.MM,
        operands=(matrix(5, 3), matrix(5, 7), matrix(7, 3, layout=StridedLayout((1, 7)))),
    )
    LibraryPort("cpu").call(call, (c.ctypes.data, a.ctypes.data, b_t.ctypes.data))
    np.testing.assert_allclose(c, a @ b_t.T, rtol=1e-5, atol=1e-6)


def test_a_sum_product_takes_its_scalars(rng: np.random.Generator) -> None:
    a, b, z = (rng.standard_normal(shape, F32) for shape in ((2, 4, 6), (2, 6, 5), (2, 4, 5)))
    c = np.full((2, 4, 5), np.nan, F32)
    call = LibraryCall(
        function=LibraryFunction.BADDBMM, operands=(matrix(2, 4, 5), matrix(2, 4, 5), matrix(2, 4, 6), matrix(2, 6, 5))
    )
    addresses = tuple(array.ctypes.data for array in (c, z, a, b))
    LibraryPort("cpu").call(call, addresses, scalars=(0.5, 2.0))
    np.testing.assert_allclose(c, 0.5 * z + 2.0 * (a @ b), rtol=1e-5, atol=1e-5)


def test_what_torch_refuses_is_a_typed_error_with_the_operands() -> None:
    a = np.zeros((5, 7), F32)
    call = LibraryCall(function=LibraryFunction.MM, operands=(matrix(5, 3), matrix(5, 7), matrix(6, 3)))
    with pytest.raises(RunError, match=r"cpu MM: torch returned 1 for .*6"):
        LibraryPort("cpu").call(call, (a.ctypes.data,) * 3)


def test_operands_that_torch_has_no_tensor_for_are_refused() -> None:
    port = LibraryPort("cpu")
    call = LibraryCall(function=LibraryFunction.MM, operands=(matrix(5, 3), matrix(5, 7), matrix(7, 3)))
    with pytest.raises(InvalidShape, match="addresses"):
        port.call(call, (0, 0))
    eight = TensorType((4, 4), DType.E4M3)
    with pytest.raises(InvalidShape, match="bf16"):
        port.call(LibraryCall(function=LibraryFunction.MM, operands=(eight, eight, eight)), (0, 0, 0))


def test_each_library_variant_is_of_its_own_backend() -> None:
    op = GemmOp.of(m=8, n=8, k=8, dtype=DType.F16)
    assert not LIBRARY_CUBLAS.unmet(op, load_gpu("sm_90a"))  # type: ignore[arg-type]
    for variant, target in ((LIBRARY_CUBLAS, load("avx2")), (LIBRARY_GEMM, load_gpu("sm_90a"))):
        ((requirement, _),) = variant.unmet(op, target)  # type: ignore[arg-type]
        assert requirement.name == "backend"
    assert LIBRARY_CUBLAS.is_library


def test_cublas_is_rejected_where_it_would_round_otherwise() -> None:
    op = GemmOp.of(m=8, n=8, k=8, dtype=DType.F32, math=MatrixMath.TF32)
    ((requirement, unmet),) = LIBRARY_CUBLAS.unmet(op, load_gpu("sm_80"))  # type: ignore[arg-type]
    assert requirement.name == "products of unrounded factors"
    assert "tf32" in str(unmet).lower()
