"""From a graph and its decisions to a Program: kernels compiled, weights packed once, memory planned."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from tracea.core.graph import Graph, Node
from tracea.core.op import WITHOUT_KERNEL, Epilogue, GemmOp, PointwiseOp, SourceKind, SourceOp, ViewOp
from tracea.core.passes.draft import Draft
from tracea.core.passes.memory import BufferKind, MemoryPlan, plan_memory
from tracea.core.tensor_type import TensorType
from tracea.doctor import Decision
from tracea.emitters.kernel_source import KernelSource
from tracea.errors import EmitError, InvalidOption, InvalidShape
from tracea.flow.kernel import Built, build, build_pack, print_unproved
from tracea.flow.phases import phase
from tracea.flow.room import require_memory
from tracea.kernels.arguments import arguments, buffer_types, operand_buffers, result_offsets
from tracea.kernels.operands import bind
from tracea.kernels.registry import find
from tracea.kernels.variant import Variant
from tracea.runtime.at_once import beside
from tracea.runtime.buffers import aligned_empty
from tracea.runtime.compiler import LoadedKernel, compile
from tracea.runtime.library import LibraryCall, LibraryFunction
from tracea.runtime.program import ArenaSlot, Call, ConstantSlot, InputSlot, OutputSlot, Program, Slot
from tracea.runtime.unit import by_code
from tracea.semantic.schedule import Schedule
from tracea.targets.target import Target

__all__ = ["Assembled", "Values", "assemble", "compute_nodes", "constant_operands", "split_library_epilogues"]

Values: TypeAlias = Mapping[str, np.ndarray[Any, Any]]

# Operations and bytes below which a fork-join costs more than a second thread saves (about 20 µs).
_SMALL_WORK: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A runnable program with the kernels that it is made of, by node; a node that a library runs has none."""

    program: Program
    kernels: Mapping[str, Built] = field(default_factory=dict[str, Built])


def compute_nodes(graph: Graph) -> tuple[Node, ...]:
    """Return the nodes that do work: neither sources, views nor joins."""
    return tuple(node for node in graph if not isinstance(node.op, WITHOUT_KERNEL))


def constant_operands(graph: Graph, node: Node) -> frozenset[int]:
    """Return which operands of a node are known before a run: constants, or views of one."""
    return frozenset(index for index, name in enumerate(node.inputs) if _is_constant(graph, graph[name]))


def _is_constant(graph: Graph, node: Node) -> bool:
    while isinstance(node.op, ViewOp):
        node = graph[node.inputs[0]]
    return isinstance(node.op, SourceOp) and node.op.kind is SourceKind.CONSTANT


def split_library_epilogues(graph: Graph, library: Iterable[str]) -> tuple[Graph, dict[str, str]]:
    """Return the graph in which each named GEMM is a plain product, followed by its epilogue as a pointwise op of ours.

    The pointwise op keeps the node's id, so that whatever reads the value still finds it; the second result gives the
    product's id for each node that was parted.
    """
    draft = Draft(graph)
    products: dict[str, str] = {}
    for name in library:
        node = draft.nodes[name]
        op = node.op
        if not isinstance(op, GemmOp) or op.epilogue.is_identity:
            continue
        products[name] = f"{name}.product"
        while products[name] in draft.nodes:
            products[name] += "'"
        plain = replace(op, epilogue=Epilogue.identity(), out=None)
        inputs = (plain.infer(), *op.epilogue.operands)
        tail = PointwiseOp(expr=op.epilogue.expr, inputs=inputs, out_dtype=op.infer().dtype)
        draft.put(Node(id=products[name], op=plain, inputs=node.inputs[:2]))
        draft.put(Node(id=name, op=tail, inputs=(products[name], *node.inputs[2:]), fused=node.fused))
    return draft.finish(), products


def assemble(
    graph: Graph, values: Values, decisions: Mapping[str, Decision], target: Target, *, name: str = "program"
) -> Assembled:
    """Return the program of an optimized graph under its decisions.

    ``values`` gives the data of the graph's constants by id. Each node whose result has elements needs a decision.

    Raises:
        InvalidOption: a constant has no data. ProofFailed, EmitError, CompileError, ToolchainMissing.
    """
    missing = sorted(set(graph.constants) - set(values))
    if missing:
        raise InvalidOption(
            field="values", got=sorted(values), expected=missing, remedy="give the data of each constant"
        )
    return _Assembly(graph, values, decisions, target).finish(name)


