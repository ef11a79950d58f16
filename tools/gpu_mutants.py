"""Judge every mechanical mutant of the GPU kernels, and write the table of who noticed them to docs/gpu-mutants.md.

``python tools/gpu_mutants.py`` judges all of them (an hour), ``--sample 40`` a seeded sample of each kernel;
``--check`` fails below 98 % or at a false alarm. Mutants are compiled into a cache of their own, which is removed.
In pieces: ``--kernel wgmma --sample 40 --piece wgmma.json`` keeps the scores of one, and ``--join *.json`` writes the
page of all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracea.testing.gpu_cases import EQUIVALENT, GpuCase, gpu_cases
from tracea.testing.gpu_judge import certified_ways
from tracea.testing.gpu_mutants import gpu_mutants
from tracea.testing.text_mutants import text_mutants

_PAGE = Path(__file__).resolve().parent.parent / "docs" / "gpu-mutants.md"
_LEAST = 0.98
_MOST_EQUIVALENT = 0.02


class Score:
    """What was noticed of one kernel's mutants of one storey: its IR or its text."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.by: Counter[str] = Counter()
        self.argued: list[tuple[str, str]] = []
        self.survivors: list[str] = []

    def add(self, description: str, by: str | None) -> None:
        """Count one mutant."""
        if by is not None:
            self.by[by] += 1
            return
        reason = EQUIVALENT.get((self.kernel, description))
        if reason is None:
            self.survivors.append(description)
        else:
            self.argued.append((description, reason))

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and the descriptions as data."""
        return {"by": dict(self.by), "argued": self.argued, "survivors": self.survivors}

    @classmethod
    def from_dict(cls, kernel: str, data: dict[str, Any]) -> Score:
        """Return what :meth:`to_dict` kept."""
        score = cls(kernel)
        score.by.update(data["by"])
        score.argued = [(description, reason) for description, reason in data["argued"]]
        score.survivors = list(data["survivors"])
        return score

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
    ir, text = Score(case.name), Score(case.name)
    chosen = list(gpu_mutants(kernel))
    for mutant in random.Random(seed).sample(chosen, min(sample or len(chosen), len(chosen))):
        ir.add(f"{mutant.family}: {mutant.description}", judged.of_kernel(mutant.kernel))
    texts = list(text_mutants(judged.emit(kernel)))
    for changed in random.Random(seed).sample(texts, min(sample or len(texts), len(texts))):
        text.add(f"{changed.family}: {changed.description}", judged.of_text(changed.source))
    return ir, text, alarms


def keep(path: Path, results: Sequence[tuple[str, Score, Score, list[str]]], sample: int | None) -> None:
    """Write the scores of some kernels, for :func:`joined`."""
    rows = [
        {"name": name, "ir": ir.to_dict(), "text": text.to_dict(), "alarms": alarms}
        for name, ir, text, alarms in results
    ]
    path.write_text(json.dumps({"sample": sample, "kernels": rows}, indent=1) + "\n", encoding="utf-8")


def joined(paths: Sequence[Path]) -> tuple[int | None, list[tuple[str, Score, Score, list[str]]]]:
    """Return the sample size and the scores of pieces, in the order of the kernels.

    Raises:
        SystemExit: a kernel is missing or occurs twice, or the pieces were sampled differently.
    """
    pieces = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    samples = {piece["sample"] for piece in pieces}
    rows = {row["name"]: row for piece in pieces for row in piece["kernels"]}
    names = [case.name for case in gpu_cases()]
    if len(samples) != 1 or sorted(name for p in pieces for name in (r["name"] for r in p["kernels"])) != sorted(names):
        sys.exit(f"the pieces must hold each of {', '.join(names)} once, at one sample size: {sorted(rows)}, {samples}")
    found = [
        (name, Score.from_dict(name, row["ir"]), Score.from_dict(name, row["text"]), list(row["alarms"]))
        for name, row in ((name, rows[name]) for name in names)
    ]
    return samples.pop(), found


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
    parser.add_argument("--piece", type=Path, help="keep the scores here instead of writing the page")
    parser.add_argument("--join", type=Path, nargs="+", help="write the page of these pieces, judging nothing")
    given = parser.parse_args(arguments)
    sample, results = joined(given.join) if given.join else (given.sample, _judged(given))
    if given.piece:
        keep(given.piece, results, sample)
    else:
        given.page.write_text(page(results, sample=sample), encoding="utf-8")
    return 1 if given.check and not _enough(results) else 0


def _judged(given: argparse.Namespace) -> list[tuple[str, Score, Score, list[str]]]:
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
    return results


def _enough(results: Sequence[tuple[str, Score, Score, list[str]]]) -> bool:
    scores = [score for _, ir, text, _ in results for score in (ir, text)]
    total, argued = sum(s.total for s in scores), sum(len(s.argued) for s in scores)
    noticed = sum(s.noticed for s in scores)
    enough = noticed >= _LEAST * (total - argued) and argued <= _MOST_EQUIVALENT * total
    return enough and not any(alarms for *_, alarms in results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
