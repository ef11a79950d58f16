"""Selection: requirements cut the variants down, measurements or a deterministic score put the rest in order.

The same op, target, variants and history give the same decision in every process: nothing here depends on time,
hashing or the order in which modules were imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tracea.doctor.plan import DISTURBED, FOR_NO_WORK, NOT_EXCLUDED, Candidate, Decision, Plan, Rejection, told_together
from tracea.errors import InvalidOption
from tracea.profiler.duration import shown_us

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracea.core.op import Op
    from tracea.doctor.precision import Magnitudes, Precision
    from tracea.kernels.variant import Variant
    from tracea.semantic.schedule import Schedule
    from tracea.targets import GpuTarget, Target

__all__ = ["History", "Known", "check_served", "decide", "plan_ops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a variant for one op on this machine: its best schedule and the time of that, in µs.

    ``ranked_us`` is the time by which it ranks where a race decided a tie for another; None: as measured. ``shipped``
    says where and when it was measured if that was not here: the time came with Tracea. ``is_unclear``: the race was
    too noisy to tell it from its winner. ``is_disturbed``: other programs disturbed most of its rounds.
    """

    schedule: Schedule | None
    latency_us: float
    ranked_us: float | None = None
    shipped: str = ""
    is_unclear: bool = False
    is_disturbed: bool = False

    @property
    def rank_us(self) -> float:
        """The time that it is compared by."""
        return self.latency_us if self.ranked_us is None else self.ranked_us


# By op key, then by variant id.
History = Mapping[str, Mapping[str, Known]]


def decide(
    op: Op,
    target: Target | GpuTarget,
    *,
    variants: Iterable[Variant] | None = None,
    known: Mapping[str, Known] | None = None,
    exclude: Mapping[str, str] | Iterable[str] = (),
    constants: Iterable[int] = (),
    fallback: bool = False,
    magnitudes: Sequence[Magnitudes | None] = (),
) -> Decision:
    """Choose a variant for ``op``: the fastest of those that were measured, else the one with the highest score.

    ``variants`` are those of the target's backend unless given; ``exclude`` names variants that may not be used, such
    as one that failed a gate, and may map each to the reason. ``constants`` are the operands whose values are known
    beforehand, which the decision keeps to say what it was about. With ``fallback`` the factors of a product may
    be multiplied in another type than the op's (see ``tracea.doctor.precision``), f16 only as far as ``magnitudes``
    bounds the operands.

    Raises:
        InvalidOption: no variant fits; the message says the requirement that each did not meet.
    """
    measured = known or {}
    refused = _reasons(exclude)
    registered = _registered(variants, target)
    check_served(op, target, registered)
    precision: Precision | None = None
    if fallback:
        from tracea.doctor.precision import choose_precision

        allowed = [variant for variant in registered if variant.id not in refused and variant.backend == target.backend]
        precision, op = choose_precision(op, target, variants=allowed, magnitudes=magnitudes)
    fitting: list[tuple[Variant, Candidate]] = []
    rejections: list[Rejection] = []
    considered = [variant for variant in registered if isinstance(op, variant.op_type)]
    for variant in sorted(considered, key=lambda variant: variant.id):
        found = _rejections(variant, op, target, refused)
        if found:
            rejections += found
            continue
        past = measured.get(variant.id)
        candidate = Candidate(
            variant=variant.id,
            score=variant.score(op, target),
            latency_us=past.latency_us if past else None,
            ranked_us=past.ranked_us if past else None,
            shipped=past.shipped if past else "",
            is_unclear=past.is_unclear if past else False,
            is_disturbed=past.is_disturbed if past else False,
        )
        fitting.append((variant, candidate))
    if not fitting:
        raise _none_fits(op, target, [each for each in rejections if each.variant not in FOR_NO_WORK] or rejections)
    fitting.sort(key=lambda pair: _rank(pair[1]))
    variant, winner = fitting[0]
    past = measured.get(variant.id)
    return Decision(
        op=op.key,
        constants=tuple(constants),
        variant=variant.id,
        schedule=None if variant.is_library else past.schedule if past else _default_schedule(variant, op, target),
        reason=_reason(winner, [candidate for _, candidate in fitting]),
        candidates=tuple(candidate for _, candidate in fitting),
        rejections=tuple(rejections),
        precision=precision,
    )


def plan_ops(
    ops: Mapping[str, Op],
    target: Target | GpuTarget,
    *,
    variants: Iterable[Variant] | None = None,
    history: History | None = None,
) -> Plan:
    """Decide each op of ``ops`` (by node), with precision fallback, and return the plan."""
    registered = _registered(variants, target)
    past = history or {}
    return Plan(
        target=target.name,
        decisions={
            node: decide(op, target, variants=registered, known=past.get(op.key), fallback=True)
            for node, op in ops.items()
        },
    )


