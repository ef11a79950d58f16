"""Give the gates right kernels, 200 and more, and count what they refuse: each refusal is a false alarm.

    python -m benchmarks.false_alarms --output benchmarks/results/false-alarms.json

The kernels are those of the tests: every variant, element type, layout and instruction set that this machine runs, with
the default schedule's values and others, on extents drawn anew, on one thread to three. Each is judged by all eight
distributions, two poisons, three hashes, twenty further runs that keep no memory, and beside a page without access on
either side of every array. A refusal is printed with the seed that replays it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
from tests.gates.test_good_kernels import good, refused
from tests.kernels.native import host_isas

from tracea.profiler import capture


def main() -> int:
    """Judge, print the counts, and write the record; exit code 1 where a good kernel was refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=200, help="at least so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    started = time.monotonic()
    kernels = good(host_isas(), rng)
    while len(kernels) < options.kernels:
        kernels += good(host_isas(), rng)
    alarms = refused(kernels, rng)
    seconds = time.monotonic() - started
    by_variant = Counter(case.variant for _, case, _, _, _ in kernels)
    by_isa = Counter(isa for _, _, isa, _, _ in kernels)
    print(f"{len(alarms)} false alarms over {len(kernels)} kernels, {seconds:.0f} s")
    for name, count in (*sorted(by_variant.items()), *sorted(by_isa.items())):
        print(f"  {name}: {count}")
    for alarm in alarms:
        print(alarm)
    if options.output is not None:
        record = {
            "schema_version": 1,
            "suite": "false_alarms",
            "command": " ".join(["python -m benchmarks.false_alarms", *sys.argv[1:]]),
            "environment": msgspec.to_builtins(capture(threads=1)),
            "seed": options.seed,
            "kernels": len(kernels),
            "false_alarms": len(alarms),
            "by_variant": dict(sorted(by_variant.items())),
            "by_instruction_set": dict(sorted(by_isa.items())),
            "refused": alarms,
        }
        options.output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
