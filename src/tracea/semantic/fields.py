"""The expressions inside nodes, found by their fields: what substitution, printing and mutation share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from tracea.semantic.index import Index
from tracea.semantic.nodes import Block
from tracea.semantic.predicate import And, Compare, Not, Or, Predicate

__all__ = ["divisions", "expressions", "map_indices", "subexpressions"]

_NODE_MODULES = (
    "tracea.semantic.access",
    "tracea.semantic.nodes",
    "tracea.semantic.nodes_async",
    "tracea.semantic.nodes_fragments",
    "tracea.semantic.nodes_sparse",
    "tracea.semantic.nodes_winograd",
)
_OPAQUE = ("intrinsic", "expr", "prologue", "roles")
_BINDERS = ("var", "length", "tile", "turn", "first", "count", "last", "points", "index")


def expressions(value: Any) -> Iterator[Index]:
    """Yield every outermost index expression of a node, without its child blocks."""
    match value:
        case Index():
            yield value
        case Compare():
            yield value.left
            yield value.right
        case And() | Or():
            for part in value.parts:
                yield from expressions(part)
        case Not():
            yield from expressions(value.part)
        case tuple():
            for item in cast("tuple[Any, ...]", value):
                yield from expressions(item)
        case Block():
            return
        case _ if is_dataclass(value) and not isinstance(value, type):
            if type(value).__module__.startswith("tracea.semantic"):
                for part in fields(value):
                    if part.name not in _OPAQUE:
                        yield from expressions(getattr(value, part.name))
        case _:
            return


def subexpressions(index: Index) -> Iterator[Index]:
    """Yield an expression and everything inside it."""
    yield index
    for part in index.parts:
        yield from subexpressions(part)


def divisions(value: Any) -> Iterator[Index]:
    """Yield every quotient and remainder within a node's expressions."""
    from tracea.semantic.index import FloorDiv, Mod

    for expression in expressions(value):
        for part in subexpressions(expression):
            if isinstance(part, FloorDiv | Mod):
                yield part


def map_indices(value: Any, change: Callable[[Index], Index], *, binders: bool = True) -> Any:
    """Return a copy of a node with every outermost index expression replaced, without its child blocks.

    ``binders``: whether the variables that a node binds are expressions too.
    """
    match value:
        case Index():
            return change(value)
        case Predicate():
            return _map_predicate(value, change)
        case tuple():
            items = cast("tuple[Any, ...]", value)
            return tuple(map_indices(item, change, binders=binders) for item in items)
        case Block():
            return value
        case _ if is_dataclass(value) and not isinstance(value, type) and type(value).__module__ in _NODE_MODULES:
            changed = {
                part.name: map_indices(getattr(value, part.name), change, binders=binders)
                for part in fields(value)
                if part.init and part.name not in _OPAQUE and (binders or part.name not in _BINDERS)
            }
            return replace(value, **changed)
        case _:
            return value


def _map_predicate(predicate: Predicate, change: Callable[[Index], Index]) -> Predicate:
    match predicate:
        case Compare(relation=relation, left=left, right=right):
            return Compare(relation, change(left), change(right))
        case And(parts=parts):
            return And(tuple(_map_predicate(part, change) for part in parts))
        case Or(parts=parts):
            return Or(tuple(_map_predicate(part, change) for part in parts))
        case Not(part=part):
            return Not(_map_predicate(part, change))
        case _:
            return predicate
