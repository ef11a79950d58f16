from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
import pytest
import torch

from tracea.core.dtype import DType
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidDType, InvalidInput, InvalidShape, OverlappingOutput
from tracea.runtime import extension as extension_module
from tracea.runtime.buffers import DTYPE_CODES
from tracea.runtime.extension import Dispatcher, dispatcher, extension
from tracea.runtime.program import InputSlot, OutputSlot, Program


@pytest.fixture(params=["extension", "python"])
def make(request):
    if request.param == "python":
        return Dispatcher
    assert extension() is not None
    return dispatcher


def test_a_signature_is_asked_for_once(kit, make):
    misses = kit.Misses()
    run = make(1, misses)
    x = torch.ones(100)
    for _ in range(5):
        assert run(x, None).eq(2).all()
    assert len(misses.asked) == 1
    statistics = run.statistics()
    assert (statistics["entries"], statistics["hits"], statistics["misses"]) == (1, 4, 1)


def test_a_program_of_several_results_returns_them_all_and_takes_no_out(kit, make):
    def both(arrays, out, attributes, threads):
        calls = tuple(kit.scale_call(InputSlot(0), OutputSlot(at), 2.0 + at, 100) for at in range(2))
        return Program(calls=calls, inputs=(kit.vector(100),), outputs=(kit.vector(100),) * 2)

    run = make(1, both)
    for x in (torch.ones(100), torch.ones(100).numpy()):
        for _ in range(3):
            found = run(x, None)
            assert type(found) is tuple
            assert [float(part.min()) for part in found] == [float(part.max()) for part in found] == [2.0, 3.0]
            assert all(type(part) is type(x) for part in found)
    assert run.statistics()["hits"] == 4
    with pytest.raises(InvalidShape, match="out"):
        run(x, np.empty(100, np.float32))


def test_a_text_that_nobody_else_keeps_stays_its_own(kit, make):
    """An interned string that is freed leaves its address to the next one of its length."""

    def answer(arrays, out, attributes, threads):
        (n,) = arrays[0].shape
        call = kit.scale_call(InputSlot(0), OutputSlot(0), float(attributes[0]), n)
        return Program(calls=(call,), inputs=(kit.vector(n),), outputs=(kit.vector(n),))

    run, x = make(1, answer), torch.ones(100)
    for factor in range(100, 200):
        text = sys.intern(f"{factor}.5")  # kept by this name alone: the call is given a copy
        assert run(x, None, f"{factor}.5").eq(factor + 0.5).all()
        del text


def test_calls_have_more_attributes_than_a_tensor_has_axes(kit, make):
    run = make(1, kit.Misses())
    assert run(torch.ones(100), None, *range(64)).eq(3).all()


def test_everything_that_a_program_depends_on_is_in_the_signature(kit, make):
    misses = kit.Misses()
    run = make(2, misses)
    x = torch.ones(100)
    n = x.numpy()
    calls = [
        (x, None, None),
        (torch.ones(101), None, None),
        (n, None, None),
        (x, x, None),
        (x, None, torch.zeros(100)),
        (x, None, None, 2.0),
        (x, None, None, 2.5),
        (x, None, None, 3),
        (x, None, None, "gelu"),
        (x, None, None, "relu"),
        (x, None, None, None),
        (x, None, None, True),
        (x, None, None, 1),
        (x, None, None, "gelu", 1.0),
    ]
    for repeat in range(2):
        for call in calls:
            run(*call)
        assert len(misses.asked) == len(calls), repeat
    torch.set_num_threads(3)
    try:
        run(x, None, None)
        assert misses.asked[-1][3] == 3
    finally:
        torch.set_num_threads(2)


def test_strings_are_compared_by_value(kit, make):
    misses = kit.Misses()
    run = make(1, misses)
    for _ in range(3):
        run(torch.ones(8), None, "".join(["ge", "lu"]))
    assert len(misses.asked) == 1


def test_zeros_of_either_sign_are_two_attributes_and_nan_is_one(kit, make):
    misses = kit.Misses()
    run = make(1, misses)
    for _ in range(2):
        signs = [bool(np.signbit(run(np.ones(8, np.float32), None, value)[0])) for value in (0.0, -0.0)]
        assert signs == [False, True]
        assert np.isnan(run(np.ones(8, np.float32), None, float("nan"))).all()
    assert len(misses.asked) == 3


