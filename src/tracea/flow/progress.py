"""Progress of long work on standard error: a bar on a terminal, plain lines elsewhere.

A search's figure is the median time of one call in the search, of the fastest verified schedule so far: it only falls.
The times that decide come later, from the final comparison.
"""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TextIO, TypeAlias

from tracea.flow.phases import is_told, telling

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from tracea.optimizer.study import Progress as StudyProgress

__all__ = [
    "LineProgress",
    "Listener",
    "Progress",
    "TerminalProgress",
    "is_open",
    "printable",
    "shown_progress",
    "shown_unless_heard",
    "silent",
]

_SECONDS_BETWEEN_LINES: Final = 5.0
_MOST_SECONDS_BETWEEN_LINES: Final = 60.0
_QUICK_S: Final = 1.0  # what a call of Python's face takes at most to say nothing where no terminal is

Listener: TypeAlias = "Callable[[str, StudyProgress], None]"  # what is searched, and how its search goes


def silent(label: str, progress: StudyProgress) -> None:
    """Hear of a search and say nothing: the listener for those who want no progress, on a terminal either."""


def printable(text: str) -> str:
    """Return text without control characters other than line ends."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode() for char in text
    )


class Progress(ABC):
    """What long work tells: a step begins, advances with the best so far, and ends.

    An instance is also a listener of ``flow.tuning.tune``: call it with what is searched and how its search goes.
    """

    def __init__(self) -> None:
        self._label: str | None = None
        self._done = 0
        self._unit = ""

    def __call__(self, label: str, progress: StudyProgress) -> None:
        """Take what a search reports after a trial; trials of the same search go on, whatever variant they are of."""
        if not self._unit or progress.done <= self._done:
            self.start(label, progress.total, unit=" trials")
        best, outcome = progress.best, progress.trial.outcome
        if outcome is not None and not outcome.is_ok:
            judged = "not judged" if outcome.was_killed else "refused"
            self.note(f"{label}: trial {progress.done} {judged}: {outcome.kind.value}: {_first_line(outcome.detail)}")
        self.update(progress.done, label=label, best_ms=None if best is None else best.measured_ms)

    def start(self, label: str, total: int, *, unit: str = "") -> None:
        """Begin a step of ``total`` parts; the one before ends."""
        self.finish()
        self._label, self._done, self._unit = label, 0, unit
        self._begin(printable(label), total)

    def update(self, done: int, *, label: str = "", best_ms: float | None = None) -> None:
        """Say how many parts are done, and the best latency so far; ``label`` takes the place of the step's."""
        self._done = done
        self._advance(done, printable(label), best_ms)

    @abstractmethod
    def note(self, line: str) -> None:
        """Say something that stays."""

    @abstractmethod
    def phase(self, text: str) -> None:
        """Say that another step begins, of which nobody knows how many parts it has."""

    def finish(self, line: str = "") -> None:
        """End the step that was begun, if any."""
        if self._label is not None:
            self._label, self._unit = None, ""
            self._end()
        if line:
            self.note(line)

    @abstractmethod
    def _begin(self, label: str, total: int) -> None: ...

    @abstractmethod
    def _advance(self, done: int, label: str, best_ms: float | None) -> None: ...

    @abstractmethod
    def _end(self) -> None: ...


