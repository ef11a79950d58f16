"""The interpreter's machine: checked memory that starts poisoned, and a seeded scheduler of executors."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracea.errors import InvalidShape, RunError
from tracea.semantic.index import Index
from tracea.semantic.tile_kernel import Buffer

__all__ = ["Executor", "Memory", "Request", "Scheduler", "clear_outside", "poison", "resolve", "window"]

Array = np.ndarray[Any, Any]
Steps = Generator["Request", None, None]


@dataclass(frozen=True, slots=True)
class Request:
    """Why an executor stopped: until ``ready`` holds; ``meeting`` names the barrier that it stands at."""

    what: str
    ready: Callable[[], bool] | None = None
    meeting: object = None


def poison(dtype: np.dtype[Any]) -> Any:
    """Return the value of memory that nobody wrote: NaN, or the integer furthest from use."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max
    return dtype.type(True) if dtype.kind == "b" else dtype.type(np.nan)


def allocate(buffer: Buffer, env: Mapping[str, Any]) -> Array:
    """Return new poisoned memory in the buffer's logical shape."""
    shape = tuple(int(size.evaluate(env)) for size in buffer.shape)
    if any(size < 0 for size in shape):
        raise InvalidShape(
            field=buffer.name, got=shape, expected="sizes >= 0", remedy="check the kernel's scratch shapes"
        )
    return np.full(shape, poison(np.dtype(buffer.dtype.numpy)), dtype=buffer.dtype.numpy)


def bind(buffer: Buffer, array: Array, env: Mapping[str, Any]) -> Array:
    """Return the caller's array as the kernel addresses it: by its own shape and strides, within the array's memory.

    Raises:
        InvalidShape: the dtype differs, or the shape and strides address memory that the array does not have.
    """
    shape = tuple(int(size.evaluate(env)) for size in buffer.shape)
    strides = tuple(int(stride.evaluate(env)) * array.itemsize for stride in buffer.element_strides)
    if array.dtype != buffer.dtype.numpy:
        raise InvalidShape(
            field=buffer.name, got=array.dtype, expected=buffer.dtype.value, remedy="convert the array first"
        )
    if all(size > 0 for size in shape):
        reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        low, high = np.lib.array_utils.byte_bounds(array)
        first = array.__array_interface__["data"][0] + sum(r for r in reach if r < 0)
        last = array.__array_interface__["data"][0] + sum(r for r in reach if r > 0) + array.itemsize
        if first < low or last > high:
            raise InvalidShape(
                field=buffer.name,
                got=f"shape {shape}, byte strides {strides}",
                expected=f"within the {high - low} bytes of the array of shape {array.shape}",
                remedy="the kernel's strides do not fit this array",
            )
    # By its bits: NumPy does not know the names of all 8-bit floats.
    bits = array.view(f"u{array.itemsize}")
    return np.lib.stride_tricks.as_strided(bits, shape, strides).view(array.dtype)


def clear_outside(window: Array, first: tuple[int, ...], extent: tuple[int, ...]) -> None:
    """Set to zero what of a window (…, rows, columns, channels) lies outside of an image, which it begins in at first.

    ``extent`` are the image's rows, or rows and columns.
    """
    for axis, start, size in zip((-3, -2), first, extent, strict=False):
        along = np.moveaxis(window, axis, 0)
        along[[place for place in range(along.shape[0]) if not 0 <= start + place < size]] = 0