def check_served(op: Op, target: Target | GpuTarget, variants: Iterable[Variant] | None = None) -> None:
    """Check that a target has variants for ops of this kind, whatever they require; ``variants`` as of ``decide``.

    Raises:
        InvalidOption: there are none; the message says of which kinds there are.
    """
    served = {cast("type[Op]", variant.op_type) for variant in _registered(variants, target)}
    if not isinstance(op, tuple(served)):
        own = [variant.id for variant in _registered(None, target) if isinstance(op, variant.op_type)]
        if variants is not None and own:
            raise InvalidOption(
                field=f"variants of {op.name} on {target.name}",
                got=[variant.id for variant in _registered(variants, target)],
                expected=own,
                remedy="name one of these, or none",
            )
        raise InvalidOption(
            field=f"variants of {op.name} on {target.name}",
            got=0,
            expected=f"a variant for {op.name}; those there are for {', '.join(sorted(kind.name for kind in served))}",
            remedy="name a processor, such as avx2: most ops have kernels there only",
        )


def _none_fits(op: Op, target: Target | GpuTarget, rejections: Sequence[Rejection]) -> InvalidOption:
    """Return the error that says what each variant lacks, and what would admit it; of several, the first one."""
    names, field = {each.variant for each in rejections}, f"variants of {op.key} on {target.name}"
    if len(names) > 1:
        told = [f"{those}: {why}" for those, why in told_together((each.variant, each.reason) for each in rejections)]
        return InvalidOption(field=field, got=f"0 of {len(names)} fit", expected=told, remedy=rejections[0].remedy)
    needed = "; ".join(f"{each.needed} (found {each.found})" for each in rejections)
    remedies = "; ".join(dict.fromkeys(each.remedy for each in rejections))
    return InvalidOption(field=field, got=f"{min(names)} does not fit", expected=needed, remedy=remedies)


def _reasons(exclude: Mapping[str, str] | Iterable[str]) -> Mapping[str, str]:
    if isinstance(exclude, Mapping):
        return cast("Mapping[str, str]", exclude)
    return dict.fromkeys(exclude, "excluded by the caller")


def _registered(variants: Iterable[Variant] | None, target: Target | GpuTarget) -> tuple[Variant, ...]:
    if variants is None:
        from tracea.kernels.registry import variants_of

        return variants_of(target.backend)
    return tuple(variants)


def _rejections(variant: Variant, op: Op, target: Target | GpuTarget, refused: Mapping[str, str]) -> list[Rejection]:
    if variant.id in refused:
        return [
            Rejection(
                variant=variant.id,
                requirement=NOT_EXCLUDED,
                needed="a variant that the caller allows",
                found=refused[variant.id],
                remedy="call it where it may run",
            )
        ]
    if variant.backend != target.backend:
        return [
            Rejection(
                variant=variant.id,
                requirement="backend",
                needed=variant.backend,
                found=target.backend,
                remedy=f"choose a target of {variant.backend}",
            )
        ]
    return [
        Rejection(
            variant=variant.id,
            requirement=requirement.name,
            needed=unmet.needed,
            found=unmet.found,
            remedy=unmet.remedy,
        )
        for requirement, unmet in variant.unmet(op, target)
    ]


def _rank(candidate: Candidate) -> tuple[bool, float, float, str]:
    """Measured before unmeasured, by time; the others by score; equals by name, so that no order is left to chance.

    Where a race could not tell two apart, the time is the rank's: the one that kept the tie stays ahead.
    """
    ranked_us = candidate.latency_us if candidate.ranked_us is None else candidate.ranked_us
    return (
        ranked_us is None,
        0.0 if ranked_us is None else ranked_us,
        -candidate.score,
        candidate.variant,
    )


def _default_schedule(variant: Variant, op: Op, target: Target | GpuTarget) -> Schedule | None:
    return None if variant.default_schedule is None else variant.default_schedule(op, target)


def _reason(winner: Candidate, fitting: Sequence[Candidate]) -> str:
    if winner.latency_us is not None:
        doubt = f"; in doubt: {DISTURBED}" if winner.is_disturbed else ""
        unclear = [each.variant for each in fitting if each is not winner and each.is_in_doubt(winner)]
        if unclear:
            others = " and ".join(unclear)
            also = f"; {DISTURBED}" if winner.is_disturbed else ""
            return f"{shown_us(winner.latency_us)}, in doubt: the race was too noisy to tell it from {others}{also}"
        tied = [each.variant for each in fitting if each is not winner and each.ties_with(winner)]
        if tied:
            told = f"{' and '.join(tied)}: the race could not tell them apart{doubt}"
            return f"{shown_us(winner.latency_us)}, a tie with {told}"
        if winner.shipped:
            return f"the fastest of those shipped with Tracea: {shown_us(winner.latency_us)}, {winner.shipped}"
        return f"the fastest measured: {shown_us(winner.latency_us)}{doubt}"
    if len(fitting) == 1:
        return "the only one that fits"
    return f"nothing was measured, and of the {len(fitting)} that can run it has the highest score, {winner.score:g}"
