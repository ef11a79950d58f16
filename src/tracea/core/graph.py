"""Graphs: ops in an order in which every input comes before its users, verified as they are built and as they are read.

>>> graph = Graph()
>>> hidden = graph.add_gemm(graph.add_input((128, 768)), graph.add_constant((768, 3072)), activation="gelu")
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from tracea.core.builder import Builder, Node, check_name
from tracea.core.codec import Codec, encode
from tracea.core.expr_text import expr_text
from tracea.core.op import (
    CODEC_CLASSES,
    Conv2dOp,
    Epilogue,
    GemmOp,
    Op,
    PairsOp,
    PointwiseOp,
    ReduceOp,
    RowOp,
    SourceKind,
    SourceOp,
)
from tracea.core.tensor_type import SymbolicDim, TensorType
from tracea.errors import InvalidGraph

__all__ = ["SCHEMA_VERSION", "Graph", "Node"]

SCHEMA_VERSION = 1
_CODEC = Codec((Node, *CODEC_CLASSES))


class Graph(Builder):
    """A program as its meaning. Building appends; passes return new graphs.

    ``outputs`` are those that were set, else the nodes that nobody uses. Sources are bound by id: ``inputs`` at each
    run, ``constants`` once.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._outputs: tuple[str, ...] | None = None
        self._counts: dict[str, int] = {}
        self._dims: dict[str, SymbolicDim] = {}

    @classmethod
    def of(cls, nodes: Iterable[Node], outputs: Iterable[str]) -> Graph:
        """Return the verified graph of these nodes in this order.

        Raises:
            InvalidGraph: an id is taken or unknown, or an input does not come before its user, or does not fit.
        """
        graph = cls()
        for node in nodes:
            if node.id in graph._nodes:
                raise _broken(node.id, "the id of another node", "a new id", "rename the node")
            graph._nodes[node.id] = node
        graph._outputs = tuple(outputs)
        graph.verify()
        return graph

    # Reading.

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, inputs before users."""
        return tuple(self._nodes.values())

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that each run binds, in the order in which they were added."""
        return tuple(node for node in self._nodes.values() if _is_source(node, SourceKind.INPUT))

    @property
    def constants(self) -> Mapping[str, TensorType]:
        """Types of the tensors that are bound once, by id."""
        return {node.id: node.type for node in self._nodes.values() if _is_source(node, SourceKind.CONSTANT)}

    @property
    def outputs(self) -> tuple[Node, ...]:
        """The nodes whose values a run returns, in order."""
        if self._outputs is not None:
            return tuple(self[name] for name in self._outputs)
        used = {name for node in self._nodes.values() for name in node.inputs}
        return tuple(node for node in self._nodes.values() if node.id not in used)

    @property
    def symbolic_dims(self) -> Mapping[str, SymbolicDim]:
        """Symbolic extents by name."""
        return dict(self._dims)

    @property
    def key(self) -> str:
        """A stable identifier of the whole graph."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return f"graph_{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def __getitem__(self, node: str | Node) -> Node:
        """Return a node by id, or by the id of one that was fused into it.

        Raises:
            InvalidGraph: there is none.
        """
        name = node.id if isinstance(node, Node) else node
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _broken("node", repr(name), "a node, or its id", "name several one by one: set_outputs(a, b)")
        if name in self._nodes:
            return self._nodes[name]
        for candidate in self._nodes.values():
            if name in candidate.fused:
                return candidate
        raise _broken(name, "no such node", "a node's id", "ids are listed by [node.id for node in graph.nodes]")

    def __contains__(self, node: str | Node) -> bool:
        return (node.id if isinstance(node, Node) else node) in self._nodes

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __eq__(self, other: object) -> bool:
        """Compare nodes, order and outputs."""
        return isinstance(other, Graph) and self.nodes == other.nodes and self.outputs == other.outputs

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it grows; its key identifies what it is now

    def users(self, node: str | Node) -> tuple[Node, ...]:
        """Return the nodes that use a node's value."""
        name = self[node].id
        return tuple(user for user in self._nodes.values() if name in user.inputs)

    def __repr__(self) -> str:
        outputs = ", ".join(f"{node.id}: {node.type}" for node in self.outputs)
        return f"Graph({len(self._nodes)} nodes -> {outputs})"

    def __str__(self) -> str:
        """Render one line a node, and behind it what the op's name leaves open: its expression, kind and numbers."""
        lines = [f"{node.id} = {node.op.name}({', '.join(node.inputs)}) : {node.type}{_detail(node)}" for node in self]
        return "\n".join([*lines, f"return {', '.join(node.id for node in self.outputs)}"])

    # Building.

    def add(self, op: Op, inputs: Sequence[Node | str] = (), *, name: str | None = None) -> Node:
        """Append an op; its operand types must be those of the inputs.

        Raises:
            InvalidGraph: the name is taken, or an input is unknown or of another type.
        """
        check_name(name, op.name)
        names = tuple(item.id if isinstance(item, Node) else item for item in inputs)
        node = Node(id=self.fresh(op.name) if name is None else name, op=op, inputs=names)
        if node.id in self._nodes:
            raise _broken(node.id, "the id of another node", "a new name", "give another name, or none")
        _verify_node(node, self._nodes)
        _verify_dims((node,), self._dims)
        self._nodes[node.id] = node
        return node

    def set_outputs(self, *nodes: Node | str) -> None:
        """State what a run returns, in order, instead of the nodes that nobody uses.

        Raises:
            InvalidGraph: no node is given, one is not of the graph, or one twice.
        """
        if not nodes:
            raise InvalidGraph(field="outputs", got=0, expected="at least one node", remedy="name what a run returns")
        self._outputs = tuple(self[node].id for node in nodes)
        _verify_outputs(self._outputs, self._nodes)

    def fresh(self, label: str) -> str:
        """Return ``label_<n>`` with the first n that is free."""
        while True:
            number = self._counts.get(label, 0)
            self._counts[label] = number + 1
            if f"{label}_{number}" not in self._nodes:
                return f"{label}_{number}"

    # Checking and changing.

    def verify(self) -> None:
        """Check every invariant.

        Raises:
            InvalidGraph: an id, an order, a type, an output or a symbolic extent does not fit; ``field`` names the
            node.
        """
        before: dict[str, Node] = {}
        for key, node in self._nodes.items():
            if key != node.id:
                raise _broken(key, node.id, "the id that it is stored under", "rebuild the graph with Graph.of")
            _verify_node(node, before)
            before[node.id] = node
        _verify_fused(self._nodes)
        _verify_dims(self.nodes, self._dims)
        if self._outputs is not None:
            _verify_outputs(self._outputs, self._nodes)

    def bind(self, values: Mapping[str, int]) -> Graph:
        """Return the graph with symbolic extents replaced by numbers; those that are not named stay.

        Raises:
            InvalidGraph: a name is not one of the graph's.
            InvalidShape: a number is out of its bounds.
        """
        unknown = sorted(set(values) - set(self.symbolic_dims))
        if unknown:
            raise InvalidGraph(
                field="bind", got=unknown, expected=sorted(self.symbolic_dims), remedy="bind the graph's own names"
            )
        nodes = [Node(id=n.id, op=n.op.bind(values), inputs=n.inputs, fused=n.fused) for n in self.nodes]
        return Graph.of(nodes, [node.id for node in self.outputs])

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as plain JSON values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "nodes": [encode(node) for node in self.nodes],
            "outputs": [node.id for node in self.outputs],
        }

    @staticmethod
    def from_dict(data: Any) -> Graph:
        """Return the verified graph that :meth:`to_dict` wrote.

        Raises:
            InvalidGraph: another schema, or data that are not a graph; ``field`` is the path of what does not fit.
            InvalidInput: an op refuses its values.
        """
        fields: dict[str, Any] = dict(cast("Mapping[str, Any]", data)) if isinstance(data, Mapping) else {}
        version = fields.get("schema_version")
        if type(version) is not int or version != SCHEMA_VERSION:
            raise InvalidGraph(
                field="$.schema_version",
                got=version,
                expected=SCHEMA_VERSION,
                remedy="write the file with this version's to_json",
            )
        unknown = sorted(str(name) for name in fields.keys() - {"schema_version", "nodes", "outputs"})
        if unknown:
            raise InvalidGraph(
                field="$",
                got=unknown,
                expected="schema_version, nodes and outputs",
                remedy="keep what is not the graph's outside of it",
            )
        nodes = _CODEC.decode(fields.get("nodes"), tuple[Node, ...], "$.nodes")
        outputs = _CODEC.decode(fields.get("outputs"), tuple[str, ...], "$.outputs")
        return Graph.of(nodes, outputs)

    def to_json(self) -> str:
        """Return the graph as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    @staticmethod
    def from_json(text: str) -> Graph:
        """Return the verified graph that :meth:`to_json` wrote.

        Raises:
            InvalidGraph: the text is not JSON, names a field twice, or is not a graph.
        """
        try:
            data = json.loads(text, object_pairs_hook=_fields)
        except (ValueError, RecursionError, TypeError) as error:
            raise InvalidGraph(
                field="json", got=str(error), expected="JSON text", remedy="write it with to_json"
            ) from error
        return Graph.from_dict(data)


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a JSON object, of which each has one value: of two, readers take the last unasked."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice = next(name for index, (name, _) in enumerate(pairs) if name in dict(pairs[:index]))
        raise InvalidGraph(field="json", got=f"{twice} twice", expected="each field once", remedy="leave one out")
    return fields


def _is_source(node: Node, kind: SourceKind) -> bool:
    return isinstance(node.op, SourceOp) and node.op.kind is kind


def _broken(node: str, got: Any, expected: Any, remedy: str) -> InvalidGraph:
    return InvalidGraph(field=f"node {node}", got=got, expected=expected, remedy=remedy)


def _verify_node(node: Node, before: Mapping[str, Node]) -> None:
    if not node.id:
        raise _broken(repr(node.id), "an empty id", "a name", "name the node")
    unknown = [name for name in node.inputs if name not in before]
    if unknown:
        raise _broken(node.id, f"input {unknown[0]}", "nodes that come before it", "add inputs before their users")
    operands = node.op.operands
    if len(operands) != len(node.inputs):
        raise _broken(
            node.id, f"{len(node.inputs)} inputs", f"{len(operands)} operands", "give one input for each operand"
        )
    for index, (name, operand) in enumerate(zip(node.inputs, operands, strict=True)):
        if before[name].type != operand:
            raise _broken(
                node.id,
                f"input {index}, {name}: {before[name].type}",
                str(operand),
                "build the op from its inputs' types; change a layout with a view, an element type with a pointwise op",
            )


def _verify_fused(nodes: Mapping[str, Node]) -> None:
    owners: dict[str, str] = {}
    for node in nodes.values():
        for name in node.fused:
            if name in nodes or owners.setdefault(name, node.id) != node.id:
                raise _broken(node.id, f"fused {name}", "a node that is nowhere else", "fuse a node into one other")


def _verify_dims(nodes: Iterable[Node], known: dict[str, SymbolicDim]) -> None:
    for node in nodes:
        for dim in node.dims:
            if known.setdefault(dim.name, dim) != dim:
                raise _broken(
                    node.id, str(dim), str(known[dim.name]), "a name stands for one extent: use the same bounds"
                )


def _verify_outputs(outputs: tuple[str, ...], nodes: Mapping[str, Node]) -> None:
    unknown = [name for name in outputs if name not in nodes]
    if unknown or len(set(outputs)) != len(outputs):
        raise InvalidGraph(
            field="outputs", got=outputs, expected="distinct ids of nodes", remedy="to return a value twice, add a copy"
        )


def _detail(node: Node) -> str:
    """Return what a node computes, as a remark, where the name of its op does not say it."""
    match node.op:
        case PointwiseOp() as op:
            return f"  # {expr_text(op.expr, node.inputs)}"
        case PairsOp() as op:
            return f"  # {' | '.join(expr_text(each, node.inputs) for each in op.expressions)}"
        case RowOp() as op:
            epsilon = f", eps {op.eps:g}" if op.eps else ""
            return f"  # {op.kind.value}{epsilon}{_after(op.epilogue, node.inputs[len(op.x) :])}"
        case ReduceOp() as op:
            axes = ", ".join(map(str, op.axes))
            return f"  # {op.kind.value} over {axes}{_after(op.epilogue, node.inputs[len(op.x) :])}"
        case GemmOp() | Conv2dOp() as op if not op.epilogue.is_identity:
            return f"  #{_after(op.epilogue, node.inputs[2:]).removeprefix(',')}"
        case _:
            return ""


def _after(epilogue: Epilogue, extras: Sequence[str]) -> str:
    """Return what is done with each result before it is stored; ``·`` is the result."""
    return "" if epilogue.is_identity else f", then {expr_text(epilogue.expr, ('·', *extras))}"
