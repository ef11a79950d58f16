"""Functors: a scalar expression with its operands as a struct that a tile routine calls for each vector.

Three forms, as the headers ask for them: an epilogue takes a vector of sums and returns one, a load returns what a row
begins
with, a store takes what a row ends with. ``row`` and ``col`` count from the tile's first element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input
from tracea.emitters.cpu.expression import C_TYPES, print_expression
from tracea.emitters.cpu.printer import Printer
from tracea.emitters.writer import Writer
from tracea.semantic.access import Region
from tracea.semantic.index import Const, Index
from tracea.semantic.nodes import Scalar

__all__ = ["epilogue_functor", "load_functor", "store_functor"]

_PLACE = "[[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes"

Operands = Sequence[Region | Scalar]


def epilogue_functor(
    printer: Printer,
    expr: Expr,
    operands: Operands,
    compute: DType,
    *,
    prefetch_columns: int = 0,
    transposed: bool = False,
) -> str:
    """Return the construction of ``V operator()(V x0, row, col, lanes)``; operand i is Input(i + 1).

    ``transposed``: lanes run along the axis before the last, and ``row`` counts the last one.
    With ``prefetch_columns`` it also has ``void prefetch(row, col)``, which asks for as many columns of the operands
    that have rows and columns of C's own.
    """
    parts = _Parts(printer, compute, *((-1, -2) if transposed else (-2, -1)))
    loads = parts.loads(expr, operands, first=1)
    body = Writer()
    first = "" if 0 in expr.inputs() else "[[maybe_unused]] "
    with body.block(f"TRACEA_INLINE V operator()({first}V x0, {_PLACE}) const"):
        body.line(f"return {parts.value(body, expr, loads)};")
    if not prefetch_columns:
        return parts.instance("Epilogue", body)
    prefetch = Writer()
    head = "TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const"
    streams = [load for load in loads.values() if load.startswith("load_") and load.endswith(" + col, lanes)")]
    with prefetch.block(head):
        for load in streams:
            place = load[load.index("(") + 1 : -len(", lanes)")]
            if " row * " in place:
                prefetch.line(f"prefetch_l2({place});")
                prefetch.line(f"prefetch_l2({place} + {prefetch_columns - 1});")
    return parts.instance("Epilogue", body, prefetch)


def load_functor(
    printer: Printer,
    expr: Expr,
    operands: Operands,
    compute: DType,
    *,
    row_axis: int = -2,
    column_axis: int = -1,
    says_again: bool = False,
    says_one_row: bool = False,
    near: bool = False,
    mixed: bool = False,
) -> str:
    """Return the construction of ``V at<V>(row, col, lanes)`` with zero in the lanes beyond; operand i is Input(i).

    ``row_axis`` and ``column_axis`` are the axes, counted from the end, that ``row`` and ``col`` walk. With
    ``says_again`` the functor tells whether it only reads a row as it lies: then reading it twice costs less than
    keeping it, and with ``says_one_row`` whether rows of so many columns follow each other without a gap. With ``near``
    it asks for what comes into the first cache. With ``mixed`` it also has ``V mixed_at<V>(row, col)``, a whole vector
    whose lanes are in the order that ``interleave_mixed`` takes.
    """
    parts = _Parts(printer, compute, row_axis, column_axis)
    loads = parts.loads(expr, operands, first=0)
    of_row = {index: load for index, load in loads.items() if not load.endswith("lanes)")}
    body = Writer()
    with body.block(f"TRACEA_INLINE V at({_PLACE}{', const Numbers<V>& of' if of_row else ''}) const"):
        value = parts.value(body, expr, loads | {index: f"of.v{index}" for index in of_row})
        loaded_alone = isinstance(expr, Input) and not of_row
        # Lanes that are not valid hold what the chain makes of zeros: sums and maxima must not see it.
        body.line(f"return {value if loaded_alone else f'select(lane_mask<V>(lanes), {value}, zero<V>())'};")
    streams = _streams(loads, own=True)
    places = streams or _streams(loads, own=False)
    # What several streams ask for comes into the first cache, what one stream or a row's first pass asks for into the
    # second (measured, 4096x4096: two streams 0.94 of the time, three 0.98; one stream the other way 1.04 to 1.1).
    near = near or (len(places) > 1 and not says_again)
    methods = [body, _prefetch(places, hint="prefetch_l1" if near else "prefetch_l2")]
    if mixed:
        whole = Writer()
        head = "V mixed_at([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col"
        with whole.block(f"TRACEA_INLINE {head}{', const Numbers<V>& of' if of_row else ''}) const"):
            turned = {index: f"of.v{index}" if index in of_row else _mixed(load) for index, load in loads.items()}
            whole.line(f"return {parts.value(whole, expr, turned)};")
        methods.insert(1, whole)
    if of_row:
        methods = [*_numbers(of_row), *methods]
    if says_again:
        again = loaded_alone and len(streams) == 1 and loads[0].startswith("load_partial<V>(")
        methods.insert(0, _line(f"static constexpr bool again = {'true' if again else 'false'};"))
    if says_one_row:
        methods.append(_one_row(loads))
    return parts.instance("Load", *methods)


def store_functor(
    printer: Printer, expr: Expr, operands: Operands, compute: DType, *, target: Region, streaming: bool
) -> str:
    """Return the construction of ``void at<V>(row, col, V x0, lanes)``, which stores the expression of x0."""
    parts = _Parts(printer, compute)
    loads = parts.loads(expr, operands, first=1)
    dtype = printer.buffer(target).dtype
    storage = C_TYPES[dtype]
    place = parts.member(f"{storage}*", "y", printer.address(target))
    row, column = printer.step(target, -2), printer.step(target, -1)
    row_text = "0" if row == Const(0) else parts.stride(row, "y_row")
    body = Writer()
    with body.block("TRACEA_INLINE void at(int64_t row, int64_t col, V x0, int64_t lanes) const"):
        value = parts.value(body, expr, loads)
        if not dtype.is_float:
            value = f"round_to<{storage}>({value})"
        natural = _is_natural(dtype, compute)
        if column in (Const(1), Const(0)) and natural and dtype.is_float:
            kind = f"StoreRows<{storage}, {'true' if streaming else 'false'}>"
            body.line(f"{kind}{{{place}, {row_text}}}.template at<V>(row, col, {value}, lanes);")
            ahead = [f"{kind}{{{place}, {row_text}}}.prefetch(row, col);"]
        else:
            ahead = []
            step = "1" if column in (Const(1), Const(0)) else parts.stride(column, "y_col")
            routine = "store_strided" if natural else "store_strided_as"
            body.line(f"{routine}({place} + row * {row_text} + col * {step}, {step}, {value}, lanes);")
    return parts.instance("Store", body, _prefetch(_streams(loads, own=True), *ahead))


def _mixed(load: str) -> str:
    """Return the load of a whole vector whose lanes are in the order that is interleaved."""
    if load.startswith("load_strided<V>("):
        return f"load_strided_mixed<V>({load.removeprefix('load_strided<V>(').removesuffix(', lanes)')})"
    return f"mixed({load.removesuffix(', lanes)')}, V::lanes))"


def _streams(loads: dict[int, str], *, own: bool) -> list[str]:
    """Return the places that are read along the row; with ``own`` only what other rows do not read as well."""
    streams = [load for load in loads.values() if load.startswith("load_") and load.endswith(" + col, lanes)")]
    return [load[load.index("(") + 1 : -len(", lanes)")] for load in streams if " + row * " in load or not own]


def _numbers(loads: dict[int, str]) -> tuple[Writer, ...]:
    """Return what is one number for a whole row, so that it is loaded once, and ``at`` without it."""
    numbers, loaded, at = Writer(), Writer(), Writer()
    with numbers.block("template <class V> struct Numbers", "};"):
        numbers.line(f"V {', '.join(f'v{index}' for index in loads)};")
    with loaded.block("template <class V> TRACEA_INLINE Numbers<V> numbers([[maybe_unused]] int64_t row) const"):
        loaded.line(f"return {{{', '.join(loads.values())}}};")
    with at.block("TRACEA_INLINE V at(int64_t row, int64_t col, int64_t lanes) const"):
        at.line("return at<V>(row, col, lanes, numbers<V>(row));")
    return numbers, loaded, at


def _one_row(loads: dict[int, str]) -> Writer:
    """Return the method that tells whether what is read of each row lies right behind that of the one before it."""
    steps: list[str] = []
    for load in loads.values():
        place, by_row, step = load.partition(" + row * ")
        if by_row or " + col" in place:
            follows = by_row and place.startswith("load_partial") and step.endswith(" + col, lanes)")
            steps.append(f"{step.removesuffix(' + col, lanes)')} == columns" if follows else "false")
    method = Writer()
    with method.block("TRACEA_INLINE bool is_one_row([[maybe_unused]] int64_t columns) const"):
        method.line(f"return {' && '.join(steps) or 'true'};")
    return method


def _line(text: str) -> Writer:
    writer = Writer()
    writer.line(text)
    return writer


def _prefetch(places: list[str], *lines: str, hint: str = "prefetch_l2") -> Writer:
    """Return the method that asks for a vector's worth at each place, and does what ``lines`` say."""
    method = Writer()
    with method.block("TRACEA_INLINE void prefetch([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col) const"):
        for line in (*(f"{hint}({place});" for place in places), *lines):
            method.line(line)
    return method


