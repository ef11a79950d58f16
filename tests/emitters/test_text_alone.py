"""A printed kernel includes what it uses: our own builds have all headers before them, who emits a text has not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.conftest import GOLDEN
from tests.kernels.native import COMMON_FLAGS, CXX, ISA_FLAGS

TEXTS = sorted(path.name for path in GOLDEN.glob("*.plain.cpp"))

pytestmark = pytest.mark.skipif(CXX is None, reason="no C++ compiler on the path")


def log_of(text: str) -> str:
    """Return what the compiler says of a text by itself."""
    command = [str(CXX), *COMMON_FLAGS, *ISA_FLAGS["plain"], "-fsyntax-only", "-x", "c++", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_compiles_with_its_own_includes(name: str) -> None:
    assert log_of(Path(GOLDEN / name).read_text(encoding="utf-8")) == ""


def test_a_text_that_lacks_one_does_not() -> None:
    text = (GOLDEN / "gemm.packed.plain.cpp").read_text(encoding="utf-8")
    assert '#include "tracea/gemm.h"\n' in text
    assert "error" in log_of(text.replace('#include "tracea/gemm.h"\n', ""))
