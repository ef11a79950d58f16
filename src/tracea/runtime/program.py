"""Program: a table of native calls on inputs, outputs, constants and an arena, run by one C call.

A program is built for its shapes, strides and types. It may run in several threads at once, with the GIL released, and
in a child after fork.
"""

from __future__ import annotations

import os
import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias, cast

import numpy as np

from tracea.core.dtype import DType
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidGraph, InvalidShape, ResourceExceeded, RunError
from tracea.runtime.buffers import (
    DTYPE_CODES,
    ArrayKind,
    ArrayView,
    check_operand,
    check_output,
    empty_of,
    view,
)
from tracea.runtime.compiler import LoadedKernel
from tracea.runtime.extension import make_runner
from tracea.runtime.index_range import IndexRange
from tracea.runtime.library import LibraryCall
from tracea.runtime.native import check_threads, launcher
from tracea.runtime.process_bound import ProcessBound
from tracea.runtime.process_lock import ProcessLock
from tracea.runtime.shortage import memory_bytes
from tracea.runtime.tensor_state import count_write

__all__ = ["ArenaSlot", "Call", "ConstantSlot", "InputSlot", "OutputSlot", "Program", "Slot"]

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class InputSlot:
    """The program's input ``index``, from byte ``offset`` on."""

    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class OutputSlot:
    """The program's output ``index``, from byte ``offset`` on."""

    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ConstantSlot:
    """The program's constant ``index``, from byte ``offset`` on."""

    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ArenaSlot:
    """Byte ``offset`` of the memory that a run's intermediate results share."""

    offset: int