def resolve(indices: tuple[Index, ...], env: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the values of some index expressions."""
    return tuple(int(index.evaluate(env)) for index in indices)


def window(array: Array, name: str, offset: tuple[int, ...], extent: tuple[int, ...], node: str) -> Array:
    """Return a view of a rectangle.

    Raises:
        RunError: it reaches out of the array.
    """
    for axis, (start, size) in enumerate(zip(offset, extent, strict=True)):
        if size < 0 or start < 0 or start + size > array.shape[axis]:
            raise RunError(
                kernel=node,
                detail=f"{name} axis {axis}: [{start}, {start + size}) is outside of [0, {array.shape[axis]})",
                remedy="the bounds proof names the access",
            )
    return array[tuple(slice(start, start + size) for start, size in zip(offset, extent, strict=True))]


@dataclass(slots=True)
class Memory:
    """Arrays by buffer name, one dictionary a scope, inner scopes first."""

    arrays: dict[str, Array]
    outer: Memory | None = None

    def find(self, name: str) -> Array:
        """Return the array that an executor sees under that name."""
        scope: Memory | None = self
        while scope is not None:
            if name in scope.arrays:
                return scope.arrays[name]
            scope = scope.outer
        raise RunError(
            kernel=name, detail="the buffer does not exist where it is used", remedy="use it within its scope"
        )


@dataclass(slots=True)
class Phase:
    """An mbarrier: arrivals missing from and bytes expected in the current phase."""

    count: int
    missing: int
    bytes_pending: int = 0
    completed: int = 0

    def settle(self) -> None:
        """Complete the phase if all arrivals and bytes are there."""
        if self.missing == 0 and self.bytes_pending == 0:
            self.completed += 1
            self.missing = self.count


@dataclass(slots=True)
class Flight:
    """An accumulator that unfinished matrix operations own: its value, and how many are to come."""

    value: Array
    pending: int = 0


@dataclass(slots=True)
class Executor:
    """One thread of the team, or one subgroup: its values, memory, and unfinished asynchronous work."""

    name: str
    rank: int
    size: int
    env: dict[str, Any]
    memory: Memory
    domain: Domain
    open_copies: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    groups: list[list[Callable[[], None]]] = field(default_factory=list[list[Callable[[], None]]])
    open_products: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    product_groups: list[list[Callable[[], None]]] = field(default_factory=list[list[Callable[[], None]]])
    in_flight: dict[tuple[str, tuple[int, ...]], Flight] = field(
        default_factory=dict[tuple[str, tuple[int, ...]], Flight]
    )
    visits: dict[int, int] = field(default_factory=dict[int, int])

    def drain(self, groups: list[list[Callable[[], None]]], pending: int) -> None:
        """Complete all but the latest ``pending`` groups, oldest first."""
        if pending < 0:
            raise RunError(
                kernel=self.name, detail=f"a wait for all but {pending} groups", remedy="pending is at least 0"
            )
        while len(groups) > pending:
            for finish in groups.pop(0):
                finish()


@dataclass(slots=True)
class Domain:
    """Executors that meet at barriers: a team, or a block, with its mbarriers and its shared task queues."""

    name: str
    members: int = 0
    standing: int = 0
    generation: int = 0
    mbarriers: dict[tuple[str, int], Phase] = field(default_factory=dict[tuple[str, int], Phase])
    queues: dict[tuple[int, int], list[int]] = field(default_factory=dict[tuple[int, int], list[int]])

    def meet(self, what: str) -> Request:
        """Stand at the barrier and return the request that is ready when all members do."""
        self.standing += 1
        generation = self.generation
        self.release()
        return Request(what, ready=lambda: self.generation != generation)

    def leave(self) -> None:
        """Take a finished member out; the others no longer wait for it."""
        self.members -= 1
        self.release()

    def release(self) -> None:
        """Let the members through if all stand at the barrier."""
        if self.members > 0 and self.standing == self.members:
            self.standing = 0
            self.generation += 1


class Scheduler:
    """Advances one executor at a time, chosen by the seed; what may happen late happens when nobody can advance."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.late: list[Callable[[], None]] = []
        self._fibers: list[tuple[Steps, Request]] = []

    def spawn(self, steps: Steps) -> Callable[[], bool]:
        """Add an executor and return whether it has finished."""
        done = [False]

        def tracked() -> Steps:
            yield from steps
            done[0] = True

        self._fibers.append((tracked(), Request("start")))
        return lambda: done[0]

    def run(self) -> None:
        """Advance until all executors have finished.

        Raises:
            RunError: nobody can advance: a deadlock.
        """
        while self._fibers:
            able = [i for i, (_, request) in enumerate(self._fibers) if request.ready is None or request.ready()]
            if not able:
                if not self.late:
                    waiting = "; ".join(sorted({request.what for _, request in self._fibers}))
                    raise RunError(
                        kernel="interpreter", detail=f"deadlock: {waiting}", remedy="the slots proof names the wait"
                    )
                self.late.pop(self.random.randrange(len(self.late)))()
                continue
            chosen = self.random.choice(able)
            steps, _ = self._fibers.pop(chosen)
            request = next(steps, None)
            if request is not None:
                self._fibers.append((steps, request))