class _Assembly:
    """The state of one assembly: what was built, the constants so far, and where each value lives."""

    def __init__(self, graph: Graph, values: Values, decisions: Mapping[str, Decision], target: Target) -> None:
        self.graph = graph
        self.values = values
        self.decisions = decisions
        self.target = target
        self.plan: MemoryPlan = plan_memory(graph)
        self.inputs = {node.id: index for index, node in enumerate(graph.inputs)}
        self.outputs = {node.id: index for index, node in enumerate(graph.outputs)}
        self.constants: list[np.ndarray[Any, Any]] = []
        self.constant_index: dict[str, int] = {}
        self.packed_index: dict[tuple[str, str], int] = {}  # by the operand and the kernel that packs it

    def finish(self, name: str) -> Assembled:
        require_memory(
            f"the intermediate results of {name}",
            self.plan.arena_bytes,
            remedy="split the graph's inputs, and run it on one part after the other",
        )
        nodes = [node for node in compute_nodes(self.graph) if node.type.elements > 0]
        ours = [node for node in nodes if not self._variant(node).is_library]
        packing = [node for node in ours if self._packed_operand(node) is not None]
        with self._compiled(ours, packing) as compiled:
            built = {node.id: self._build(node, build) for node in ours}
            packs = {node.id: self._build(node, build_pack) for node in packing}
            loaded = {kernel.name: kernel for kernel in compiled()}
        calls: list[Call] = []
        for node in nodes:
            if node.id not in built:
                calls.append(self._library_call(node))
                continue
            packed = self._packed_operand(node)
            slots = [
                self._packed(node, index, packs[node.id], loaded[packs[node.id].source.name])
                if index == packed
                else self._slot(name)
                for index, name in enumerate(node.inputs)
            ]
            calls.append(self._kernel_call(node, loaded[built[node.id].source.name], built[node.id], slots))
        program = Program(
            calls=tuple(calls),
            inputs=tuple(node.type for node in self.graph.inputs),
            outputs=tuple(node.type for node in self.graph.outputs),
            constants=tuple(self.constants),
            arena_bytes=self.plan.arena_bytes,
            name=name,
        )
        return Assembled(program=program, kernels=built)

    @contextlib.contextmanager
    def _compiled(
        self, ours: Sequence[Node], packing: Sequence[Node]
    ) -> Generator[Callable[[], tuple[LoadedKernel, ...]]]:
        """Compile the kernels of nodes while the block proves them; what it is given waits for the compilers."""
        try:
            sources = {source.name: source for source in (*self._texts(ours), *self._texts(packing, is_pack=True))}
        except EmitError:
            sources: dict[str, KernelSource] = {}  # the block meets it too, and proves the kernel first
        count = len({by_code(source).name for source in sources.values()})
        step = f"compile {count} kernel{'s' if count > 1 else ''}"
        with beside(lambda: compile(tuple(sources.values()), before=lambda: phase(step))) as compiled:
            yield compiled

    def _texts(self, nodes: Sequence[Node], *, is_pack: bool = False) -> list[KernelSource]:
        return [
            print_unproved(node.op, self.decisions[node.id].variant, self._schedule(node), self.target, is_pack=is_pack)
            for node in nodes
        ]

    def _variant(self, node: Node) -> Variant:
        return find(self.decisions[node.id].variant)

    def _schedule(self, node: Node) -> Schedule:
        return self.decisions[node.id].schedule or Schedule()

    def _build(self, node: Node, how: Callable[..., Built]) -> Built:
        return how(node.op, self.decisions[node.id].variant, self._schedule(node), self.target, kept=True)

    def _packed_operand(self, node: Node) -> int | None:
        return self._variant(node).constant_operand

    def _packed(self, node: Node, operand: int, pack: Built, kernel: LoadedKernel) -> Slot:
        """Pack a node's weight now, unless one like it has packed the same, and return where it lies."""
        known = (node.inputs[operand], pack.source.name)
        if known in self.packed_index:
            return ConstantSlot(self.packed_index[known])
        chosen = self._variant(node)
        assert chosen.pack_type is not None  # a variant that packs says the type
        packed_type = chosen.pack_type(node.op, self._schedule(node), self.target)
        packed = aligned_empty(
            packed_type.static_shape, packed_type.dtype
        )  # huge pages: a weight is read whole each run
        (source,) = operand_buffers(pack.kernel)
        types = {source.name: buffer_types(pack.kernel)[source.name], "panels": packed_type}
        call = Call.binding(
            kernel, pointers={source.name: InputSlot(0), "panels": OutputSlot(0)}, integers=bind(pack.kernel, types)
        )
        stored = node.op.operands[operand]
        program = Program(calls=(call,), inputs=(stored,), outputs=(packed_type,), name=f"pack {node.id}")
        program.run(self._constant_array(node.inputs[operand]), out=packed)
        self.constants.append(packed)
        self.packed_index[known] = len(self.constants) - 1
        return ConstantSlot(self.packed_index[known])

    def _constant_array(self, name: str) -> np.ndarray[Any, Any]:
        """Return a constant, or a view of one, as an array of the node's own strides."""
        node = self.graph[name]
        if not isinstance(node.op, ViewOp):
            given = np.asarray(self.values[name])
            strides = tuple(stride * given.itemsize for stride in node.type.strides)
            fits = given.shape == node.type.static_shape and given.dtype == node.type.dtype.numpy
            return given if fits and given.strides == strides else _laid_out(given, node.type)[1]
        base = self._constant_array(node.inputs[0])
        first = base.__array_interface__["data"][0] + node.op.offset_elements * base.itemsize
        strides = tuple(stride * base.itemsize for stride in node.type.strides)
        described = {
            **base.__array_interface__,
            "data": (first, True),
            "shape": node.type.static_shape,
            "strides": strides,
        }
        # The interface names no element type of ml_dtypes: bfloat16 arrives as two bytes of nothing.
        return np.asarray(_Described(described, base)).view(base.dtype)

    def _slot(self, name: str) -> Slot:
        place = self.plan.placements[name]
        match place.buffer:
            case BufferKind.INPUT:
                return InputSlot(self.inputs[place.name], place.offset_bytes)
            case BufferKind.OUTPUT:
                return OutputSlot(self.outputs[place.name], place.offset_bytes)
            case BufferKind.ARENA:
                return ArenaSlot(place.offset_bytes)
            case BufferKind.CONSTANT:
                # A copy: a constant is frozen, whatever happens later to the array that it was given as.
                if place.name not in self.constant_index:
                    self.constant_index[place.name] = len(self.constants)
                    self.constants.append(_laid_out(self.values[place.name], self.graph[place.name].type)[0])
                first = -self.graph[place.name].type.extent[0] * self.graph[place.name].type.dtype.nbytes
                return ConstantSlot(self.constant_index[place.name], place.offset_bytes + first)

    def _kernel_call(self, node: Node, kernel: LoadedKernel, built: Built, slots: Sequence[Slot]) -> Call:
        names = [part.name for part in (*operand_buffers(built.kernel), *built.kernel.tables)]
        pointers = dict(zip(names, slots, strict=True))
        for result, first in result_offsets(built.kernel).items():
            pointers[result] = _later(self._slot(node.id), first * node.type.dtype.nbytes)
        return Call.binding(
            kernel,
            pointers=pointers,
            integers=arguments(built.kernel),
            parallel=node.op.flops + node.op.bytes > _SMALL_WORK,
        )

    def _library_call(self, node: Node) -> Call:
        op = node.op
        assert isinstance(op, GemmOp)  # the only library variant
        function = LibraryFunction.BMM if op.batch else LibraryFunction.MM
        call = LibraryCall(function=function, operands=(node.type, *op.operands))
        return Call(kernel=call, pointers=(self._slot(node.id), *(self._slot(name) for name in node.inputs)))


def _later(slot: Slot, offset_bytes: int) -> Slot:
    """Return the place that lies so many bytes behind a slot's beginning."""
    return replace(slot, offset=slot.offset + offset_bytes) if offset_bytes else slot


def _laid_out(values: Any, type_: TensorType) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return a copy of a constant as memory from its lowest element on, and the array of the type's strides in it."""
    given = np.asarray(values)
    if given.shape != type_.static_shape or given.dtype != type_.dtype.numpy:
        raise InvalidShape(
            field="constant",
            got=f"{given.dtype}{list(given.shape)}",
            expected=str(type_),
            remedy="give each constant as an array of its type",
        )
    low, high = type_.extent
    memory = np.zeros(high - low, type_.dtype.numpy)
    strides = tuple(stride * given.itemsize for stride in type_.strides)
    array = np.lib.stride_tricks.as_strided(memory[-low:], type_.static_shape, strides)
    array[...] = given
    return memory, array


@dataclass(frozen=True, slots=True)
class _Described:
    """An array described by address for NumPy, which keeps ``owner`` alive."""

    __array_interface__: dict[str, Any]
    owner: Any