Slot: TypeAlias = InputSlot | OutputSlot | ConstantSlot | ArenaSlot


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One native call: a kernel or a library function with its arguments in order.

    ``parallel`` says that the whole team runs it; a call with little work is left to one thread. :meth:`binding` makes
    one from names.
    """

    kernel: LoadedKernel | LibraryCall
    pointers: tuple[Slot, ...]
    integers: tuple[int, ...] = ()
    scalars: tuple[float, ...] = ()
    team_scratch_bytes: int = 0
    thread_scratch_bytes: int = 0
    parallel: bool = True

    @staticmethod
    def binding(
        kernel: LoadedKernel,
        *,
        pointers: Mapping[str, Slot],
        integers: Mapping[str, int] | None = None,
        scalars: Mapping[str, float] | None = None,
        parallel: bool = True,
    ) -> Call:
        """Return a kernel's call with its arguments given by name; the scratch sizes follow from the integers.

        Raises: InvalidGraph: a name is missing, or is none of the kernel's.
        """
        source = kernel.source
        integers, scalars = integers or {}, scalars or {}
        names = [parameter.name for parameter in source.pointers]
        for kind, wanted, given in (
            ("pointers", names, pointers),
            ("integers", list(source.integers), integers),
            ("scalars", list(source.scalars), scalars),
        ):
            if sorted(wanted) != sorted(given):
                raise InvalidGraph(
                    field=f"{kind} of {kernel.name}", got=sorted(given), expected=wanted, remedy="bind each name once"
                )
        return Call(
            kernel=kernel,
            pointers=tuple(pointers[name] for name in names),
            integers=tuple(int(integers[name]) for name in source.integers),
            scalars=tuple(float(scalars[name]) for name in source.scalars),
            team_scratch_bytes=int(source.team_scratch_bytes.evaluate(integers)),
            thread_scratch_bytes=int(source.thread_scratch_bytes.evaluate(integers)),
            parallel=parallel,
        )


_creation = ProcessLock()


class _Native:
    """The launcher's handle of a program, made on first use and freed with the program."""

    __slots__ = ("__weakref__", "asked", "handle", "runner")

    def __init__(self) -> None:
        self.handle = 0
        self.asked = False
        self.runner: Any = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Program(ProcessBound):
    """Calls on inputs, outputs, constants and an arena. Frozen: a program never changes after it was built.

    ``index_ranges`` say which inputs name places in memory: every run checks them before the first call.
    ``input_names`` are what errors call the inputs, of a program whose caller gave them by name.
    """

    calls: tuple[Call, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    constants: tuple[np.ndarray[Any, Any], ...] = ()
    arena_bytes: int = 0
    name: str = "program"
    index_ranges: tuple[IndexRange, ...] = ()
    input_names: tuple[str, ...] = ()
    _native: _Native = field(default_factory=_Native, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for constant in self.constants:
            if not constant.flags.c_contiguous:
                raise InvalidGraph(
                    field="constants",
                    got=f"strides {constant.strides}",
                    expected="contiguous arrays",
                    remedy="numpy.ascontiguousarray",
                )
        for call in self.calls:
            for slot in call.pointers:
                self._check_slot(slot, call)
        for each in self.index_ranges:
            self._check_range(each)

    def __repr__(self) -> str:
        given, made = (", ".join(map(str, types)) for types in (self.inputs, self.outputs))
        return f"Program({self.name}: {given} -> {made}, {len(self.calls)} calls, {self.arena_bytes} bytes of arena)"

    def _check_slot(self, slot: Slot, call: Call) -> None:
        match slot:
            case InputSlot(index, offset):
                limit, size = len(self.inputs), self.inputs[index].storage_bytes if 0 <= index < len(self.inputs) else 0
            case OutputSlot(index, offset):
                limit, size = (
                    len(self.outputs),
                    self.outputs[index].storage_bytes if 0 <= index < len(self.outputs) else 0,
                )
            case ConstantSlot(index, offset):
                limit, size = (
                    len(self.constants),
                    self.constants[index].nbytes if 0 <= index < len(self.constants) else 0,
                )
            case ArenaSlot(offset):
                index, limit, size = 0, 1, self.arena_bytes
        if not 0 <= index < limit or not 0 <= offset <= size:
            raise InvalidGraph(
                field=f"slot of {call.kernel.name}",
                got=repr(slot),
                expected=f"index below {limit} and an offset within {size} bytes",
                remedy="build the program from its memory plan",
            )

    def _check_range(self, of: IndexRange) -> None:
        found = self.inputs[of.input] if 0 <= of.input < len(self.inputs) else None
        if found is None or found.dtype not in (DType.I64, DType.I32):
            raise InvalidGraph(
                field=f"range of {of.name}",
                got=f"input {of.input}" if found is None else str(found),
                expected=f"one of {len(self.inputs)} inputs, i64 | i32",
                remedy="name the input that holds the indices",
            )

    def run(self, *arrays: Any, out: Any = None, threads: int | None = None) -> Any:
        """Run on torch tensors or NumPy arrays of the program's types; return arrays of the first input's kind.

        ``out`` is written in place: one array, or a sequence of them where the program has several outputs. The result
        is one array or a tuple likewise.

        Raises: InvalidShape, InvalidDType, InvalidStride, InvalidDevice: an operand does not fit. OverlappingOutput.
            InvalidIndex: a number is outside of its range. InvalidOption: ``threads``. ResourceExceeded: no memory for
            the scratch. RunError.
        """
        wanted = check_threads(threads)
        runner = self.runner
        if runner is not None:
            result = runner.run(self, arrays, out, wanted)
            if result is not NotImplemented:
                return result
        return self.run_explaining(arrays, out, wanted)

    def bound(self, *arrays: Any, out: Any, threads: int | None = None) -> Callable[[], Any]:
        """Return a call without arguments that runs on these arrays as :meth:`run` does; what is left is native."""
        self.run(*arrays, out=out, threads=threads)  # whatever does not fit is explained now
        runner, explaining = self.runner, partial(self.run, *arrays, out=out, threads=threads)
        if runner is None:
            return explaining
        fast = partial(runner.run, self, arrays, out, check_threads(threads))
        if fast() is NotImplemented:  # such as strides that interleave: it leaves them to Python every time
            return explaining

        def run() -> Any:
            result = fast()
            return explaining() if result is NotImplemented else result  # an index may name no row by now

        return run

    def run_explaining(self, arrays: Sequence[Any], out: Any, threads: int) -> Any:
        """Run as :meth:`run`, by Python alone: slower, able to say what does not fit. 0 threads means the default."""
        if len(arrays) != len(self.inputs):
            raise InvalidShape(
                field="inputs", got=len(arrays), expected=len(self.inputs), remedy="give one array for each input"
            )
        names = self.input_names or tuple(f"input {index}" for index in range(len(arrays)))
        views = [view(array, name) for name, array in zip(names, arrays, strict=True)]
        for name, found, type_ in zip(names, views, self.inputs, strict=True):
            check_operand(found, type_, name)
        for each in self.index_ranges:
            each.check(views[each.input])
        results = self._outputs(out, dict(zip(names, views, strict=True)))
        given, made = ([found.address for found in each] for each in (views, results))
        launcher().run(self.handle, given, made, threads, self.name, needs=self.workspace_bytes)
        owners = tuple(found.owner for found in results)
        return owners[0] if len(owners) == 1 else owners

    def _outputs(self, out: Any, inputs: Mapping[str, ArrayView]) -> list[ArrayView]:
        if out is None:
            kind = next((given.kind for given in inputs.values()), ArrayKind.NUMPY)
            return [view(empty_of(type_, kind)) for type_ in self.outputs]
        given = cast("Sequence[Any]", out if isinstance(out, (tuple, list)) else (out,))
        if len(given) != len(self.outputs):
            raise InvalidShape(
                field="out", got=len(given), expected=len(self.outputs), remedy="give one array for each output"
            )
        found = [view(array, "out") for array in given]
        others = dict(inputs)
        for index, (array, type_) in enumerate(zip(found, self.outputs, strict=True)):
            name = "out" if len(found) == 1 else f"out[{index}]"
            check_operand(array, type_, name)
            check_output(array, others, name)
            others[name] = array
        for array in found:
            count_write(array.owner)
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to one file (runtime/storage.py)."""
        from tracea.runtime.storage import save

        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Program:
        """Read a program that :meth:`save` wrote and make it ready for this machine (runtime/storage.py)."""
        from tracea.runtime.storage import load

        return load(path)

    @property
    def handle(self) -> int:
        """The launcher's handle, for native callers; valid while the program lives.

        Raises: RunError: this CPU lacks an instruction set of the kernels, or a library is not loaded.
            ResourceExceeded: a run takes more memory than there is.
        """
        native = self._native
        if native.handle == 0:
            with _creation:
                if native.handle == 0:
                    native.handle = self._create(native)
        return native.handle

    @property
    def runner(self) -> Any | None:
        """The extension's runner of this program, made on first use; None where calls go through ctypes."""
        native = self._native
        if not native.asked:
            handle = self.handle
            with _creation:
                if not native.asked:
                    native.runner = make_runner(self) if handle else None
                    native.asked = True
        return native.runner

    def _create(self, native: _Native) -> int:
        runtime = launcher()
        for isa in sorted({call.kernel.source.isa for call in self.calls if isinstance(call.kernel, LoadedKernel)}):
            if not runtime.supports(isa):
                raise RunError(
                    kernel=self.name,
                    detail=f"this CPU or its operating system does not support {isa}",
                    remedy="optimize the graph on this machine",
                )
        needed, limit = self.workspace_bytes(1), memory_bytes()
        if needed > limit:
            remedy = "split the inputs, and run it on one part after the other"
            raise ResourceExceeded(
                what=f"memory for {self.name}", needed_bytes=needed, limit_bytes=limit, remedy=remedy
            )
        handle = runtime.create(self.words(), self.name)
        # Not at the interpreter's end: threads that are still in a run would read what was freed.
        weakref.finalize(native, runtime.destroy, handle).atexit = False
        return handle

    def workspace_bytes(self, threads: int) -> int:
        """Return what a run takes beside its operands: the arena, and scratch. 0 threads means the default."""
        is_parallel = any(call.parallel and isinstance(call.kernel, LoadedKernel) for call in self.calls)
        team = (threads or launcher().threads()) if is_parallel else 1
        shared = max((call.team_scratch_bytes for call in self.calls), default=0)
        return self.arena_bytes + shared + team * max((call.thread_scratch_bytes for call in self.calls), default=0)

    def words(self) -> list[int]:
        """Return the table that the launcher reads (launcher/launcher.h)."""
        table = [_FORMAT, len(self.inputs), len(self.outputs), self.arena_bytes, len(self.calls)]
        for call in self.calls:
            kernel = call.kernel
            is_library = isinstance(kernel, LibraryCall)
            table += [
                int(is_library),
                kernel.function.value if isinstance(kernel, LibraryCall) else kernel.address,
                int(call.parallel),
                call.team_scratch_bytes,
                call.thread_scratch_bytes,
                len(call.pointers),
                len(call.integers),
                len(call.scalars),
            ]
            for slot in call.pointers:
                table += self._slot_words(slot)
            table += call.integers
            table += struct.unpack(f"={len(call.scalars)}q", struct.pack(f"={len(call.scalars)}d", *call.scalars))
            if isinstance(kernel, LibraryCall):
                for operand in kernel.operands:
                    table += [DTYPE_CODES[operand.dtype], operand.rank, *operand.static_shape, *operand.strides]
        return table

    def _slot_words(self, slot: Slot) -> tuple[int, int, int]:
        match slot:
            case InputSlot(index, offset):
                return 0, index, offset
            case OutputSlot(index, offset):
                return 1, index, offset
            case ConstantSlot(index, offset):
                return 2, int(self.constants[index].__array_interface__["data"][0]), offset
            case ArenaSlot(offset):
                return 3, 0, offset
