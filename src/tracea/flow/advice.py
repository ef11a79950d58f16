"""Advice: what a trial from elsewhere has to be before it is kept, so that nothing is stored that no search could use.

Whether a schedule is one of an op's is known only with the op: a search that meets one that is not says so and leaves
it out. Here is asked what can be said without it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracea.errors import InvalidSchedule
from tracea.kernels.registry import CUDA_VARIANTS, VARIANTS
from tracea.semantic.schedule import Schedule
from tracea.targets.unknown import meant, near

if TYPE_CHECKING:
    from tracea.optimizer.records import TrialRecord
    from tracea.optimizer.space import Value

__all__ = ["why_refused"]

_KEY: Final = re.compile(r"[A-Za-z0-9_]{1,300}")
_MOST: Final = 2**31 - 1  # of a number in a schedule; kernels count in 32 bits


def why_refused(record: TrialRecord) -> str:
    """Return why no search could take a trial's advice; empty where one could."""
    if not _KEY.fullmatch(record.key.op_key):
        return f"op {_short(record.key.op_key)} is the key of no op"
    known = {variant.id: variant for variant in (*VARIANTS, *CUDA_VARIANTS)}
    name = record.key.variant
    if name and name not in known:  # a record from before trials said their variant has an empty one
        return f"this release has no variant {_short(name)}{_hint(name, tuple(known))}"
    if name and known[name].is_library and record.schedule:
        return f"{name} is a library's, which has no schedule of ours, and this one has {len(record.schedule)} values"
    try:
        Schedule({key: _possible(key, value) for key, value in record.schedule.items()})
    except InvalidSchedule as error:
        return error.statement()
    return ""


def _possible(name: str, value: Value) -> int | str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise InvalidSchedule(
            field=f"schedule value {_short(name)}",
            got=value,
            expected=f"a word or a whole number from 0 to {_MOST}",
            remedy="measure it again",
        )
    return value


def _hint(name: str, known: tuple[str, ...]) -> str:
    hint = meant(near(name, known)).removesuffix("; ")
    return f" ({hint})" if hint else ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
