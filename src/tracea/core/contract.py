"""Which accuracy contract an op asks for: by element, or by norm."""

from __future__ import annotations

from enum import Enum

from tracea.core.names import meant, near
from tracea.errors import InvalidOption

__all__ = ["Accuracy"]


class Accuracy(Enum):
    """What a result's error is measured against; ``tracea.core.accuracy`` says the bounds.

    The two are the componentwise and the normwise error of numerical analysis (Higham, Accuracy and Stability of
    Numerical Algorithms, 2nd ed., section 1.2).
    """

    ELEMENTWISE = "elementwise"  # against the result's own products: a window of zeros gives zero, NaN stays in place
    NORMWISE = "normwise"  # against the largest pixel and the sum of the taps, of finite images: allows Winograd

    @classmethod
    def of(cls, value: Accuracy | str) -> Accuracy:
        """Return the contract of that name.

        Raises:
            InvalidOption: there is none.
        """
        if isinstance(value, cls):
            return value
        names = [accuracy.value for accuracy in cls]
        if value in names:
            return cls(value)
        raise InvalidOption(
            field="accuracy",
            got=value,
            expected=names,
            remedy=f"{meant(near(str(value), names))}elementwise holds for every input, normwise for finite images",
        )
