"""Products of one warp on fragments: how each element type loads, multiplies and stores, as executable meanings.

All tensor-core forms look alike in bytes: A is 16 rows of 32 bytes, B 32 bytes of k by 8 columns, so that one
``ldmatrix`` of four 8×16-byte matrices brings A, or B of 16 columns. Architectures with narrower instructions (sm_75)
make the same product of several. ``FmaProduct`` is the form without tensor cores: lanes hold rows and columns of their
own, and multiply every pair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType, round_tf32
from tracea.semantic.access import Intrinsic
from tracea.semantic.lane_map import LaneMap

__all__ = ["FMA_LANES", "FmaProduct", "GroupProduct", "WarpProduct"]

Array = np.ndarray[Any, Any]
Meaning = Callable[..., Any]

_TILES = "emitters/cuda/include/tracea/tiles.h"
_STEP_BYTES: Final = 32  # of k, in one product
FMA_LANES: Final = (4, 8)  # lanes of a warp along rows and along columns


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpProduct:
    """16×8 sums of one warp by tensor cores; ``element`` as PTX calls it: f16, bf16, tf32, s8, e4m3 or e5m2.

    ``native`` is the shape of the instruction that the architecture has, of which a product takes as many as it needs.
    ``converted``: the architecture has none for this type, and the compiler widens the factors for another one.
    """

    element: str
    storage: DType
    accumulator: DType
    native: str
    converted: bool = False

    rows: int = 16
    columns: int = 8
    column_group: int = 2  # fragments of B that one load brings

    @property
    def k(self) -> int:
        """Elements of k in one product."""
        return _STEP_BYTES // self.storage.nbytes

    @property
    def a_shape(self) -> tuple[int, ...]:
        """Shape of the fragment of A: lanes and elements."""
        return (32, LaneMap(self._full, "A").registers)

    @property
    def b_shape(self) -> tuple[int, ...]:
        """Shape of one fragment of B."""
        return (32, LaneMap(self._full, "B").registers)

    @property
    def c_shape(self) -> tuple[int, ...]:
        """Shape of one fragment of sums."""
        return (32, 4)

    @property
    def _full(self) -> str:
        return f"mma.m16n8k{self.k}.{self.element}"

    def load_a(self, *, k_major: bool) -> Intrinsic:
        """Return the load of 16 rows of A from a tile whose rows are rows (``k_major``) or steps of k."""
        places = LaneMap(self._full, "A")

        def meaning(tile: Array) -> Array:
            return self._enter(places.fragment(tile if k_major else tile.T))

        return self._intrinsic("load_a", meaning, major="k" if k_major else "m", source=places.instruction.source)

    def load_b(self, *, k_major: bool) -> Intrinsic:
        """Return the load of 16 columns of B, two fragments, from a tile whose rows are columns or steps of k."""
        places = LaneMap(self._full, "B")

        def meaning(tile: Array) -> Array:
            b_KN = tile.T if k_major else tile
            return self._enter(np.stack([places.fragment(b_KN[:, :8]), places.fragment(b_KN[:, 8:])]))

        return self._intrinsic("load_b", meaning, major="k" if k_major else "n", source=places.instruction.source)

    @property
    def multiply(self) -> Intrinsic:
        """The product of a fragment of A with one of B, added to one of sums."""
        a_places, b_places, c_places = (LaneMap(self._full, operand) for operand in "ABC")
        compute = self.accumulator.numpy

        def meaning(a: Array, b: Array, c: Array) -> Array:
            a_MK, b_KN = a_places.matrix(a).astype(compute), b_places.matrix(b).astype(compute)
            return c_places.fragment(c_places.matrix(c.reshape(32, 4)) + a_MK @ b_KN).reshape(c.shape)

        return self._intrinsic("multiply", meaning, source=a_places.instruction.source, native=self.native)

    @property
    def store(self) -> Intrinsic:
        """The 16×8 tile of a fragment of sums."""
        places = LaneMap(self._full, "C")

        def meaning(fragment: Array) -> Array:
            return places.matrix(fragment.reshape(32, 4))

        return self._intrinsic("store_sums", meaning, source=places.instruction.source)

    def _enter(self, fragment: Array) -> Array:
        return round_tf32(fragment).astype(np.float32) if self.element == "tf32" else fragment

    def _intrinsic(self, name: str, meaning: Meaning, *, source: str, **attributes: str) -> Intrinsic:
        found = (("element", self.element), ("form", "mma"), *attributes.items())
        return Intrinsic(name=name, meaning=meaning, source=f"{_TILES}; {source}", attributes=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProduct:
    """64 rows by ``columns`` sums of a warpgroup by wgmma, both factors in shared memory with rows along k."""

    element: str
    storage: DType
    accumulator: DType
    columns: int

    rows: int = 64
    column_group: int = 1

    @property
    def k(self) -> int:
        """Elements of k in one product."""
        return _STEP_BYTES // self.storage.nbytes

    @property
    def c_shape(self) -> tuple[int, ...]:
        """Shape of the fragment of sums: lanes and elements."""
        return (128, self.columns // 2)

    @property
    def multiply(self) -> Intrinsic:
        """64 rows of A times ``columns`` rows of B, transposed, added to a fragment of sums."""
        places = LaneMap(f"wgmma.m64n{self.columns}k{self.k}.{self.element}", "C")
        compute = self.accumulator.numpy

        def meaning(a_MK: Array, b_NK: Array, c: Array) -> Array:
            product = a_MK.astype(compute) @ b_NK.astype(compute).T
            return c + places.fragment(product).reshape(c.shape)

        attributes = (("element", self.element), ("form", "wgmma"), ("n", self.columns))
        source = f"{_TILES}; {places.instruction.source}"
        return Intrinsic(name="multiply", meaning=meaning, source=source, attributes=attributes)

    @property
    def store(self) -> Intrinsic:
        """The 64×8 tile of four neighbouring elements of a fragment of sums."""
        places = LaneMap(f"wgmma.m64n8k{self.k}.{self.element}", "C")

        def meaning(fragment: Array) -> Array:
            return places.matrix(fragment.reshape(128, 4))

        attributes = (("element", self.element), ("form", "wgmma"))
        return Intrinsic(name="store_sums", meaning=meaning, source=places.instruction.source, attributes=attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FmaProduct:
    """Sums of one warp by multiply-adds of its lanes, 4 by 8 of them: each has ``lane_rows`` × ``lane_columns``.

    A lane's rows are pieces of up to four that lie 4·4 apart between lanes, so that neighbours read neighbours.
    """

    storage: DType
    accumulator: DType
    lane_rows: int
    lane_columns: int
    k: int = 1
    column_group: int = 1

    @property
    def rows(self) -> int:
        """Rows of the warp's tile."""
        return FMA_LANES[0] * self.lane_rows

    @property
    def columns(self) -> int:
        """Columns of the warp's tile."""
        return FMA_LANES[1] * self.lane_columns

    @property
    def a_shape(self) -> tuple[int, ...]:
        """Shape of the fragment of A."""
        return (32, self.lane_rows)

    @property
    def b_shape(self) -> tuple[int, ...]:
        """Shape of the fragment of B."""
        return (32, self.lane_columns)

    @property
    def c_shape(self) -> tuple[int, ...]:
        """Shape of the fragment of sums."""
        return (32, self.lane_rows * self.lane_columns)

    @property
    def _row_of(self) -> Array:
        return _own(np.arange(32) // FMA_LANES[1], self.lane_rows, FMA_LANES[0])

    @property
    def _column_of(self) -> Array:
        return _own(np.arange(32) % FMA_LANES[1], self.lane_columns, FMA_LANES[1])

    def load_a(self, *, k_major: bool) -> Intrinsic:
        """Return the load of one step of A: every lane takes its rows, in the accumulator's type."""
        del k_major  # tiles of this form are steps of k
        row_of, compute = self._row_of, self.accumulator.numpy

        def meaning(tile_KM: Array) -> Array:
            return tile_KM.reshape(-1)[row_of].astype(compute)

        return self._intrinsic("load_a", meaning)

    def load_b(self, *, k_major: bool) -> Intrinsic:
        """Return the load of one step of B: every lane takes its columns, in the accumulator's type."""
        del k_major
        column_of, compute = self._column_of, self.accumulator.numpy

        def meaning(tile_KN: Array) -> Array:
            return tile_KN.reshape(-1)[column_of].astype(compute)

        return self._intrinsic("load_b", meaning)

    @property
    def multiply(self) -> Intrinsic:
        """All products of a lane's rows with its columns, added to its sums."""

        def meaning(a: Array, b: Array, c: Array) -> Array:
            a_LM, b_LN = a.reshape(32, self.lane_rows, 1), b.reshape(32, 1, self.lane_columns)
            return c + (a_LM * b_LN).reshape(c.shape)

        return self._intrinsic("multiply", meaning)

    @property
    def store(self) -> Intrinsic:
        """The tile of all lanes' sums."""
        rows, columns = self._row_of[:, :, None], self._column_of[:, None, :]

        def meaning(fragment: Array) -> Array:
            tile = np.empty((self.rows, self.columns), dtype=fragment.dtype)
            tile[rows, columns] = fragment.reshape(32, self.lane_rows, self.lane_columns)
            return tile

        return self._intrinsic("store_sums", meaning)

    def _intrinsic(self, name: str, meaning: Meaning) -> Intrinsic:
        attributes = (("form", "fma"), ("lane_rows", self.lane_rows), ("lane_columns", self.lane_columns))
        return Intrinsic(name=name, meaning=meaning, source=_TILES, attributes=attributes)


def _own(lane: Array, count: int, lanes: int) -> Array:
    """Return the positions of each lane: pieces of at most four, one after the other, pieces of all lanes together."""
    piece = min(4, count)
    number = np.arange(count)
    return number // piece * (piece * lanes) + lane[:, None] * piece + number % piece