def test_types_and_strides_reach_miss(kit, make):
    def refuse(arrays, out, attributes, threads):
        return (
            arrays[0].dtype,
            tuple(arrays[0].stride()) if isinstance(arrays[0], torch.Tensor) else arrays[0].strides,
        )

    run = make(1, refuse)
    matrix = torch.ones(4, 6)
    assert run(matrix.T, None) == (torch.float32, (1, 6))
    assert run(matrix.double(), None) == (torch.float64, (6, 1))
    assert run(np.ones((4, 6), np.float32)[::-1], None)[1] == (-24, 4)
    assert run(torch.ones(2, 2, dtype=torch.bfloat16), None)[0] == torch.bfloat16


def test_what_is_not_a_program_is_the_result_and_is_not_kept(kit, make):
    misses = kit.Misses()
    run = make(1, misses)
    for _ in range(2):
        assert run(torch.ones(13), None) == "not a program"
    assert len(misses.asked) == 2


def test_an_error_in_miss_reaches_the_caller(kit, make):
    def fail(*_):
        raise InvalidShape(field="a", got=1, expected=2, remedy="fix it")

    run = make(1, fail)
    for _ in range(2):
        with pytest.raises(InvalidShape, match="fix it"):
            run(torch.ones(3), None)


def test_a_program_that_does_not_fit_its_operands_is_explained(kit, make):
    program = kit.sixfold()
    run = make(1, lambda *_: program)
    with pytest.raises(InvalidShape):
        run(torch.ones(3), None)
    with pytest.raises(InvalidShape):
        run(torch.ones(3), torch.ones(4))


def test_out_is_written_and_overlaps_are_refused_on_every_call(kit, make):
    run = make(1, kit.Misses())
    x, out = torch.ones(200), torch.zeros(100)
    for _ in range(2):
        assert run(x[:100], out) is out
        assert out.eq(2).all()
        with pytest.raises(OverlappingOutput):
            run(x[:100], x[:100])
        with pytest.raises(OverlappingOutput):
            run(x[:100], x[50:150])
        assert run(x[:100], x[100:]).eq(2).all()
        x[100:] = 1


def test_hostile_operands_are_typed_errors(kit, make):
    run = make(1, kit.Misses())
    for hostile in ("x" * 10_000, object(), 3.5, {}, torch.float32, np.array(["a"]), np.array([object()])):
        with pytest.raises((InvalidDType, AttributeError)):
            run(hostile, None)
    with pytest.raises((TypeError, IndexError)):
        run()


def test_every_dtype_and_a_scalar_pass(kit):
    names = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"]
    for dtype, name in zip(DTYPE_CODES, names, strict=True):
        for shape in ((), (3,), (2, 3, 4)):
            type_ = TensorType(shape, dtype)
            program = Program(calls=(), inputs=(type_,), outputs=(type_,))
            run = dispatcher(1, lambda *_, program=program: program)
            for array in (torch.ones(shape, dtype=getattr(torch, name)), np.ones(shape, dtype.numpy)):
                for _ in range(2):
                    result = run(array, None)
                    assert type(result) is type(array)
                    assert result.dtype == array.dtype
                    assert tuple(result.shape) == shape
            assert run.statistics()["hits"] == 2


def test_a_tensor_with_more_axes_than_the_extension_reads_still_runs():
    type_ = TensorType((1,) * 9 + (4,), DType.F32)
    program = Program(calls=(), inputs=(type_,), outputs=(type_,))
    run = dispatcher(1, lambda *_: program)
    for _ in range(2):
        assert run(torch.ones((1,) * 9 + (4,)), None).shape == (1,) * 9 + (4,)
    assert program.run(np.ones((1,) * 9 + (4,), np.float32)).ndim == 10


def test_transposed_outputs_are_written_where_they_are():
    type_ = TensorType((4, 6), DType.F32, StridedLayout((1, 4)))
    program = Program(calls=(), inputs=(), outputs=(type_,))
    out = torch.zeros(6, 4).T
    assert program.run(out=out) is out


def test_a_bound_call_runs_with_any_strides_of_its_output():
    for shape, strides, size in (
        ((2, 3, 4, 5), (60, 1, 15, 3), 120),  # channels last
        ((4, 6), (7, 1), 28),
        ((3, 1, 2), (2, 9, 1), 6),
        ((3, 3), (2, 5), 15),  # interleaved, each element once: for Python to decide
    ):
        program = Program(calls=(), inputs=(), outputs=(TensorType(shape, DType.F32, StridedLayout(strides)),))
        out = torch.zeros(size).as_strided(shape, strides)
        run = program.bound(out=out)
        assert run() is out
        assert run() is out


