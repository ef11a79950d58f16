"""The other side of ``run_in_processes``: a script that pins itself, then imports and calls one function."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module


def main() -> None:
    """Read a request from the standard input and write the function's result to the file named on the command line."""
    request = json.load(sys.stdin)
    if request["cores"] is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, request["cores"])
    sys.path[:] = request["path"]
    pace = import_module("tracea.profiler.pace")
    pace.remember_least(request["least_ns"])
    function = getattr(import_module(request["module"]), request["function"])
    result = function(**request["arguments"])
    with open(sys.argv[1], "w", encoding="utf-8") as answer:
        json.dump({"result": result, "least_ns": pace.known_least()}, answer)


if __name__ == "__main__":
    main()
