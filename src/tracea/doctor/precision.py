"""Precision: which element type the factors of a product are multiplied in where a target lacks the op's own.

The ladder is bf16, f16, f32. f16 holds 11 bits where bf16 has 8, but ends at 65 504 where bf16 ends at 3.4e38, so it
takes bf16's place only where the factors' magnitudes are known to fit: then each conversion is exact and the products
are the very same. f32 holds both whole.

Worked example: Turing's tensor cores multiply f16 and not bf16. Weights and activations known to lie within 2^-10 and
100 are multiplied there as f16; without that knowledge the fallback goes on to f32, and the plan says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.interval import Enclosure, enclose
from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOption, InvalidShape, VerdictFailed
from tracea.kernels.gemm.amx import MATRIX_TILES
from tracea.kernels.gemm.gpu.requirements import on_tensor_cores

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracea.core.op import Op
    from tracea.kernels.variant import Variant

__all__ = ["Magnitudes", "Precision", "PrecisionStep", "choose_precision", "with_factors"]

_LADDER: Final[Mapping[DType, tuple[DType, ...]]] = {
    DType.BF16: (DType.BF16, DType.F16, DType.F32),
    DType.F16: (DType.F16, DType.F32),
}
_FACTORS: Final = ("a", "b")
# What hardware calls its products of a type: GPU features of the catalogue, then flags of x86-64 and of Arm.
_FEATURES: Final[Mapping[DType, tuple[str, ...]]] = {
    DType.BF16: ("bf16", "amx_bf16", "avx512_bf16"),
    DType.F16: ("mma_f16", "amx_fp16", "avx512_fp16", "asimdhp"),
}
_BF16_BITS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Magnitudes:
    """Bounds of an operand's absolute values: the least that is not zero, and the most."""

    least: float
    most: float

    def __post_init__(self) -> None:
        if not 0.0 < self.least <= self.most:
            raise InvalidOption(
                field="magnitudes",
                got=(self.least, self.most),
                expected="0 < least <= most",
                remedy="give the least non-zero magnitude and the greatest one",
            )

    @classmethod
    def of(cls, array: Any) -> Magnitudes:
        """Return the bounds of an array's values; NaN and infinity count as beyond every bound."""
        values = np.abs(np.asarray(array).astype(np.float64)).ravel()
        if not np.all(np.isfinite(values)):
            return cls(least=5e-324, most=inf)
        spread = values[values > 0.0]
        return cls(least=float(spread.min()), most=float(spread.max())) if len(spread) else cls(least=1.0, most=1.0)

    @classmethod
    def anything(cls, dtype: DType) -> Magnitudes:
        """Return the bounds of a type's finite values."""
        return cls(least=dtype.smallest, most=dtype.largest)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionStep:
    """One rung of the ladder: whether it was taken, and the numbers that decided."""

    dtype: DType
    taken: bool
    because: str

    def __str__(self) -> str:
        return f"{self.dtype.value} {'is used' if self.taken else 'is not used'}: {self.because}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The type that factors are multiplied in, the rungs that led there, and which operands have to be converted first.

    ``casts`` are operands that a conversion comes before; without one, the kernel reads the stored type and widens it.
    ``least`` and ``most`` are the magnitudes that the conversion keeps exact (0 and infinity: all).
    """

    op: str
    requested: DType
    used: DType
    steps: tuple[PrecisionStep, ...]
    casts: tuple[int, ...] = ()
    least: float = 0.0
    most: float = inf

    @property
    def is_fallback(self) -> bool:
        """Whether the factors are multiplied in another type than they are stored in."""
        return self.used is not self.requested

    def check(self, *factors: Any) -> None:
        """Check values before they are converted; nothing happens where the conversion holds every value.

        Raises:
            VerdictFailed: one would overflow, vanish or lose bits; the error has its magnitude and the limit.
        """
        if not self.casts or (self.least == 0.0 and self.most == inf):
            return
        for name, array in zip(_FACTORS, factors, strict=False):
            found = Magnitudes.of(array)
            beyond = found.most > self.most
            if beyond or found.least < self.least:
                raise VerdictFailed(
                    gate=f"range of {self.used.value} in place of {self.requested.value}",
                    kernel=f"{self.op}, operand {name}",
                    got=found.most if beyond else found.least,
                    limit=self.most if beyond else self.least,
                    remedy="plan without bounds on the magnitudes: the factors are then multiplied in f32",
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the precision as plain JSON values."""
        return {
            "requested": self.requested.value,
            "used": self.used.value,
            "casts": list(self.casts),
            "least": self.least,
            "most": None if self.most == inf else self.most,
            "steps": [{"dtype": step.dtype.value, "taken": step.taken, "because": step.because} for step in self.steps],
        }


