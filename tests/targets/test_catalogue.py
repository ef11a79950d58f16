"""The catalogue: complete, typed, every number with its source."""

from __future__ import annotations

import dataclasses

import pytest

from tracea import targets
from tracea.core.dtype import DType
from tracea.errors import InvalidOption
from tracea.targets.entry import parse

GOOD = """
schema_version = 1
name = "little"
isa = "avx2"
[facts]
vector_bytes = { value = 32, source = "a manual" }
vector_registers = { value = 16, source = "a manual" }
fma_per_cycle = { value = 1, source = "a manual" }
fma_latency_cycles = { value = 5, source = "a manual" }
cores = { value = 1, assumption = "one thread" }
l1d_bytes = { value = 32768, source = "a manual" }
l1d_ways = { value = 8, source = "a manual" }
l2_bytes = { value = 262144, source = "a manual" }
l3_bytes = { value = 0, assumption = "none" }
"""


def test_every_instruction_set_has_a_generic_target() -> None:
    assert {targets.load(name).isa for name in targets.names()} == set(targets.ISAS)


@pytest.mark.parametrize("name", targets.names())
def test_every_number_of_a_target_states_its_source_or_its_assumption(name: str) -> None:
    entry = targets.read(name)
    numbers = {field.name for field in dataclasses.fields(entry.target) if field.type == "int"}
    assert set(entry.facts) == numbers
    for fact in entry.facts.values():
        assert len(fact.source or fact.assumption or "") > 10
    assert entry.target.name == name


def test_lanes_and_peak_follow_from_the_vector_width() -> None:
    avx512 = targets.load("avx512")
    assert avx512.lanes(DType.F32) == 16
    assert avx512.lanes(DType.F64) == 8
    assert avx512.vector_bits == 512
    assert avx512.flops_per_cycle(DType.F32) == 64
    assert avx512.l1d_sets == 64  # 32 KiB, 8 ways, 64-byte lines: addresses 4 KiB apart compete


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidOption, match=r"avx2.*avx512.*neon.*plain"):
        targets.load("avx1024")


@pytest.mark.parametrize("name", ["../avx2", "avx2.toml", "", "a" * 10_000])
def test_a_hostile_name_is_an_unknown_name(name: str) -> None:
    with pytest.raises(InvalidOption):
        targets.load(name)


def test_a_file_is_read_strictly() -> None:
    assert parse(GOOD, origin="little.toml").target.l2_bytes == 262_144


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("schema_version = 1", "schema_version = 2", "schema_version: got 2"),
        ('{ value = 32, source = "a manual" }', "{ value = 32 }", "exactly one of source and assumption"),
        ('{ value = 0, assumption = "none" }', '{ value = 0, assumption = "x", source = "y" }', "exactly one"),
        ('{ value = 32, source = "a manual" }', '{ value = "32", source = "a manual" }', "Expected `int`"),
        ('{ value = 32, source = "a manual" }', '{ value = 48, source = "a manual" }', "a power of two"),
        ("l2_bytes = { value = 262144", "l2_bytes = { value = 0", "at least 1"),
        ('isa = "avx2"', 'isa = "sse9"', "isa: got sse9"),
        ("l2_bytes", "l9_bytes", "l9_bytes"),
        ("[facts]", "[facts", "TOML|Expected"),
        ('name = "little"', 'name = "little"\nspeed = 9', "speed"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_place(old: str, new: str, complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        parse(GOOD.replace(old, new, 1), origin="little.toml")


def test_a_target_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        targets.load("avx2").cores = 4  # type: ignore[misc]
