"""The walk over an exported program: each of its nodes becomes core ops, or a problem that is told with its line."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.export.graph_signature import InputSpec as TorchInput

from tracea.core.expr import Input
from tracea.core.graph import Graph, Node
from tracea.core.op import PointwiseOp, SourceOp, ViewOp
from tracea.core.ops.images import image_type
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidGraph, InvalidInput, UnsupportedNode
from tracea.interface.torch.aten import LOWERINGS, VIEWS, WITHOUT_VALUE
from tracea.interface.torch.complex_value import PARTS, Complex, has_complex, nodes_of
from tracea.interface.torch.constants import Constants, is_number, is_same_memory
from tracea.interface.torch.export import (
    ExportedProgram,
    FxNode,
    arguments_in_order,
    is_node,
    is_operator,
    items_read,
    operator_name,
)
from tracea.interface.torch.instead import NO_OP, told
from tracea.interface.torch.location import line_of_node
from tracea.interface.torch.lower_complex import of_complex, of_pairs, pairs_of
from tracea.interface.torch.lower_indexed import IndexedRange, index_checks
from tracea.interface.torch.lowering import Lowering, Refusal
from tracea.interface.torch.nesting import Leaf
from tracea.interface.torch.problems import Problem, known_before, unsupported
from tracea.interface.torch.specs import InputSpec, OutputSpec
from tracea.interface.torch.surroundings import OutsideTensors
from tracea.interface.torch.types import Dims, as_pairs, check_exact, check_tensor, dtype_of_parts, tensor_type_of
from tracea.interface.torch.written import InputWrite

__all__ = ["Captured", "Walk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A module as a graph: the tensors that it binds once, how calls map to it, and where each node was written.

    ``ranges`` says which of the graph's outputs are of no one but the check of indices that the module computes,
    ``writes`` which are what the module writes to its inputs.
    """

    graph: Graph
    constants: Mapping[str, torch.Tensor]
    input_spec: InputSpec
    output_spec: OutputSpec
    locations: Mapping[str, str]
    ranges: tuple[IndexedRange, ...] = ()
    writes: tuple[InputWrite, ...] = ()