def _is_natural(storage: DType, compute: DType) -> bool:
    # Integers load into any vector; float storage into the vector of its own arithmetic.
    return not storage.is_float or (storage is DType.F64) == (compute is DType.F64)


@dataclass(frozen=True, slots=True)
class _Member:
    kind: str
    name: str
    value: str


class _Parts:
    """Collects the members of one functor while its loads and its chain are printed."""

    def __init__(self, printer: Printer, compute: DType, row_axis: int = -2, column_axis: int = -1) -> None:
        self._printer = printer
        self._compute = compute
        self._row_axis = row_axis
        self._column_axis = column_axis
        self._members: list[_Member] = []
        printer.use("vec.h", "math.h", "convert.h")

    def loads(self, expr: Expr, operands: Operands, *, first: int) -> dict[int, str]:
        """Return the text that loads each input that the expression uses; operand i is Input(first + i)."""
        return {index: self._load(operands[index - first], f"x{index}") for index in expr.inputs() if index >= first}

    def value(self, body: Writer, expr: Expr, loads: dict[int, str]) -> str:
        """Write the loads and the chain, and return the name of the result."""
        for index, load in loads.items():
            body.line(f"const V v{index} = {load};")
        return print_expression(body, expr, {0: "x0"} | {index: f"v{index}" for index in loads})

    def member(self, kind: str, name: str, value: str) -> str:
        """Add a member with its value at this call, and return its name."""
        self._members.append(_Member(kind, name, value))
        return name

    def stride(self, step: Index, name: str) -> str:
        """Return a stride as text: a number where it is one, else a member."""
        return str(step.value) if isinstance(step, Const) else self.member("int64_t", name, self._printer.text(step))

    def _load(self, operand: Region | Scalar, name: str) -> str:
        if isinstance(operand, Scalar):
            return f"broadcast<V>(typename V::element({self.member('double', name, operand.name)}))"
        printer = self._printer
        dtype = printer.buffer(operand).dtype
        suffix = "" if _is_natural(dtype, self._compute) else "_as"
        place = self.member(f"const {C_TYPES[dtype]}*", name, printer.address(operand))
        row, column = printer.step(operand, self._row_axis), printer.step(operand, self._column_axis)
        if row != Const(0):
            place += f" + row * {self.stride(row, f'{name}_row')}"
        if column == Const(0):
            return f"load_broadcast{suffix}<V>({place})"
        if column == Const(1):
            return f"load_partial{suffix}<V>({place} + col, lanes)"
        step = self.stride(column, f"{name}_col")
        return f"load_strided{suffix}<V>({place} + col * {step}, {step}, lanes)"

    def instance(self, stem: str, *methods: Writer) -> str:
        """Declare the struct and return its construction at this call."""
        lines = [f"{member.kind} {member.name};" for member in self._members]
        for method in methods:
            text = method.text().splitlines()
            lines += [*(["template <class V>"] if "V " in text[0] else []), *text]
        name = self._printer.declare_struct(stem, lines)
        return f"{name}{{{', '.join(member.value for member in self._members)}}}"
