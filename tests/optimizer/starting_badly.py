"""A module that is killed, or takes too long, while it is loaded: as often as the file in STARTS says."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

_place = Path(os.environ["STARTS"])
_left = int(_place.read_text())
if _left:
    _place.write_text(str(_left - 1))
    if os.environ["STARTS_BY"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1000.0)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Answer as an evaluation that is always well."""
    return {"kind": "ok", "latency_ms": float(request["schedule"]["tile"])}
