"""Prepare an emitted text for the emulator: refuse what hides from it, and mark each statement of the kernel.

Worked example. Line 12 of the text, ``cp_async_wait<1>();``, becomes ``tracea::emulator::statement(12);
cp_async_wait<1>();``: line numbers stay, and whatever the statement calls, directly or within a tile routine, a functor
or another function of the text, is reported at line 12.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tracea.errors import EmitError

__all__ = ["check_text", "mark_statements"]

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<directive>(?:(?<=\n)|\A)[ \t]*\#(?:\\\n|[^\n])*)
    |(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
    |(?P<mark>->|::|.)""",
    re.VERBOSE | re.DOTALL,
)

# What reaches memory or other threads without a primitive, and why the emulator could not see it.
_REFUSED: Final = {
    "__shared__": "shared memory is one arena, reached by ld_shared and st_shared",
    "asm": "an instruction is a primitive of the header",
    "__asm__": "an instruction is a primitive of the header",
    "volatile": "memory is reached by primitives",
    "__syncthreads": "say sync_block()",
    "__syncwarp": "say sync_warp()",
    "__threadfence": "say thread_fence()",
    "threadIdx": "say thread_index()",
    "blockIdx": "say block_index()",
    "gridDim": "say block_count()",
    "static": "a variable that all threads share is memory without a primitive",
    "thread_local": "a thread's variables are automatic",
    "new": "device code allocates nothing",
    "delete": "device code allocates nothing",
    "goto": "statements are marked by structure",
}
_BOUNDARIES: Final = ("{", ";", "}")
_REFUSED_PREFIXES: Final = ("__shfl", "__ballot", "__any_sync", "__all_sync", "__ld", "__st", "atomicA", "atomicC")


class _Scope(Enum):
    KERNEL = "kernel"
    FUNCTION = "function"
    CLASS = "class"
    NAMESPACE = "namespace"
    INITIALIZER = "initializer"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int
    line: int


@dataclass(slots=True)
class _Level:
    scope: _Scope
    parentheses: int = 0
    head: list[str] = field(default_factory=list[str])  # tokens since the last boundary


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "mark"
        if kind not in {"space", "directive"}:
            yield _Token(kind, match.group(), match.start(), line)
        line += match.group().count("\n")


def _opened(head: list[str], outer: _Scope) -> _Scope:
    """Return what a ``{`` opens, from the tokens before it since the last boundary."""
    before = head[-1] if head else ""
    words = set(head)
    if before == ")" or before in {"const", "noexcept", "mutable", "else", "do"} or ("->" in head and ")" in head):
        return _Scope.KERNEL if outer is _Scope.KERNEL or "TRACEA_KERNEL" in words else _Scope.FUNCTION
    if words & {"struct", "class", "union", "enum"} and "=" not in head:
        return _Scope.CLASS
    if "namespace" in words or (head[:1] == ["extern"] and len(head) == 2):
        return _Scope.NAMESPACE
    if not head and outer in {_Scope.KERNEL, _Scope.FUNCTION}:
        return outer
    return _Scope.INITIALIZER


def check_text(text: str) -> None:
    """Refuse a text that reaches memory or other threads without a primitive.

    Raw dereferences of global pointers need no rule here: nothing is mapped where they point, so that they trap.

    Raises: EmitError: with the line and what to say instead.
    """
    for token, level in _walk(text):
        reason = _REFUSED.get(token.text) if token.kind == "word" else None
        if token.text == "static" and level.scope is _Scope.CLASS:
            continue
        if reason is None and token.kind == "word" and token.text.startswith(_REFUSED_PREFIXES):
            reason = "an instruction is a primitive of the header"
        if reason is not None:
            raise EmitError(
                node=f"line {token.line}: {text.splitlines()[token.line - 1].strip()}",
                detail=f"{token.text}: {reason}",
                remedy="print a primitive",
            )


def mark_statements(text: str) -> str:
    """Return the text with a call of ``tracea::emulator::statement`` before each statement of a kernel; lines stay."""
    pieces: list[str] = []
    copied = 0
    before = ""
    for token, level in _walk(text):
        inside = level.scope is _Scope.KERNEL and level.parentheses == 0
        if inside and before in _BOUNDARIES and _begins_statement(token, before):
            pieces += [text[copied : token.offset], f"tracea::emulator::statement({token.line}); "]
            copied = token.offset
        before = token.text
    return "".join([*pieces, text[copied:]])


def _begins_statement(token: _Token, before: str) -> bool:
    if before == "}" and token.text in {"else", "while"}:  # the latter may end a do
        return False
    return token.kind == "word" and token.text not in {"case", "default", "struct", "using"}


def _walk(text: str) -> Iterator[tuple[_Token, _Level]]:
    """Yield each token with the level that it stands in; ``{`` and ``}`` stand outside of what they enclose."""
    levels = [_Level(_Scope.NAMESPACE)]
    for token in _tokens(text):
        if token.text == "}" and len(levels) > 1:
            closed = levels.pop()
            if closed.scope is not _Scope.INITIALIZER and levels[-1].parentheses == 0:
                levels[-1].head = []
        level = levels[-1]
        yield token, level
        match token.text:
            case "{":
                levels.append(_Level(_opened(level.head, level.scope)))
            case "(" | "[":
                level.parentheses += 1
                level.head.append(token.text)
            case ")" | "]":
                level.parentheses -= 1
                level.head.append(token.text)
            case ";" if level.parentheses == 0:
                level.head = []
            case "}":
                pass
            case _:
                level.head.append(token.text)
