"""A structured writer of C-like text: lines, blocks and section comments, with the indentation kept in one place."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["Writer"]

_INDENT = "  "


class Writer:
    """Collects lines; a block indents what is written inside it and closes its own brace."""

    __slots__ = ("_depth", "_lines")

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        """Write one line at the current depth."""
        if "\n" in text:
            raise ValueError(f"one line a call: got {text!r}")
        self._lines.append(f"{_INDENT * self._depth}{text}" if text else "")

    def comment(self, text: str) -> None:
        """Write a comment that cannot end early or continue on the next line, whatever the text holds."""
        self.line("// " + text.replace("\n", " ").replace("\r", " ").rstrip("\\ "))

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Generator[None]:
        """Write ``head {``, indent what is written inside, and close with ``tail``."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        self.line(tail)

    def text(self) -> str:
        """Return all lines, each ended."""
        if self._depth:
            raise ValueError(f"{self._depth} blocks are still open")
        return "".join(f"{line}\n" for line in self._lines)
