"""Products: all that were asked for are there, every number has its source and figure, and no two contradict."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from tracea import targets
from tracea.errors import InvalidOption
from tracea.targets import entry, gpu, product
from tracea.targets.product import parse_product

ASKED_GENERIC = {"avx2", "avx512", "amx", "neon"}
ASKED = {
    *("skylake_sp", "zen3", "zen4", "zen5", "graviton3"),
    *("rtx_3070", "a100", "l4", "rtx_4090", "h100", "h200", "b200", "rtx_5090"),
    *("mi250x", "mi300x", "mi350x", "rx_7900_xtx"),
    *("m1", "m2", "m3", "m4"),
}
DOCS = Path(__file__).parents[2] / "docs" / "targets.md"

GOOD = """
schema_version = 1
name = "little"
title = "A little GPU"
vendor = "Somebody"
device_names = ["Little"]
[sources.sheet]
title = "A data sheet"
url = "https://example.com/sheet.pdf"
[memory]
bus_bits = { value = 256, source = "sheet", figure = "256-bit" }
mt_per_s = { value = 14000, source = "sheet", figure = "14 Gbps" }
mb_per_s = { value = 448000, source = "sheet", figure = "448 GB/s" }
[cpu]
isa = "neon"
[cpu.facts]
cores = { value = 8, source = "sheet", figure = "8 cores" }
base_clock_mhz = { value = 2000, source = "sheet", figure = "2.0 GHz" }
boost_clock_mhz = { value = 3000, source = "sheet", figure = "3.0 GHz" }
l1d_bytes = { value = 65536, source = "sheet", figure = "64 KB" }
l1d_ways = { value = 8, source = "sheet", figure = "8-way" }
l2_bytes = { value = 1048576, source = "sheet", figure = "1 MB" }
[gpu]
architecture = "gfx9999"
[gpu.facts]
compute_units = { value = 46, source = "sheet", figure = "46 units" }
clock_mhz = { value = 1725, source = "sheet", figure = "1.725 GHz" }
subgroup_lanes = { value = 32, source = "sheet", figure = "32 lanes" }
shared_bytes_per_block = { value = 32768, source = "sheet", figure = "32 KB of 64" }
shared_bytes_per_unit = { value = 65536, source = "sheet", figure = "64 KB" }
[gpu.rates.f16_matrix]
gops = { value = 40600, source = "sheet", figure = "40.6 TFLOPS" }
ops_per_cycle = { value = 512, source = "sheet", figure = "256 multiply-adds", note = "two operations each" }
"""


def products() -> tuple[targets.Product, ...]:
    return tuple(map(targets.read_product, targets.product_names()))


def test_all_the_hardware_that_was_asked_for_is_described() -> None:
    assert set(targets.product_names()) >= ASKED
    assert set(targets.names()) >= ASKED_GENERIC


@pytest.mark.parametrize("name", targets.product_names())
def test_every_number_has_a_source_with_an_address_and_a_figure(name: str) -> None:
    product = targets.read_product(name)
    parts = [part for part in (product.memory, product.cpu, product.gpu) if part is not None]
    numbers = [getattr(part, field.name) for part in parts for field in dataclasses.fields(part)]
    known = [number for number in numbers if isinstance(number, int)]
    rates = [] if product.gpu is None else [n for rate in product.gpu.rates.values() for n in dataclasses.astuple(rate)]
    assert len(product.readings) == len(known) + sum(number is not None for number in rates)
    for path, reading in product.readings.items():
        source = product.sources[reading.source]
        assert source.url.startswith("https://"), path
        assert len(source.title) > 5, path
        assert re.search(r"\d", reading.figure), path


@pytest.mark.parametrize("product", products(), ids=lambda product: product.name)
def test_stated_peaks_and_bandwidths_are_the_product_of_their_factors(product: targets.Product) -> None:
    memory, gpu = product.memory, product.gpu
    if memory.mb_per_s and memory.bus_bits and memory.mt_per_s:
        assert memory.mb_per_s == pytest.approx(memory.bus_bits / 8 * memory.mt_per_s, rel=0.02)
    if gpu is None:
        return
    for rate in gpu.rates.values():
        if rate.gops and rate.ops_per_cycle and gpu.compute_units and gpu.clock_mhz:
            assert rate.gops == pytest.approx(gpu.compute_units * rate.ops_per_cycle * gpu.clock_mhz / 1000, rel=0.02)


def test_most_peaks_and_bandwidths_are_checked_by_their_factors() -> None:
    gpus = [product for product in products() if product.gpu is not None]
    crossed = [
        product.name
        for product in gpus
        if any(rate.gops and rate.ops_per_cycle for rate in (product.gpu.rates if product.gpu else {}).values())
    ]
    assert set(crossed) >= {"a100", "h100", "h200", "b200", "l4", "rtx_4090", "mi250x", "mi300x", "rx_7900_xtx", "m1"}
    wide = [product.name for product in products() if product.memory.mb_per_s and product.memory.mt_per_s]
    assert set(wide) >= {
        "a100",
        "h200",
        "l4",
        "rtx_4090",
        "rtx_5090",
        "mi250x",
        "mi300x",
        "rx_7900_xtx",
        "zen3",
        "zen4",
    }


def test_a_sound_file_is_read() -> None:
    little = parse_product(GOOD, origin="little.toml")
    assert little.gpu is not None
    assert little.gpu.gops("f16_matrix") == 40_600
    assert little.gpu.gops("f8_matrix") is None
    assert little.value("memory.mb_per_s") == little.memory.bandwidth_mb_per_s == 448_000
    with pytest.raises(InvalidOption, match=r"gpu\.l3_bytes: got not stated"):
        little.value("gpu.l3_bytes")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        # What a hurried hand does.
        ('figure = "46 units"', 'figure = ""', "does not say 46"),
        ("value = 46,", "value = 64,", "does not say 64"),
        ('source = "sheet", figure = "46 units"', 'figure = "46 units"', "missing required field `source`"),
        ('source = "sheet", figure = "46 units"', 'source = "rumour", figure = "46 units"', "not described.*rumour"),
        ('[sources.sheet]\ntitle = "A data sheet"', '[sources.sheet]\ntitle = ""', "a title and an https address"),
        ("https://example.com/sheet.pdf", "the internet", "https address"),
        ("[memory]", '[sources.idle]\ntitle = "t"\nurl = "https://example.com"\n[memory]', "without a number.*idle"),
        ("compute_units", "computer_units", "computer_units"),
        ('vendor = "Somebody"', 'vendor = "Somebody"\nprice = 9', "price"),
        ("[gpu.rates.f16_matrix]", "[gpu.rates.f16_magic]", "rates: got.*f16_magic"),
        ("schema_version = 1", "schema_version = 2", "schema version 2"),
        ("[memory]", "[memory", "TOML|Expected"),
        # Numbers that contradict: a sparse peak, another clock, another memory, a wrong unit.
        (
            'value = 40600, source = "sheet", figure = "40.6',
            'value = 81300, source = "sheet", figure = "81.3',
            "within 2%",
        ),
        (
            'value = 1725, source = "sheet", figure = "1.725',
            'value = 1500, source = "sheet", figure = "1.5',
            "within 2%",
        ),
        ('value = 14000, source = "sheet", figure = "14', 'value = 16000, source = "sheet", figure = "16', "within 2%"),
        ('value = 1725, source = "sheet", figure = "1.725 GHz"', 'value = 2, source = "sheet", figure = "2"', "100 to"),
        ("value = 448000,", "value = 448,", "1000 to"),
        (
            'value = 32, source = "sheet", figure = "32 l',
            'value = 48, source = "sheet", figure = "48 l',
            "power of two",
        ),
        ('value = 2000, source = "sheet", figure = "2', 'value = 4000, source = "sheet", figure = "4', "at most boost"),
        ('value = 32768, source = "sheet", figure = "32', 'value = 131072, source = "sheet", figure = "128', "at most"),
        (
            'value = 8, source = "sheet", figure = "8-way"',
            'value = 7, source = "sheet", figure = "7-way"',
            "whole 64-byte",
        ),
    ],
)
def test_a_file_with_a_mistake_is_refused(old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidOption, match=complaint):
        parse_product(GOOD.replace(old, new, 1), origin="little.toml")


def test_a_peak_within_two_percent_is_a_rounded_one() -> None:
    rounded = GOOD.replace(
        'value = 40600, source = "sheet", figure = "40.6', 'value = 41000, source = "sheet", figure = "41'
    )
    assert parse_product(rounded, origin="little.toml").value("gpu.f16_matrix.gops") == 41_000


@pytest.mark.parametrize("name", targets.gpu_names())
def test_an_architecture_takes_its_counts_from_the_product_that_stands_for_it(name: str) -> None:
    folder = Path(targets.__file__).parent / "catalog" / "cuda"
    text = (folder / f"{name}.toml").read_text(encoding="utf-8")
    assert not re.search(r"^(sm_count|clock_mhz|memory_gb_per_s|l2_bytes|f16_fma_per_cycle)\b", text, re.MULTILINE)
    entry = targets.read_gpu(name)
    numbers = {field.name for field in dataclasses.fields(entry.target) if field.type == "int"}
    assert set(entry.facts) == numbers
    assert all(entry.facts[field].value == getattr(entry.target, field) for field in numbers)


def test_a_product_is_a_target_of_its_architecture() -> None:
    h100, h200 = targets.load_gpu("h100"), targets.load_gpu("h200")
    assert h100 == targets.load_gpu("sm_90a")
    assert h200 == dataclasses.replace(h100, product=h200.product, memory_gb_per_s=4_800, l2_bytes=60 << 20)
    assert targets.load_gpu("rtx_3070").sm_count == 46
    assert targets.load_gpu("l4").f16_fma_per_cycle == 2 * targets.load_gpu("rtx_4090").f16_fma_per_cycle
    assert targets.names_gpu("l4")
    assert not targets.names_gpu("mi300x")


def test_a_processor_is_a_target_of_its_instruction_set() -> None:
    zen4 = targets.load("zen4")
    assert (zen4.isa, zen4.fma_per_cycle, zen4.cores, zen4.l2_bytes) == ("avx512", 1, 96, 1 << 20)
    assert "1.0" in targets.read("zen4").facts["fma_per_cycle"].figure
    m1 = targets.load("m1")
    assert m1.l2_bytes == 3 << 20  # a fourth of the cache that four cores share
    assert (m1.cores, m1.page_bytes) == (4, 16_384)
    graviton3 = targets.read("graviton3")
    assert graviton3.facts["fma_latency_cycles"] == targets.read("neon").facts["fma_latency_cycles"]


def test_the_tiles_of_a_core_make_the_stated_operations_in_sixteen_cycles() -> None:
    cpu = targets.read_product("sapphire_rapids").cpu
    assert cpu is not None
    assert cpu.tile_rows is not None
    assert cpu.tile_row_bytes is not None
    pairs = cpu.tile_rows * (cpu.tile_row_bytes // 4) * (cpu.tile_row_bytes // 2)  # rows · float32 columns · bf16 terms
    assert cpu.bf16_tile_ops_per_cycle == 2 * pairs // 16
    assert cpu.i8_tile_ops_per_cycle == 2 * cpu.bf16_tile_ops_per_cycle
    assert targets.load("sapphire_rapids").features >= {"amx_tile", "amx_bf16"}


def test_what_is_described_without_kernels_is_no_target() -> None:
    with pytest.raises(InvalidOption, match="tracea targets show mi300x"):
        targets.load("mi300x")


def test_a_known_core_brings_its_multiply_adds() -> None:
    generic = targets.load("avx512")
    assert targets.of_core("zen4", "avx512") == dataclasses.replace(generic, fma_per_cycle=1, fma_latency_cycles=4)
    assert targets.of_core("zen4", "avx2") == targets.load("avx2")  # its figures are of 512 bits
    assert targets.of_core("zen9", "avx512") == generic
    assert targets.of_core("neoverse_v1", "neon").fma_per_cycle == 4


def test_a_device_is_found_by_the_name_that_its_driver_gives() -> None:
    found = targets.product_of_device("NVIDIA H200")
    assert found is not None
    assert found.name == "h200"
    assert targets.product_of_device("NVIDIA H2") is None
    assert targets.product_of_device("") is None


def test_no_two_products_share_a_name_of_a_device_or_a_core() -> None:
    devices = [device for product in products() for device in product.device_names]
    cores = [product.microarchitecture for product in products() if product.microarchitecture]
    assert len(devices) == len(set(devices))
    assert len(cores) == len(set(cores))


def test_the_numbers_to_check_again_are_those_of_the_catalogue() -> None:
    rows = [
        line.split(" | ", 4) for line in DOCS.read_text(encoding="utf-8").splitlines() if re.match(r"\| \d+ \| `", line)
    ]
    assert len(rows) == 20
    for _, where, value, address, figure in rows:
        name, path = where.strip("`").split(" ")
        product = targets.read_product(name)
        reading = product.readings[path]
        assert int(value.replace(" ", "")) == reading.value, where
        assert product.sources[reading.source].url in address, where
        assert reading.figure.replace("|", "/") in figure, where


@pytest.mark.parametrize(
    ("name", "file", "module"),
    [
        ("h100", "products/h100.toml", "product"),
        ("sm_90a", "cuda/sm_90a.toml", "gpu"),
        ("avx2", "avx2.toml", "entry"),
    ],
)
def test_a_file_that_is_not_utf8_is_refused_by_name_and_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str, module: str
) -> None:
    catalogue = Path(targets.__file__).parent / "catalog"
    shutil.copytree(catalogue, tmp_path / "catalog")
    bad = tmp_path / "catalog" / file
    bad.write_bytes(b"# \xff\n" + bad.read_bytes())
    monkeypatch.setattr(f"tracea.targets.{module}.files", lambda _: tmp_path)
    monkeypatch.setattr(product, "_text", product._text.__wrapped__)  # no cache keeps what stands there now
    read = {"product": product.read_product, "gpu": gpu.read_gpu, "entry": entry.read}[module]
    with pytest.raises(InvalidOption, match=rf"catalogue file {Path(file).name}: got byte 0xff at 2: .*UTF-8"):
        read.__wrapped__(name)
