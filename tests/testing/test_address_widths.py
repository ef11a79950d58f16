"""Address widths: no shipped text cuts an address to 32 bits, and every way of cutting one is noticed."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from tracea.testing.address_widths import narrow_addresses

HEADERS = Path(str(files("tracea.emitters.cuda") / "include"))
ADDRESS = "target + row * row_step"
CUTS = (
    "target + static_cast<int32_t>(row * row_step)",
    "target + (int32_t)(row * row_step)",
    "target + int32_t{row * row_step}",
    "target + row * static_cast<int32_t>(row_step)",
    "target + row * row_step % (int64_t{1} << 31)",
    "target + (row * row_step & 0xffffffff)",
    "&target[static_cast<uint32_t>(row * row_step)]",
)


def test_no_header_cuts_an_address() -> None:
    texts = {path.name: path.read_text() for path in HEADERS.rglob("*.h")}
    assert len(texts) > 10
    assert {name: found for name, text in texts.items() if (found := list(narrow_addresses(text)))} == {}


@pytest.mark.parametrize("cut", CUTS)
def test_an_address_that_is_cut_is_noticed(cut: str) -> None:
    text = (HEADERS / "tracea/tiles/store.h").read_text()
    assert text.count(ADDRESS) >= 2
    assert len(list(narrow_addresses(text.replace(ADDRESS, cut, 1)))) >= 1


def test_a_number_of_32_bits_that_takes_the_product_of_a_stride_is_noticed() -> None:
    text = (
        "void f(float* a, int64_t step, int32_t row) {\n    const int32_t skip = row * step;\n    use(a + skip);\n}\n"
    )
    assert list(narrow_addresses(text)) == ["line 2: row * step: a product of 64 bits, cut to 32"]
    assert list(narrow_addresses(text.replace("int32_t skip", "int64_t skip"))) == []


SHARED = """struct gemm_args { int64_t c_stride0; float* workspace; int* flags; };
void gemm(const gemm_args& args) {
  const int64_t c_stride0 = args.c_stride0;
  float* workspace = args.workspace;
  int* flags = args.flags;
  leave(workspace + worker * int64_t{2048} + warp * int64_t{512});
  signal(flags + worker * int64_t{4} + warp);
  use(c + row * c_stride0 + column * 32);
}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("const int64_t c_stride0 = args", "const int c_stride0 = (int)args"),
        ("const int64_t c_stride0 = args", "const int c_stride0 = args"),
        (
            "const int64_t c_stride0 = args.c_stride0",
            "const unsigned c_stride0 = static_cast<unsigned>(args.c_stride0)",
        ),
        ("worker * int64_t{2048}", "worker * 2048"),
        ("worker * int64_t{4}", "worker * 4"),
    ],
)
def test_strides_and_places_of_workers_stay_wide(old: str, new: str) -> None:
    assert old in SHARED
    assert list(narrow_addresses(SHARED)) == []
    assert len(list(narrow_addresses(SHARED.replace(old, new)))) == 1
