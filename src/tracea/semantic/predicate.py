"""Conditions over index expressions: what masks, guards and loop tests are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from tracea.errors import InvalidSchedule

if TYPE_CHECKING:
    from tracea.semantic.index import Index

__all__ = ["FALSE", "TRUE", "And", "Compare", "Not", "Or", "Predicate", "Relation"]

Environment = Mapping[str, Any]


class Relation(Enum):
    """A comparison; its value is how C and Python spell it."""

    LT = "<"
    LE = "<="
    EQ = "=="
    NE = "!="


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition over index expressions; the subclasses are its nodes."""

    def evaluate(self, env: Environment) -> Any:
        """Return the truth value, elementwise where ``env`` holds arrays."""
        raise NotImplementedError

    def substitute(self, values: Mapping[str, Index]) -> Predicate:
        """Return this condition with names replaced."""
        match self:
            case Compare(relation=relation, left=left, right=right):
                return Compare(relation, left.substitute(values), right.substitute(values))
            case And(parts=parts):
                return And(tuple(part.substitute(values) for part in parts))
            case Or(parts=parts):
                return Or(tuple(part.substitute(values) for part in parts))
            case Not(part=part):
                return Not(part.substitute(values))
            case _:
                return self

    def __and__(self, other: Predicate) -> Predicate:
        return And((*_parts(self, And), *_parts(other, And)))

    def __or__(self, other: Predicate) -> Predicate:
        return Or((*_parts(self, Or), *_parts(other, Or)))

    def __invert__(self) -> Predicate:
        return Not(self)

    def __bool__(self) -> bool:
        raise InvalidSchedule(
            field="predicate", got=str(self), expected="a condition in the kernel", remedy="use evaluate or an If node"
        )


@dataclass(frozen=True, slots=True)
class Compare(Predicate):
    """A comparison of two index expressions."""

    relation: Relation
    left: Index
    right: Index

    def evaluate(self, env: Environment) -> Any:
        """Compare the values."""
        left, right = self.left.evaluate(env), self.right.evaluate(env)
        match self.relation:
            case Relation.LT:
                return left < right
            case Relation.LE:
                return left <= right
            case Relation.EQ:
                return left == right
            case Relation.NE:
                return left != right

    def __str__(self) -> str:
        return f"{self.left} {self.relation.value} {self.right}"


@dataclass(frozen=True, slots=True)
class And(Predicate):
    """All of the parts; no part is true."""

    parts: tuple[Predicate, ...]

    def evaluate(self, env: Environment) -> Any:
        """Combine the parts."""
        result: Any = True
        for part in self.parts:
            result = np.logical_and(result, part.evaluate(env))
        return bool(result) if np.ndim(result) == 0 else result

    def __str__(self) -> str:
        return " and ".join(_enclosed(part) for part in self.parts) if self.parts else "true"


@dataclass(frozen=True, slots=True)
class Or(Predicate):
    """Any of the parts; no part is false."""

    parts: tuple[Predicate, ...]

    def evaluate(self, env: Environment) -> Any:
        """Combine the parts."""
        result: Any = False
        for part in self.parts:
            result = np.logical_or(result, part.evaluate(env))
        return bool(result) if np.ndim(result) == 0 else result

    def __str__(self) -> str:
        return " or ".join(_enclosed(part) for part in self.parts) if self.parts else "false"


@dataclass(frozen=True, slots=True)
class Not(Predicate):
    """The opposite."""

    part: Predicate

    def evaluate(self, env: Environment) -> Any:
        """Negate the part."""
        result = np.logical_not(self.part.evaluate(env))
        return bool(result) if np.ndim(result) == 0 else result

    def __str__(self) -> str:
        return f"not {_enclosed(self.part)}"


TRUE: Predicate = And(())
FALSE: Predicate = Or(())


def _parts(predicate: Predicate, kind: type[And] | type[Or]) -> tuple[Predicate, ...]:
    return predicate.parts if isinstance(predicate, And | Or) and type(predicate) is kind else (predicate,)


def _enclosed(predicate: Predicate) -> str:
    return f"({predicate})" if isinstance(predicate, And | Or) and len(predicate.parts) > 1 else str(predicate)
