"""Epilogues as structs: a scalar expression with its operands, applied to a piece of a row of sums."""

from __future__ import annotations

from collections.abc import Sequence

from tracea.core.expr import Expr, Input
from tracea.emitters.cuda.expression import print_expression
from tracea.emitters.cuda.printer import Printer
from tracea.emitters.writer import Writer
from tracea.semantic.access import Region
from tracea.semantic.index import Const
from tracea.semantic.nodes import Scalar

__all__ = ["epilogue_functor"]


def epilogue_functor(printer: Printer, expr: Expr, operands: Sequence[Region | Scalar]) -> str:
    """Return the construction of ``operator()(float (&x0)[width], row, column, count)``; operand i is Input(i + 1)."""
    if expr == Input(0):
        return "Identity{}"
    members: list[tuple[str, str, str]] = []
    loads: list[str] = []
    names = {0: "x0[e]"}
    for index in expr.inputs():
        if index == 0:
            continue
        operand, name = operands[index - 1], f"x{index}"
        if isinstance(operand, Scalar):
            members.append(("float", name, operand.name))
            names[index] = name
            continue
        kind = printer.storage(printer.buffer(operand))
        members.append((f"const {kind}*", name, printer.address(operand)))
        place, step = name, "0"
        for axis, what in ((-2, "row"), (-1, "column")):
            stride = printer.step(operand, axis)
            if stride == Const(0):
                continue
            if stride == Const(1):
                text = "1"
            else:
                text = f"{name}_{what}"
                members.append(("int64_t", text, printer.text(stride)))
            place += f" + {what}" if text == "1" else f" + {what} * {text}"
            step = text if axis == -1 else step
        loads += [f"float v{index}[width];", f"load_piece(v{index}, {place}, {step}, count);"]
        names[index] = f"v{index}[e]"
    body = Writer()
    body.line("template <int width>")
    unused = "[[maybe_unused]] "
    head = f"{unused}int32_t row, {unused}int32_t column, {unused}int32_t count"
    with body.block(f"TRACEA_DEVICE void operator()(float (&x0)[width], {head}) const"):
        for line in loads:
            body.line(line)
        body.line("TRACEA_UNROLL")
        with body.block("for (int e = 0; e < width; ++e)"):
            body.line(f"x0[e] = {print_expression(body, expr, names)};")
    lines = [f"{kind} {name};" for kind, name, _ in members]
    struct = printer.declare_struct("Epilogue", [*lines, *body.text().splitlines()])
    return f"{struct}{{{', '.join(value for _, _, value in members)}}}"
