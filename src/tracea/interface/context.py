"""Context: where graphs are optimized - a device, a number of threads, a cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tracea.core.graph import Graph, Node
from tracea.doctor import Decision
from tracea.errors import InvalidDevice, InvalidOption
from tracea.interface.optimized import Listener, Optimized, optimize_graph
from tracea.optimizer.budget import Budget
from tracea.runtime.native import check_threads, launcher

__all__ = ["Context", "PlannedProgram"]


class PlannedProgram:
    """A program bound to its plan: ``plan[node]`` says what runs a node and why, ``run`` runs the graph."""

    def __init__(self, optimized: Optimized) -> None:
        self._optimized = optimized
        self.program = optimized.compiled.program

    @property
    def plan(self) -> _NodePlan:
        """Decisions by node; a node that was fused answers with the node that it was fused into."""
        return _NodePlan(self._optimized)

    def run(self, *arrays: Any, out: Any = None) -> Any:
        """Run on arrays of the graph's input types, in the order in which the inputs were added."""
        return self.program.run(*arrays, out=out, threads=self._optimized.threads)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program with its sources and constants; ``tracea.load(path)`` reads it, also on another machine of the same kind."""
        self.program.save(Path(path))

    def explain(self) -> str:
        """Return what was fused, chosen and rejected, as text."""
        return self._optimized.explain()


class _NodePlan:
    def __init__(self, optimized: Optimized) -> None:
        self._optimized = optimized

    def __getitem__(self, node: Node | str) -> Decision:
        """Return the decision of a node of the graph as it was built, or as it was optimized."""
        return self._optimized.compiled.plan[self._optimized.compiled.graph[node].id]

    def __iter__(self) -> Any:
        return iter(self._optimized.compiled.plan)

    def __len__(self) -> int:
        return len(self._optimized.compiled.plan)


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
            if not os.fspath(cache_dir):
                raise InvalidOption(
                    field="cache_dir", got="", expected="a directory", remedy="cache_dir=None for the default"
                )
            os.environ["TRACEA_CACHE_DIR"] = os.fspath(cache_dir)

    def optimize_graph(
        self,
        graph: Graph,
        values: Any = None,
        *,
        budget: Budget | None = None,
        library: bool = True,
        listener: Listener | None = None,
    ) -> PlannedProgram:
        """Return the graph's program and plan; schedules are searched within ``budget`` trials an op (None: what is known, no search).

        ``values`` gives the data of the graph's constants by id, as NumPy arrays.
        """
        count = self.threads or launcher().threads()
        optimized = optimize_graph(graph, values, budget=budget, threads=count, library=library, listener=listener)
        return PlannedProgram(optimized)
