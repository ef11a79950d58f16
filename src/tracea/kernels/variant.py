"""Variant: one algorithm family as data - what it requires and prefers, its schedules, and how its kernel is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tracea.errors import InvalidSchedule

if TYPE_CHECKING:
    from tracea.core.tensor_type import TensorType
    from tracea.kernels.space import ScheduleSpace
    from tracea.semantic.schedule import Schedule
    from tracea.semantic.tile_kernel import TileKernel

# A backend's own target: Target of the CPU, GpuTarget of a GPU. A variant's functions take that of its backend.
AnyTarget: TypeAlias = Any

__all__ = ["AnyTarget", "Preference", "Requirement", "Unmet", "Variant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """Why a requirement does not hold, in numbers or names: the data of a doctor's Rejection."""

    needed: str
    found: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A condition on (op, target) without which the variant cannot be built; ``check`` returns None where it holds.

    ``of_target``: it asks of the target alone, so that no change of the op can meet it.
    """

    name: str
    check: Callable[[Any, AnyTarget], Unmet | None]
    of_target: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """A reason to try a variant earlier or later: ``score`` is added to its priority where nothing was measured."""

    name: str
    score: Callable[[Any, AnyTarget], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """An algorithm family for one kind of op on one backend.

    ``build`` is None for a library entry: its requirements are known here, and the runtime's library port runs it.

    A variant with a ``constant_operand`` reads that operand in a layout of its own: ``build_pack`` is the kernel that
    makes it from the op's operand, once, and ``pack_type`` its type.
    """

    id: str
    op_type: type
    backend: str
    requirements: tuple[Requirement, ...]
    preferences: tuple[Preference, ...]
    priority: int
    build: Callable[[Any, Schedule, AnyTarget], TileKernel] | None
    space: Callable[[Any, AnyTarget], ScheduleSpace] | None
    default_schedule: Callable[[Any, AnyTarget], Schedule] | None
    constant_operand: int | None = None
    build_pack: Callable[[Any, Schedule, AnyTarget], TileKernel] | None = None
    pack_type: Callable[[Any, Schedule, AnyTarget], TensorType] | None = None

    def __post_init__(self) -> None:
        parts = (self.build is None, self.space is None, self.default_schedule is None)
        if any(parts) != all(parts):
            raise InvalidSchedule(
                field=f"variant {self.id}",
                got="some of build, space, default_schedule",
                expected="all three, or none for a library entry",
                remedy="give the missing function",
            )

    @property
    def is_library(self) -> bool:
        """Whether a library runs this variant instead of a kernel of ours."""
        return self.build is None

    def unmet(self, op: Any, target: AnyTarget) -> tuple[tuple[Requirement, Unmet], ...]:
        """Return every requirement that does not hold, with its numbers; empty where the variant can be built."""
        found = ((requirement, requirement.check(op, target)) for requirement in self.requirements)
        return tuple((requirement, unmet) for requirement, unmet in found if unmet is not None)

    def score(self, op: Any, target: AnyTarget) -> float:
        """Return the priority with all preferences added: the order of trying where nothing was measured."""
        return self.priority + sum(preference.score(op, target) for preference in self.preferences)
