"""The nodes of integer index expressions: their spelling, their value, and what arithmetic on constants folds to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tracea.errors import InvalidIndex, InvalidSchedule
from tracea.semantic.interned import Interned, made_of
from tracea.semantic.predicate import Compare, Relation

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "Add",
    "Const",
    "FloorDiv",
    "Index",
    "Lookup",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Param",
    "Var",
    "as_index",
]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

Environment = Mapping[str, Any]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Index(metaclass=Interned):
    """An integer expression over loop variables and runtime arguments; the subclasses are its nodes.

    ``==`` is structural equality: equal expressions are one object; ``<``, ``<=``, ``>``, ``>=`` build a
    :class:`Predicate`, as do :func:`equal` and :func:`differs`. Division and remainder are floored, as Python's; the
    proofs show that operands are never negative, where C agrees.
    """

    text: str = field(init=False, repr=False)
    key: str = field(init=False, repr=False)  # tells apart parameters of one name and different ranges

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self._spell(_text))
        object.__setattr__(self, "key", self._spell(_key))

    def _spell(self, spell: Callable[[Index], str]) -> str:
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Index, ...]:
        """The direct sub-expressions, in order."""
        return ()

    def evaluate(self, env: Environment) -> Any:
        """Return the value where ``env`` maps names to integers or arrays, and tables to sequences of integers.

        Raises:
            InvalidSchedule: a name has no value.
            InvalidIndex: a table has no entry of that number.
        """
        match self:
            case Const(value=value):
                return value
            case Var(name=name) | Param(name=name):
                return _look_up(env, name)
            case Lookup(table=table, index=index):
                return _entry(table, np.asarray(_look_up(env, table)), index.evaluate(env))
            case _:
                left, right = (part.evaluate(env) for part in self.parts)
                return _combine(self, left, right)

    def simplify(self) -> Index:
        """Return an expression with the same value for all arguments, in one deterministic form."""
        from tracea.semantic.linear import simplify

        return simplify(self)

    def substitute(self, values: Mapping[str, Index]) -> Index:
        """Return this expression with the variables and parameters named in ``values`` replaced."""
        match self:
            case Var(name=name) | Param(name=name):
                return values.get(name, self)
            case Const():
                return self
            case Lookup(table=table, index=index):
                return Lookup(table, index.substitute(values))
            case _:
                left, right = self.parts
                return type(self)(left.substitute(values), right.substitute(values))  # type: ignore[call-arg]

    def names(self) -> frozenset[str]:
        """Return the names of the variables and parameters that occur; tables are not among them."""
        if isinstance(self, Var | Param):
            return frozenset((self.name,))
        return frozenset[str]().union(*(part.names() for part in self.parts))

    @property
    def constant(self) -> int | None:
        """The value where it is the same for all arguments and the simplifier sees it, else None."""
        simple = self.simplify()
        return simple.value if isinstance(simple, Const) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), made_of(self)

    def __str__(self) -> str:
        return self.text[1:-1] if isinstance(self, Add | Mul | FloorDiv | Mod) else self.text

    def __bool__(self) -> bool:
        raise InvalidSchedule(
            field="index", got=self.text, expected="an integer expression, not a truth value", remedy="compare it"
        )

    def __add__(self, other: Index | int) -> Index:
        return _sum(self, as_index(other))

    def __radd__(self, other: int) -> Index:
        return _sum(as_index(other), self)

    def __sub__(self, other: Index | int) -> Index:
        return _sum(self, -as_index(other))

    def __rsub__(self, other: int) -> Index:
        return _sum(as_index(other), -self)

    def __mul__(self, other: Index | int) -> Index:
        return _times(self, as_index(other))

    def __rmul__(self, other: int) -> Index:
        return _times(as_index(other), self)

    def __floordiv__(self, other: Index | int) -> Index:
        return _quotient(self, as_index(other))

    def __rfloordiv__(self, other: int) -> Index:
        return _quotient(as_index(other), self)

    def __mod__(self, other: Index | int) -> Index:
        return _remainder(self, as_index(other))

    def __rmod__(self, other: int) -> Index:
        return _remainder(as_index(other), self)

    def __neg__(self) -> Index:
        return Const(-self.value) if isinstance(self, Const) else _times(Const(-1), self)

    def __lt__(self, other: Index | int) -> Compare:
        return Compare(Relation.LT, self, as_index(other))

    def __le__(self, other: Index | int) -> Compare:
        return Compare(Relation.LE, self, as_index(other))

    def __gt__(self, other: Index | int) -> Compare:
        return Compare(Relation.LT, as_index(other), self)

    def __ge__(self, other: Index | int) -> Compare:
        return Compare(Relation.LE, as_index(other), self)


@dataclass(frozen=True, slots=True, eq=False)
class Const(Index):
    """An integer that is known when the kernel is built: a Schedule's choice or an instruction's shape."""

    value: int

    def _spell(self, spell: Callable[[Index], str]) -> str:
        return str(int(self.value))  # True is 1, the same node


@dataclass(frozen=True, slots=True, eq=False)
class Var(Index):
    """A variable that a loop or a ``Let`` binds."""

    name: str

    def _spell(self, spell: Callable[[Index], str]) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Param(Index):
    """A runtime int64 argument, a size or a stride in elements; the launcher checks its range."""

    name: str
    minimum: int = 0
    maximum: int = INT32_MAX

    def _spell(self, spell: Callable[[Index], str]) -> str:
        return self.name if spell is _text else f"{self.name}[{self.minimum}..{self.maximum}]"


@dataclass(frozen=True, slots=True, eq=False)
class _Pair(Index):
    sign: ClassVar[str]
    left: Index
    right: Index

    @property
    def parts(self) -> tuple[Index, ...]:
        """Both operands."""
        return (self.left, self.right)

    def _spell(self, spell: Callable[[Index], str]) -> str:
        return f"({spell(self.left)} {self.sign} {spell(self.right)})"


@dataclass(frozen=True, slots=True, eq=False)
class Add(_Pair):
    """Sum."""

    def _spell(self, spell: Callable[[Index], str]) -> str:
        taken = _taken_away(self.right)
        sign, other = ("+", self.right) if taken is None else ("-", taken)
        return f"({spell(self.left)} {sign} {spell(other)})"


@dataclass(frozen=True, slots=True, eq=False)
class Mul(_Pair):
    """Product."""

    sign = "*"


@dataclass(frozen=True, slots=True, eq=False)
class FloorDiv(_Pair):
    """Floored quotient; on a GPU by multiplication where the divisor is an argument (fast division)."""

    sign = "/"


@dataclass(frozen=True, slots=True, eq=False)
class Mod(_Pair):
    """Floored remainder."""

    sign = "%"


@dataclass(frozen=True, slots=True, eq=False)
class Min(_Pair):
    """The smaller one."""

    def _spell(self, spell: Callable[[Index], str]) -> str:
        return f"min({spell(self.left)}, {spell(self.right)})"


@dataclass(frozen=True, slots=True, eq=False)
class Max(_Pair):
    """The larger one."""

    def _spell(self, spell: Callable[[Index], str]) -> str:
        return f"max({spell(self.left)}, {spell(self.right)})"


@dataclass(frozen=True, slots=True, eq=False)
class Lookup(Index):
    """An entry of a table that the host computed: trip counts and coordinates of a tile graph."""

    table: str
    index: Index

    def _spell(self, spell: Callable[[Index], str]) -> str:
        return f"{self.table}[{spell(self.index)}]"

    @property
    def parts(self) -> tuple[Index, ...]:
        """The position."""
        return (self.index,)


def as_index(value: Index | int) -> Index:
    """Return an integer as a constant expression."""
    return value if isinstance(value, Index) else Const(int(value))


def _taken_away(index: Index) -> Index | None:
    """Return what a term subtracts where it is a negative multiple, for spelling."""
    match index:
        case Const(value=value) if value < 0:
            return Const(-value)
        case Mul(left=Const(value=value), right=other) | Mul(left=other, right=Const(value=value)) if value < 0:
            return other if value == -1 else Mul(other, Const(-value))
        case _:
            return None


def _text(index: Index) -> str:
    return index.text


def _key(index: Index) -> str:
    return index.key


def _sum(left: Index, right: Index) -> Index:
    match left, right:
        case Const(value=a), Const(value=b):
            return Const(a + b)
        case Const(value=0), _:
            return right
        case _, Const(value=0):
            return left
        case _:
            return Add(left, right)


def _times(left: Index, right: Index) -> Index:
    match left, right:
        case Const(value=a), Const(value=b):
            return Const(a * b)
        case (Const(value=0), _) | (_, Const(value=0)):
            return Const(0)
        case Const(value=1), _:
            return right
        case _, Const(value=1):
            return left
        case _:
            return Mul(left, right)


def _quotient(left: Index, right: Index) -> Index:
    _refuse_zero(right)
    match left, right:
        case Const(value=a), Const(value=b):
            return Const(a // b)
        case _, Const(value=1):
            return left
        case _:
            return FloorDiv(left, right)


def _remainder(left: Index, right: Index) -> Index:
    _refuse_zero(right)
    match left, right:
        case Const(value=a), Const(value=b):
            return Const(a % b)
        case _, Const(value=1):
            return Const(0)
        case _:
            return Mod(left, right)


def _combine(index: Index, left: Any, right: Any) -> Any:
    scalars = isinstance(left, int) and isinstance(right, int)
    match index:
        case Add():
            return left + right
        case Mul():
            return left * right
        case FloorDiv():
            return left // right
        case Mod():
            return left % right
        case Min():
            return min(left, right) if scalars else np.minimum(left, right)
        case Max():
            return max(left, right) if scalars else np.maximum(left, right)
        case _:
            raise NotImplementedError(index.text)


def _refuse_zero(divisor: Index) -> None:
    if isinstance(divisor, Const) and divisor.value <= 0:
        raise InvalidSchedule(
            field="divisor", got=divisor.value, expected="at least 1", remedy="give a positive tile size"
        )


def _entry(table: str, entries: Any, place: Any) -> Any:
    places = np.asarray(place)
    outside = places[(places < 0) | (places >= len(entries))]
    if outside.size:
        raise InvalidIndex(
            field=table,
            got=int(outside.flat[0]),
            expected=f"0 .. {len(entries) - 1}",
            remedy="give a table of the kernel's length, and look up entries that it has",
        )
    entry = entries[place]
    return int(entry) if np.ndim(entry) == 0 else entry


def _look_up(env: Environment, name: str) -> Any:
    try:
        return env[name]
    except KeyError:
        raise InvalidSchedule(
            field=name, got="no value", expected=sorted(map(str, env)), remedy="bind every parameter and variable"
        ) from None
