"""Who notices a mistake in a GPU GEMM: a proof, the interpreter, the compiler, or the emulator.

The checkers are asked in the order of what they cost. A mutant that none of them notices survives. Sizes have tails on
every axis, fewer steps than stages, and more; every run is on several schedules of the emulator.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracea.emitters.kernel_source import KernelSource
from tracea.errors import CompileError, TraceaError
from tracea.semantic.index import Const
from tracea.semantic.interpreter import interpret
from tracea.semantic.proofs import prove
from tracea.semantic.proofs.minimal_sync import superfluous_waits
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.testing.address_widths import narrow_addresses
from tracea.testing.register_bounds import register_overruns

if TYPE_CHECKING:
    from tracea.emulator.report import Report

__all__ = ["Arguments", "GpuJudge", "certified_ways", "gemm_arguments"]

Array = np.ndarray[Any, Any]
_PADDING = 16  # elements: rows of an operand do not touch
_FIRST = (0,)  # of every call: most mistakes show whatever the order is
_MORE = (1, 2, 3)
_MOST_STATEMENTS = 100_000  # of a thread; the originals have some thousands
_LONGEST = 3  # calls that run on more schedules: the others have few steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """One call: arrays and parameters by name, the reference, and the distance from it that is allowed.

    ``steps`` says which of several calls is longer: its k.
    """

    arrays: Mapping[str, Array]
    params: Mapping[str, int]
    output: str
    expected: Array
    tolerance: float
    steps: int = 1

    def fresh(self) -> dict[str, Array]:
        """Return the arrays, with a result of its own."""
        found = dict(self.arrays)
        result = found[self.output]
        assert result.base is not None  # rows are padded: the array that holds them is copied
        found[self.output] = result.base.copy()[: result.shape[0], : result.shape[1]]
        return found

    def agrees(self, found: Array) -> bool:
        """Return whether a result is the reference, to within the tolerance."""
        with np.errstate(all="ignore"):
            return bool(np.allclose(found.astype(np.float64), self.expected, rtol=self.tolerance, atol=self.tolerance))


def gemm_arguments(
    kernel: TileKernel,
    *,
    m: int,
    n: int,
    k: int,
    seed: int = 0,
    alignment: int = 16,
    params: Mapping[str, int] = MappingProxyType({}),
) -> Arguments:
    """Return a call of a GEMM without batch: buffers ``a`` or ``a_t``, ``b`` or ``b_t``, and ``c``, rows padded.

    Of odd seeds the rows of ``c`` begin at no multiple of more than an element: wide stores must look where they go.

    Units: ``alignment`` in elements, of the distance between rows.
    """
    rng = np.random.default_rng(seed)
    sizes = {"m": m, "n": n, "k": k, **params}
    integers = {param.name: sizes.get(param.name, param.minimum) for param in kernel.params}
    arrays: dict[str, Array] = {}
    factors: dict[str, Array] = {}
    output = ""
    for buffer in kernel.buffers_in(MemorySpace.GLOBAL):
        if buffer.role is BufferRole.SCRATCH:
            continue
        shape = tuple(int(size.evaluate(sizes)) for size in buffer.shape[-2:])
        turned = buffer.element_strides[-1] != Const(1)  # rows lie along the last axis but one
        rows, columns = shape[::-1] if turned else shape
        pitch = (columns // alignment + 1) * alignment + _PADDING
        pitch += seed % 2 if buffer.role is BufferRole.OUTPUT else 0
        integers |= _strides(buffer, (1, pitch) if turned else (pitch, 1))
        data = rng.integers(-3, 4, (rows, pitch)) if not buffer.dtype.is_float else rng.standard_normal((rows, pitch))
        array = np.ascontiguousarray(data.astype(buffer.dtype.numpy))[:, :columns]
        array = array.T if turned else array
        arrays[buffer.name] = array
        if buffer.role is BufferRole.OUTPUT:
            output = buffer.name
        else:
            factors[buffer.name] = array.astype(np.float64)
    a = factors["a"] if "a" in factors else factors["a_t"].T
    b = factors["b"] if "b" in factors else factors["b_t"].T
    # Rounding of f16 products summed in f32 and stored in f16: 2^-10 of results of size sqrt(k).
    return Arguments(arrays=arrays, params=integers, output=output, expected=a @ b, tolerance=4e-2, steps=k)


def _strides(buffer: Buffer, steps: tuple[int, int]) -> dict[str, int]:
    """Return the values of the parameters that are strides of a buffer's last two axes."""
    strides = zip(buffer.element_strides[-2:], steps, strict=True)
    return {name: step for stride, step in strides for name in stride.names()}


def _work(report: Report) -> dict[str, int]:
    return {**report.calls, "statements": report.statements}