def choose_precision(
    op: Op,
    target: Any,
    *,
    variants: Iterable[Variant],
    magnitudes: Sequence[Magnitudes | None] = (),
) -> tuple[Precision | None, Op]:
    """Return the precision of an op's factors, and the op as it is then computed.

    None for an op that has no factors, or whose type is not on the ladder: it is computed as it is stored.
    ``magnitudes`` bounds the operands, in order, where they are known.

    Raises:
        InvalidShape: more magnitudes than operands.
    """
    if not isinstance(op, GemmOp) or op.a.dtype is not op.b.dtype or op.a.dtype not in _LADDER:
        return None, op
    if len(magnitudes) > len(op.operands):
        raise InvalidShape(
            field="magnitudes", got=len(magnitudes), expected=len(op.operands), remedy="give one for each operand"
        )
    registered = tuple(variants)

    def running(candidate: GemmOp) -> list[Variant]:
        return [each for each in registered if each.op_type is GemmOp and not each.unmet(candidate, target)]

    requested, steps = op.a.dtype, list[PrecisionStep]()
    for dtype in _LADDER[requested]:
        candidate = op if dtype is requested else with_factors(op, dtype)
        if dtype is DType.F32:
            return _widened(op, candidate, steps, running(op))
        refused = _refusal(candidate, dtype, target, running(candidate))
        limits = _limits(requested, dtype)
        if refused is None and dtype is not requested:
            refused = _out_of_range(op, magnitudes, dtype, limits)
        if refused is not None:
            steps.append(PrecisionStep(dtype=dtype, taken=False, because=refused))
            continue
        because = f"{target.name} multiplies it as it is stored, sums in {op.accumulator.value}"
        if dtype is not requested:
            because = _proved(op, magnitudes, limits)
        steps.append(PrecisionStep(dtype=dtype, taken=True, because=because))
        casts = () if dtype is requested else (0, 1)
        least, most = limits if casts else (0.0, inf)
        found = Precision(
            op=op.key, requested=requested, used=dtype, steps=tuple(steps), casts=casts, least=least, most=most
        )
        return found, candidate
    raise AssertionError("the ladder ends with f32")  # pragma: no cover


def with_factors(op: GemmOp, dtype: DType) -> GemmOp:
    """Return the op with both factors converted to ``dtype``, row-major; sums, epilogue and result stay as they are."""
    a, b = (TensorType(factor.shape, dtype) for factor in (op.a, op.b))
    return replace(op, a=a, b=b, out=op.infer())


def _refusal(op: GemmOp, dtype: DType, target: Any, fitting: Sequence[Variant]) -> str | None:
    """Return why no kernel multiplies a type as it is stored; None where one does."""
    names = [name for name in _FEATURES[dtype] if name in target.features]
    if not names:
        return f"{target.name} does not multiply {dtype.value}"
    if not any(on_tensor_cores(each) for each in fitting) and not _is_best_on_tiles(op, dtype, target, fitting):
        return f"{target.name} multiplies {dtype.value} ({', '.join(names)}), but no kernel here for this op uses that"
    return None


