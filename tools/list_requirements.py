"""Print what pyproject.toml requires, for `pip install -r`: the runtime's own, then those of the extras named."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def requirements(extras: list[str]) -> list[str]:
    """Return the requirement lines of the project and of ``extras``.

    Raises:
        KeyError: an extra is not in pyproject.toml.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines: list[str] = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return lines


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
