"""A conformance case: a kernel, its inputs, and the outputs that the primitives' contracts demand, bit by bit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracea.emitters.cuda.primitives import PRIMITIVES
from tracea.emitters.kernel_source import KernelSource

__all__ = ["ConformanceCase", "Mismatch", "compare", "conformance_cases"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConformanceCase:
    """Run ``source`` on ``inputs`` with outputs of ``expected``'s shapes and types; the bits must be equal.

    ``zeroed`` names outputs that must hold zeros before the launch (atomics add to them); the others may hold anything.
    """

    name: str
    source: KernelSource
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    zeroed: tuple[str, ...] = ()

    @property
    def primitives(self) -> frozenset[str]:
        """The primitives that the text calls."""
        words = set(re.findall(r"\b[a-z]\w*(?=\s*[<(])", self.source.text))
        return frozenset(primitive.name for primitive in PRIMITIVES if primitive.name in words)

    def outputs(self) -> dict[str, Array]:
        """Return arrays for the outputs, zeros where they must be, else ones in every bit."""
        made = {name: np.zeros(array.shape, array.dtype) for name, array in self.expected.items()}
        for name in made.keys() - set(self.zeroed):
            made[name].view(np.uint8)[...] = 0xFF
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """An output that differs: how many elements, and the first of them with both bit patterns."""

    case: str
    output: str
    count: int
    index: tuple[int, ...] = field(default=())
    got: str = ""
    expected: str = ""

    def __str__(self) -> str:
        """Render on one line."""
        return (
            f"{self.case}: {self.output}: {self.count} element(s) differ, the first {self.index}: "
            f"got {self.got}, expected {self.expected}"
        )


def compare(case: ConformanceCase, outputs: Mapping[str, Array]) -> tuple[Mismatch, ...]:
    """Compare a run's outputs with the expected bits."""
    found: list[Mismatch] = []
    for name, expected in case.expected.items():
        bits = f"u{expected.dtype.itemsize}"
        want, got = expected.view(bits), np.ascontiguousarray(outputs[name]).view(bits)
        differs = np.argwhere(want != got)
        if len(differs):
            index = tuple(int(i) for i in differs[0])
            found.append(
                Mismatch(
                    case=case.name,
                    output=name,
                    count=len(differs),
                    index=index,
                    got=f"0x{int(got[index]):x}",
                    expected=f"0x{int(want[index]):x}",
                )
            )
    return tuple(found)


def conformance_cases(architecture: str) -> tuple[ConformanceCase, ...]:
    """Return all cases of an architecture such as ``sm_90a``; together they call every primitive that it has."""
    from tracea.testing.conformance.matrices import matrix_cases
    from tracea.testing.conformance.memory import memory_cases
    from tracea.testing.conformance.numbers import number_cases
    from tracea.testing.conformance.threads import thread_cases
    from tracea.testing.conformance.tiles import tile_cases
    from tracea.testing.conformance.warpgroups import warpgroup_cases

    return (
        *number_cases(architecture),
        *memory_cases(architecture),
        *thread_cases(architecture),
        *matrix_cases(architecture),
        *tile_cases(architecture),
        *warpgroup_cases(architecture),
    )