def certified_ways(kernel: TileKernel) -> int:
    """Return the most ways of any access of a kernel, as its certificate states them."""
    return max((int(fact.value("ways") or 1) for fact in prove(kernel).about("banks")), default=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuJudge:
    """The checkers of one kernel; ``emit`` prints it, ``calls`` are the calls that it is run on.

    ``limit_ways`` is what the certificate says of the worst bank conflict (:func:`certified_ways`): a text that shows
    more is noticed. ``work`` are the primitives and statements that the original executes in each call
    (:meth:`counted`): a mutant with the right result that executes others is noticed too, a guard that spares nothing
    for one.
    ``spare_waits`` is how many waits of the original are reported as superfluous: only more than those are a mutant's.
    """

    calls: Sequence[Arguments]
    emit: Callable[[TileKernel], KernelSource]
    limit_ways: int = 1
    work: tuple[Mapping[str, int], ...] = ()
    spare_waits: int = 0

    def counted(self, kernel: TileKernel) -> GpuJudge:
        """Return this judge with the primitives that a kernel that is right executes."""
        from tracea.emulator.emulate import emulate

        source = self.emit(kernel)
        reports = [emulate(source, call.fresh(), call.params, schedules=(0,)) for call in self.calls]
        work = tuple(_work(report) for report in reports)
        return replace(self, work=work, spare_waits=len(superfluous_waits(kernel)))

    def of_kernel(self, kernel: TileKernel, *, text: bool = True) -> str | None:
        """Return who notices that a kernel is wrong: a proof's name, ``interpreter``, or as :meth:`of_text`."""
        try:
            prove(kernel)
        except TraceaError as error:
            return f"proof: {getattr(error, 'proof', type(error).__name__)}"
        if len(superfluous_waits(kernel)) > self.spare_waits:
            return "minimal sync"
        if self._interpreted(kernel):
            return "interpreter"
        if not text:
            return None
        try:
            source = self.emit(kernel)
        except TraceaError:
            return "emitter"
        return self.of_text(source)

    def of_text(self, source: KernelSource) -> str | None:
        """Return who notices that a text is wrong.

        ``register bounds``, ``address widths``, ``compiler``, ``emulator: <kind>``, ``numbers``, ``banks`` or ``work``:
        one schedule of every call, then more of those with the most steps.
        """
        if any(register_overruns(source.text)):
            return "register bounds"
        if any(narrow_addresses(source.text)):
            return "address widths"
        for number in range(len(self.calls)):
            found = self._of_call(source, number, _FIRST)
            if found is not None:
                return found
        longest = sorted(range(len(self.calls)), key=lambda number: -self.calls[number].steps)[:_LONGEST]
        return next(filter(None, (self._of_call(source, number, _MORE) for number in longest)), None)

    def _of_call(self, source: KernelSource, number: int, schedules: Sequence[int]) -> str | None:
        from tracea.emulator.emulate import emulate

        call = self.calls[number]
        arrays = call.fresh()
        priced = schedules == _FIRST
        try:
            report = emulate(
                source,
                arrays,
                call.params,
                schedules=schedules,
                statistics=priced,
                most_statements=_MOST_STATEMENTS,
            )
        except CompileError:
            return "compiler"
        except TraceaError as error:
            return f"emulator: {type(error).__name__}"
        if not report.clean:
            return f"emulator: {sorted(report.kinds)[0]}"
        if not call.agrees(arrays[call.output]):
            return "numbers"
        if priced and report.bank_ways() > self.limit_ways:
            return "banks"
        if priced and self.work and _work(report) != dict(self.work[number]):
            return "work"
        return None

    def false_alarms(self, kernel: TileKernel, schedules: Sequence[int] = tuple(range(16))) -> Iterator[str]:
        """Yield what is reported of a kernel that is right, over so many schedules: nothing, it is hoped."""
        from tracea.emulator.emulate import emulate

        prove(kernel)
        yield from (f"{wait.node} {wait.statement}" for wait in superfluous_waits(kernel))
        source = self.emit(kernel)
        yield from register_overruns(source.text)
        yield from narrow_addresses(source.text)
        for call in self.calls:
            arrays = call.fresh()
            report = emulate(source, arrays, call.params, schedules=schedules)
            yield from (str(finding) for finding in report.findings)
            if not call.agrees(arrays[call.output]):
                yield f"{call.params}: the result differs from the reference"
            if report.bank_ways() > self.limit_ways:
                yield f"{call.params}: {report.bank_ways()} ways, the certificate says {self.limit_ways}"

    def _interpreted(self, kernel: TileKernel) -> bool:
        """Return whether the interpreter stops, or gets another result."""
        for number, call in sorted(enumerate(self.calls), key=lambda item: item[1].expected.size * item[1].steps):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # poison overflows
                    found = interpret(kernel, call.fresh(), call.params, seed=number)
            except (TraceaError, ValueError, IndexError, KeyError):
                return True
            if not call.agrees(found[call.output]):
                return True
        return False
