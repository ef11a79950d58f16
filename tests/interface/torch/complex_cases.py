"""One call for each overload of complex numbers, as a user's line may make it; each gives real numbers too."""

from __future__ import annotations

from typing import Any

import torch
from tests.interface.torch.cases import Call, aten, rows

PAIRS = rows(3, 4, 2)
Z = torch.view_as_complex(rows(3, 5, 2))
W = torch.view_as_complex(rows(5, 4, 2))

COMPLEX: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "aten.view_as_complex.default": (
        lambda x: (aten.view_as_complex.default(x) * 2.0, aten.view_as_complex.default(x).abs()),
        (PAIRS,),
    ),
    "aten.view_as_real.default": (
        lambda z: (aten.view_as_real.default(z), aten.view_as_real.default(z * z).flatten(1) + 1.0),
        (Z,),
    ),
    "aten.real.default": (lambda z: (aten.real.default(z) + 1.0, aten.real.default(z + 1.0).sum(0)), (Z,)),
    "aten.imag.default": (lambda z: (aten.imag.default(z) * aten.imag.default(1j * z), z.permute(1, 0)), (Z,)),
    "aten.complex.default": (
        lambda x, y: (aten.complex.default(x, y) - (2.0 - 1.0j), aten.complex.default(x, x[:1])),
        (rows(3, 4), rows(3, 4)),
    ),
    "aten.polar.default": (lambda x, y: aten.polar.default(x, y[0]) / (1.0 + 2.0j), (rows(3, 4), rows(3, 4))),
    "aten._conj.default": (lambda z: (aten._conj.default(z) * z, aten._conj.default(z).sum(1)), (Z,)),
    "aten.conj_physical.default": (lambda z: (aten.conj_physical.default(z) * z).real, (Z,)),
    "aten.mH.default": (lambda z, x: (aten.mH.default(z) @ z, aten.mH.default(x) + 1.0), (Z, rows(3, 5))),
    "aten.adjoint.default": (
        lambda z, x: (aten.adjoint.default(z) @ z, aten.adjoint.default(x) + 1.0),
        (Z, rows(3, 5)),
    ),
    "aten.resolve_conj.default": (lambda z: aten.resolve_conj.default(z.conj()) + z, (Z,)),
    "aten.resolve_neg.default": (lambda z: aten.resolve_neg.default(z.imag) * 2.0, (Z,)),
}
