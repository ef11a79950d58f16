"""Context: where graphs are optimized - a device, a number of threads, a cache."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tracea.core.dtype import DType
from tracea.core.graph import Graph, Node
from tracea.core.names import as_given
from tracea.doctor import Decision
from tracea.error_fields import plain_field
from tracea.errors import InvalidDevice, InvalidOption
from tracea.flow.asked import check_library, check_listener
from tracea.flow.compile import Compiled
from tracea.flow.progress import Listener, shown_unless_heard
from tracea.interface.optimized import Optimized, optimize_graph
from tracea.interface.ranges import check_exact_numbers
from tracea.optimizer.budget import Budget, check_budget
from tracea.runtime.native import check_threads
from tracea.runtime.process_bound import ProcessBound
from tracea.runtime.program import Program
from tracea.runtime.storage import load as load_program

__all__ = ["Context", "NodePlan", "PlannedProgram", "RunnableProgram", "load"]


class RunnableProgram(ProcessBound):
    """A program with the number of threads that it was made for; ``tracea.load`` returns one."""

    def __init__(self, program: Program, threads: int | None = None) -> None:
        self.program = program
        self.threads = threads
        self._counted = tuple(index for index, each in enumerate(program.inputs) if each.dtype is DType.I64)

    def __repr__(self) -> str:
        given, made = (", ".join(map(str, types)) for types in (self.program.inputs, self.program.outputs))
        threads = "default" if self.threads is None else self.threads
        return f"{type(self).__name__}({given} -> {made}, {len(self.program.calls)} calls, threads={threads})"

    def run(self, *inputs: Any, out: Any = None) -> Any:
        """Run on torch tensors or NumPy arrays and return one result, or a tuple where the graph has several outputs.

        ``run(x, w)`` and ``run([x, w])`` give the inputs in the order in which they were added to the graph.

        Raises: InvalidShape, InvalidDType, InvalidStride, InvalidDevice: an input does not fit. OverlappingOutput.
            InvalidInput: an int64 is beyond 2^53, up to which f64 counts, in which kernels compute integers.
        """
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            raise InvalidOption(
                field="inputs",
                got="a dict",
                expected="arrays in order",
                remedy="a loaded program does not know the names: give its inputs in the order of the graph's",
            )
        if len(inputs) == 1 and isinstance(inputs[0], list | tuple):
            inputs = tuple(cast("Sequence[Any]", inputs[0]))
        for index in self._counted:
            if index < len(inputs):
                check_exact_numbers(inputs[index], 1, "integers", field=f"inputs[{index}]")
        return self.program.run(*inputs, out=out, threads=self.threads)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program with its sources and constants, for ``tracea.load`` on a machine of the same kind.

        Raises: InvalidOption: ``path`` is none.
        """
        if not _is_path(path):
            raise InvalidOption(field="path", got=as_given(path), expected="a file to write", remedy="give its path")
        self.program.save(Path(path))


