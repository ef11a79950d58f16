from __future__ import annotations

import numpy as np
import pytest
import torch

from tracea.core.dtype import DType
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidShape
from tracea.runtime.library import LibraryCall, LibraryFunction, available
from tracea.runtime.program import ArenaSlot, Call, InputSlot, OutputSlot, Program


def matrix(*shape: int, dtype: DType = DType.F32, strides: tuple[int, ...] | None = None) -> TensorType:
    return TensorType(shape, dtype, None if strides is None else StridedLayout(strides))


def port(function: LibraryFunction, operands, slots, scalars=()) -> Call:
    return Call(kernel=LibraryCall(function=function, operands=operands), pointers=slots, scalars=scalars)


def product(m: int, n: int, k: int, dtype: DType = DType.F32) -> Program:
    a, b, out = matrix(m, k, dtype=dtype), matrix(k, n, dtype=dtype), matrix(m, n, dtype=dtype)
    call = port(LibraryFunction.MM, (out, a, b), (OutputSlot(0), InputSlot(0), InputSlot(1)))
    return Program(calls=(call,), inputs=(a, b), outputs=(out,))


def test_every_function_is_exported_by_this_torch():
    assert all(available(function) for function in LibraryFunction)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16, DType.F16])
def test_mm_is_torchs_mm_to_the_bit(dtype):
    a = torch.randn(33, 65).to(torch.float64).to(getattr(torch, str(np.dtype(dtype.numpy))))
    b = torch.randn(65, 17).to(a.dtype)
    assert torch.equal(product(33, 17, 65, dtype).run(a, b), a @ b)


def test_a_transpose_is_a_stride():
    a, b, out = matrix(8, 5, strides=(1, 8)), matrix(5, 3), matrix(8, 3)
    call = port(LibraryFunction.MM, (out, a, b), (OutputSlot(0), InputSlot(0), InputSlot(1)))
    left, right = torch.randn(5, 8).T, torch.randn(5, 3)
    assert torch.equal(Program(calls=(call,), inputs=(a, b), outputs=(out,)).run(left, right), left @ right)


def test_addmm_bmm_and_baddbmm():
    c, a, b = torch.randn(4, 6), torch.randn(4, 5), torch.randn(5, 6)
    types = (matrix(4, 6), matrix(4, 6), matrix(4, 5), matrix(5, 6))
    slots = (OutputSlot(0), InputSlot(0), InputSlot(1), InputSlot(2))
    call = port(LibraryFunction.ADDMM, types, slots, (0.5, 2.0))
    program = Program(calls=(call,), inputs=types[1:], outputs=types[:1])
    assert torch.equal(program.run(c, a, b), torch.addmm(c, a, b, beta=0.5, alpha=2.0))

    types = tuple(matrix(3, *type_.static_shape) for type_ in types)
    c, a, b = torch.randn(3, 4, 6), torch.randn(3, 4, 5), torch.randn(3, 5, 6)
    call = port(LibraryFunction.BADDBMM, types, slots, (1.0, -1.0))
    program = Program(calls=(call,), inputs=types[1:], outputs=types[:1])
    assert torch.equal(program.run(c, a, b), torch.baddbmm(c, a, b, alpha=-1.0))
    call = port(LibraryFunction.BMM, (types[0], *types[2:]), slots[:3])
    program = Program(calls=(call,), inputs=types[2:], outputs=types[:1])
    assert torch.equal(program.run(a, b), torch.bmm(a, b))


def test_a_library_call_and_a_kernel_share_a_program(kit):
    """The composite variant: the library's product, then our epilogue over the arena."""
    n = 100
    a, b = matrix(n, n), matrix(n, n)
    mm = port(LibraryFunction.MM, (a, a, b), (ArenaSlot(64), InputSlot(0), InputSlot(1)))
    scale = kit.scale_call(ArenaSlot(64), OutputSlot(0), 3.0, n * n)
    program = Program(calls=(mm, scale), inputs=(a, b), outputs=(a,), arena_bytes=64 + 4 * n * n)
    x, y = torch.randn(n, n), torch.randn(n, n)
    for threads in (None, 1, 2, 3):
        torch.testing.assert_close(program.run(x, y, threads=threads), 3 * (x @ y))


def test_the_thread_count_of_torch_is_put_back():
    before = torch.get_num_threads()
    product(64, 64, 64).run(torch.randn(64, 64), torch.randn(64, 64), threads=before + 1)
    assert torch.get_num_threads() == before


def test_operands_are_counted():
    with pytest.raises(InvalidShape, match="operands"):
        LibraryCall(function=LibraryFunction.ADDMM, operands=(matrix(1, 1),) * 3)


def test_what_torch_refuses_is_an_error(capfd):
    a, b = matrix(2, 3), matrix(4, 5)
    call = port(LibraryFunction.MM, (matrix(2, 5), a, b), (OutputSlot(0), InputSlot(0), InputSlot(1)))
    program = Program(calls=(call,), inputs=(a, b), outputs=(matrix(2, 5),))
    with pytest.raises(Exception, match="library call failed") as caught:
        program.run(torch.ones(2, 3), torch.ones(4, 5))
    assert type(caught.value).__name__ == "RunError"
    capfd.readouterr()


def test_without_torch_a_library_call_says_what_is_missing(in_child):
    in_child(
        "from tracea.core.dtype import DType\n"
        "from tracea.core.tensor_type import TensorType\n"
        "from tracea.errors import RunError\n"
        "from tracea.runtime.library import *\n"
        "import numpy as np\n"
        "t = TensorType((2, 2), DType.F32)\n"
        "call = kit.Call(kernel=LibraryCall(function=LibraryFunction.MM, operands=(t, t, t)),\n"
        "                pointers=(kit.OutputSlot(0), kit.InputSlot(0), kit.InputSlot(1)))\n"
        "assert not available(LibraryFunction.MM)\n"
        "program = kit.Program(calls=(call,), inputs=(t, t), outputs=(t,))\n"
        "x = np.ones((2, 2), np.float32)\n"
        "try: program.run(x, x)\n"
        "except RunError as error: assert 'import torch' in error.remedy, error\n"
        "else: raise SystemExit('ran without torch')\n"
        "import torch\n"
        "assert (program.run(x, x) == 2).all()\n"
    )
