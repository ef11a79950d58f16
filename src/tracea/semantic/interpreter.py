"""The interpreter: runs a TileKernel sequentially and adversarially, with checked accesses and poisoned scratch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tracea.errors import InvalidInput, RunError
from tracea.semantic import execute
from tracea.semantic.execute_attention import attend
from tracea.semantic.execute_attention_gradient import differentiate
from tracea.semantic.execute_norm_gradient import NORMS
from tracea.semantic.execute_sparse import sum_runs
from tracea.semantic.execute_winograd import TRANSFORMS
from tracea.semantic.machine import (
    Array,
    Domain,
    Executor,
    Memory,
    Phase,
    Request,
    Scheduler,
    Steps,
    allocate,
    bind,
    poison,
)
from tracea.semantic.nodes import Barrier, Block, For, If, Let, Level, Node, Parallel
from tracea.semantic.nodes_async import (
    AwaitFlag,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierWait,
    Roles,
    SegmentLoop,
    SignalFlag,
    TileLoop,
    TmaCopy,
    WaitGroup,
    WgmmaWait,
)
from tracea.semantic.nodes_attention import AttentionCombine, AttentionFinish, AttentionStart, AttentionStep
from tracea.semantic.nodes_attention_gradient import (
    AttentionDeltas,
    AttentionGradient,
    AttentionPeaks,
    AttentionSlopeEnd,
)
from tracea.semantic.nodes_spans import spans_fault
from tracea.semantic.nodes_sparse import RunProduct, runs_fault
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

__all__ = ["interpret"]

_TILES: Mapping[type[Node], Callable[[Any, Executor], None]] = {
    RunProduct: sum_runs,
    AttentionStart: attend,
    AttentionStep: attend,
    AttentionFinish: attend,
    AttentionCombine: attend,
    AttentionPeaks: differentiate,
    AttentionDeltas: differentiate,
    AttentionGradient: differentiate,
    AttentionSlopeEnd: differentiate,
    **NORMS,
    **TRANSFORMS,
}


def interpret(
    kernel: TileKernel,
    buffers: Mapping[str, Array],
    params: Mapping[str, int],
    *,
    threads: int = 2,
    seed: int = 0,
    tables: Mapping[str, Any] | None = None,
    scalars: Mapping[str, float] | None = None,
) -> dict[str, Array]:
    """Run the kernel on the caller's arrays and return its outputs, which were poisoned first and are written in place.

    Arrays are addressed by the kernel's own shapes and strides. ``threads`` is the size of a CPU team; the order of
    tasks, of blocks and of everything that may happen late is drawn from ``seed``.

    Raises:
        InvalidInput: a parameter is missing or out of its range, an assumption is false, an array does not fit.
        RunError: an access out of bounds, or a deadlock.
    """
    return _Run(kernel, threads, seed, {**(tables or {})}, {**(scalars or {})}).run(buffers, params)


class _Run:
    def __init__(
        self, kernel: TileKernel, threads: int, seed: int, tables: dict[str, Any], scalars: dict[str, float]
    ) -> None:
        self.kernel = kernel
        self.threads = threads
        self.scheduler = Scheduler(seed)
        self.scalars = scalars
        self.tables = tables

    def run(self, buffers: Mapping[str, Array], params: Mapping[str, int]) -> dict[str, Array]:
        env: dict[str, Any] = {**self.tables, **self._params(params)}
        self._check_tables(env)
        arrays: dict[str, Array] = {}
        for buffer in self.kernel.buffers_in(MemorySpace.GLOBAL):
            if buffer.role is BufferRole.SCRATCH:
                arrays[buffer.name] = buffers[buffer.name] if buffer.name in buffers else allocate(buffer, env)
                continue
            if buffer.name not in buffers:
                raise InvalidInput(field=buffer.name, got="no array", remedy="bind every input, constant and output")
            arrays[buffer.name] = bind(buffer, buffers[buffer.name], env)
            if buffer.role is BufferRole.OUTPUT:
                arrays[buffer.name][...] = poison(arrays[buffer.name].dtype)
        grid = any(isinstance(node, Parallel) and node.level is Level.BLOCK for node in self.kernel.body.walk())
        team = Memory({} if grid else self._allocate(MemorySpace.TEAM, env), Memory(arrays))
        domain = Domain("team")
        size = 1 if grid else self.threads
        for rank in range(size):
            name = f"thread {rank}"
            self._start(
                self.kernel.body, name, rank=rank, size=size, env=env, memory=team, domain=domain, private=not grid
            )
        self.scheduler.run()
        return {b.name: arrays[b.name] for b in self.kernel.buffers if b.role is BufferRole.OUTPUT}

    def _params(self, params: Mapping[str, int]) -> dict[str, int]:
        env: dict[str, int] = {}
        for param in self.kernel.params:
            if param.name not in params or not param.minimum <= params[param.name] <= param.maximum:
                raise InvalidInput(
                    field=param.name,
                    got=params.get(param.name),
                    expected=f"{param.minimum} .. {param.maximum}",
                    remedy="bind every parameter within its range",
                )
            env[param.name] = int(params[param.name])
        if not self.kernel.assumptions.evaluate({**self.tables, **env}):
            raise InvalidInput(
                field="assumptions",
                got=env,
                expected=str(self.kernel.assumptions),
                remedy="this kernel is for other arguments",
            )
        return env

    def _check_tables(self, env: Mapping[str, Any]) -> None:
        for table in self.kernel.tables:
            entries = np.asarray(env[table.name])
            low, high = table.minimum.evaluate(env), table.maximum.evaluate(env)
            twice = table.permutation and len(np.unique(entries)) != len(entries)
            if table.ascending and (np.any(np.diff(entries) < 0) or [*entries[:1], *entries[-1:]] != [low, high]):
                raise InvalidInput(
                    field=table.name,
                    got=entries.tolist(),
                    expected=f"entries that ascend from {low} to {high}",
                    remedy="recompute the table",
                )
            if twice or len(entries) != table.length.evaluate(env) or np.any((entries < low) | (entries > high)):
                raise InvalidInput(
                    field=table.name,
                    got=entries.tolist(),
                    expected=f"entries in {low} .. {high}" + (", each once" if table.permutation else ""),
                    remedy="recompute the table",
                )

        for runs in {node.runs for node in self.kernel.body.walk() if isinstance(node, RunProduct)}:
            fault = runs_fault(runs, env)
            if fault:
                raise InvalidInput(field=runs.first, got=fault, expected="the runs of a tile table", remedy="build one")
        steps = (node for node in self.kernel.body.walk() if isinstance(node, AttentionStep))
        for spans in {step.span.tables for step in steps if step.span is not None}:
            fault = spans_fault(spans, env)
            if fault:
                raise InvalidInput(
                    field=spans.first, got=fault, expected="the spans of a tile table", remedy="build one"
                )

    def _allocate(self, *spaces_then_env: Any) -> dict[str, Array]:
        *spaces, env = spaces_then_env
        return {b.name: allocate(b, env) for space in spaces for b in self.kernel.buffers_in(space)}

    def _start(
        self,
        body: Block,
        name: str,
        *,
        rank: int,
        size: int,
        env: Mapping[str, Any],
        memory: Memory,
        domain: Domain,
        private: bool,
    ) -> Any:
        if private:
            memory = Memory(self._allocate(MemorySpace.THREAD, MemorySpace.REGISTER, env), memory)
            domain.members += 1
        executor = Executor(name, rank, size, dict(env), memory, domain)

        def steps() -> Steps:
            yield from self._block(body, executor)
            if executor.open_products or executor.product_groups:
                raise RunError(kernel=self.kernel.name, detail=f"{name} ends with matrix operations not waited for")
            if private:
                domain.leave()

        return self.scheduler.spawn(steps())

    def _block(self, body: Block, executor: Executor) -> Steps:
        for node in body.nodes:
            yield from self._node(node, executor)

    def _node(self, node: Node, executor: Executor) -> Steps:
        env = executor.env
        match node:
            case Block():
                yield from self._block(node, executor)
            case For():
                for value in range(0, int(node.extent.evaluate(env)), self._step(node, env)):
                    self._bind_loop(node, executor, value)
                    yield from self._block(node.body, executor)
            case Parallel():
                yield from self._parallel(node, executor)
            case If():
                yield from self._block(node.then if node.predicate.evaluate(env) else node.otherwise, executor)
            case Let():
                env[node.var.name] = node.value.evaluate(env)
            case Barrier():
                if node.level is Level.SUBGROUP or not executor.domain.members:
                    return  # its lanes are one executor; directly under a block nobody else is running yet
                yield executor.domain.meet(f"{executor.name} at a barrier of {executor.domain.name}")
            case Roles():
                finished = [
                    self._start(
                        role.body,
                        f"{role.name} {index}",
                        rank=index,
                        size=role.executors,
                        env={**env, role.index.name: index},
                        memory=executor.memory,
                        domain=executor.domain,
                        private=True,
                    )
                    for role in node.roles
                    for index in range(role.executors)
                ]
                yield Request("roles", ready=lambda: all(done() for done in finished))
            case SegmentLoop() | TileLoop():
                yield from self._walk(node, executor)
            case WaitGroup():
                yield Request("reschedule")  # others may run while this copy is still under way
                executor.drain(executor.groups, int(node.pending.evaluate(env)))
            case WgmmaWait():
                yield Request("reschedule")
                executor.drain(executor.product_groups, int(node.pending.evaluate(env)))
            case MbarrierInit() | MbarrierExpect() | MbarrierArrive() | MbarrierWait() | TmaCopy():
                yield from self._mbarrier(node, executor)
            case SignalFlag():
                execute.region(node.flag, executor, node)[...] = 1
            case AwaitFlag():
                flag = execute.region(node.flag, executor, node)
                yield Request(f"{executor.name} awaits {node.flag}", ready=lambda: bool(np.all(flag == 1)))
            case _:
                _TILES.get(type(node), self._leaf)(node, executor)

    def _leaf(self, node: Node, executor: Executor) -> None:
        execute.leaf(node, executor, self.kernel, self.scalars)

    def _parallel(self, node: Parallel, executor: Executor) -> Steps:
        env = executor.env
        step = self._step(node, env)
        values = list(range(0, int(node.extent.evaluate(env)), step))
        match node.level:
            case Level.TASK:
                visit = executor.visits[id(node)] = executor.visits.get(id(node), 0) + 1
                queue = executor.domain.queues.setdefault((id(node), visit), self._shuffled(values))
                yield Request("reschedule")
                while queue:
                    self._bind_loop(node, executor, queue.pop())
                    yield from self._block(node.body, executor)
                    yield Request("reschedule")
            case Level.TEAM:
                count = len(values)
                begin, end = count * executor.rank // executor.size, count * (executor.rank + 1) // executor.size
                for value in values[begin:end]:
                    self._bind_loop(node, executor, value)
                    yield from self._block(node.body, executor)
                    yield Request("reschedule")
            case Level.LANE:
                for value in self._shuffled(values):
                    self._bind_loop(node, executor, value)
                    yield from self._block(node.body, executor)
            case Level.BLOCK | Level.SUBGROUP | Level.ROLE:
                finished: list[Any] = []
                for value in self._shuffled(values):
                    self._bind_loop(node, executor, value)
                    if node.level is Level.BLOCK:
                        memory = Memory(self._allocate(MemorySpace.TEAM, env), executor.memory)
                        start = replace(executor, env=dict(env), memory=memory, domain=Domain(f"block {value}"))
                        finished.append(self.scheduler.spawn(self._block(node.body, start)))
                    else:
                        name = f"{node.level.value} {value} of {executor.domain.name}"
                        finished.append(
                            self._start(
                                node.body,
                                name,
                                rank=value,
                                size=len(values),
                                env=env,
                                memory=executor.memory,
                                domain=executor.domain,
                                private=True,
                            )
                        )
                yield Request(node.level.value, ready=lambda: all(done() for done in finished))

    def _segments(self, node: SegmentLoop, executor: Executor) -> Steps:
        env = executor.env
        worker, workers = int(node.worker.evaluate(env)), int(node.workers.evaluate(env))
        tiles, steps = int(node.tiles.evaluate(env)), int(node.steps.evaluate(env))
        position, end = worker * tiles * steps // workers, (worker + 1) * tiles * steps // workers
        while position < end:
            tile, first = divmod(position, steps)
            count = min(steps - first, end - position)
            last = ((tile + 1) * steps * workers - 1) // (tiles * steps)
            env.update({node.tile.name: tile, node.first.name: first, node.count.name: count, node.last.name: last})
            yield from self._block(node.body, executor)
            position += count

    def _walk(self, node: SegmentLoop | TileLoop, executor: Executor) -> Steps:
        yield from self._segments(node, executor) if isinstance(node, SegmentLoop) else self._turns(node, executor)

    def _turns(self, node: TileLoop, executor: Executor) -> Steps:
        env = executor.env
        worker, workers = int(node.worker.evaluate(env)), int(node.workers.evaluate(env))
        tiles, steps = int(node.tiles.evaluate(env)), int(node.steps.evaluate(env))
        turn, shares = int(node.share.evaluate(env)), int(node.shares.evaluate(env))
        if min(workers, shares) < 1:
            raise RunError(kernel=self.kernel.name, detail=f"turns of {workers} workers in {shares} shares")
        while worker + turn * workers < tiles:
            tile = worker + turn * workers
            env.update({node.tile.name: tile, node.turn.name: turn, node.first.name: turn * steps})
            yield from self._block(node.body, executor)
            turn += shares

    def _mbarrier(
        self, node: MbarrierInit | MbarrierExpect | MbarrierArrive | MbarrierWait | TmaCopy, executor: Executor
    ) -> Steps:
        env, barriers = executor.env, executor.domain.mbarriers
        key = (node.barrier, int(node.slot.evaluate(env)))
        if isinstance(node, MbarrierInit):
            count = int(node.count.evaluate(env))
            barriers[key] = Phase(count=count, missing=count)
            return
        if key not in barriers:
            raise RunError(kernel=self.kernel.name, detail=f"{executor.name} uses mbarrier {key} before it is set up")
        phase = barriers[key]
        match node:
            case MbarrierExpect():
                phase.bytes_pending += int(node.nbytes.evaluate(env))
                self._arrive(phase, key)
            case MbarrierArrive():
                self._arrive(phase, key)
            case TmaCopy():
                self.scheduler.late.append(execute.tma(node, executor, phase))
            case MbarrierWait():
                parity = int(node.parity.evaluate(env)) % 2
                yield Request(
                    f"{executor.name} waits for parity {parity} of {key}",
                    ready=lambda: (phase.completed + 1) % 2 == parity,
                )

    def _arrive(self, phase: Phase, key: object) -> None:
        if phase.missing == 0:
            raise RunError(
                kernel=self.kernel.name, detail=f"more arrivals at mbarrier {key} than its count {phase.count}"
            )
        phase.missing -= 1
        phase.settle()

    def _step(self, node: For | Parallel, env: Mapping[str, Any]) -> int:
        step = int(node.step.evaluate(env))
        if step < 1:
            raise RunError(kernel=self.kernel.name, detail=f"loop {node.var} has step {step}")
        return step

    def _bind_loop(self, node: For | Parallel, executor: Executor, value: int) -> None:
        env = executor.env
        env[node.var.name] = value
        if node.length is not None:
            env[node.length.name] = min(int(node.step.evaluate(env)), int(node.extent.evaluate(env)) - value)

    def _shuffled(self, values: list[int]) -> list[int]:
        self.scheduler.random.shuffle(shuffled := list(values))
        return shuffled
