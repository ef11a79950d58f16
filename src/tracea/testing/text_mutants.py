"""Mutants of emitted CUDA: one mechanical mistake each in one line of a kernel's body.

A line that calls something is left out, or gets another number in its template or call arguments, another tile type
without its swizzle, or a sum turned into a difference. A loop or a condition gets another bound, a sharper or a laxer
comparison, or loses a part. A number of 64 bits gets 32, wherever it is declared or written. Declarations of types keep
their place: a text that does not compile is noticed by the compiler, and counts as that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tracea.emitters.kernel_source import KernelSource

__all__ = ["TextMutant", "text_mutants"]

_CALL = re.compile(r"^\s*(?:::)?(?P<name>[a-z]\w*)\s*(?P<template><[^;]*?>)?\((?P<arguments>.*)\);\s*$")
_ASSIGN = re.compile(r"^\s*const u?int(?:32|64)_t (?P<name>\w+) = (?P<value>.+);\s*$")
_FOR = re.compile(r"^\s*for \(.*\) \{\s*$")
_IF = re.compile(r"^\s*if \((?P<condition>.*)\) \{\s*$")
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_ASYNC_STEMS = ("sync_", "_sync", "wait", "commit", "arrive", "expect", "fence", "barrier", "init", "signal", "await")


@dataclass(frozen=True, slots=True)
class TextMutant:
    """A text with one mistake: its family, the line (counted from 1), what it is, and the source that has it."""

    family: str
    line: int
    description: str
    source: KernelSource


def text_mutants(source: KernelSource) -> Iterator[TextMutant]:
    """Yield every mechanical mutant of a kernel's text, line by line."""
    lines = source.text.splitlines()
    plain = {match["name"] for match in re.finditer(r"using (?P<name>\w+) = SharedTile<[^;]*Swizzle<", source.text)}
    shapes = dict(re.findall(r"using (\w+) = SharedTile<([^;]*?), Swizzle<", source.text))
    begin = next((n for n, line in enumerate(lines) if "TRACEA_KERNEL(" in line), len(lines))
    yield from _widths(source, lines)
    for number in range(begin, len(lines)):
        seen: set[str | None] = {lines[number]}
        for family, what, changed in _changes(lines[number], begin == number, plain, shapes):
            if changed in seen:
                continue
            seen.add(changed)
            text = "\n".join([*lines[:number], *([] if changed is None else [changed]), *lines[number + 1 :]]) + "\n"
            yield TextMutant(family, number + 1, f"{lines[number].strip()}: {what}", replace(source, text=text))


def _widths(source: KernelSource, lines: list[str]) -> Iterator[TextMutant]:
    for number, line in enumerate(lines):
        for match in re.finditer(r"\bint64_t\b", line.partition("//")[0]):
            changed = f"{line[: match.start()]}int32_t{line[match.end() :]}"
            text = "\n".join([*lines[:number], changed, *lines[number + 1 :]]) + "\n"
            what = f"{line.strip()}: 64 bits at {match.start()} become 32"
            yield TextMutant("width", number + 1, what, replace(source, text=text))


def _changes(
    line: str, head: bool, swizzled: set[str], shapes: dict[str, str]
) -> Iterator[tuple[str, str, str | None]]:
    if head or line.lstrip().startswith("//"):
        return
    call = _CALL.match(line)
    if call is not None:
        family = "sync" if any(stem in call["name"] for stem in _ASYNC_STEMS) else "call"
        yield family, "left out", None
        if call["template"]:
            yield from _numbers(line, call.start("template"), call.end("template"), family, "template argument")
        yield from _numbers(line, call.start("arguments"), call.end("arguments"), family, "argument")
        yield from _signs(line, call.start("arguments"), call.end("arguments"), family)
        for name in sorted(swizzled):
            for match in re.finditer(rf"\b{name}\b", line):
                changed = f"{line[: match.start()]}SharedTile<{shapes[name]}>{line[match.end() :]}"
                yield "swizzle", f"{name} without its swizzle", changed
        return
    assign = _ASSIGN.match(line)
    if assign is not None and "args." not in line:
        yield from _numbers(line, assign.start("value"), assign.end("value"), "index", "value")
        yield from _signs(line, assign.start("value"), assign.end("value"), "index")
        return
    if _FOR.match(line):
        first, last = line.index("("), line.rindex(")")
        yield from _numbers(line, first, last, "bound", "bound")
        yield from _comparisons(line, "bound")
        return
    condition = _IF.match(line)
    if condition is not None:
        first, last = condition.start("condition"), condition.end("condition")
        yield from _numbers(line, first, last, "bound", "condition")
        yield from _comparisons(line, "bound")
        parts = condition["condition"].split(" && ")
        for part in parts:
            rest = " && ".join(other for other in parts if other is not part) or "true"
            yield "mask", f"without {part}", f"{line[:first]}{rest}{line[last:]}"
        yield "mask", "never", f"{line[:first]}false{line[last:]}"


def _numbers(line: str, first: int, last: int, family: str, what: str) -> Iterator[tuple[str, str, str]]:
    for match in _NUMBER.finditer(line, first, last):
        for value in (int(match[0]) + 1, int(match[0]) - 1):
            text = str(value) if value >= 0 else f"({value})"
            changed = f"{line[: match.start()]}{text}{line[match.end() :]}"
            yield family, f"{what} {match[0]} at {match.start()} becomes {value}", changed


def _signs(line: str, first: int, last: int, family: str) -> Iterator[tuple[str, str, str]]:
    for match in re.finditer(r" (?P<sign>[+-]) (?!0\b)", line[first:last]):
        place = first + match.start("sign")
        other = "-" if match["sign"] == "+" else "+"
        yield family, f"{match['sign']} at {place} becomes {other}", f"{line[:place]}{other}{line[place + 1 :]}"


def _comparisons(line: str, family: str) -> Iterator[tuple[str, str, str]]:
    for match in re.finditer(r" (?P<relation><=|<) ", line):
        other = "<" if match["relation"] == "<=" else "<="
        changed = f"{line[: match.start('relation')]}{other}{line[match.end('relation') :]}"
        yield family, f"{match['relation']} at {match.start('relation')} becomes {other}", changed
