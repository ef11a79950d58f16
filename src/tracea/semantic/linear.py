"""Polynomials with integer coefficients: the normal form that is compared, simplified and proved about.

A worked example: ``4 * (i + 2) - i`` becomes ``{(): 8, (i,): 3}``. A monomial is a sorted tuple of atoms; an atom is
a variable, a parameter, or a quotient, remainder, minimum, maximum or look-up whose operands are already in normal
form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import gcd

from tracea.semantic.index import Add, Const, FloorDiv, Index, Lookup, Max, Min, Mod, Mul, Param, Var, maximum, minimum

__all__ = ["Monomial", "Polynomial", "normalize", "simplify"]

Monomial = tuple[Index, ...]
_UNIT: Monomial = ()


class Polynomial:
    """An immutable sum of integer multiples of monomials."""

    __slots__ = ("_atoms", "_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = {monomial: value for monomial, value in terms.items() if value}
        self._atoms: frozenset[Index] | None = None
        self._hash: int | None = None

    @staticmethod
    def of(value: int) -> Polynomial:
        """Return a constant."""
        return Polynomial({_UNIT: value})

    @staticmethod
    def atom(index: Index) -> Polynomial:
        """Return the polynomial that is one atom."""
        return Polynomial({(index,): 1})

    @property
    def constant(self) -> int | None:
        """The value where there is no atom, else None."""
        if not self.terms:
            return 0
        return self.terms.get(_UNIT) if len(self.terms) == 1 else None

    @property
    def offset(self) -> int:
        """The constant term."""
        return self.terms.get(_UNIT, 0)

    @property
    def content(self) -> int:
        """The greatest common divisor of all coefficients but the constant one; 0 where there are none."""
        return gcd(*(value for monomial, value in self.terms.items() if monomial))

    def monomials(self) -> Iterable[Monomial]:
        """Return the monomials other than the constant one."""
        return (monomial for monomial in self.terms if monomial)

    def atoms(self) -> frozenset[Index]:
        """Return every atom that occurs."""
        if self._atoms is None:
            self._atoms = frozenset([atom for monomial in self.terms for atom in monomial])
        return self._atoms

    def coefficient(self, monomial: Monomial) -> int:
        """Return the coefficient of a monomial."""
        return self.terms.get(monomial, 0)

    def __add__(self, other: Polynomial | int) -> Polynomial:
        terms = dict(self.terms)
        for monomial, value in _as_polynomial(other).terms.items():
            terms[monomial] = terms.get(monomial, 0) + value
        return Polynomial(terms)

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self + _as_polynomial(other) * -1

    def __neg__(self) -> Polynomial:
        return self * -1

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        if isinstance(other, int):
            return Polynomial({monomial: value * other for monomial, value in self.terms.items()})
        terms: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                monomial = tuple(sorted(left + right, key=_atom_key)) if left and right else left or right
                terms[monomial] = terms.get(monomial, 0) + a * b
        return Polynomial(terms)

    def split(self, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Return (whole, rest) with ``self == divisor * whole + rest``: as much as divides term by term."""
        if self == divisor:
            return Polynomial.of(1), Polynomial({})
        if len(divisor.terms) != 1:
            return Polynomial({}), self
        ((atoms, factor),) = divisor.terms.items()
        whole: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, value in self.terms.items():
            left = list(monomial)
            for atom in atoms:
                if atom not in left:
                    break
                left.remove(atom)
            else:
                if value % factor == 0:
                    whole[tuple(left)] = value // factor
                    continue
            rest[monomial] = value
        return Polynomial(whole), Polynomial(rest)

    def substitute(self, atom: Index, value: Polynomial) -> Polynomial:
        """Return this polynomial with every occurrence of an atom replaced; atoms inside other atoms stay."""
        if not any(atom in monomial for monomial in self.terms):
            return self
        result = Polynomial({})
        for monomial, coefficient in self.terms.items():
            rest = tuple(part for part in monomial if part != atom)
            term = Polynomial({rest: coefficient})
            for _ in range(len(monomial) - len(rest)):
                term = term * value
            result = result + term
        return result

    def to_index(self) -> Index:
        """Return the expression, terms in one deterministic order: atoms by name, the constant last."""
        result: Index = Const(0)
        ordered = sorted(
            self.terms.items(), key=lambda item: (item[0] == _UNIT, item[1] < 0, [a.text for a in item[0]])
        )
        for monomial, value in ordered:
            term: Index = Const(1)
            for atom in monomial:
                term = term * atom
            term = term * value if monomial else Const(value)
            result = result + term
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"Polynomial({self.to_index()})"