class PlannedProgram(RunnableProgram):
    """A program bound to its plan: ``plan[node]`` says what runs a node and why."""

    def __init__(self, optimized: Optimized) -> None:
        super().__init__(optimized.compiled.program, optimized.threads)
        self._optimized = optimized

    @property
    def plan(self) -> NodePlan:
        """Decisions by node."""
        return NodePlan(self._optimized.compiled)

    def run(self, *inputs: Any, out: Any = None) -> Any:
        """Run as ``RunnableProgram.run``; ``run({"x": x, "w": w})`` gives the inputs by name.

        Raises: InvalidOption: a name is missing, or is none of the graph's; else as ``RunnableProgram.run``.
        """
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            inputs = self._in_order(cast("Mapping[str, Any]", inputs[0]))
        return super().run(*inputs, out=out)

    def explain(self) -> str:
        """Return what was fused, chosen and rejected, as text."""
        return self._optimized.explain()

    def _in_order(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        wanted = [node.id for node in self._optimized.captured.inputs]
        if set(named) != set(wanted):
            raise InvalidOption(
                field="inputs", got=sorted(named, key=str), expected=wanted, remedy="give each input by its name"
            )
        return tuple(named[name] for name in wanted)


class NodePlan:
    """Decisions by node of the graph as it was built; a node that was fused answers with the one that it went into."""

    def __init__(self, compiled: Compiled) -> None:
        self._plan = compiled.plan
        self._into = {part: node.id for node in compiled.graph for part in node.fused}

    def __getitem__(self, node: Node | str) -> Decision:
        """Return the decision of a node.

        Raises: InvalidOption: nothing runs it: it is an input, a view or dead, or its value was known beforehand.
        """
        if not isinstance(node, Node | str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(
                field="node", got=node, expected=tuple(self._plan), remedy="ask by a node or by its id, which is text"
            )
        name = node if isinstance(node, str) else node.id
        return self._plan[self._into.get(name, name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plan)

    def __len__(self) -> int:
        return len(self._plan)

    def __repr__(self) -> str:
        return f"Node{self._plan!r}"

    def __str__(self) -> str:
        return self.explain()

    def explain(self) -> str:
        """Return all decisions as text."""
        return self._plan.explain()


def load(path: str | os.PathLike[str]) -> RunnableProgram:
    """Return the program that ``save`` wrote, ready for this machine.

    Raises: InvalidOption: there is no such file, it cannot be read, is damaged or not a program. CompileError.
        ToolchainMissing: no compiler, and the libraries in the file are for another architecture.
    """
    try:
        Path(path).open("rb").close()
    except (OSError, ValueError, TypeError) as error:  # ValueError: a null byte, or no Unicode; TypeError: no path
        raise InvalidOption(
            field="path",
            got=f"{plain_field(as_given(path))}: {getattr(error, 'strerror', None) or error}",
            expected="a file that program.save wrote",
            remedy=f"give the path of one that this user can read; relative paths begin at {Path.cwd()}",
        ) from error
    return RunnableProgram(load_program(path))


def _is_path(given: Any) -> bool:
    """Whether a file system takes it for a path: text without a null byte that it can encode."""
    try:
        path = cast("object", os.fspath(given))
        return isinstance(path, str) and path != "" and b"\0" not in os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        return False


class Context:
    """Optimizes graphs for this machine.

    ``threads`` None is what the process uses by default; ``cache_dir`` replaces TRACEA_CACHE_DIR for this process.

    Raises:
        InvalidDevice: the device is not this machine's CPU. InvalidOption: the number of threads is none.
    """

    def __init__(
        self, device: str = "auto", threads: int | None = None, cache_dir: str | os.PathLike[str] | None = None
    ) -> None:
        if device not in ("auto", "cpu"):
            raise InvalidDevice(field="device", got=device, expected="auto | cpu", remedy="use the CPU")
        check_threads(threads)
        self.device = "cpu"
        self.threads = threads
        if cache_dir is not None:
            if not _is_path(cache_dir):
                raise InvalidOption(
                    field="cache_dir",
                    got=as_given(cache_dir),
                    expected="a directory",
                    remedy="cache_dir=None for the default",
                )
            os.environ["TRACEA_CACHE_DIR"] = os.path.abspath(cache_dir)  # as it is meant now, wherever one goes

    def __repr__(self) -> str:
        return f"Context(device={self.device!r}, threads={self.threads})"

    def optimize_graph(
        self,
        graph: Graph,
        values: Any = None,
        *,
        budget: Budget | None = None,
        library: bool = True,
        listener: Listener | None = None,
    ) -> PlannedProgram:
        """Return the graph's program and plan; schedules are searched within ``budget`` trials an op.

        ``budget`` None searches nothing: what earlier searches found is used, and scores decide the rest.
        ``values`` gives the data of the graph's constants by id: NumPy arrays or PyTorch tensors.
        ``listener(label, progress)`` hears of each trial; without one, what takes longer than a second shows its
        steps on standard error.
        """
        allowed = check_budget(budget)
        check_listener(listener)
        check_library(library)
        with shown_unless_heard(listener) as heard:
            optimized = optimize_graph(
                graph, values, budget=allowed, threads=self.threads, library=library, listener=heard
            )
        return PlannedProgram(optimized)
