"""Judge every mechanical mutant of the GPU kernels, and write the table of who noticed them to docs/gpu-mutants.md.

``python tools/gpu_mutants.py`` judges all of them (an hour), ``--sample 40`` a seeded sample of each kernel;
``--check`` fails below 98 % or at a false alarm. Mutants are compiled into a cache of their own, which is removed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tracea.testing.gpu_cases import EQUIVALENT, GpuCase, gpu_cases
from tracea.testing.gpu_judge import certified_ways
from tracea.testing.gpu_mutants import gpu_mutants
from tracea.testing.text_mutants import text_mutants

_PAGE = Path(__file__).resolve().parent.parent / "docs" / "gpu-mutants.md"
_LEAST = 0.98
_MOST_EQUIVALENT = 0.02


class Score:
    """What was noticed of one kernel's mutants of one storey: its IR or its text."""

    def __init__(self) -> None:
        self.by: Counter[str] = Counter()
        self.argued: list[tuple[str, str]] = []
        self.survivors: list[str] = []

    def add(self, description: str, by: str | None) -> None:
        """Count one mutant."""
        if by is not None:
            self.by[by] += 1
            return
        reason = next((why for part, why in EQUIVALENT.items() if part in description), None)
        if reason is None:
            self.survivors.append(description)
        else:
            self.argued.append((description, reason))

    @property
    def total(self) -> int:
        """All mutants."""
        return sum(self.by.values()) + len(self.argued) + len(self.survivors)

    @property
    def noticed(self) -> int:
        """Those that a checker reported."""
        return sum(self.by.values())


def judge(case: GpuCase, sample: int | None, seed: int) -> tuple[Score, Score, list[str]]:
    """Return the scores of a kernel's IR and text, and the false alarms about the original."""
    kernel = case.kernel()
    judged = case.judge(kernel, certified_ways(kernel))
    alarms = list(judged.false_alarms(kernel))
    ir, text = Score(), Score()
    chosen = list(gpu_mutants(kernel))
    for mutant in random.Random(seed).sample(chosen, min(sample or len(chosen), len(chosen))):
        ir.add(f"{mutant.family}: {mutant.description}", judged.of_kernel(mutant.kernel))
    texts = list(text_mutants(judged.emit(kernel)))
    for changed in random.Random(seed).sample(texts, min(sample or len(texts), len(texts))):
        text.add(f"{changed.family}: {changed.description}", judged.of_text(changed.source))
    return ir, text, alarms


def page(results: Sequence[tuple[str, Score, Score, list[str]]], *, sample: int | None) -> str:
    """Return the table as Markdown."""
    what = "all of them" if sample is None else f"a seeded sample of {sample} of each kernel and storey"
    lines = [
        "# Mutants of the GPU kernels",
        "",
        "Written by `tools/gpu_mutants.py`. One mechanical mistake each, in the IR or in a line of the emitted text; "
        f"judged here: {what}. Checkers are asked in the order of what they cost, and the first that notices counts. "
        "The original of each kernel ran on 16 schedules of the emulator without a finding, unless it says so.",
        "",
        "| kernel | storey | mutants | noticed | equivalent (argued) | not noticed | by |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, ir, text, _ in results:
        for storey, score in (("IR", ir), ("text", text)):
            by = ", ".join(f"{who} {count}" for who, count in score.by.most_common())
            share = f"{100 * score.noticed / max(1, score.total - len(score.argued)):.1f} %"
            lines.append(
                f"| {name} | {storey} | {score.total} | {score.noticed} ({share}) | {len(score.argued)} "
                f"| {len(score.survivors)} | {by} |"
            )
    lines += ["", "## Equivalent mutants", ""]
    for name, ir, text, _ in results:
        for description, reason in (*ir.argued, *text.argued):
            lines.append(f"- {name}: `{description}`: {reason}.")
    lines += ["", "## Not noticed", ""]
    rest = [f"- {name}: `{d}`" for name, ir, text, _ in results for d in (*ir.survivors, *text.survivors)]
    lines += rest or ["None."]
    lines += ["", "## False alarms", ""]
    lines += [f"- {name}: {alarm}" for name, _, _, alarms in results for alarm in alarms] or ["None."]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Judge, write the page, and return 1 where ``--check`` is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sample", type=int, help="so many mutants of each kernel and storey")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernel", action="append", help="only kernels whose name contains this")
    parser.add_argument("--check", action="store_true", help="fail below 98 percent or at a false alarm")
    parser.add_argument("--page", type=Path, default=_PAGE)
    given = parser.parse_args(arguments)
    results: list[tuple[str, Score, Score, list[str]]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRACEA_CACHE_DIR"] = folder
        for case in gpu_cases():
            if given.kernel and not any(part in case.name for part in given.kernel):
                continue
            begin = time.perf_counter()
            ir, text, alarms = judge(case, given.sample, given.seed)
            results.append((case.name, ir, text, alarms))
            spent = time.perf_counter() - begin
            print(
                f"{case.name}: IR {ir.noticed}/{ir.total}, text {text.noticed}/{text.total}, {spent:.0f} s", flush=True
            )
            for survivor in (*ir.survivors, *text.survivors, *alarms):
                print(f"    {survivor}", flush=True)
    given.page.write_text(page(results, sample=given.sample), encoding="utf-8")
    if not given.check:
        return 0
    scores = [score for _, ir, text, _ in results for score in (ir, text)]
    total, argued = sum(s.total for s in scores), sum(len(s.argued) for s in scores)
    noticed = sum(s.noticed for s in scores)
    bad = noticed < _LEAST * (total - argued) or argued > _MOST_EQUIVALENT * total or any(r[3] for r in results)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
