"""Verdict: what the gates found out about one running kernel, as data, text and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tracea.core.codec import encode
from tracea.errors import InvalidOption, VerdictFailed

__all__ = ["Check", "Verdict", "failed_checks"]

_FAILED: Final = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One property that was looked at: the figure that came out and the limit that it had to keep.

    ``interval`` is the confidence interval of a figure that was timed, None of any other. ``is_unclear``: it did not
    pass, and did not fail for certain either, since the interval is too wide to tell.
    """

    name: str
    passed: bool
    figure: float | int | str
    limit: float | int | str
    detail: str = ""
    interval: tuple[float, float] | None = None
    is_unclear: bool = False

    def __str__(self) -> str:
        result = "ok  " if self.passed else "??  " if self.is_unclear else _FAILED
        text = f"{result} {self.name}: {_show(self.figure)} (limit {_show(self.limit)})"
        return f"{text}: {self.detail}" if self.detail else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All checks of one kernel; it passed if every one of them did.

    ``seed`` is that of the inputs, None where none were drawn, as where two records are compared.
    """

    subject: str
    checks: tuple[Check, ...]
    seed: int | None

    def __post_init__(self) -> None:
        if not self.checks:
            raise InvalidOption(
                field=f"verdict on {self.subject}", got=0, expected="at least 1 check", remedy="judge it by something"
            )

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def is_unclear(self) -> bool:
        """Whether it did not pass only since something was too noisy to tell."""
        return not self.passed and all(check.is_unclear for check in self.failures)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)

    def require(self) -> Verdict:
        """Return this verdict if it passed.

        Raises:
            VerdictFailed: it did not; the error names the first check that failed.
        """
        for check in self.failures:
            raise VerdictFailed(
                gate=f"{check.name} ({check.detail})" if check.detail else check.name,
                kernel=self.subject,
                got=check.figure,
                limit=check.limit,
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain JSON values; an error without a bound is a word there."""
        told = msgspec.to_builtins(self)
        checks = [{name: encode(value) for name, value in check.items()} for check in told["checks"]]
        return {"passed": self.passed, **told, "checks": checks}

    def to_json(self) -> str:
        """Return the verdict as JSON text."""
        return msgspec.json.encode(self.to_dict()).decode()

    @property
    def lines(self) -> tuple[str, ...]:
        """What the text says: the result, then each check; a name or detail may hold line ends of its own."""
        count = len(self.checks)
        checks = f"{count} check{'' if count == 1 else 's'}"
        noisy = sum(check.is_unclear for check in self.failures)
        result = f"FAILED, {len(self.failures) - noisy} of {checks} failed" + (
            f", {noisy} too noisy to tell" * (noisy > 0)
        )
        if self.passed:
            result = f"passed, {checks}"
        elif self.is_unclear:
            result = f"inconclusive, {noisy} of {checks} too noisy to tell"
        drawn = "" if self.seed is None else f", seed {self.seed}"
        return (f"{self.subject}: {result}{drawn}", *(f"  {check}" for check in self.checks))

    def __str__(self) -> str:
        return "\n".join(self.lines)


def failed_checks(text: str) -> tuple[str, ...]:
    """Return the failed checks in a verdict's text, each as it says it: of a trial that text is what is kept."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line.startswith(_FAILED))


def _show(value: float | int | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
