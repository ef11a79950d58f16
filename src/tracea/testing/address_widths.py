"""Widths of address arithmetic in CUDA text: strides are 64 bits wide, and so is every product of one.

Small arrays do not show a product that is cut to 32 bits: it is read off the text. Worked example: ``a + row *
a_stride0 + first * 32`` is fine where ``a_stride0`` is an ``int64_t``: 32 bits hold every coordinate, as the proof of
index ranges says, and a plain number of tiles, ``first * 32``, is one. With an ``int32_t`` of that name it is not. A
worker's place in a workspace is none: its product is one of 64 bits too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["narrow_addresses"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_POINTER = re.compile(r"[\w>]\*(?: const)? (\w+)\b")
_DECLARED = re.compile(r"\b(int32_t|int64_t) ((?:\w+(?: = [\w.]+)?, (?!(?:u?int|const|T|f|b|e)\w* \w))*\w+)")
_STRUCT = re.compile(r"struct \w+_args \{(.*?)\};", re.DOTALL)
_UNCAST = re.compile(r"\bint32_t (\w+) = args\.\w+;")
# However a stride comes to be one: by a cast or by none, of whatever name 32 bits go by.
_CUT_STRIDE = re.compile(r"\b(?:u?int32_t|int|unsigned|short|u?int16_t) (\w+) = [^;]*\bargs\.\w+_stride\d+\b")
_BY_WORKER = {"workspace", "flags"}  # of stream-K: a worker's part times their number is no coordinate
# What makes 32 bits of an expression: a cast, or a name of that type; and what takes some of its bits.
_CUT = re.compile(r"static_cast<u?int32_t>\(|\bu?int32_t\{|\(u?int32_t\)\s*\(?|\bu?int32_t \w+ = ")
_LOWER = re.compile(r"%|&|>>|\bu?int32_t\b")
_LITERAL = re.compile(r"\d+")
_WIDE = re.compile(r"int64_t\{.*\}|static_cast<int64_t>\(.*\)", re.DOTALL)
_OPEN, _CLOSE = "([{", ")]}"
_ENDS = ",;?:&|=!"


def narrow_addresses(text: str) -> Iterator[str]:
    """Yield each term of an address that is a product of 32-bit factors, and each argument or stride that is cut."""
    code = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    wide, narrow = _names(code, "int64_t"), _names(code, "int32_t")

    def line(offset: int) -> int:
        return code.count("\n", 0, offset) + 1

    for struct in _STRUCT.finditer(code):
        for member in re.finditer(r"\bint32_t (\w+);", struct[1]):
            yield f"line {line(struct.start(1) + member.start())}: {member[1]}: an argument of 32 bits"
    uncast = {cut.start(): cut[1] for cut in _UNCAST.finditer(code)}
    for start, name in uncast.items():
        yield f"line {line(start)}: {name}: an argument of 64 bits, cut to 32"
    for cut in _CUT_STRIDE.finditer(code):
        if cut.start() not in uncast:
            yield f"line {line(cut.start())}: {cut[1]}: a stride of 64 bits, cut"
    whole = wide - narrow
    for cut in _CUT.finditer(code):
        for term in _terms(code, cut.end()):
            if len(factors := _split(term, "*")) > 1 and _is_wide(factors, whole):
                yield f"line {line(cut.start())}: {_joined(term)}: a product of 64 bits, cut to 32"
    for pointer in sorted(set(_POINTER.findall(code))):
        for use in re.finditer(rf"(?<![\w.>]){pointer}\s[+-]\s", code):
            for term in _terms(code, use.end()):
                factors = _split(term, "*")
                if any(_LOWER.search(factor) and _holds(factor, whole) for factor in factors):
                    yield f"line {line(use.start())}: {pointer} + … {_joined(term)}: the lower bits of a stride"
                elif len(factors) > 1 and not _is_wide(factors, whole) and not _is_coordinate(pointer, factors):
                    yield f"line {line(use.start())}: {pointer} + … {_joined(term)}: a product of 32 bits"


def _names(code: str, type_: str) -> set[str]:
    found = [match[2] for match in _DECLARED.finditer(code) if match[1] == type_]
    return {name.split(" ")[0] for names in found for name in names.split(", ")}


def _joined(term: str) -> str:
    return " ".join(term.split())


def _holds(factor: str, names: set[str]) -> bool:
    return not names.isdisjoint(re.findall(r"\w+", factor))


def _is_coordinate(pointer: str, factors: list[str]) -> bool:
    return pointer not in _BY_WORKER and _LITERAL.fullmatch(factors[-1]) is not None


def _is_wide(factors: list[str], wide: set[str]) -> bool:
    return any(factor in wide or _WIDE.fullmatch(factor) for factor in factors)


def _terms(code: str, start: int) -> list[str]:
    """Return the terms of the sum that begins there, to where its expression ends."""
    depth, end = 0, start
    while end < len(code):
        mark = code[end]
        if mark in _OPEN:
            depth += 1
        elif mark in _CLOSE:
            depth -= 1
        if depth < 0 or (depth == 0 and mark in _ENDS and code[end - 1 : end + 1] != "::" and code[end + 1] != ":"):
            break
        end += 1
    return [term for sum_ in _split(code[start:end], "+") for term in _split(sum_, "-")]


def _split(text: str, mark: str) -> list[str]:
    """Return the parts between marks that stand outside of brackets, a space on both sides."""
    parts, depth, last = [""], 0, 0
    for at, each in enumerate(text):
        depth += (each in _OPEN) - (each in _CLOSE)
        if each == mark and depth == 0 and text[at - 1 : at].isspace() and text[at + 1 : at + 2].isspace():
            parts[-1] = text[last:at].strip()
            parts.append("")
            last = at + 1
    parts[-1] = text[last:].strip()
    return parts
