"""Phases: what long work is at, said to whoever listens, so that no step of it is silent."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeAlias

__all__ = ["Teller", "is_told", "phase", "telling"]

Teller: TypeAlias = Callable[[str], object]

_teller: Final[ContextVar[Teller | None]] = ContextVar("tracea.flow.phases", default=None)


def phase(text: str) -> None:
    """Say that a step begins; nobody hears it outside of :func:`telling`."""
    teller = _teller.get()
    if teller is not None:
        teller(text)


def is_told() -> bool:
    """Whether somebody hears of the steps: then nobody else need show them."""
    return _teller.get() is not None


@contextmanager
def telling(teller: Teller | None) -> Generator[None]:
    """Have every step within a ``with`` block told to ``teller``; None leaves the present one in place."""
    if teller is None:
        yield
        return
    token = _teller.set(teller)
    try:
        yield
    finally:
        _teller.reset(token)
