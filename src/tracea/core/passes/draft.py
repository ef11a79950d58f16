"""What passes are written with: a graph taken apart, edited node by node, and put together again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import chain, count
from typing import Protocol

from tracea.core.graph import Graph, Node
from tracea.errors import InvalidGraph

__all__ = ["Draft", "Pass", "in_order"]


class Pass(Protocol):
    """A change of a graph that keeps what it means."""

    @property
    def name(self) -> str:
        """What the pass is called in reports."""
        ...

    def apply(self, graph: Graph) -> Graph:
        """Return the changed graph; the argument stays as it is."""
        ...


class Draft:
    """Nodes by id with their users; order is made anew at the end."""

    def __init__(self, graph: Graph) -> None:
        graph.verify()
        self.nodes: dict[str, Node] = {node.id: node for node in graph}
        self.place: dict[str, int] = {name: index for index, name in enumerate(self.nodes)}
        self.outputs: tuple[str, ...] = tuple(node.id for node in graph.outputs)
        self._users: dict[str, set[str]] = {name: set() for name in self.nodes}
        for node in self.nodes.values():
            self._link(node)

    def order(self) -> tuple[str, ...]:
        """Return the ids as they are now, in the order in which they came."""
        return tuple(self.nodes)

    def users(self, name: str) -> frozenset[str]:
        """Return the ids of the nodes that use a value."""
        return frozenset(self._users[name])

    def has_one_user(self, name: str) -> bool:
        """Whether exactly one node uses the value, and no run returns it."""
        return len(self._users[name]) == 1 and name not in self.outputs

    def put(self, node: Node) -> None:
        """Add a node, or exchange the one of the same id."""
        if node.id in self.nodes:
            self._unlink(self.nodes[node.id])
        self.nodes[node.id] = node
        self.place.setdefault(node.id, len(self.place))
        self._users.setdefault(node.id, set())
        self._link(node)

    def remove(self, name: str) -> None:
        """Remove a node that nobody uses."""
        if self._users[name] or name in self.outputs:
            raise InvalidGraph(
                field=f"node {name}",
                got=f"used by {sorted(self._users[name])}",
                expected="a node without users",
                remedy="redirect its users before it goes",
            )
        self._unlink(self.nodes.pop(name))
        del self._users[name]

    def redirect(self, old: str, new: str) -> None:
        """Let all users of ``old`` read ``new``, of the same type."""
        for user in sorted(self._users[old]):
            node = self.nodes[user]
            self.put(replace(node, inputs=tuple(new if name == old else name for name in node.inputs)))

    def stand_in(self, old: str, new: str) -> None:
        """Let ``new`` stand for ``old``, of the same type and value, which goes."""
        self.redirect(old, new)
        gone, kept = self.nodes[old], self.nodes[new]
        self.remove(old)
        self.put(replace(kept, fused=(*kept.fused, old, *gone.fused)))

    def fresh(self, label: str) -> str:
        """Return an id that no node has, from ``label``."""
        names = chain((label,), (f"{label}.{number}" for number in count(2)))
        return next(name for name in names if not self._is_taken(name))

    def _is_taken(self, name: str) -> bool:
        return name in self.nodes or any(name in node.fused for node in self.nodes.values() if node.fused)

    def finish(self) -> Graph:
        """Return the verified graph, every node as early as its old place and its inputs allow."""
        return Graph.of((self.nodes[name] for name in in_order(self.nodes.values())), self.outputs)

    def _link(self, node: Node) -> None:
        for name in node.inputs:
            self._users[name].add(node.id)

    def _unlink(self, node: Node) -> None:
        for name in node.inputs:
            self._users[name].discard(node.id)


def in_order(nodes: Iterable[Node], rank: dict[str, float] | None = None) -> list[str]:
    """Return ids with inputs before users; of those that are ready the lowest rank first, then the earliest place.

    Raises:
        InvalidGraph: the nodes form a cycle.
    """
    known = {node.id: node for node in nodes}
    place = {name: index for index, name in enumerate(known)}
    waiting = {name: len(set(node.inputs)) for name, node in known.items()}
    users: dict[str, list[str]] = {name: [] for name in known}
    for node in known.values():
        for name in set(node.inputs):
            users[name].append(node.id)

    def entry(name: str) -> tuple[float, int, str]:
        return (0.0 if rank is None else rank[name], place[name], name)

    ready = [entry(name) for name, count in waiting.items() if count == 0]
    heapify(ready)
    order: list[str] = []
    while ready:
        name = heappop(ready)[2]
        order.append(name)
        for user in users[name]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heappush(ready, entry(user))
    if len(order) != len(known):
        stuck = sorted(set(known) - set(order))
        raise InvalidGraph(field="nodes", got=stuck, expected="no cycle", remedy="a pass made a node its own ancestor")
    return order
