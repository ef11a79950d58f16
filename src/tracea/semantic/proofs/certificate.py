"""Certificate: what was proved about a kernel, as data that is kept with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracea.errors import ProofFailed

__all__ = ["Certificate", "Fact", "refuse"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement that holds for all values of the parameters: by which proof, about which node, and what.

    ``values`` are its numbers by name (``ways``, ``sectors``, ``bytes``), for readers that compute with them.
    """

    proof: str
    node: str
    statement: str
    values: tuple[tuple[str, int | str], ...] = ()

    def value(self, name: str) -> int | str | None:
        """Return a number of the statement, None where it has none of that name."""
        return dict(self.values).get(name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        plain: dict[str, Any] = {"proof": self.proof, "node": self.node, "statement": self.statement}
        return {**plain, "values": dict(self.values)} if self.values else plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The facts that make a TileKernel an optimized one, and the guards that they rest on."""

    kernel: str
    facts: tuple[Fact, ...]
    guards: tuple[str, ...]

    def __str__(self) -> str:
        """Render one fact a line, then the guards that they rest on."""
        lines = [f"{fact.proof}: {fact.node}: {fact.statement}" for fact in self.facts]
        return "\n".join([f"{self.kernel}: {len(self.facts)} facts", *lines, *(f"guard: {g}" for g in self.guards)])

    def about(self, proof: str) -> tuple[Fact, ...]:
        """Return the facts of one proof."""
        return tuple(fact for fact in self.facts if fact.proof == proof)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "schema_version": 1,
            "kernel": self.kernel,
            "guards": list(self.guards),
            "facts": [fact.to_dict() for fact in self.facts],
        }


def refuse(proof: str, node: str, detail: str, *, lane: int | None = None, iteration: str | None = None) -> ProofFailed:
    """Return the error of a proof that did not succeed, with its counter-example's lane and iteration if it has one."""
    return ProofFailed(proof=proof, node=node, detail=detail, lane=lane, iteration=iteration)
