"""Integers, counts and floors that a module makes of floats are eager's, whatever they are fused with."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tracea

TABLE = torch.arange(12.0).reshape(12, 1)
LINES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "integers": lambda x: (x * 10).long(),
    "of a difference": lambda x: ((x - 0.1) / 0.1).to(torch.int32),
    "rows of a table": lambda x: TABLE[(x * 10).long()],
    "a count": lambda x: (x * 10 >= 7).sum(),
    "a count of each row": lambda x: ((x + 0.1) * 10 > 3).sum(-1),
    "bytes": lambda x: (x * 255).to(torch.uint8),
    "a floor": lambda x: torch.floor(x * 10),
    "a ceiling as integers": lambda x: torch.ceil(x * 20 / 3).long(),
    "cut off": lambda x: torch.trunc(x * -30),
    "a mask of what is left": lambda x: (x * 1e-7).bool(),
}
# Of 16 bits a chain is rounded once, before its step; eager rounds each operation (docs/torch.md).
OF_SEVERAL = ("of a difference", "a count of each row", "a ceiling as integers")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_steps_are_where_eager_has_them(dtype: torch.dtype, seed: int) -> None:
    class Lines(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(line(x) for line in LINES.values())

    torch.manual_seed(seed)
    tenths = torch.arange(0, 1.1, 0.1, dtype=torch.float64).repeat(40)  # which no float is
    x = torch.cat([tenths, torch.rand(600, dtype=torch.float64)]).reshape(-1, 8).to(dtype)
    fast = tracea.optimize(Lines(), (x,), budget=None, threads=1, listener=lambda *_: None)
    for name, found, wanted in zip(LINES, fast(x), Lines()(x), strict=True):
        assert found.dtype == wanted.dtype
        if dtype.itemsize == 2 and name in OF_SEVERAL:
            continue
        assert torch.equal(found, wanted), (name, x[found != wanted][:5] if found.shape == x.shape else None)
