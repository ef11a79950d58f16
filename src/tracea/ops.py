"""``import tracea.ops``: the module that ``tracea.ops`` is, under the name by which it is imported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import tracea

if TYPE_CHECKING:
    from tracea.interface.functional import *  # noqa: F403

sys.modules[__name__] = tracea.ops
