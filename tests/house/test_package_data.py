from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

import tracea

SOURCE = Path(__file__).parents[2] / "src" / "tracea"
INSTALLED = Path(tracea.__file__).parent
BUILT = {".pyc", ".so", ".o"}


@pytest.fixture(scope="module")
def shipped() -> list[Path]:
    if INSTALLED == SOURCE:
        pytest.skip("tracea is imported from src; `make test` runs against the installed wheel")
    return sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in BUILT)


def test_the_wheel_holds_every_source_file_byte_for_byte(shipped: list[Path]) -> None:
    assert Path("py.typed") in shipped
    missing = [path for path in shipped if not (INSTALLED / path).is_file()]
    assert missing == []
    differing = [path for path in shipped if (INSTALLED / path).read_bytes() != (SOURCE / path).read_bytes()]
    assert differing == []


def test_the_wheel_has_the_version_of_the_package(shipped: list[Path]) -> None:
    assert version("tracea") == tracea.__version__