def test_the_table_grows_and_starts_again_when_shapes_never_come_back():
    program = {}

    def build(arrays, out, attributes, threads):
        return program.setdefault(
            0, Program(calls=(), inputs=(TensorType((1,), DType.F32),), outputs=(TensorType((1,), DType.F32),))
        )

    for make in (dispatcher, Dispatcher):
        run = make(1, build)
        x = np.ones(1, np.float32)
        for i in range(5000):
            run(x, None, i)
        assert 0 < run.statistics()["entries"] <= 4096
        assert run.statistics()["misses"] == 5000
        run.clear()
        assert run.statistics()["entries"] == 0
        run(x, None, 1)


def test_programs_are_freed_with_the_dispatcher(kit):
    program = kit.sixfold()
    reference = weakref.ref(program._native)
    run = dispatcher(1, lambda *_, program=program: program)
    run(torch.ones(kit.N), None)
    del program, run
    gc.collect()
    assert reference() is None


def test_a_dispatcher_may_call_itself_from_miss(kit):
    depth = []

    def miss(arrays, out, attributes, threads):
        if len(depth) < 3:
            depth.append(1)
            return run(arrays[0], None)
        return "done"

    run = dispatcher(1, miss)
    assert run(torch.ones(3), None) == "done"


def test_without_the_extension_calls_go_through_ctypes_with_one_warning(kit, monkeypatch):
    monkeypatch.setattr(extension_module, "_loaded", [])
    monkeypatch.setattr(extension_module.sysconfig, "get_path", lambda name: "/nonexistent")
    with pytest.warns(UserWarning, match=r"ctypes.*Python\.h"):
        assert kit.sixfold().run(torch.ones(kit.N)).eq(6).all()
    assert kit.sixfold().run(torch.ones(kit.N)).eq(6).all()  # a second warning would be an error
    assert type(dispatcher(1, kit.Misses())) is Dispatcher


def test_the_way_through_python_costs_less_than_a_small_torch_mm(kit):
    """A kernel that does nothing, so that all that is timed is ours; best of many interleaved rounds."""
    import timeit

    from tracea.runtime.compiler import compile as compile_kernels
    from tracea.runtime.program import Call

    types = (TensorType((32, 32), DType.F32),) * 2
    pointers = (("a", DType.F32), ("b", DType.F32), ("c", DType.F32))
    nothing = kit.make_source("nothing", 'extern "C" void {name}(const tracea_call*, int32_t) {{}}\n', pointers)
    slots = {"a": InputSlot(0), "b": InputSlot(1), "c": OutputSlot(0)}
    call = Call.binding(compile_kernels([nothing])[0], pointers=slots, parallel=False)
    program = Program(calls=(call,), inputs=types, outputs=types[:1])
    run = dispatcher(4, lambda *_: program)
    a, b = torch.ones(32, 32), torch.ones(32, 32)

    def face(a, b, *, bias=None, residual=None, activation=None, alpha=1.0, out=None):
        return run(a, b, bias, residual, out, activation, alpha)

    ours, torchs = [], []
    for _ in range(20):
        ours.append(timeit.timeit(lambda: face(a, b), number=500))
        torchs.append(timeit.timeit(lambda: torch.mm(a, b), number=500))
    assert min(ours) < min(torchs)


def test_a_tensor_that_asks_for_a_gradient_is_refused_while_autograd_records(kit):
    run = dispatcher(1, kit.Misses())
    asking = torch.ones(10, requires_grad=True)
    with torch.no_grad():
        assert run(asking, None).eq(2).all()
    assert run.statistics()["entries"] == 1
    with pytest.raises(InvalidInput, match="no_grad"):
        run(asking, None)
    with pytest.raises(InvalidInput, match="no_grad"):
        kit.sixfold().run(torch.ones(kit.N, requires_grad=True))


def test_a_subclass_of_text_is_the_text(kit):
    misses = kit.Misses()
    run = dispatcher(1, misses)
    for name in (np.str_("three"), "three", np.str_("three")):
        assert run(torch.ones(4), None, name).eq(3).all()
    assert [type(asked[2][0]) for asked in misses.asked] == [str]
