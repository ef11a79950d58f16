"""Walks over shared tiles count in 64 bits: as many tiles, steps and workers as the guards allow, and cut copies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.emulator import emulate
from tracea.testing.address_widths import narrow_addresses
from tracea.testing.conformance.source import OUT, kernel

INCLUDE = Path(str(files("tracea.emitters"))) / "cuda" / "include" / "tracea"
RING, TURNS = ((INCLUDE / name).read_text(encoding="utf-8") for name in ("tiles/ring.h", "turns.h"))
MOST = 2**31 - 1
PLACES = 4  # of each walk that are looked at

# worker, workers, tiles, steps: as large as a launch may be, and small.
SHARES = ((60_000, 65_536, 2**20, 2_047), (65_535, 65_536, 2**20, 2_047), (7, 8, MOST, 1), (3, 5, 7, 9), (0, 2, 1, 2))
# worker, workers, tiles, steps, share, shares: the last turns of a long walk, and short ones.
WALKS = (
    (59_999, 60_000, MOST, 1, 35_790, 1),
    (131, 132, MOST, 132, 16_268_814, 1),
    (1, 2, 9, 4, 0, 1),
    (0, 2, 9, 4, 1, 2),
)


def segments(share: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield tile, first step, count and last worker of each segment."""
    worker, workers, tiles, steps = share
    position, end = worker * tiles * steps // workers, (worker + 1) * tiles * steps // workers
    while position < end:
        tile, first = divmod(position, steps)
        count = min(steps - first, end - position)
        yield tile, first, count, ((tile + 1) * steps * workers - 1) // (tiles * steps)
        position += count


def turns(walk: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield tile, turn and first use of each turn."""
    worker, workers, tiles, steps, share, shares = walk
    while worker + share * workers < tiles:
        yield worker + share * workers, share, share * steps
        share += shares


def struct_of(header: str, name: str, to: str, *changes: tuple[str, str]) -> str:
    """Return a struct of a header under another name, with changes that must be there."""
    found = re.search(rf"struct {name} \{{.*?\n\}};\n", header, re.DOTALL)
    assert found is not None
    text = found[0]
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return re.sub(rf"\b{name}\b", to, text)


def walked(
    header: str, name: str, problems: tuple[tuple[int, ...], ...], members: tuple[str, ...], *changes: tuple[str, str]
) -> list[list[tuple[int, ...]]]:
    """Return the first places of each walk, by the header's struct with those changes."""
    lines: list[str] = []
    numbers: dict[str, int] = {}  # of a launch: a compiler that knew them would walk by itself
    for number, problem in enumerate(problems):
        names = [f"walk{number}_{i}" for i in range(len(problem))]
        numbers |= dict(zip(names, problem, strict=True))
        lines += [f"{{ Walk walk({', '.join(f'args.{each}' for each in names)}); int32_t place = 0;"]
        lines += [f"while (place < {PLACES} && walk.next()) {{"]
        at = f"args.places + {number * PLACES * len(members)} + place * {len(members)}"
        lines += [f"st_global<int32_t>({at} + {i}, walk.{member});" for i, member in enumerate(members)]
        lines += ["++place; } }"]
    head = "namespace tracea {\n" + struct_of(header, name, "Walk", *changes) + "}\n"
    body = "if (thread_index() == 0) {\n" + "\n".join(lines) + "\n}"
    source = kernel(body, pointers={"places": (DType.I32, OUT)}, integers=tuple(numbers), head=head)
    places = np.full((len(problems), PLACES, len(members)), -1, np.int32)
    emulate(source, {"places": places}, numbers, schedules=(0,), initialised=("places",))
    return [[tuple(map(int, place)) for place in walk if place[0] != -1] for walk in places]


SEGMENT = ("tile", "first", "count", "last")
TURN = ("tile", "turn", "first")
EXPECTED_SEGMENTS = [list(islice(segments(share), PLACES)) for share in SHARES]
EXPECTED_TURNS = [list(islice(turns(walk), PLACES)) for walk in WALKS]


def test_segments_are_those_of_their_meaning_however_many_there_are() -> None:
    assert walked(RING, "Segments", SHARES, SEGMENT) == EXPECTED_SEGMENTS


def test_turns_are_those_of_their_meaning_however_many_there_are() -> None:
    assert walked(TURNS, "Turns", WALKS, TURN) == EXPECTED_TURNS


@pytest.mark.parametrize(
    "change",
    [
        ("int64_t", "int32_t"),
        ("position(worker * tiles * tile_steps /", "position(static_cast<int32_t>(worker * tiles * tile_steps) /"),
        ("end((worker + 1) * tiles * tile_steps /", "end(static_cast<int32_t>((worker + 1) * tiles * tile_steps) /"),
        ("((tile + int64_t{1}) * steps * workers - 1)", "static_cast<int32_t>((tile + 1) * steps * workers - 1)"),
    ],
    ids=["all", "first step", "last step", "last worker"],
)
def test_segments_that_are_cut_to_32_bits_are_noticed(change: tuple[str, str]) -> None:
    assert walked(RING, "Segments", SHARES, SEGMENT, change) != EXPECTED_SEGMENTS


def test_turns_that_are_cut_to_32_bits_are_noticed() -> None:
    assert walked(TURNS, "Turns", WALKS, TURN, ("int64_t", "int32_t")) != EXPECTED_TURNS


@pytest.mark.parametrize("path", sorted((INCLUDE / "tiles").glob("*.h")), ids=lambda path: path.name)
def test_routines_of_tiles_compute_addresses_in_64_bits(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert list(narrow_addresses(text)) == []
    for step in re.finditer(r"\bint64_t (?=\w*step\b)", text):
        cut = f"{text[: step.start()]}int32_t {text[step.end() :]}"
        assert any(narrow_addresses(cut)), text.count("\n", 0, step.start()) + 1
