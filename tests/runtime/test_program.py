from __future__ import annotations

import concurrent.futures
import threading
import time

import numpy as np
import pytest
import torch

from tracea.core.dtype import DType
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import (
    InvalidDevice,
    InvalidDType,
    InvalidGraph,
    InvalidOption,
    InvalidShape,
    InvalidStride,
    OverlappingOutput,
    RunError,
)
from tracea.runtime.native import launcher
from tracea.runtime.program import ArenaSlot, InputSlot, OutputSlot, Program


@pytest.mark.parametrize("threads", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("parallel", [(True, True), (False, True), (True, False), (False, False)])
def test_calls_run_in_order_on_any_number_of_threads(kit, rng, threads, parallel):
    x = rng.standard_normal(kit.N, dtype=np.float32)
    program = kit.sixfold(parallel=parallel)
    for _ in range(5):
        np.testing.assert_array_equal(program.run(x, threads=threads), x * np.float32(2) * np.float32(3))


def test_the_result_is_of_the_kind_of_the_input(kit, rng):
    x = rng.standard_normal(kit.N, dtype=np.float32)
    program = kit.sixfold()
    assert type(program.run(x)) is np.ndarray
    result = program.run(torch.from_numpy(x))
    assert type(result) is torch.Tensor
    np.testing.assert_array_equal(result.numpy(), x * np.float32(6))


def test_a_result_is_an_ordinary_tensor_that_outlives_the_program(kit):
    result = kit.sixfold().run(torch.ones(kit.N))
    result.resize_(2 * kit.N)  # a tensor over foreign memory could not
    assert result[: kit.N].eq(6).all()
    assert not result.requires_grad


def test_out_is_written_in_place_and_returned(kit):
    program = kit.sixfold()
    x, out = torch.ones(kit.N), torch.zeros(kit.N)
    assert program.run(x, out=out) is out
    assert out.eq(6).all()
    assert program.run(x, out=(out,)) is out


def test_operands_that_do_not_fit_are_typed_errors(kit):
    program = kit.sixfold()
    x = np.ones(kit.N, np.float32)
    for wrong, error in [
        (x[:-1], InvalidShape),
        (x.reshape(1, -1), InvalidShape),
        (x.astype(np.float64), InvalidDType),
        (x.astype(">f4"), InvalidDType),
        (np.ones(2 * kit.N, np.float32)[::2], InvalidStride),
        (np.ones(kit.N, np.float32)[::-1], InvalidStride),
        (x.view(np.uint8)[:-1].tolist(), InvalidDType),
        (None, InvalidDType),
        ("hostile" * 100, InvalidDType),
        (torch.ones(kit.N, dtype=torch.complex64), InvalidDType),
        (torch.empty(kit.N, device="meta"), InvalidDevice),
        (torch.ones(kit.N).to_sparse(), InvalidStride),
        (torch.ones(kit.N, dtype=torch.complex64).conj().imag[: kit.N], InvalidStride),
    ]:
        with pytest.raises(error) as caught:
            program.run(wrong)
        assert caught.value.remedy
    with pytest.raises(InvalidShape):
        program.run()
    with pytest.raises(InvalidShape):
        program.run(x, out=(x.copy(), x.copy()))
    for threads in (0, -1, 1.5, True, 10**9):
        with pytest.raises(InvalidOption):
            program.run(x, threads=threads)


def test_a_misaligned_array_is_refused(kit):
    raw = np.zeros(4 * kit.N + 1, np.uint8)
    with pytest.raises(InvalidStride, match="multiple of 4 bytes"):
        kit.sixfold().run(raw[1:].view(np.float32))


def test_a_tensor_without_memory_is_refused(kit):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(kit.N)
    with pytest.raises(InvalidDevice, match="memory"):
        kit.sixfold().run(fake)


def test_a_lazily_negated_tensor_is_never_read_as_its_memory(kit):
    plain = torch.arange(2 * kit.N, dtype=torch.float32)
    negated = torch.view_as_complex(plain.view(-1, 2)).conj().imag
    assert negated.is_neg()
    strided = Program(
        calls=kit.sixfold().calls,
        inputs=(TensorType((kit.N,), DType.F32, StridedLayout((2,))),),
        outputs=(kit.vector(),),
        arena_bytes=4 * kit.N,
    )
    with pytest.raises(InvalidStride, match="negated"):
        strided.run(negated)


def test_an_output_that_overlaps_is_refused(kit):
    program = kit.sixfold()
    x = np.ones(2 * kit.N, np.float32)
    with pytest.raises(OverlappingOutput):
        program.run(x[: kit.N], out=x[: kit.N])
    with pytest.raises(OverlappingOutput):
        program.run(x[: kit.N], out=x[kit.N - 1 : 2 * kit.N - 1])
    tensor = torch.from_numpy(x)
    with pytest.raises(OverlappingOutput):
        program.run(tensor[: kit.N], out=tensor[1 : kit.N + 1])
    assert program.run(x[: kit.N], out=x[kit.N :])[0] == 6
    frozen = np.ones(kit.N, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(InvalidStride, match="read-only"):
        program.run(x[: kit.N], out=frozen)


def test_interleaved_columns_do_not_overlap(kit):
    n = 256
    memory = np.ones((n, 2), np.float32)
    strided = TensorType((n,), DType.F32, StridedLayout((2,)))
    program = Program(calls=(), inputs=(strided,), outputs=(strided,))
    assert program.run(memory[:, 0], out=memory[:, 1]) is not None
    with pytest.raises(OverlappingOutput):
        program.run(memory[:, 0], out=memory[:, 0])


def test_an_output_that_reaches_an_element_twice_is_refused():
    expanded = TensorType((8,), DType.F32, StridedLayout((0,)))
    program = Program(calls=(), inputs=(), outputs=(expanded,))
    with pytest.raises(OverlappingOutput, match="one place"):
        program.run(out=torch.ones(1).expand(8))


def test_empty_arrays_run(kit):
    program = kit.sixfold(0)
    assert program.run(np.empty(0, np.float32)).shape == (0,)
    assert program.run(torch.empty(0)).shape == (0,)


def test_constants_are_part_of_the_program(kit, rng):
    constant = rng.standard_normal(kit.N, dtype=np.float32)
    call = kit.scale_call(kit.ConstantSlot(0), OutputSlot(0), 2.0)
    program = Program(calls=(call,), inputs=(), outputs=(kit.vector(),), constants=(constant,))
    np.testing.assert_array_equal(program.run(), constant * np.float32(2))


def test_a_slot_outside_of_the_program_is_refused(kit):
    for slot in (InputSlot(1), InputSlot(-1), OutputSlot(0, 4 * kit.N + 1), ArenaSlot(1), kit.ConstantSlot(0)):
        with pytest.raises(InvalidGraph):
            Program(calls=(kit.scale_call(slot, OutputSlot(0), 1.0),), inputs=(kit.vector(),), outputs=(kit.vector(),))


def test_binding_names_every_argument(kit):
    (call,) = (kit.scale_call(InputSlot(0), OutputSlot(0), 1.0),)
    with pytest.raises(InvalidGraph, match="pointers of scale"):
        type(call).binding(call.kernel, pointers={"x": InputSlot(0)}, integers={"n": 1}, scalars={"a": 1.0})


def test_a_malformed_table_is_refused_not_run():
    words = Program(calls=(), inputs=(), outputs=()).words()
    for broken in (
        [],
        words[:-1],
        [2, *words[1:]],
        [*words, 0],
        [1, 0, 0, 0, 1],
        [1, 0, 0, -1, 0],
        [1, 0, 0, 0, 10**12],
    ):
        with pytest.raises(RunError, match="malformed"):
            launcher().create(broken, "broken")


def test_one_program_runs_in_many_threads_at_once(kit, rng):
    program = kit.sixfold()
    inputs = [rng.standard_normal(kit.N, dtype=np.float32) for _ in range(8)]

    def work(x):
        wanted = x * np.float32(2) * np.float32(3)
        return all(np.array_equal(program.run(x, threads=2), wanted) for _ in range(20))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, inputs))


