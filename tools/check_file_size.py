"""Refuse source files of more than 600 lines and name those above 400: a file is to be read in one sitting.

Emitted text under tests/golden is exempt, since its length is the kernel's.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "tools", "examples")
SUFFIXES = frozenset({".c", ".cpp", ".cu", ".h", ".hpp", ".metal", ".py"})
EXEMPT = Path("tests/golden")
WARN_LINES = 400
REFUSE_LINES = 600


def line_counts(root: Path) -> dict[Path, int]:
    """Return the number of lines of each source file below ``root``, by path relative to it."""
    counts: dict[Path, int] = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root)
            if path.suffix in SUFFIXES and path.is_file() and not relative.is_relative_to(EXEMPT):
                counts[relative] = path.read_bytes().count(b"\n")
    return counts


def main(root: Path = ROOT) -> int:
    """Print the long files; return 1 if any is too long."""
    counts = line_counts(root)
    refused = {path: lines for path, lines in counts.items() if lines > REFUSE_LINES}
    for path, lines in counts.items():
        if path in refused:
            print(f"{path}: got {lines} lines, limit {REFUSE_LINES}. Remedy: split it by what its parts are about")
        elif lines > WARN_LINES:
            print(f"{path}: {lines} lines, above {WARN_LINES}: consider splitting it")
    print(f"{len(counts)} files, longest {max(counts.values(), default=0)} lines")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