@lru_cache(maxsize=65_536)
def simplify(index: Index) -> Index:
    """Return the expression of the normal form."""
    return normalize(index).to_index()


@lru_cache(maxsize=65_536)
def normalize(index: Index) -> Polynomial:
    """Return the polynomial that has the expression's value for all arguments."""
    match index:
        case Const(value=value):
            return Polynomial.of(value)
        case Var() | Param():
            return Polynomial.atom(index)
        case Add(left=left, right=right):
            return normalize(left) + normalize(right)
        case Mul(left=left, right=right):
            return normalize(left) * normalize(right)
        case FloorDiv(left=left, right=right):
            return _quotient(normalize(left), normalize(right))
        case Mod(left=left, right=right):
            return _remainder(normalize(left), normalize(right))
        case Min(left=left, right=right):
            return _extreme(normalize(left), normalize(right), smallest=True)
        case Max(left=left, right=right):
            return _extreme(normalize(left), normalize(right), smallest=False)
        case Lookup(table=table, index=position):
            return Polynomial.atom(Lookup(table, simplify(position)))
        case _:
            raise TypeError(f"not an index expression: {index!r}")


def _quotient(numerator: Polynomial, denominator: Polynomial) -> Polynomial:
    divisor = denominator.constant
    if divisor is None or divisor <= 0:  # a denominator is at least 1: the proofs check it
        whole, rest = numerator.split(denominator)
        return whole + Polynomial.atom(FloorDiv(rest.to_index(), denominator.to_index())) if rest.terms else whole
    if divisor == 1:
        return numerator
    multiples = {m: v // divisor for m, v in numerator.terms.items() if m and v % divisor == 0}
    rest = Polynomial({m: v for m, v in numerator.terms.items() if not m or v % divisor != 0})
    shift, remainder = divmod(rest.offset, divisor)
    if (multiples or shift > 0) and any(v < 0 for m, v in rest.terms.items() if m):
        # What is left may be negative, and text of C++ rounds its quotient towards zero: a numerator as given is not.
        return Polynomial.atom(FloorDiv(numerator.to_index(), denominator.to_index()))
    rest = rest + (remainder - rest.offset)
    outside = Polynomial(multiples) + shift
    common = gcd(rest.content, divisor)
    if common > 1:  # floor((c·x + r) / (c·d)) is floor((x + floor(r / c)) / d)
        rest = Polynomial({m: v // common for m, v in rest.terms.items()})
        divisor //= common
    known = rest.constant
    if known is not None:
        return outside + known // divisor
    if divisor == 1:
        return outside + rest
    return outside + Polynomial.atom(FloorDiv(rest.to_index(), Const(divisor)))


def _remainder(numerator: Polynomial, denominator: Polynomial) -> Polynomial:
    divisor = denominator.constant
    if divisor is None or divisor <= 0:
        rest = numerator.split(denominator)[1]
        return Polynomial.atom(Mod(rest.to_index(), denominator.to_index())) if rest.terms else rest
    rest = Polynomial({m: v % divisor for m, v in numerator.terms.items()})
    known = rest.constant
    return (
        Polynomial.of(known % divisor) if known is not None else Polynomial.atom(Mod(rest.to_index(), Const(divisor)))
    )


def _extreme(left: Polynomial, right: Polynomial, *, smallest: bool) -> Polynomial:
    difference = (left - right).constant
    if difference is not None:
        return left if (difference <= 0) == smallest else right
    a, b = sorted((left.to_index(), right.to_index()), key=lambda operand: operand.text)
    return Polynomial.atom(minimum(a, b) if smallest else maximum(a, b))


def _as_polynomial(value: Polynomial | int) -> Polynomial:
    return Polynomial.of(value) if isinstance(value, int) else value


def _atom_key(atom: Index) -> str:
    return atom.key