def test_the_gil_is_released_while_a_program_runs(kit):
    program = kit.sleep_program(300)
    program.run()
    started, ticks = threading.Event(), 0
    thread = threading.Thread(target=lambda: (started.set(), program.run()))
    thread.start()
    started.wait()
    begin = time.perf_counter()
    while thread.is_alive():
        ticks += 1
        time.sleep(0.001)
    assert time.perf_counter() - begin > 0.1
    assert ticks > 20  # a held GIL would have left one


def test_a_team_has_scratch_of_its_own_and_as_many_threads_as_it_says(kit):
    size, came, aligned, own = kit.team_program().run(threads=3, out=np.zeros(4, np.int32))
    assert (aligned, own) == (1, 1)
    assert size == came <= 3


def test_scratch_is_reused_and_grown_not_allocated_per_run(kit):
    x = np.ones(kit.N, np.float32)
    program = kit.sixfold()
    program.run(x)
    before = launcher().statistics()
    for _ in range(50):
        program.run(x)
    after = launcher().statistics()
    assert after.acquired == before.acquired + 50
    assert after.mapped == before.mapped
    big = kit.sixfold(2_000_000)
    big.run(np.ones(2_000_000, np.float32))
    grown = launcher().statistics()
    assert grown.mapped == after.mapped + 1
    assert grown.workspace_bytes >= 8_000_000
    launcher().trim()
    assert launcher().statistics().workspace_bytes == 0
    assert program.run(x)[0] == 6


def test_a_program_that_this_cpu_cannot_run_says_so(kit):
    assert launcher().supports("plain")
    assert not launcher().supports("no-such-isa")
    missing = [isa for isa in ("neon", "avx512") if not launcher().supports(isa)]
    assert missing  # no CPU has both
    call = kit.scale_call(InputSlot(0), OutputSlot(0), 1.0)
    source = kit.scale_source(isa=missing[0])
    foreign = type(call.kernel)(source=source, library=call.kernel.library, address=call.kernel.address)
    program = Program(
        calls=(type(call)(kernel=foreign, pointers=call.pointers, integers=(1,), scalars=(1.0,)),),
        inputs=(kit.vector(),),
        outputs=(kit.vector(),),
    )
    with pytest.raises(RunError, match=missing[0]):
        program.run(np.ones(kit.N, np.float32))


def test_an_output_in_strides_of_its_own_is_made_in_them(kit):
    strided = TensorType((kit.N, 2), DType.F32, StridedLayout((1, kit.N)))
    call = kit.scale_call(InputSlot(0), OutputSlot(0), 2.0, 2 * kit.N)
    program = Program(calls=(call,), inputs=(kit.vector(2 * kit.N),), outputs=(strided,))
    x = np.arange(2 * kit.N, dtype=np.float32)
    for given in (x, torch.from_numpy(x)):
        result = np.asarray(program.run(given))
        np.testing.assert_array_equal(result, 2 * x.reshape(2, kit.N).T)
