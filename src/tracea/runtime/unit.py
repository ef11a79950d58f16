"""Translation units: the text that holds several kernels, each of which is compiled once, whatever ops it is for.

Extents and strides are arguments of a kernel, so that ops of other shapes are often printed as the same code under
another name. Compiled under a name that the code decides, they are one kernel of a unit, and one entry of the cache.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from tracea.emitters.kernel_source import KernelSource
from tracea.errors import InvalidOption

__all__ = ["by_code", "in_units", "unit_text"]

_KERNELS: Final = 8  # of a unit: a compiler starts, reads the headers and links in the time of one kernel more
_DIGEST: Final = re.compile(r"[0-9a-f]{20}")  # of the op, at the end of a printed kernel's name


def by_code(source: KernelSource) -> KernelSource:
    """Return a kernel under the name of its code, without the comment that says what op it is for.

    Sources alike but for their names become one. A name that ends in no digest, of a text that no op was printed as,
    stays.
    """
    stem, _, digest = source.name.rpartition("_")
    if not _DIGEST.fullmatch(digest):
        return source
    first, _, rest = source.text.partition("\n")
    code = rest if first.startswith("//") else source.text
    name = f"{stem}_{hashlib.sha256(code.replace(source.name, stem).encode()).hexdigest()[:20]}"
    return replace(source, name=name, text=code.replace(source.name, name))


def in_units(sources: Sequence[KernelSource]) -> list[list[KernelSource]]:
    """Return what has to be compiled, one source of each code, in units that are the same on every machine.

    Like texts are in one unit: what they have in common of our headers is compiled once there. 67 kernels in six such
    units take 27 s of a core in all, in one unit 28 s, in six at random 33 s.

    Raises: InvalidOption: two differ under one name.
    """
    unique = sorted(
        _unique(map(by_code, sources)).values(), key=lambda source: (source.text.replace(source.name, ""), source.name)
    )
    count = -(-len(unique) // _KERNELS)
    bounds = [len(unique) * unit // count for unit in range(count + 1)]
    return [unique[first:last] for first, last in pairwise(bounds)]


def unit_text(sources: Sequence[KernelSource]) -> str:
    """Return the text of one translation unit that holds these kernels, each once.

    Raises: InvalidOption: two differ under one name.
    """
    unique = _unique(sources)
    # Everything is hidden by default; a declaration beforehand exports the kernels and nothing else.
    exports = "".join(
        f'extern "C" __attribute__((visibility("default"))) void {name}(const tracea_call*, int32_t);\n'
        for name in unique
    )
    return f'#include "tracea/abi.h"\n{exports}' + "".join(f"\n{source.text.rstrip()}\n" for source in unique.values())


def _unique(sources: Iterable[KernelSource]) -> dict[str, KernelSource]:
    unique: dict[str, KernelSource] = {}
    for source in sources:
        if unique.setdefault(source.name, source).text != source.text:
            raise InvalidOption(
                field="sources", got=source.name, expected="one text for each name", remedy="compile them apart"
            )
    return unique
