"""The tensors that an exported program does not take from its caller, and what follows from them alone."""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any, Final, cast

import torch
from torch._ops import OpOverload
from torch.export.graph_signature import InputKind, TensorArgument
from torch.fx.node import map_arg

from tracea.errors import UnsupportedNode
from tracea.interface.torch.export import ExportedProgram, FxNode, headline, operator_name
from tracea.interface.torch.location import line_of_node
from tracea.interface.torch.surroundings import OutsideTensors

__all__ = ["Constants", "is_computable", "is_number", "is_same_memory"]


# What no one wrote yet: any values do, and zeros are within every limit.
_UNWRITTEN: Final = frozenset(
    f"aten.{name}"
    for name in (
        *("empty.memory_format", "empty_like.default", "empty_permuted.default", "empty_strided.default"),
        *("new_empty.default", "new_empty_strided.default"),
    )
)


class Constants:
    """Parameters, buffers, lifted tensors, and the nodes that torch can compute from them before any run.

    A mask built in forward, the square of a weight: computed once by torch itself, when it is asked for. ``outside``
    has the copies that stand for tensors which are no parameters or buffers.
    """

    def __init__(self, program: ExportedProgram, outside: OutsideTensors | None = None) -> None:
        self._values: dict[FxNode, Any] = {}
        self._constant: set[FxNode] = set()
        self._nodes: list[FxNode] = [*program.graph.nodes]
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs if hasattr(spec.arg, "name")}
        for node in self._nodes:
            if node.op == "placeholder":
                spec = specs.get(node.name)
                if spec is None or spec.kind is InputKind.USER_INPUT or not isinstance(spec.arg, TensorArgument):
                    continue
                tensor = program.state_dict.get(str(spec.target), program.constants.get(str(spec.target)))
                if isinstance(tensor, torch.Tensor):
                    _check_memory(tensor, node)
                    if outside is not None and spec.kind is InputKind.CONSTANT_TENSOR:
                        tensor = outside.frozen(tensor)
                    self._values[node] = tensor.detach()
                    self._constant.add(node)
            elif self._follows(node):
                self._constant.add(node)

    def can_compute(self, node: FxNode) -> bool:
        """Tell whether a node's value does not depend on the program's inputs."""
        return node in self._constant

    def read(self, views: Collection[str], unread: Collection[str]) -> set[FxNode]:
        """Return the constant nodes that a run reads: by an operator that depends on its inputs, or as a result.

        What only leads to other constants is never a value of the graph: torch computes with it, in torch's own types.
        ``views`` are operators that stay in the graph, and read what they are of where they are read themselves;
        ``unread`` are those that a program leaves out.
        """
        found: set[FxNode] = set()
        for node in reversed(self._nodes):
            if node in self._constant and any(self._reads(user, found, views, unread) for user in node.users):
                found.add(node)
        return found

    def _reads(self, user: FxNode, found: set[FxNode], views: Collection[str], unread: Collection[str]) -> bool:
        name = operator_name(user.target)
        if user in self._constant:
            return user in found and (user.target is operator.getitem or name in views)
        return name not in unread and not is_number(user.meta.get("val"))

    def value(self, node: FxNode) -> Any:
        """Return a node's tensor, or list of tensors; None if it is not constant.

        Raises:
            UnsupportedNode: torch cannot compute it.
        """
        if node not in self._constant:
            return None
        if node not in self._values:
            arguments, keywords = cast("Any", map_arg)((node.args, node.kwargs), self.value)
            try:
                with torch.no_grad():
                    value: Any = node.target(*arguments, **keywords)  # pyright: ignore
                    self._values[node] = value.zero_() if operator_name(node.target) in _UNWRITTEN else value
            except Exception as error:
                raise UnsupportedNode(
                    node=f"{operator_name(node.target)}: {headline(error)}, of values that no input decides",
                    location=line_of_node(node),
                    remedy="give forward tables and masks that reach as far as its inputs do",
                ) from error
        return self._values[node]

    def _follows(self, node: FxNode) -> bool:
        if node.op != "call_function" or not all(source in self._constant for source in node.all_input_nodes):
            return False
        return node.target is operator.getitem or is_computable(node.target)


def _check_memory(tensor: torch.Tensor, node: FxNode) -> None:
    """Check that a constant has elements of its own, and does not stand for others as under torch.func's transforms.

    Raises:
        UnsupportedNode: it has none; the line is the user's.
    """
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return  # refused later, by its name
    try:
        tensor.data_ptr()
    except RuntimeError as error:
        user = next(iter(node.users), node)
        raise UnsupportedNode(
            node=f"{operator_name(user.target)}: a tensor without elements of its own, {node.name}",
            location=line_of_node(user),
            remedy="take torch.func's transforms (vjp, jvp, vmap, grad) and subclasses of tensors out of forward, or "
            "write out what they compute",
        ) from error


def is_number(value: Any) -> bool:
    """Tell whether a node stands for the size of an axis, or for what is computed from one."""
    return isinstance(value, int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool)


def is_computable(target: Any) -> bool:
    """Tell whether what is called returns tensors that its arguments alone decide, and changes nothing."""
    return (
        isinstance(target, OpOverload)
        and not target._schema.is_mutable  # pyright: ignore[reportPrivateUsage]
        and torch.Tag.nondeterministic_seeded not in target.tags
        and any(isinstance(item.type, torch.TensorType | torch.ListType) for item in target._schema.returns)  # pyright: ignore[reportPrivateUsage]
    )


def is_same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors are one: tied weights."""
    return (
        one.data_ptr() == other.data_ptr()
        and one.numel() > 0
        and (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
    )