class LineProgress(Progress):
    """Plain lines: each phase, the last part of a step, each better one; after seconds of silence, what goes on.

    The silence that is broken grows with a step: an hour's work is not a thousand lines. Work that is over within
    ``quick_s`` says nothing.
    """

    def __init__(self, stream: TextIO, *, silence_s: float = _SECONDS_BETWEEN_LINES, quick_s: float = 0.0) -> None:
        super().__init__()
        self._speaks_at = time.monotonic() + quick_s
        self._held: list[str] = []
        self._stream = stream
        self._step = ""
        self._total = 0
        self._best_ms: float | None = None
        self._printed_at = self._begun_at = time.monotonic()
        self._now = ""
        self._silence_s = silence_s
        self._ended = threading.Event()
        self._printing = threading.Lock()  # the thread that breaks the silence prints too

    def breaking_silence(self) -> threading.Thread:
        """Return a started thread that says what goes on whenever nothing was said for a while, until :meth:`close`."""
        thread = threading.Thread(target=self._watch, name="tracea progress", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """End what :meth:`breaking_silence` began."""
        self._ended.set()

    def _watch(self) -> None:
        if self._ended.wait(max(0.0, self._speaks_at - time.monotonic())):
            return
        self._print_held()  # what takes longer than that says what it is at, however long the step takes
        wait = self._silence_s
        while not self._ended.wait(wait):
            patience = self._patience()
            if time.monotonic() - self._printed_at >= patience and self._now:
                self.note(f"… {self._now}: {time.monotonic() - self._begun_at:.0f} s")
            wait = max(0.05, self._patience() - max(0.0, time.monotonic() - self._printed_at))

    def _patience(self) -> float:
        longest = max(self._silence_s, _MOST_SECONDS_BETWEEN_LINES)
        return min(longest, max(self._silence_s, (time.monotonic() - self._begun_at) / 2))

    def phase(self, text: str) -> None:
        """Print the line of a step that begins."""
        self.finish()
        self._now, self._begun_at = text, time.monotonic()
        self.note(text)

    def _advance(self, done: int, label: str, best_ms: float | None) -> None:
        """Print a line where there is something new to say."""
        is_better = best_ms is not None and (self._best_ms is None or best_ms < self._best_ms)
        if is_better:
            self._best_ms = best_ms
        self._now = f"{label or self._step}: {done}/{self._total}{self._unit}"
        if is_better or done >= self._total or time.monotonic() - self._printed_at >= self._patience():
            self.note(f"{self._now}{_best(self._best_ms)}")

    def note(self, line: str) -> None:
        """Print the line."""
        self._held.append(printable(line))
        if time.monotonic() >= self._speaks_at:
            self._print_held()

    def _print_held(self) -> None:
        with self._printing:
            said, self._held = self._held, []
            if not said:
                return
            self._printed_at = time.monotonic()
            # A caller's stream that is closed or full must not end what the lines are about.
            with suppress(OSError, ValueError):
                print("\n".join(said), file=self._stream, flush=True)

    def _begin(self, label: str, total: int) -> None:
        self._step, self._total, self._best_ms = label, total, None
        self._now, self._begun_at = label, time.monotonic()

    def _end(self) -> None:
        self._step = ""


class TerminalProgress(Progress):
    """A bar with the best so far; it is there while a step runs."""

    def __init__(self, bar: RichProgress) -> None:
        super().__init__()
        self._bar = bar
        self._task: TaskID | None = None
        self._is_phase = False

    def phase(self, text: str) -> None:
        """Show the step with the time that it takes."""
        self.finish()
        self._label, self._is_phase = text, True
        self._task = self._bar.add_task(printable(text), total=None, best="")

    def note(self, line: str) -> None:
        """Print the line above the bar."""
        self._bar.console.print(printable(line), markup=False, highlight=False)

    def _begin(self, label: str, total: int) -> None:
        self._task = self._bar.add_task(label, total=total, best="")

    def _advance(self, done: int, label: str, best_ms: float | None) -> None:
        if self._task is not None:
            self._bar.update(self._task, completed=done, description=label or None, best=_best(best_ms))

    def _end(self) -> None:
        if self._task is not None:
            self._bar.stop_task(self._task)
            if self._is_phase:  # over once the next one begins; a search's bar stays
                self._bar.remove_task(self._task)
            self._task, self._is_phase = None, False


@contextmanager
def shown_progress(stream: TextIO | None = None, *, quick_s: float = 0.0) -> Generator[Progress]:
    """Give the progress that suits the stream, by default standard error; see LineProgress for ``quick_s``."""
    target = sys.stderr if stream is None else stream
    if not (hasattr(target, "isatty") and target.isatty()):  # a caller's stream may do no more than write
        lines = LineProgress(target, quick_s=quick_s)
        lines.breaking_silence()
        try:
            yield lines
        finally:
            lines.close()
            lines.finish()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[best]}", markup=False),
    )
    # Twice a second: what is timed meanwhile shares the cores with it.
    console = Console(file=target, markup=False, emoji=False)
    with Bar(*columns, console=console, refresh_per_second=2) as bar:
        progress = TerminalProgress(bar)
        try:
            yield progress
        finally:
            progress.finish()


@contextmanager
def shown_unless_heard(listener: Listener | None) -> Generator[Listener]:
    """Give the listener; without one, one that shows progress on standard error.

    Nothing is shown where an outer call already hears of what goes on, where there is no standard error, or, without a
    terminal, of what is over at once.
    """
    if listener is not None or is_told() or not is_open(sys.stderr):
        yield listener or silent
        return
    with shown_progress(quick_s=_QUICK_S) as progress, telling(progress.phase):
        yield progress


def is_open(stream: TextIO | None) -> bool:
    """Tell whether a program has that stream at all: one without a console has none."""
    return stream is not None and not getattr(stream, "closed", False)


def _best(best_ms: float | None) -> str:
    if best_ms is None:
        return ""
    from tracea.profiler.duration import shown_us  # its package loads NumPy, which tracea --help does not need

    return f", fastest so far {shown_us(1e3 * best_ms)} a call"


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "no detail"
