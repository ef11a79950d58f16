"""Records of cores that differ are kept apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tracea.bench import results
from tracea.doctor import probe_machine


@pytest.mark.parametrize(
    ("masked", "withheld", "end"),
    [
        ((), (), ""),
        (("amx_bf16",), (), "-without-amx_bf16"),
        (("avx512", "amx_bf16"), ("amx_bf16",), "-without-amx_bf16-without-avx512"),
    ],
)
def test_a_core_without_some_of_its_instructions_has_a_folder_of_its_own(
    monkeypatch: pytest.MonkeyPatch, masked: tuple[str, ...], withheld: tuple[str, ...], end: str
) -> None:
    here = probe_machine()
    hardware = replace(here.hardware, masked=masked, withheld=frozenset(withheld))
    monkeypatch.setattr(results, "probe_machine", lambda: replace(here, hardware=hardware))
    assert results.folder_of_this_core(Path("r")) == Path("r") / f"{here.hardware.core}{end}"
