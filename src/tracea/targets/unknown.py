"""Names that no target has: what is near them, why one that is described has no kernels, and where all names are."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from tracea.errors import InvalidOption
from tracea.targets.entry import cpu_product_names, names
from tracea.targets.gpu import gpu_names, gpu_product_names
from tracea.targets.product import product_names, read_product

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["meant", "near", "target_names", "unknown_target"]

_NEAR: Final = 6  # names of a message
_ALIKE: Final = 3  # of those that are only spelled alike: more would be no guess
_LIKENESS: Final = 0.75  # share of the letters in common, difflib's ratio
_LONGEST: Final = 32  # characters of a name that is compared; the longest there is has 15


def target_names() -> tuple[str, ...]:
    """Return every name that kernels are made for, beside ``host``."""
    return (*names(), *gpu_names(), *cpu_product_names(), *gpu_product_names())


def near(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the known names that begin as this one does, or contain it, or else the few spelled most like it."""
    asked, listed = name.lower()[:_LONGEST], sorted(known)
    if not asked:
        return ()
    found = [each for each in listed if each.startswith(asked)] or [each for each in listed if asked in each]
    return tuple((found or get_close_matches(asked, listed, n=_ALIKE, cutoff=_LIKENESS))[:_NEAR])


def unknown_target(name: str) -> InvalidOption:
    """Return the error that says why there are no kernels for a name, and which names are near it."""
    if name in product_names():
        product = read_product(name)
        architecture = "its architecture" if product.gpu is None else product.gpu.architecture
        return InvalidOption(
            field="target",
            got=name,
            expected="a target that kernels are made for, such as host, avx512, zen4, sm_90a or h200",
            remedy=f"{product.title} is described, but there is no emitter for {architecture} yet, so nothing can be "
            f"chosen, judged or printed for it; its numbers: tracea targets show {name}",
        )
    close = near(name, ("host", *target_names()))
    return InvalidOption(
        field="target",
        got=name,
        expected=f"{' '.join(('host', *names(), *gpu_names()))}, or a product such as zen4 or h200",
        remedy=f"{meant(close)}tracea targets ls lists every name",
    )


def meant(close: tuple[str, ...]) -> str:
    """Return the beginning of a remedy that names what may have been meant, nothing where nothing is near."""
    return f"use {' or '.join(close)}, if that was meant; " if close else ""
