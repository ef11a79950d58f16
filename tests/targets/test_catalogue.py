"""The catalogue: complete, typed, every number with its source."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from tracea import targets
from tracea.core.dtype import DType
from tracea.errors import InvalidOption
from tracea.targets.entry import parse
from tracea.targets.gpu import parse_architecture

GOOD = """
schema_version = 2
name = "little"
isa = "avx2"
[sources.manual]
title = "A manual"
url = "https://example.com/manual.pdf"
[facts]
vector_bytes = { value = 32, source = "manual", figure = "256 bits", note = "8 bits a byte" }
vector_registers = { value = 16, source = "manual", figure = "16 registers" }
fma_per_cycle = { value = 1, source = "manual", figure = "1 a cycle" }
fma_latency_cycles = { value = 5, source = "manual", figure = "5 cycles" }
cores = { value = 1, assumption = "one thread" }
l1d_bytes = { value = 32768, source = "manual", figure = "32 KB" }
l1d_ways = { value = 8, source = "manual", figure = "8-way" }
l2_bytes = { value = 262144, source = "manual", figure = "256 KB" }
l3_bytes = { value = 0, assumption = "none" }
"""


def test_every_instruction_set_has_a_generic_target() -> None:
    assert {targets.load(name).isa for name in targets.names()} == set(targets.ISAS)


@pytest.mark.parametrize("name", targets.names())
def test_every_number_of_a_target_states_its_source_or_its_assumption(name: str) -> None:
    entry = targets.read(name)
    numbers = {field.name for field in dataclasses.fields(entry.target) if field.type == "int"}
    assert set(entry.facts) == numbers
    for field, fact in entry.facts.items():
        _check_origin(fact, field)
    assert entry.target.name == name


@pytest.mark.parametrize("name", targets.gpu_names())
def test_every_limit_of_an_architecture_states_the_figure_and_its_address(name: str) -> None:
    for field, fact in targets.read_gpu(name).facts.items():
        _check_origin(fact, field)
        assert fact.source is not None, field


def _check_origin(fact: targets.Fact, field: str) -> None:
    if fact.source is None:
        assert len(fact.assumption) > 10, field
        return
    assert re.match(r"https://[\w.-]+\.\w+/\S+$", fact.source.url), field
    assert len(fact.source.title) > 5, field
    assert re.search(r"\d", fact.figure), field


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
        ("schema_version = 2", "schema_version = 1", "schema_version: got 1"),
        ('{ value = 16, source = "manual", figure = "16 registers" }', "{ value = 16 }", "exactly one of source and"),
        ('{ value = 0, assumption = "none" }', '{ value = 0, assumption = "x", source = "y" }', "exactly one"),
        ('{ value = 0, assumption = "none" }', '{ value = 0, assumption = " " }', "an assumption is a reason"),
        ('{ value = 0, assumption = "none" }', '{ value = 0, assumption = "x", figure = "0" }', "without figure"),
        # A document and a chapter, as long as they like, are no address; a source without a figure is none either.
        ('source = "manual", figure = "16 registers"', 'source = "A manual, chapter 3"', "does not say 16"),
        (
            'source = "manual", figure = "16 r',
            'source = "A manual, chapter 3", figure = "16 r',
            "not described.*chapter 3",
        ),
        ('url = "https://example.com/manual.pdf"', 'url = "chapter 3"', "https address"),
        ('url = "https://example.com/manual.pdf"', "", "missing required field `url`"),
        ("[facts]", '[sources.idle]\ntitle = "t"\nurl = "https://example.com"\n[facts]', "without a number.*idle"),
        ('figure = "16 registers"', 'figure = "8 registers"', "does not say 16"),
        ('figure = "16 registers"', 'figure = "sixteen registers", note = "by name"', "has no number"),
        ("value = 16,", 'value = "16",', "Expected `int`"),
        ("value = 32,", "value = 48,", "a power of two"),
        (
            'value = 262144, source = "manual", figure = "256 KB"',
            'value = 0, source = "manual", figure = "0"',
            "at least 1",
        ),
        ('isa = "avx2"', 'isa = "sse9"', "isa: got sse9"),
        ("l2_bytes", "l9_bytes", "l9_bytes"),
        ("[facts]", "[facts", "TOML|Expected"),
        ('name = "little"', 'name = "little"\nspeed = 9', "speed"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_place(old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidOption, match=complaint):
        parse(GOOD.replace(old, new, 1), origin="little.toml")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("schema_version = 2", "schema_version = 1", "got .1, 'sm_80'.|got .*1.*sm_80"),
        (
            'source = "libcudacxx", figure = "traits_t: warp_size = 32"',
            'source = "CUDA guide, chapter 5"',
            "not say 32",
        ),
        (
            'source = "libcudacxx", figure = "traits_t: w',
            'source = "guide", figure = "traits_t: w',
            "not described.*guide",
        ),
        ('figure = "traits_t: warp_size = 32"', 'figure = "traits_t: warp_size = 64"', "does not say 32"),
        ("https://github.com/NVIDIA", "the file of NVIDIA", "https address"),
        ('name = "sm_80"', 'name = "sm_81"', "sm_81"),
        ("[facts]", "[facts", "TOML|Expected"),
    ],
)
def test_an_architecture_with_a_mistake_is_refused_with_its_place(old: str, new: str, complaint: str) -> None:
    text = (Path(targets.__file__).parent / "catalog" / "cuda" / "sm_80.toml").read_text(encoding="utf-8")
    assert old in text
    assert parse_architecture(text, name="sm_80").facts["warp_lanes"].value == 32
    with pytest.raises(InvalidOption, match=complaint):
        parse_architecture(text.replace(old, new, 1), name="sm_80")


def test_a_target_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        targets.load("avx2").cores = 4  # type: ignore[misc]
