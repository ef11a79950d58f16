"""Arrays of registers in emitted text: every index that the loops around it reach lies within the array.

A compiler says nothing of an index beyond an array whose element is passed on by reference, and what it makes of it is
undefined. Loops over registers have constant bounds, so that all their iterations can be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

__all__ = ["register_overruns"]

_DECLARED = re.compile(r"^\s*(?:uint32_t|int32_t|float|double|f16|bf16|e4m3|e5m2|int8_t) (\w+)((?:\[\d+\])+);\s*$")
_LOOP = re.compile(r"^\s*for \(int32_t (\w+) = 0; \1 (<=|<) (\d+); (?:\+\+\1|\1 \+= (\d+))\) \{\s*$")
_INDEX = re.compile(r"[\w\s+\-*/%()]+")
_MOST = 4096


def register_overruns(text: str) -> Iterator[str]:
    """Yield each place where an array of registers is indexed beyond its end, with the index."""
    arrays: dict[str, tuple[int, ...]] = {}
    loops: list[tuple[str, range] | None] = []
    for number, line in enumerate(text.splitlines(), start=1):
        declared = _DECLARED.match(line)
        if declared is not None:
            arrays[declared[1]] = tuple(int(size) for size in re.findall(r"\d+", declared[2]))
            continue
        code = line.partition("//")[0]
        values = dict(loop for loop in loops if loop is not None)
        for name, extents in arrays.items():
            for match in re.finditer(rf"\b{name}((?:\[[^\[\]]*\])+)", code):
                for index, extent in zip(re.findall(r"\[([^\[\]]*)\]", match[1]), extents, strict=False):
                    worst = _beyond(index, extent, values)
                    if worst is not None:
                        yield f"line {number}: {match[0]}: {index} is {worst}, the array has {extent}"
        opened, closed = code.count("{"), code.count("}")
        for _ in range(min(closed, len(loops))):
            loops.pop()
        loop = _LOOP.match(code)
        for _ in range(opened):
            loops.append(None)
        if loop is not None:
            last = int(loop[3]) + (loop[2] == "<=")
            loops[-1] = (loop[1], range(0, last, int(loop[4] or 1)))


def _beyond(index: str, extent: int, values: dict[str, range]) -> int | None:
    """Return a value of an index that is out of range; None where there is none or it is not known."""
    names = sorted(set(re.findall(r"[A-Za-z_]\w*", index)))
    if not _INDEX.fullmatch(index) or any(name not in values for name in names):
        return None
    size = 1
    for name in names:
        size *= len(values[name])
    if size > _MOST:
        return None
    spelled = index.replace("/", "//")
    for point in product(*(values[name] for name in names)):
        value = int(eval(spelled, {"__builtins__": {}}, dict(zip(names, point, strict=True))))
        if not 0 <= value < extent:
            return value
    return None
