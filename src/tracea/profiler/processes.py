"""Fresh processes for a measurement: each has an address layout, a page placement and a warm-up of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracea.errors import BudgetExceeded, InvalidOption, RunError
from tracea.profiler.pace import known_least, remember_least

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["run_in_processes"]

_LOG_CHARACTERS = 2_000


def run_in_processes(
    function: str,
    arguments: Mapping[str, Any],
    *,
    processes: int = 3,
    cores: Sequence[int] | None = None,
    variables: Mapping[str, str] | None = None,
    limit_s: float = 600.0,
) -> list[Any]:
    """Call ``module:function(**arguments)`` in fresh processes, one after the other, and return what each returned.

    Arguments and results travel as JSON. ``cores`` pins each process before it imports anything, ``variables`` are
    added to its environment. A process finds modules where this one does, and knows how fast its cores were for those
    before it (see ``profiler.pace``).

    Units: ``limit_s`` is seconds for one process.

    Raises:
        RunError: a process failed; the message ends with what it wrote to its error stream.
        BudgetExceeded: a process ran past ``limit_s`` and was ended.
    """
    module, _, name = function.partition(":")
    if not module or not name:
        raise InvalidOption(
            field="function", got=function, expected="module:function", remedy="name an importable function"
        )
    if processes < 1:
        raise InvalidOption(field="processes", got=processes, expected="at least 1", remedy="run it at least once")
    request = {
        "module": module,
        "function": name,
        "arguments": dict(arguments),
        "cores": None if cores is None else list(cores),
        "path": [str(Path(entry).absolute()) for entry in sys.path],
    }
    results: list[Any] = []
    for _ in range(processes):
        answer = _run(function, {**request, "least_ns": known_least()}, dict(variables or {}), limit_s)
        remember_least(answer["least_ns"])
        results.append(answer["result"])
    return results


def _run(function: str, request: dict[str, Any], variables: dict[str, str], limit_s: float) -> Any:
    # The answer goes through a file of its own: libraries print to the standard streams.
    with tempfile.TemporaryDirectory(prefix="tracea-run-") as folder:
        answer = Path(folder) / "answer.json"
        # -P: the working directory must not shadow a module; the request carries this process's own path.
        command = [sys.executable, "-P", str(Path(__file__).with_name("child.py")), str(answer)]
        try:
            done = subprocess.run(
                command,
                input=json.dumps(request),
                encoding="utf-8",
                errors="replace",  # a library's warning in another encoding is no reason to lose what was measured
                capture_output=True,
                env={**os.environ, **variables},
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise BudgetExceeded(
                what=f"process of {function}",
                spent=limit_s,
                limit=limit_s,
                remedy="raise limit_s, or time a smaller problem",
            ) from late
        if done.returncode != 0 or not answer.exists():
            raise RunError(
                kernel=function,
                detail=f"exit code {done.returncode}: {done.stderr.strip()[-_LOG_CHARACTERS:]}",
                remedy="call the function in this process to debug it",
            )
        return json.loads(answer.read_text(encoding="utf-8"))
