"""Give the gates right kernels, 200 and more, and count what they refuse: each refusal is a false alarm.

    python -m benchmarks.false_alarms --output benchmarks/results/false-alarms.json
    python -m benchmarks.false_alarms --part 2/4 --output part-2.json      and the other three, in turns
    python -m benchmarks.false_alarms --join part-*.json --output benchmarks/results/false-alarms.json

The kernels are those of the tests: every variant, element type, layout and instruction set that this machine runs, with
the default schedule's values and others, on extents drawn anew, on one thread to three. Each is judged by all
distributions, two poisons, three hashes, twenty further runs that keep no memory, each operand changed alone, and
beside a page without access on either side of every array. A refusal is printed with the seed that replays it. A part
is a stretch of the same kernels, in the order of what is compiled: all parts are what one run judges.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tests.gates.test_good_kernels import good, refused
from tests.kernels.native import host_isas

from tracea.profiler import capture


def main() -> int:
    """Judge, print the counts, and write the record; exit code 1 where a good kernel was refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=200, help="at least so many, before they are parted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", type=part, default=(1, 1), metavar="I/N", help="the I-th of N parts")
    parser.add_argument("--join", type=Path, nargs="+", metavar="RECORD", help="sum records of parts and judge nothing")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    found = joined(options.join) if options.join else judged(options.kernels, options.seed, *options.part)
    alarms = found["refused"]
    print(f"{len(alarms)} false alarms over {found['kernels']} kernels, {found['seconds']:.0f} s")
    for name, count in (*found["by_variant"].items(), *found["by_instruction_set"].items()):
        print(f"  {name}: {count}")
    for alarm in alarms:
        print(alarm)
    if options.output is not None:
        record = {
            "schema_version": 1,
            "suite": "false_alarms",
            "command": " ".join(["python -m benchmarks.false_alarms", *sys.argv[1:]]),
            "environment": msgspec.to_builtins(capture(threads=1)),
            **found,
        }
        options.output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 1 if alarms else 0


def part(text: str) -> tuple[int, int]:
    """Return which part of how many ``I/N`` names."""
    number, count = (int(word) for word in text.split("/"))
    if not 1 <= number <= count:
        raise argparse.ArgumentTypeError(f"{text} is no part: say 1/{count} to {count}/{count}")
    return number, count


def judged(least: int, seed: int, number: int, count: int) -> dict[str, Any]:
    """Judge one of ``count`` stretches of the kernels, each kernel with draws of its own."""
    started = time.monotonic()
    rng = np.random.default_rng(seed)
    kernels = good(host_isas(), rng)
    while len(kernels) < least:
        kernels += good(host_isas(), rng)
    chosen = range(len(kernels) * (number - 1) // count, len(kernels) * number // count)
    alarms = [alarm for i in chosen for alarm in refused([kernels[i]], np.random.default_rng((seed, i)))]
    return {
        "seed": seed,
        "parts": [f"{number}/{count}"],
        "kernels": len(chosen),
        "seconds": round(time.monotonic() - started, 1),
        "false_alarms": len(alarms),
        "by_variant": dict(sorted(Counter(kernels[i][1].variant for i in chosen).items())),
        "by_instruction_set": dict(sorted(Counter(kernels[i][2] for i in chosen).items())),
        "refused": alarms,
    }


def joined(paths: Sequence[Path]) -> dict[str, Any]:
    """Sum records of parts, and say which; an error where one is there twice, or they are not of one run."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    seeds = {record["seed"] for record in records}
    parts = sorted(name for record in records for name in record["parts"])
    if len(seeds) != 1 or len({name.split("/")[1] for name in parts}) != 1 or len(set(parts)) != len(parts):
        raise SystemExit(f"parts {parts} of seeds {sorted(seeds)} are not one run: give parts of one seed, each once")
    return {
        "seed": seeds.pop(),
        "parts": parts,
        **{key: sum(record[key] for record in records) for key in ("kernels", "seconds", "false_alarms")},
        **{key: _summed([record[key] for record in records]) for key in ("by_variant", "by_instruction_set")},
        "refused": [alarm for record in records for alarm in record["refused"]],
    }


def _summed(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


if __name__ == "__main__":
    sys.exit(main())
