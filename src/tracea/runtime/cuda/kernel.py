"""GpuKernel: a compiled kernel on one device, launched with addresses and integers; its workspace is its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from tracea.emitters.kernel_source import KernelSource
from tracea.errors import InvalidShape, RunError
from tracea.runtime.cuda.binding import BoundLaunch, bind, blocks_of, launch_of
from tracea.runtime.cuda.driver import Driver, Function
from tracea.semantic.index import TRUE, Predicate

__all__ = ["GpuKernel"]


class GpuKernel:
    """One kernel, loaded; ``launch`` may be called from several threads, each with a stream of its own.

    ``assumptions`` is the guard that the kernel was proved under: a launch that breaks it is refused. Workspace is
    kept per stream, since launches of one stream follow one another and those of two do not.
    """

    def __init__(self, driver: Driver, source: KernelSource, cubin: bytes, *, assumptions: Predicate = TRUE) -> None:
        self.source = source
        self._driver = driver
        self._assumptions = assumptions
        shared_bytes = launch_of(source).shared_bytes
        self._function: Function | None = driver.load(cubin, source.name, shared_bytes=shared_bytes)
        self._streams: set[int] = set()  # in which it was started
        self._workspace: dict[tuple[int, str], tuple[int, int]] = {}
        self._outgrown: list[int] = []  # launches that were bound before may still be started
        self._lock = threading.Lock()

    def bind(
        self,
        *,
        pointers: Mapping[str, int],
        integers: Mapping[str, int],
        scalars: Mapping[str, float] | None = None,
        tables: Mapping[str, int] | None = None,
        stream: int = 0,
    ) -> BoundLaunch:
        """Return one launch, checked; it may be started many times.

        Raises:
            InvalidShape: the kernel's guard does not hold for these integers.
            InvalidInput: see :func:`tracea.runtime.cuda.binding.bind`.
            RunError: the kernel is closed.
        """
        self._open()
        if not self._assumptions.evaluate(dict(integers)):
            raise InvalidShape(
                field=self.source.name,
                got=dict(integers),
                expected=str(self._assumptions),
                remedy="build the kernel for this problem: its schedule is for another",
            )
        blocks_of(self.source, integers)  # before any memory is asked for
        return bind(
            self.source,
            pointers=pointers,
            integers=integers,
            scalars=scalars,
            tables=tables,
            workspace=self._space(integers, stream),
            encode=self._driver.encode,
        )

    def start(self, bound: BoundLaunch, *, stream: int = 0) -> None:
        """Start a launch that ``bind`` made for the same stream.

        Raises:
            RunError: the kernel is closed, or the device refuses.
        """
        function = self._open()
        self._streams.add(stream)
        self._driver.launch(function, bound, stream=stream)

    def launch(self, *, stream: int = 0, **arguments: Any) -> None:
        """Bind and start."""
        self.start(self.bind(stream=stream, **arguments), stream=stream)

    def close(self) -> None:
        """Give workspace and code back, once no stream of it is at work; a graph of it must not be started again."""
        with self._lock:
            function, self._function = self._function, None
            if function is None:
                return
            for stream in self._streams | {stream for stream, _ in self._workspace}:
                self._driver.synchronize(stream)
            for address in (*self._outgrown, *(address for address, _ in self._workspace.values())):
                self._driver.release(address)
            self._outgrown.clear()
            self._workspace.clear()
            self._driver.unload(function)

    def _open(self) -> Function:
        if self._function is None:
            raise RunError(kernel=self.source.name, detail="the kernel is closed", remedy="load it again")
        return self._function

    def _space(self, integers: Mapping[str, int], stream: int) -> dict[str, int]:
        found: dict[str, int] = {}
        with self._lock:
            for name, size in launch_of(self.source).workspace:
                needed = int(size.evaluate(dict(integers)))
                address, there = self._workspace.get((stream, name), (0, -1))
                if there < needed:
                    if there >= 0:
                        self._outgrown.append(address)
                    address = self._driver.allocate(needed)
                    self._workspace[stream, name] = (address, needed)
                found[name] = address
        return found
