from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tracea.errors import InvalidOption
from tracea.optimizer import Outcome, OutcomeKind, SearchSpace, StudyKey, TrialRecord, TrialStore
from tracea.optimizer.priors import Hero, Provenance, load_heroes, save_heroes, seeds_for

KEY = StudyKey(op_key="gemm 64x64x64 f32", variant="packed", hardware={"core": "zen"}, toolchain={"gcc": "12"})
SPACE = SearchSpace.constrained({"tile": (8, 16, 32, 64)})


def hero_of(
    tmp_path: Path,
    latencies: dict[int, float | None],
    op_key: str = KEY.op_key,
    final: dict[int, float] | None = None,
) -> Hero:
    key = StudyKey(op_key=op_key, variant=KEY.variant, hardware=KEY.hardware, toolchain=KEY.toolchain)
    with TrialStore(tmp_path / "trials.db") as store:
        for tile, latency in latencies.items():
            kind = OutcomeKind.WRONG if latency is None else OutcomeKind.OK
            number = store.add(
                TrialRecord(
                    key=key,
                    schedule={"tile": tile},
                    outcome=Outcome(kind=kind, latency_ms=latency),
                    seconds=0.1,
                    sampler="grid",
                    seed=0,
                    recorded_at=1.75e9,
                )
            )
            if tile in (final or {}):
                store.retime(number, (final or {})[tile])
        return Hero.of_study(store.find(study=key))


def test_a_hero_is_the_winner_of_the_final_where_there_was_one(tmp_path: Path) -> None:
    hero = hero_of(tmp_path, {8: 1.3, 16: 1.1, 32: 1.2, 64: 1.4}, final={8: 2.0, 16: 1.9, 32: 1.8})
    assert hero.schedule == {"tile": 32}  # not the one whose single time, of another minute, is less than theirs
    assert (hero.record.latency_ms, hero.record.trials) == (1.8, 4)


def test_a_hero_is_the_best_of_a_stored_study_and_says_so(tmp_path: Path) -> None:
    hero = hero_of(tmp_path, {8: 3.0, 16: None, 32: 1.5})
    assert hero.schedule == {"tile": 32}
    assert hero.record == Provenance(
        hardware={"core": "zen"}, toolchain={"gcc": "12"}, latency_ms=1.5, trials=3, recorded_at=1.75e9
    )


def test_heroes_survive_their_file(tmp_path: Path) -> None:
    heroes = (hero_of(tmp_path, {8: 3.0}, "a"), hero_of(tmp_path, {32: 1.5}, "b"))
    save_heroes(tmp_path / "zen.json", reversed(heroes))
    assert load_heroes(tmp_path) == heroes


def test_heroes_of_the_same_op_that_are_valid_here_become_seeds(tmp_path: Path) -> None:
    heroes = [
        hero_of(tmp_path / "1", {64: 1.0}),
        hero_of(tmp_path / "2", {16: 2.0, 8: 3.0}),
        hero_of(tmp_path / "3", {128: 0.5, 8: 3.0}),
        hero_of(tmp_path / "4", {8: 0.1}, "another op"),
    ]
    assert seeds_for(SPACE, op_key=KEY.op_key, variant="packed", heroes=heroes) == ((1,), (3,))
    assert seeds_for(SPACE, op_key=KEY.op_key, variant="packed", heroes=heroes, limit=1) == ((1,),)
    assert seeds_for(SPACE, op_key=KEY.op_key, variant="skinny", heroes=heroes) == ()


def test_a_file_from_before_constants_counts_for_none(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(
        '{"schema_version": 1, "heroes": [{"op_key": "a", "variant": "packed", "schedule": {"tile": 32}, "record":'
        ' {"hardware": {"core": "zen"}, "toolchain": {"gcc": "12"}, "latency_ms": 1.5, "trials": 3,'
        ' "recorded_at": 1.75e9}}]}'
    )
    (hero,) = load_heroes(tmp_path)
    assert hero.constants == ()
    assert seeds_for(SPACE, op_key="a", variant="packed", heroes=[hero]) == ((2,),)
    assert seeds_for(SPACE, op_key="a", variant="packed", constants=(1,), heroes=[hero]) == ()
    constant = replace(hero, constants=(1,))
    save_heroes(tmp_path / "old.json", [hero, constant])
    assert load_heroes(tmp_path) == (hero, constant)


def test_no_hero_without_a_success(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption):
        hero_of(tmp_path, {8: None})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"schema_version": 3, "heroes": []}',
        '{"schema_version": 1}',
        '{"schema_version": 1, "heroes": [{"op_key": "gemm", "variant": "", "schedule": {}}]}',
        '{"schema_version": 1, "heroes": [{"op_key": "gemm", "variant": "", "schedule": {}, "record": {"hardware": {},'
        ' "toolchain": {}, "latency_ms": 1.0, "trials": 1, "recorded_at": 0}}]}',
    ],
)
def test_a_file_without_proof_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "made_up.json").write_text(text)
    with pytest.raises(InvalidOption):
        load_heroes(tmp_path)


def test_every_shipped_hero_names_its_machine_and_measurement() -> None:
    for hero in load_heroes():
        assert hero.record.hardware
        assert hero.record.toolchain
        assert hero.record.latency_ms > 0.0
        assert hero.record.machine
        assert re.fullmatch(r"measured on a machine with .+ on 20\d\d-\d\d-\d\d, not here", hero.record.where_and_when)
