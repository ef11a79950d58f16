"""Where kernels on matrix tiles run: on the tiles, and on the arrays that the plain build has in their place."""

from __future__ import annotations

import pytest
from tests.kernels.native import has_tiles

needs_tiles = pytest.mark.skipif(not has_tiles(), reason="this machine has no AMX, or does not grant it")
on_both = pytest.mark.parametrize("isa", [pytest.param("amx", marks=needs_tiles), "plain"])
