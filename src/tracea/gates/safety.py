"""The safety gate: a certificate that holds when it is proved again, fences that nothing crossed, a clean emulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracea.errors import ProofFailed
from tracea.gates.fence import check_fences
from tracea.gates.verdict import Check
from tracea.semantic.proofs import Certificate, prove

if TYPE_CHECKING:
    from tracea.core.op import Op
    from tracea.emulator.report import Report
    from tracea.gates.case import Case
    from tracea.gates.correctness import Run
    from tracea.semantic.tile_kernel import TileKernel

__all__ = ["check_certificate", "check_emulation", "check_safety"]


def check_safety(
    run: Run,
    op: Op,
    case: Case,
    *,
    kernel: TileKernel,
    certificate: Certificate | None,
    reports: Sequence[Report] = (),
) -> tuple[Check, ...]:
    """Return the checks of a kernel: for a CPU by fences, for a GPU's text by what the emulator ``reports``."""
    proved = check_certificate(kernel, certificate)
    return (proved, check_emulation(reports)) if reports else (proved, *check_fences(run, op, case))


def check_certificate(kernel: TileKernel, certificate: Certificate | None) -> Check:
    """Prove the kernel again and compare: a certificate of another kernel, or an edited one, does not pass."""
    name = "certificate"
    if certificate is None:
        return Check(name=name, passed=False, figure="none", limit="proved again", detail="no certificate was kept")
    try:
        again = prove(kernel)
    except ProofFailed as refused:
        return Check(name=name, passed=False, figure="not proved", limit="proved again", detail=str(refused))
    if again != certificate:
        missing = len(set(again.facts) ^ set(certificate.facts))
        detail = f"{missing} facts differ from what is proved of {kernel.name}"
        return Check(name=name, passed=False, figure="differs", limit="proved again", detail=detail)
    return Check(
        name=name, passed=True, figure="proved again", limit="proved again", detail=f"{len(again.facts)} facts"
    )


def check_emulation(reports: Sequence[Report]) -> Check:
    """Return whether the emulator ran the text and found nothing: no race, no access out of bounds, no lax wait."""
    findings = [finding for report in reports for finding in report.findings]
    return Check(
        name="emulator",
        passed=bool(reports) and not findings,
        figure=len(findings) if reports else "not run",
        limit=0,
        detail=str(findings[0]) if findings else f"findings in {len(reports)} runs",
    )
