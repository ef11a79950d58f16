"""Judge every mechanical mutant of the GPU kernels, and write the table of who noticed them to docs/gpu-mutants.md.

``python tools/gpu_mutants.py`` judges all of them; ``--sample 40`` as many of each kernel, evenly over its kinds, and
``--kernel wgmma`` those of some kernels, which write nothing unless ``--keep`` collects the pieces. ``--check`` fails
below 98 % or at a false alarm. No GPU is used. What is compiled goes to a cache of its own, which is removed.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import msgspec

from tracea.testing.gpu_cases import GpuCase, gpu_cases
from tracea.testing.gpu_judge import GpuJudge, certified_ways
from tracea.testing.gpu_mutants import gpu_mutants
from tracea.testing.mutant_page import Judged, KernelScore, page, shortfalls
from tracea.testing.mutants import evenly
from tracea.testing.text_mutants import text_mutants

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpu-mutants.md"
_SCHEDULES = 16  # of the originals
_PIECE = 12  # mutants that a process judges at a time

Mutants = list[tuple[Judged, Callable[[], str | None]]]


@lru_cache(maxsize=2)
def _mutants(name: str) -> Mutants:
    """Return every mutant of a kernel, IR before text, and what asks the checkers about it."""
    case = _case(name)
    judge = _judge(name)
    kernel = case.kernel()
    found: Mutants = []
    for ir in gpu_mutants(kernel):
        entry = Judged(kernel=name, storey="IR", family=ir.family, description=ir.description, by=None)
        found.append((entry, lambda mutant=ir: judge.of_kernel(mutant.kernel)))
    for text in text_mutants(judge.emit(kernel)):
        entry = Judged(kernel=name, storey="text", family=text.family, description=text.description, by=None)
        found.append((entry, lambda mutant=text: judge.of_text(mutant.source)))
    return found


@lru_cache(maxsize=2)
def _judge(name: str) -> GpuJudge:
    kernel = _case(name).kernel()
    return _case(name).judge(kernel, certified_ways(kernel))


def _case(name: str) -> GpuCase:
    return next(case for case in gpu_cases() if case.name == name)


def _judge_piece(task: tuple[str, tuple[int, ...]]) -> tuple[list[Judged], float]:
    """Return who noticed those mutants of a kernel, and the processor's seconds."""
    name, numbers = task
    begin = _processor_seconds()
    mutants = _mutants(name)
    judged = [msgspec.structs.replace(mutants[number][0], by=mutants[number][1]()) for number in numbers]
    return judged, _processor_seconds() - begin


def _false_alarms(name: str) -> tuple[list[str], float]:
    begin = _processor_seconds()
    alarms = list(_judge(name).false_alarms(_case(name).kernel(), tuple(range(_SCHEDULES))))
    return alarms, _processor_seconds() - begin


def _processor_seconds() -> float:
    own, compilers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + compilers.ru_utime + compilers.ru_stime


def _scores(given: argparse.Namespace, kept: dict[str, KernelScore]) -> Iterator[KernelScore]:
    """Judge the kernels that are wanted and not kept yet."""
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("fork")) as pool:
        for case in gpu_cases():
            if case.name in kept or (given.kernel and not any(part in case.name for part in given.kernel)):
                continue
            of = len(_mutants(case.name))
            kinds = [f"{entry.storey} {entry.family}" for entry, _ in _mutants(case.name)]
            chosen = evenly(kinds, given.sample or of, given.seed)
            random.Random(0).shuffle(chosen)  # costly ones stand next to each other
            pieces = [tuple(chosen[i : i + _PIECE]) for i in range(0, len(chosen), _PIECE)]
            alarms = pool.submit(_false_alarms, case.name)
            judged = list(pool.map(_judge_piece, [(case.name, piece) for piece in pieces]))
            found = dict(zip((n for piece in pieces for n in piece), (m for ms, _ in judged for m in ms), strict=True))
            score = KernelScore(
                kernel=case.name,
                of=of,
                mutants=[found[number] for number in sorted(found)],
                alarms=alarms.result()[0],
                schedules=_SCHEDULES,
                seconds=alarms.result()[1] + sum(seconds for _, seconds in judged),
            )
            noticed = sum(mutant.by is not None for mutant in score.mutants)
            print(f"{case.name}: {noticed} of {len(score.mutants)} noticed, {score.seconds:.0f} s", flush=True)
            for mutant in score.mutants:
                if mutant.by is None:
                    print(f"    {mutant.argued or 'NOBODY'}: {mutant.storey} {mutant.whole}", flush=True)
            for alarm in score.alarms:
                print(f"    FALSE ALARM: {alarm}", flush=True)
            yield score


def main(arguments: Sequence[str]) -> int:
    """Judge, write the page, and return 1 where ``--check`` is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sample", type=int, help="so many mutants of each kernel, evenly over their kinds")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--kernel", action="append", help="only kernels whose name contains this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="fail below 98 percent or at a false alarm")
    parser.add_argument("--keep", type=Path, help="a file that collects kernels over several runs")
    parser.add_argument("--page", type=Path, help="where to write, docs/gpu-mutants.md where all kernels were judged")
    given = parser.parse_args(arguments)
    kept: dict[str, KernelScore] = {}
    if given.keep and given.keep.exists():
        kept = {score.kernel: score for score in msgspec.json.decode(given.keep.read_bytes(), type=list[KernelScore])}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRACEA_CACHE_DIR"] = folder
        for score in _scores(given, kept):
            kept[score.kernel] = score
            if given.keep:
                given.keep.write_bytes(msgspec.json.encode(list(kept.values())))
    scores = [kept[case.name] for case in gpu_cases() if case.name in kept]
    whole = len(scores) == len(gpu_cases()) and (given.sample is None or given.keep)
    target = given.page or (PAGE if whole else None)
    if target:
        target.write_text(page(scores, when=datetime.now(UTC).strftime("%Y-%m-%d"), seed=given.seed), encoding="utf-8")
        print(f"wrote {target}")
    missing = shortfalls(scores)
    print("\n".join(missing) or "everything that is due is reached")
    return 1 if given.check and missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
