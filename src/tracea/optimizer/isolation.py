"""Evaluation in a persistent child process: a candidate that crashes or hangs is an outcome, not the end of the search.

The child is started once and pays the interpreter's and the libraries' start once; it answers one JSON request after
another. After any failure it is replaced, since a candidate that wrote where it should not may have harmed it. A
crash in a child that had already run other candidates is tried once more in a fresh one, so that a candidate is not
blamed for what an earlier one did to the heap. So is a start or a call that SIGKILL ended, which no candidate sends
itself; twice in a row a call is "killed", which is not a fault of the candidate, and a start is an error of the search.

A child that is left whole serves the next function alike inside of `children_kept`: a start takes two seconds.

The child dies with its parent, runs in a session of its own (so that its compilers end with it), and is always reaped.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import msgspec

from tracea.errors import InvalidOption
from tracea.optimizer.child_process import Answer, ChildProcess, DidNotAnswer, Limits
from tracea.optimizer.trial import Outcome, OutcomeKind, Trial

__all__ = ["Answer", "IsolatedEvaluation", "IsolatedFunction", "Limits", "children_kept"]

_Kind: TypeAlias = tuple[str, Limits, tuple[tuple[str, str], ...]]
_kept: Final[ContextVar[dict[_Kind, ChildProcess] | None]] = ContextVar("kept", default=None)


@contextmanager
def children_kept() -> Generator[None]:
    """Let a child that is left while the block runs serve the next function alike, which need not start another.

    Worked example: the ops of a model are searched one after the other, each by one function and its final by another.
    """
    if _kept.get() is not None:
        yield
        return
    children: dict[_Kind, ChildProcess] = {}
    token = _kept.set(children)
    try:
        yield
    finally:
        _kept.reset(token)
        for child in children.values():
            child.end()


class IsolatedFunction:
    """A function of another process: ``module:function``, from one JSON value to another.

    Not safe to share among threads. The kernel ends a child together with the thread that started it: keep both on
    one thread, or the next call starts anew.
    Raises: NotStarted, a RunError, where the function itself cannot be loaded, which no candidate is to blame for.
    """

    def __init__(
        self, target: str, limits: Limits | None = None, *, environment: Mapping[str, str] | None = None
    ) -> None:
        module, _, function = target.partition(":")
        if not module or not function:
            raise InvalidOption(
                field="target", got=target, expected="module:function", remedy='"package.module:function"'
            )
        self.target = target
        self.limits = limits if limits is not None else Limits()
        self._environment = dict(environment or {})
        self._kind: _Kind = (target, self.limits, tuple(sorted(self._environment.items())))
        self._child: ChildProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.leave()
        else:
            self.close()

    @property
    def pid(self) -> int | None:
        """Return the child's process id, or None while there is none."""
        return self._child.pid if self._child is not None else None

    def start(self) -> None:
        """Start the child now, so that the first call does not pay for it."""
        if self._child is not None and not self._child.is_alive():
            self.close()
        if self._child is not None:
            return
        children = _kept.get()
        self._child = None if children is None else children.pop(self._kind, None)
        if self._child is not None and self._child.is_alive():
            return
        try:
            self._child = ChildProcess(self.target, self.limits, self._environment)
        except DidNotAnswer:  # killed from outside, or starved of the machine: it may not happen twice
            self._child = ChildProcess(self.target, self.limits, self._environment)

    def close(self) -> None:
        """End the child and reap it; a later call starts another."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def leave(self) -> None:
        """Leave the child to the next function alike where children are kept and it is small still; else end it."""
        children = _kept.get()
        if children is None or self._child is None or self._kind in children or not self._child.is_small():
            self.close()
            return
        children[self._kind], self._child = self._child, None

    def call(self, value: Any, *, seconds: float | None = None) -> Answer:
        """Call the function in the child, under the limits.

        Raises: NotStarted: the child does not start. CacheError: the function found no place to keep what it makes.
        """
        limit = seconds if seconds is not None else self.limits.seconds
        was_killed = False
        while True:
            answer, served_before = self._call_once(value, limit)
            if answer.kind is OutcomeKind.KILLED and not was_killed:
                was_killed = True
            elif not (answer.has_died and served_before):
                return answer

    def _call_once(self, value: Any, seconds: float) -> tuple[Answer, int]:
        self.start()
        child = self._child
        assert child is not None  # start() made it
        served_before = child.served
        try:
            answer = child.call(value, seconds)
        except BaseException:
            self.close()  # interrupted half-way: the next reply would not be ours
            raise
        if answer.kind is not OutcomeKind.OK:
            self.close()
        return answer, served_before


class IsolatedEvaluation:
    """An ``evaluate`` for a Study that runs in a child process.

    The function gets ``request(trial)``, by default ``{"number", "schedule", "incumbent"}``, and returns an Outcome's
    fields: ``{"kind": "ok", "latency_ms": 1.25}`` or ``{"kind": "wrong", "detail": "..."}``. After an outcome other
    than ok the child is replaced.
    """

    def __init__(
        self,
        target: str,
        limits: Limits | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        request: Callable[[Trial], Any] | None = None,
    ) -> None:
        self._function = IsolatedFunction(target, limits, environment=environment)
        self._request = request if request is not None else _schedule_request

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._function.__exit__(kind, error, trace)

    def close(self) -> None:
        """End the child."""
        self._function.close()

    def __call__(self, trial: Trial) -> Outcome:
        """Evaluate one trial; whatever it does to the child is its outcome."""
        answer = self._function.call(self._request(trial))
        if answer.kind is not OutcomeKind.OK:
            return Outcome(kind=answer.kind, detail=answer.detail)
        try:
            outcome = msgspec.json.decode(answer.value, type=Outcome)
        except (msgspec.MsgspecError, InvalidOption) as error:
            self.close()
            return Outcome(kind=OutcomeKind.INVALID, detail=f"{self._function.target} returned no outcome: {error}")
        if not outcome.is_ok:
            self.close()
        return outcome

    def prepare(self, value: Any) -> None:
        """Call the function with a value that asks for no outcome; what fails at it fails again where it matters.

        Raises: NotStarted: the child does not start. CacheError: the function found no place to keep what it makes.
        """
        self._function.call(value)


def _schedule_request(trial: Trial) -> dict[str, Any]:
    incumbent = trial.incumbent
    return {
        "number": trial.number,
        "schedule": dict(trial.schedule),
        "incumbent": {"schedule": dict(incumbent.schedule), "latency_ms": incumbent.latency_ms} if incumbent else None,
    }
