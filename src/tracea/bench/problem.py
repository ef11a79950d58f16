"""Problem: one row of a benchmark - an op with the data it is run on and how its operands are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracea.core.op import GemmOp, Op, PointwiseOp

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An op to be timed.

    ``constant`` names the operands that are weights: known once, so that every contender may prepack them. ``group``
    is the
    line of a summary that the row belongs to.
    """

    name: str
    group: str
    op: Op
    constant: tuple[int, ...] = ()

    def arrays(self, seed: int) -> tuple[NDArray[np.float32], ...]:
        """Return fresh standard-normal operands; a product's weights are scaled so that its results stay near 1."""
        generator = np.random.default_rng(seed)
        made: list[NDArray[np.float32]] = []
        for index, operand in enumerate(self.op.operands):
            data = generator.standard_normal(operand.static_shape, dtype=np.float32)
            if isinstance(self.op, GemmOp) and index == 1:
                data *= np.float32(max(int(self.op.k), 1) ** -0.5)  # pyright: ignore[reportArgumentType]
            made.append(data)
        return tuple(made)

    @property
    def is_chain(self) -> bool:
        """Whether the op is a fused chain of element by element steps."""
        return isinstance(self.op, PointwiseOp)