def _is_best_on_tiles(op: GemmOp, dtype: DType, target: Any, fitting: Sequence[Variant]) -> bool:
    """Whether of the kernels that can be printed one on a processor's matrix tiles comes first, which multiply bf16."""
    own = [each for each in fitting if not each.is_library]
    best = max(own, key=lambda each: each.score(op, target), default=None)
    return dtype is DType.BF16 and best is not None and MATRIX_TILES in best.requirements


def _limits(requested: DType, used: DType) -> tuple[float, float]:
    """Return the magnitudes between which every value of one type is a value of the other."""
    if used.holds(requested):
        return 0.0, inf
    # A number of 8 bits is exact while its last bit is no finer than the finest subnormal.
    return used.smallest * 2.0 ** (_BF16_BITS - 1), used.largest


def _out_of_range(
    op: GemmOp, magnitudes: Sequence[Magnitudes | None], dtype: DType, limits: tuple[float, float]
) -> str | None:
    least, most = limits
    for index, name in enumerate(_FACTORS):
        stated = magnitudes[index] if index < len(magnitudes) else None
        bounds = stated or Magnitudes.anything(op.a.dtype)
        known = "" if stated else f", as any {op.a.dtype.value} may, and nothing bounds it"
        if bounds.most > most:
            return f"overflow: |{name}| reaches {bounds.most:.4g}{known}; {dtype.value} ends at {most:g}"
        if bounds.least < least:
            return (
                f"underflow: |{name}| goes down to {bounds.least:.4g}{known}; {dtype.value} is exact from {least:.4g}"
            )
    return None


def _proved(op: GemmOp, magnitudes: Sequence[Magnitudes | None], limits: tuple[float, float]) -> str:
    """Say the intervals that prove a conversion exact, and how far results reach."""
    least, most = limits
    stated = [bounds for bounds in magnitudes[:2] if bounds is not None]
    factors = " and ".join(
        f"{bounds.least:.4g} <= |{name}| <= {bounds.most:.4g}" for name, bounds in zip(_FACTORS, stated, strict=True)
    )
    reach = _reach(op, magnitudes)
    result = op.infer().dtype
    stored = f"results stay within {reach:.4g}, {result.value} ends at {result.largest:.4g}"
    if not reach <= result.largest:
        stored = f"results may pass {result.largest:.4g}, the end of {result.value}, as without the fallback"
    return f"{factors} lie within {least:.4g} and {most:g}, where each conversion is exact; {stored}"


def _reach(op: GemmOp, magnitudes: Sequence[Magnitudes | None]) -> float:
    """Return a bound of the results' magnitudes by intervals: of the sum of k products, then of the epilogue."""
    every = [*magnitudes, *[None] * len(op.operands)]
    bounds = [given or Magnitudes.anything(kind.dtype) for given, kind in zip(every, op.operands, strict=False)]
    k = op.k if isinstance(op.k, int) else op.k.maximum
    if k is None:
        return inf
    # Sums of k rounded products err by less than k/2 + 1 units of eps: the contract's worst case.
    total = k * bounds[0].most * bounds[1].most * (1.0 + (1.0 + k / 2) * op.accumulator.eps)
    inputs: list[Enclosure] = [
        (np.asarray(-most), np.asarray(most)) for most in (total, *(bound.most for bound in bounds[2:]))
    ]
    low, high = enclose(op.epilogue.expr, inputs, op.accumulator)
    reach = float(np.maximum(np.abs(low), np.abs(high)))
    return reach if isfinite(reach) else inf


def _widened(
    op: GemmOp, widened: GemmOp, steps: list[PrecisionStep], fitting: Sequence[Variant]
) -> tuple[Precision, GemmOp]:
    own = [each for each in fitting if not each.is_library]
    how = "kernels widen each element as they read it" if own else "both factors are converted first"
    steps.append(PrecisionStep(dtype=DType.F32, taken=True, because=f"it holds every {op.a.dtype.value}; {how}"))
    found = Precision(
        op=op.key,
        requested=op.a.dtype,
        used=DType.F32,
        steps=tuple(steps),
        casts=() if own else (0, 1),
    )
    return found, op if own else widened