@dataclass(slots=True)
class Walk:
    """The walk over one exported program; ``values`` holds what each of its nodes became.

    ``written`` has, by node, the operator of the user's line, of which a decomposed program has the parts.
    """

    program: ExportedProgram
    outside: OutsideTensors | None = None
    written: Mapping[str, str] = field(default_factory=dict[str, str])
    graph: Graph = field(default_factory=Graph)
    dims: Dims = field(default_factory=Dims)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    scalars: dict[str, float] = field(default_factory=dict[str, float])
    values: dict[FxNode, Any] = field(default_factory=dict[FxNode, Any])
    locations: dict[str, str] = field(default_factory=dict[str, str])
    problems: list[Problem] = field(default_factory=list[Problem])
    constants: Constants = field(init=False)
    read: set[FxNode] = field(init=False)
    low: Lowering = field(init=False)

    def __post_init__(self) -> None:
        self.constants = Constants(self.program, self.outside)
        self.read = self.constants.read(VIEWS, WITHOUT_VALUE)
        self.low = Lowering(self.graph, self.scalars, self.tensors, self._constant)

    def run(self) -> Captured:
        """Return the captured graph.

        Raises:
            UnsupportedNode: the program uses what no op expresses; all such lines are named at once.
        """
        input_spec = self._sources()
        for node in self.program.graph.nodes:
            is_unread = self.constants.can_compute(node) and node not in self.read
            if node.op not in ("placeholder", "output") and not is_unread:
                self._lower(node)
        outputs, output_spec, writes = self._outputs(input_spec)
        rows, ranges = index_checks(self.graph, self.low.indexed, self.tensors, outputs)
        self.graph.set_outputs(*outputs)
        self.graph.verify()
        return Captured(
            graph=self.graph,
            constants=self.tensors,
            input_spec=replace(input_spec, rows=rows, small=self.low.integers.limits),
            output_spec=output_spec,
            locations=self.locations,
            ranges=ranges,
            writes=writes,
        )

    # Sources.

    def _sources(self) -> InputSpec:
        placeholders = [node for node in self.program.graph.nodes if node.op == "placeholder"]
        specs = self.program.graph_signature.input_specs
        user_inputs = [
            (node, spec)
            for node, spec in zip(placeholders, specs, strict=True)
            if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
        ]
        for node, _ in user_inputs:
            self._name_dims(node)
        leaves: list[Leaf] = []
        nodes: list[Node] = []
        for node, spec in zip(placeholders, specs, strict=True):
            if spec.kind is not InputKind.USER_INPUT:
                self._constant_source(node, spec)
            elif isinstance(spec.arg, TensorArgument):
                given = node.meta["val"]
                type_ = tensor_type_of(as_pairs(given), self.dims, node.name)
                source = self.graph.add_input(type_, name=self._free(node.name))
                self.values[node] = self._of_pairs(node, source) if given.is_complex() else source
                leaves.append(Leaf(len(nodes), is_pairs=given.is_complex()))
                nodes.append(source)
            elif isinstance(spec.arg, ConstantArgument):
                leaves.append(Leaf(None, spec.arg.value))
            else:
                self._refuse(node, f"an input of kind {type(spec.arg).__name__}", "pass tensors, or plain numbers")
        return InputSpec(
            tree=self.program.call_spec.in_spec,  # pyright: ignore[reportArgumentType]
            leaves=tuple(leaves),
            names=tuple(node.id for node in nodes),
            types=tuple(node.type for node in nodes),
            strides=getattr(self.program, "strides", None),  # torch.export does not tell
            gradients=getattr(self.program, "gradients", None),
        )

    def _of_pairs(self, node: FxNode, source: Node) -> Complex:
        self.low.begin(node.name, source.type.shape[:-1], source.type.dtype)
        return of_pairs(self.low, source)

    def _name_dims(self, node: FxNode) -> None:
        ranges = {str(symbol): bounds for symbol, bounds in self.program.range_constraints.items()}
        for axis, extent in enumerate(node.meta["val"].shape):
            if not isinstance(extent, int) and str(extent) in ranges:
                bounds = ranges[str(extent)]
                maximum = int(bounds.upper) if bounds.upper.is_Integer else None
                self.dims.name(str(extent), f"{node.name}_dim{axis}", int(bounds.lower), maximum)

    def _constant_source(self, node: FxNode, spec: TorchInput) -> None:
        if not node.users or spec.kind is InputKind.TOKEN:  # which orders effects: their node is refused
            return
        tensor = self.constants.value(node)
        if tensor is None:
            self._refuse(node, f"a source of kind {spec.kind.name.lower()}", "keep only tensors as state of the module")
        elif node in self.read:
            self.values[node] = self._constant_value(str(spec.target), tensor)

    def _constant_value(self, name: str, tensor: torch.Tensor) -> Node | Complex:
        """Return a constant; of complex numbers the two parts, each a tensor of its own."""
        if not tensor.is_complex():
            return self._constant(name, tensor)
        parts = torch.view_as_real(tensor.resolve_conj()).unbind(-1)
        return Complex(
            *(self._constant(f"{name}.{kind}", part.contiguous()) for kind, part in zip(PARTS, parts, strict=True))
        )

    def _constant(self, name: str, tensor: torch.Tensor) -> Node:
        for known, other in self.tensors.items():  # tied weights are one constant
            if other is tensor or is_same_memory(other, tensor):
                return self.graph[known]
        check_tensor(tensor, name, owned=True)
        check_exact(tensor, name)
        node = self.graph.add_constant(tensor_type_of(tensor, self.dims, name), name=self._free(name))
        self.tensors[node.id] = tensor
        if tensor.dim() == 0:
            self.scalars[node.id] = float(tensor)
        return node

    def _free(self, name: str) -> str:
        return name if name not in self.graph else self.graph.fresh(name)

    # Operators.

    def _lower(self, node: FxNode) -> None:
        before = set(self.locations) if not len(self.graph) else {item.id for item in self.graph.nodes}
        try:
            self.values[node] = self._value(node)
        except _Unknowable:
            return
        except Refusal as refusal:
            self._refuse(node, refusal.reason, refusal.remedy)
        except InvalidInput as error:
            self._refuse(node, error.statement(), error.remedy)
        location = line_of_node(node)
        self.locations |= {item.id: location for item in self.graph.nodes if item.id not in before}

    def _value(self, node: FxNode) -> Any:
        if node.op == "get_attr":
            raise _Unknowable  # a region that torch keeps whole; the node that runs it is refused
        if node.target is operator.getitem:
            return self._item(node)
        name = operator_name(node.target)
        if name in WITHOUT_VALUE:
            return None
        if is_number(node.meta.get("val")):
            return node.meta["val"]
        if name not in VIEWS and self.constants.can_compute(node):
            return self._computed(node)
        lowering = LOWERINGS.get(name)
        if lowering is None and not is_operator(node):
            raise Refusal("a region with rules of its own", "take the autocast, the branch or the loop out of forward")
        if lowering is None:
            raise Refusal(NO_OP, "")
        results = _results(node)
        if results[:1] == [None]:
            raise Refusal("an operator that raised while torch followed it", "take the try: of it out of forward")
        shape, dtype = self.dims.shape(results[0].shape), dtype_of_parts(results[0].dtype, node.name)
        self.low.begin(node.name, shape, dtype, items_read(node))
        self.low.is_part = self.written.get(node.name, name) != name
        given = [self._argument(item) for item in arguments_in_order(node.target, node.args, node.kwargs)]
        to_complex = has_complex(results)
        value = (
            of_complex(self.low, name, given, lowering, to_complex=to_complex)
            if to_complex or has_complex(given)
            else lowering(self.low, *given)
        )
        self._check(value, results)
        return value

    def _item(self, node: FxNode) -> Any:
        source, index = node.args[0], node.args[1]
        value = self._argument(source)[index]
        if value is None and node.users:
            raise Refusal(
                f"result {index} of {operator_name(source.target)}: places or statistics that the op does not keep",
                "use its first result only",
            )
        return value

    def _computed(self, node: FxNode) -> Any:
        result = self.constants.value(node)
        if isinstance(result, torch.Tensor):
            return self._constant_value(node.name, result)
        return [self._constant_value(f"{node.name}.{index}", item) for index, item in enumerate(result or ())]

    def _argument(self, value: Any) -> Any:
        if is_node(value):
            if value not in self.values:
                raise _Unknowable
            return self._argument(self.values[value])
        if isinstance(value, torch.SymInt):
            return self.dims.of(value)
        if isinstance(value, list | tuple):
            return [self._argument(item) for item in cast("Sequence[Any]", value)]
        return value

    def _check(self, value: Any, results: Sequence[torch.Tensor]) -> None:
        # What torch inferred and what the lowering built are two derivations of one type.
        values: list[Any] = list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]
        parts = [(node, result) for each, result in zip(values, results, strict=False) for node in nodes_of(each)]
        for node, result in parts:
            wanted = (self.dims.shape(result.shape), dtype_of_parts(result.dtype, node.id))
            if (node.type.shape, node.type.dtype) != wanted:
                raise Refusal(
                    f"it was lowered to {node.type} where torch has {tuple(result.shape)} of {result.dtype}",
                    "this is a defect of the lowering: please report it with the line",
                )

    # Outputs.

    def _outputs(self, inputs: InputSpec) -> tuple[list[Node], OutputSpec, tuple[InputWrite, ...]]:
        self._refuse_writes()
        if self.problems:
            raise unsupported(self.problems)
        leaves: list[Leaf] = []
        outputs: dict[FxNode, Node] = {}  # one value of forward is one tensor; any other has memory of its own
        for item in self._user_outputs():
            value = self.values.get(item) if is_node(item) else item
            if not isinstance(value, Node | Complex):
                leaves.append(Leaf(None, known_before(value, item)))
                continue
            if item not in outputs:
                outputs[item] = self._result(item, value, outputs.values())
            leaves.append(Leaf([*outputs].index(item), is_pairs=isinstance(value, Complex)))
        writes = [*self._written(inputs, outputs)]
        if not outputs:
            raise InvalidGraph(
                field="outputs", got="no tensor", expected="at least one", remedy="return a tensor from forward"
            )
        spec = OutputSpec(tree=self.program.call_spec.out_spec, leaves=tuple(leaves))  # pyright: ignore[reportArgumentType]
        return [*outputs.values()], spec, tuple(writes)

    def _written(self, inputs: InputSpec, outputs: dict[FxNode, Node]) -> Iterator[InputWrite]:
        """Yield what is written to the inputs; append to the outputs what is not among them."""
        by_name = {node.name: node for node in self.program.graph.nodes}
        for spec in self.program.graph_signature.output_specs:
            if spec.kind is not OutputKind.USER_INPUT_MUTATION:
                continue
            item, source = by_name[spec.arg.name], self.values[by_name[spec.target]]
            value = self.values[item]
            if value is source:
                continue
            if isinstance(source, Complex):
                raise UnsupportedNode(
                    node=f"a write to a complex input, {spec.target}",
                    location=line_of_node(item),
                    remedy="return the new value",
                )
            if value.type.shape != source.type.shape:
                raise UnsupportedNode(
                    node=f"an input that is given another shape in place, {source.id}: {value.type} of {source.type}",
                    location=line_of_node(item),
                    remedy="return the view instead (squeeze, t, transpose); a program writes to the elements of an "
                    "input and leaves its shape",
                )
            if item not in outputs:
                outputs[item] = self._result(item, value, outputs.values())
            place, hole = inputs.names.index(source.id), self.low.holes.get(value.id)
            write = InputWrite(name=source.id, input=place, output=[*outputs].index(item))
            if hole is not None and hole.of is source:
                positions = hole.indices if isinstance(hole.indices, range) else hole.indices.id
                if isinstance(positions, range) or positions in inputs.names:
                    at = positions if isinstance(positions, range) else inputs.names.index(positions)
                    write = replace(write, axis=hole.axis, at=at)
            yield write

    def _user_outputs(self) -> list[Any]:
        flat: list[Any] = list(next(node for node in self.program.graph.nodes if node.op == "output").args[0])
        kinds = [spec.kind for spec in self.program.graph_signature.output_specs]
        return [item for item, kind in zip(flat, kinds, strict=True) if kind is OutputKind.USER_OUTPUT]

    def _result(self, item: FxNode, node: Node | Complex, taken: Collection[Node]) -> Node:
        """Return the node, or a copy where its strides are not a result's or it is another value's result.

        A result is row-major, or an image channels last where torch's is; of complex numbers pairs of their parts.
        """
        if isinstance(node, Complex):
            self.low.begin(item.name, (*self.dims.shape(item.meta["val"].shape), 2), nodes_of(node)[0].type.dtype)
            return pairs_of(self.low, node)
        wanted, type_ = item.meta["val"], TensorType(node.type.shape, node.type.dtype)
        is_image = wanted.dim() == 4 and node.type.is_static and not wanted.is_contiguous()
        if is_image and wanted.is_contiguous(memory_format=torch.channels_last):
            type_ = image_type(node.type.shape, node.type.dtype, channels_last=True)
        is_own = node.type.is_contiguous or not isinstance(node.op, SourceOp | ViewOp)
        if node.type == type_ and is_own and node not in taken:
            return node
        op = PointwiseOp(expr=Input(0), inputs=(node.type,), out_dtype=type_.dtype, out=type_)
        return self.graph.add(op, (node,), name=self._free(f"{node.id}.result"))

    def _refuse_writes(self) -> None:
        for spec in self.program.graph_signature.output_specs:
            what = _WRITTEN.get(spec.kind)
            if what is not None:
                node = next(node for node in self.program.graph.nodes if node.name == spec.arg.name)
                if line_of_node(node) in {problem.location for problem in self.problems}:
                    continue  # what a refused node would have written
                self._refuse(
                    node,
                    f"a write to {what}, {spec.target}",
                    "give it as an input, which may be written to, or return the new value; module.eval() if it is a "
                    "running statistic",
                )

    def _refuse(self, node: FxNode, reason: str, remedy: str) -> None:
        name = operator_name(node.target) if node.op == "call_function" else f"{node.op} {node.name}"
        written = self.written.get(node.name, name)
        problem = Problem(written, line_of_node(node), *told(written, name, reason, remedy))
        if problem not in self.problems:  # parts of one operator are one problem
            self.problems.append(problem)


_WRITTEN = {
    OutputKind.BUFFER_MUTATION: "a buffer",
    OutputKind.PARAMETER_MUTATION: "a parameter",
}


class _Unknowable(Exception):
    """An argument's own node was refused already."""


def _results(node: FxNode) -> list[torch.Tensor]:
    value = node.meta["val"]
    return list(cast("Sequence[torch.Tensor]", value)) if isinstance(value, list | tuple) else [value]
