"""A prover of integer inequalities: sound, incomplete, and fast enough to run on every kernel.

``Facts.proves(p)`` shows that ``p >= 0`` follows from the facts by refuting ``p <= -1``. Each monomial counts as one
unknown; what is known of it is added as inequalities: a quotient's and a remainder's definition, a minimum's bounds,
products of factors whose bounds are known. Fourier–Motzkin elimination with division by common factors (which rounds
constants down, as integers allow) then looks for ``-1 >= 0``. Where that fails, each minimum and maximum that occurs
is split into its two cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from types import MappingProxyType

from tracea.semantic.index import Const, FloorDiv, Index, Lookup, Max, Min, Mod, Not, Param, as_index
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.predicate import Predicate
from tracea.semantic.proofs.conditions import alternatives
from tracea.semantic.proofs.elimination import eliminates

__all__ = ["Facts"]

_MAX_SPLITS = 6
_FACTORS = 3  # of fewer, the bounds of products say it


class Facts:
    """An immutable set of polynomials known to be >= 0, with the ranges of tables and the answers given so far."""

    __slots__ = ("_answers", "_ascending", "_bounds_of_tables", "_contradictory", "_excluded", "known", "use_maxima")

    def __init__(
        self,
        known: Iterable[Polynomial] = (),
        *,
        tables: Sequence[tuple[str, Polynomial, Polynomial]] = (),
        ascending: Mapping[str, Polynomial] = MappingProxyType({}),
        use_maxima: bool = False,
    ) -> None:
        self.known: tuple[Polynomial, ...] = tuple(dict.fromkeys(known))
        self._bounds_of_tables = {name: (low, high) for name, low, high in tables}
        self._ascending = ascending  # the number of entries by name
        self.use_maxima = use_maxima
        self._answers: dict[Polynomial, bool] = {}
        self._excluded: dict[tuple[Polynomial, ...], bool] = {}
        self._contradictory: bool | None = None

    def plus(self, more: Iterable[Polynomial]) -> Facts:
        """Return these facts and more."""
        result = Facts((*self.known, *more), use_maxima=self.use_maxima)
        result._bounds_of_tables = self._bounds_of_tables
        result._ascending = self._ascending
        return result

    def intervals(self, table: str) -> tuple[Polynomial, Polynomial] | None:
        """Return how many intervals an ascending table that begins at 0 cuts, and of what; None of another table."""
        low, high = self._bounds_of_tables.get(table, (None, None))
        if table not in self._ascending or high is None or low != Polynomial({}):
            return None
        return self._ascending[table] - 1, high

    def assuming(self, predicate: Predicate) -> tuple[Facts, ...]:
        """Return the cases of a condition, added to these facts: what follows in every case follows from it."""
        return tuple(self.plus(case) for case in alternatives(predicate))

    def with_maxima(self) -> Facts:
        """Return these facts and that no parameter exceeds its maximum."""
        result = self.plus(())
        result.use_maxima = True
        return result

    def proves(self, goal: Polynomial) -> bool:
        """Return whether ``goal >= 0`` was shown."""
        known = goal.constant
        if known is not None and known >= 0:
            return True
        if goal not in self._answers:
            self._answers[goal] = self._refutes([*self.known, -goal - 1], goal.atoms(), _MAX_SPLITS)
        return self._answers[goal]

    def proves_equal(self, left: Polynomial, right: Polynomial) -> bool:
        """Return whether both were shown to be the same."""
        return left == right or (self.proves(left - right) and self.proves(right - left))

    def proves_predicate(self, predicate: Predicate) -> bool:
        """Return whether a condition was shown."""
        return all(self._excludes(case) for case in alternatives(Not(predicate)))

    def _excludes(self, case: Sequence[Polynomial]) -> bool:
        """Return whether a case cannot be: refuted by what bears on its unknowns, or since the facts are."""
        known = [part.constant for part in case]
        if any(value is not None and value < 0 for value in known):
            return True
        atoms = frozenset[Index]().union(*(part.atoms() for part in case))
        key = tuple(case)
        if key not in self._excluded:
            self._excluded[key] = self._refutes([*self.known, *case], atoms, _MAX_SPLITS) or self.contradictory()
        return self._excluded[key]

    def contradictory(self) -> bool:
        """Return whether the facts were shown to exclude each other, so that nothing ever reaches this place."""
        if self._contradictory is None:
            atoms = frozenset[Index]().union(*(fact.atoms() for fact in self.known))
            self._contradictory = self._refutes(list(self.known), atoms, _MAX_SPLITS)
        return self._contradictory

    def _refutes(
        self, constraints: list[Polynomial], atoms: frozenset[Index], splits: int, done: frozenset[Index] = frozenset()
    ) -> bool:
        # Most goals follow from what speaks of their own unknowns: the rest is looked at where that is not enough.
        near, _ = self._relevant(constraints, atoms, hops=1)
        if eliminates((*near, *self._order(near, constraints))):
            return True
        relevant, seen = self._relevant(constraints, atoms)
        relevant = [*relevant, *self._order(relevant, constraints)]
        products = self._products(relevant)
        if eliminates((*relevant, *products)):
            return True
        wholes = self._wholes(relevant, products)
        if wholes and eliminates((*relevant, *products, *wholes)):
            return True
        extreme = (
            next((a for a in sorted(seen - done, key=_text) if isinstance(a, Min | Max)), None) if splits else None
        )
        if extreme is None:
            return False
        this, left, right = Polynomial.atom(extreme), normalize(extreme.left), normalize(extreme.right)
        order = right - left if isinstance(extreme, Min) else left - right
        cases = ((this - left, left - this, order), (this - right, right - this, -order))
        return all(
            self._refutes([*constraints, *case], atoms | left.atoms() | right.atoms(), splits - 1, done | {extreme})
            for case in cases
        )

    def _relevant(
        self, constraints: list[Polynomial], atoms: frozenset[Index], hops: int | None = None
    ) -> tuple[list[Polynomial], set[Index]]:
        """Return the constraints that bear on the goal's unknowns, directly or not, and the definitions of both.

        ``hops`` is how many constraints may lie between.
        """
        chosen: list[Polynomial] = []
        rest = list(dict.fromkeys(constraints))
        seen: set[Index] = set()
        new = set(atoms)
        while new and hops != 0:
            hops = None if hops is None else hops - 1
            seen |= new
            fresh: list[Polynomial] = []
            for atom in sorted(new, key=_text):
                fresh += self._definition(atom)
            linked = {atom for atom in seen if not isinstance(atom, Param)}
            kept: list[Polynomial] = []
            for fact in rest:
                facts_atoms = fact.atoms()
                touches = facts_atoms & linked or facts_atoms <= seen
                (fresh if touches or _is_of_remainders(facts_atoms, seen) else kept).append(fact)
            rest = kept
            chosen += fresh
            new = {atom for fact in fresh for atom in fact.atoms()} - seen
        return list(dict.fromkeys(chosen)), seen

    def _definition(self, atom: Index) -> Sequence[Polynomial]:
        if isinstance(atom, Lookup):
            low, high = self._bounds_of_tables.get(atom.table, (None, None))
            this = Polynomial.atom(atom)
            return () if low is None or high is None else (this - low, high - this)
        if isinstance(atom, Param):
            this = Polynomial.atom(atom)
            return (this - atom.minimum, -this + atom.maximum) if self.use_maxima else (this - atom.minimum,)
        if isinstance(atom, FloorDiv):
            # A quotient of parameters has a least value on sight: its linear definition lacks it, and products need it.
            least = _least_atom(atom)
            if least is not None:
                return (*_definition(atom), Polynomial.atom(atom) - least)
        return _definition(atom)

    def _order(self, chosen: Sequence[Polynomial], constraints: list[Polynomial]) -> list[Polynomial]:
        """Return of the entries of ascending tables that occur which is no smaller than which."""
        if not self._ascending:
            return []
        entries = {atom for p in chosen for atom in p.atoms() if isinstance(atom, Lookup)}
        known = sorted((entry for entry in entries if entry.table in self._ascending), key=_text)
        result: list[Polynomial] = []
        for position, first in enumerate(known):
            for second in known[position + 1 :]:
                if first.table != second.table:
                    continue
                gap, growth = normalize(second.index) - normalize(first.index), Polynomial.atom(second)
                growth = growth - Polynomial.atom(first)
                result += [growth] if self._is_ahead(gap, constraints) else []
                result += [-growth] if self._is_ahead(-gap, constraints) else []
        return result

    def _is_ahead(self, gap: Polynomial, constraints: list[Polynomial]) -> bool:
        """Return whether a difference of positions was shown to be 0 or more, by what bears on it directly."""
        known = gap.constant
        if known is not None:
            return known >= 0
        return eliminates(tuple(self._relevant([*constraints, -gap - 1], gap.atoms(), hops=1)[0]))

    def _products(self, constraints: Sequence[Polynomial]) -> list[Polynomial]:
        """Return bounds of the products that occur: a bound of one factor times another factor less its minimum."""
        pairs = {m for p in constraints for m in p.monomials() if len(m) >= 2}
        if not pairs:
            return []
        linear = [p for p in constraints if all(len(m) <= 1 for m in p.monomials())]
        low = _least(constraints)
        result: list[Polynomial] = []
        for monomial in sorted(pairs, key=lambda m: [a.text for a in m]):
            for position, factor in enumerate(monomial):
                least = low.get(factor)
                if least is None:
                    continue
                others = monomial[:position] + monomial[position + 1 :]
                weight = Polynomial.atom(factor) - least
                if len(others) == 1:
                    bounds = [p for p in linear if (others[0],) in p.terms]
                    result += [bound * weight for bound in bounds]
                    if least > 0:
                        result += [bound * least for bound in bounds]
                elif all(other in low for other in others):
                    result.append(Polynomial({others: 1}) * weight)
        return list(dict.fromkeys(result))

    def _wholes(self, constraints: Sequence[Polynomial], products: Sequence[Polynomial]) -> list[Polynomial]:
        """Return that a product of three factors and more is at least the product of some, times the others' minima.

        Of the products of some, those that occur: all batches' tiles are no fewer than the tiles of two axes of them.
        """
        monomials = {m for p in (*constraints, *products) for m in p.monomials()}
        large = sorted((m for m in monomials if len(m) >= _FACTORS), key=_texts)
        if not large:
            return []
        low = _least(constraints)
        parts = sorted({*monomials, ()}, key=_texts)
        result: list[Polynomial] = []
        for whole in large:
            if any(atom not in low for atom in whole):
                continue
            atoms = set(whole)
            for part in parts:
                if len(part) > len(whole) - 2 or not atoms.issuperset(part):
                    continue
                rest = Counter(whole)
                rest.subtract(part)
                if min(rest.values()) >= 0:
                    least = prod(low[atom] ** count for atom, count in rest.items())
                    result.append(Polynomial({whole: 1}) - Polynomial({part: least}))
        return list(dict.fromkeys(result))


def _least(constraints: Sequence[Polynomial]) -> dict[Index, int]:
    """Return of each atom that has one the largest constant, at least 0, that a constraint gives as a lower bound."""
    found: dict[Index, int] = {}
    for p in constraints:
        least = -p.offset
        if least < 0 or len(p.terms) > 2:
            continue
        match [*p.monomials()]:
            case [(atom,)] if p.terms[atom,] == 1:
                found[atom] = max(least, found.get(atom, 0))
            case _:
                continue
    return found


@lru_cache(maxsize=16_384)
def _definition(atom: Index) -> tuple[Polynomial, ...]:
    this = Polynomial.atom(atom)
    match atom:
        case FloorDiv(left=left, right=right):
            numerator, divisor = normalize(left), normalize(right)
            rest = numerator - divisor * this
            return (rest, divisor - 1 - rest)
        case Mod(left=left, right=right):
            numerator, divisor = normalize(left), normalize(right)
            whole = numerator - divisor * normalize(as_index(left) // right) - this
            return (this, divisor - 1 - this, whole, -whole)
        case Min(left=left, right=right):
            return (normalize(left) - this, normalize(right) - this)
        case Max(left=left, right=right):
            return (this - normalize(left), this - normalize(right))
        case _:
            return ()


def _least_on_sight(polynomial: Polynomial) -> int | None:
    """Return the value at the least parameters, where no term falls with any of them; None elsewhere."""
    result = 0
    for monomial, value in polynomial.terms.items():
        if monomial and value < 0:
            return None
        term = value
        for atom in monomial:
            least = _least_atom(atom)
            if least is None:
                return None
            term *= least
        result += term
    return result if result >= 0 else None


@lru_cache(maxsize=16_384)
def _least_atom(atom: Index) -> int | None:
    """Return the least value of a parameter, or of a quotient of such and of other quotients; None below 0."""
    match atom:
        case Param(minimum=least):
            return least if least >= 0 else None
        case FloorDiv(left=left, right=right):
            least = _least_on_sight(normalize(left))
            if least is None or not isinstance(right, Const):
                return None if least is None else 0
            return least // right.value
        case _:
            return None


def _is_of_remainders(atoms: frozenset[Index], seen: set[Index]) -> bool:
    """Whether a fact speaks of remainders alone, as a guard does, of what is seen."""
    return all(isinstance(atom, Mod) and normalize(atom.left).atoms() <= seen for atom in atoms)


def _text(atom: Index) -> str:
    return atom.text


def _texts(monomial: Sequence[Index]) -> list[str]:
    return [atom.text for atom in monomial]
