"""Verdicts that are kept: a kernel that passed all gates on this machine need not be judged again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tracea.core.op import Op
from tracea.doctor import Decision
from tracea.doctor.installed import torch_install
from tracea.flow.certificates import code_digest
from tracea.flow.evaluate import Candidate, judge_candidate
from tracea.flow.history import study_key
from tracea.flow.kernel import build
from tracea.flow.phases import phase, telling
from tracea.gates import Verdict
from tracea.kernels.registry import find
from tracea.runtime.cache import content_key, default_store
from tracea.semantic.schedule import Schedule
from tracea.targets.target import for_threads

__all__ = ["recorded_verdict"]

_JUDGED_BY: Final = ("core", "emitters", "gates", "runtime")


def recorded_verdict(op: Op, decision: Decision, *, constants: Sequence[int], threads: int, label: str = "") -> Verdict:
    """Return the verdict on what was decided for ``op``: as recorded for the same text here, else judged now.

    Only a verdict that passed is kept. ``label`` is what the steps call it; without one they are not told.
    """
    schedule = decision.schedule or Schedule()
    key = study_key(op, decision.variant, threads, constants)
    ingredients = {
        "kind": "verdict",
        "code": code_digest(_JUDGED_BY),  # the text does not tell that a header which it includes is another
        "op": op.key,
        "variant": decision.variant,
        "schedule": schedule.key,
        "constants": list(constants),
        "threads": threads,
        "hardware": key.hardware_fingerprint,
        "toolchain": key.toolchain_fingerprint,
        "text": _text(op, decision, schedule, threads),
    }
    judged: list[Verdict] = []

    def judge_now(place: Path) -> None:
        if label:
            phase(f"verify {label}")
        candidate = Candidate(variant=decision.variant, schedule=schedule.key)
        with telling(_unheard):  # a packed weight is a program of its own: one line, not a compilation for each input
            verdict = judge_candidate(op, candidate, constants=constants, threads=threads).require()
        judged.append(verdict)
        (place / "verdict.json").write_bytes(msgspec.json.encode(verdict))

    entry = default_store().entry(content_key(ingredients), judge_now, ingredients)
    if label and not judged:
        phase(f"verified before: {label}")
    return judged[0] if judged else msgspec.json.decode((entry / "verdict.json").read_bytes(), type=Verdict)


def _unheard(step: str) -> None:
    """Take the name of a step that is part of one that was told."""


def _text(op: Op, decision: Decision, schedule: Schedule, threads: int) -> str:
    from tracea.doctor import host

    if find(decision.variant).is_library:  # whose kernel is another with another version
        installed = torch_install()
        return "" if installed is None else f"torch {installed.version}"
    return build(op, decision.variant, schedule, for_threads(host(), threads), kept=True).source.text
