"""The decoders of records meet whatever bytes there are: a record, or a typed error, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from tests.optimizer.test_storage import KEY, a_record

from tracea.errors import CacheCorrupt, InvalidOption
from tracea.optimizer import Outcome, OutcomeKind, TrialStore
from tracea.optimizer.exchange import export_trials, read_trials
from tracea.optimizer.records import TrialRecord, decode_record, encode_record
from tracea.runtime.manifest import Manifest, ManifestFile, seal, unseal

TOKENS = (
    b"null", b"true", b"-1", b"1e999", b"9" * 400, b"9" * 5000, b'""', b'"\\ud800"', b"[]", b"{}", b"[" * 3000,
    b'{"a":' * 3000, b"\xff\xfe", b"\x00", b"NaN", b"Infinity", b'"ok"', b'"wrong"', b"0", b"-0.0", b"1.5", b"\\", b'"',
    b'"../../etc/passwd"', b'"$(touch hostile)"', b'"\\n#include <x>"',
)  # fmt: skip


def mutated(rng: random.Random, content: bytes) -> bytes:
    """Return the bytes after one to four changes: of bits, of stretches, of whole JSON values."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) + 1) if data else 0
        match rng.randrange(7):
            case 0 if data:
                data[place % len(data)] ^= 1 << rng.randrange(8)
            case 1:
                data[place:place] = rng.choice(TOKENS)
            case 2:
                del data[place : place + rng.randint(1, 40)]
            case 3:
                data[place:place] = data[place : place + rng.randint(1, 60)]
            case 4:
                del data[place:]
            case 5:  # another value for a key
                colon = data.find(b":", place)
                end = min((found for mark in b",}" if (found := data.find(mark, colon)) >= 0), default=len(data))
                if colon >= 0:
                    data[colon + 1 : end] = rng.choice(TOKENS)
            case _:
                data[place : place + 4] = rng.randbytes(4)
    return bytes(data)


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_mutated_record_is_a_record_or_a_typed_error(seed: int, count: int) -> None:
    rng = random.Random(seed)
    wrong = Outcome(kind=OutcomeKind.WRONG, detail="max error 0.5 \u2603")
    originals = [encode_record(record).encode() for record in (a_record(0), a_record(1, outcome=wrong))]
    assert all(decode_record(text) for text in originals)
    refused = 0
    for _ in range(count):
        data = mutated(rng, rng.choice(originals))
        try:
            record = decode_record(data)
        except InvalidOption:
            refused += 1
            continue
        assert isinstance(record, TrialRecord)
        assert decode_record(encode_record(record)) == record
        assert record.key.hardware_fingerprint
        assert (record.outcome.latency_ms is not None) == record.outcome.is_ok
    assert count // 2 < refused < count


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_mutated_manifest_is_the_same_or_refused(seed: int, count: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    manifest = Manifest(
        key="ab" * 20,
        created=1.75e9,
        ingredients={"kind": "library", "flags": ["-O3"]},
        files={"library.so": ManifestFile(bytes=10, sha256="0" * 64)},
    )
    content = seal(manifest)
    assert unseal(content, tmp_path) == manifest
    for _ in range(count):
        data = mutated(rng, content)
        try:
            assert unseal(data, tmp_path) == manifest
        except CacheCorrupt:
            continue


def test_a_mutated_export_is_the_same_or_refused_whole(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with TrialStore(tmp_path / "trials.db") as store:
        for index in range(2):
            store.add(a_record(index))
        export_trials(store.find(study=KEY), tmp_path / "trials.jsonl")
    content = (tmp_path / "trials.jsonl").read_bytes()
    whole = read_trials(tmp_path / "trials.jsonl")
    for _ in range(3_000):
        (tmp_path / "mutated.jsonl").write_bytes(mutated(rng, content))
        try:
            assert read_trials(tmp_path / "mutated.jsonl") == whole
        except InvalidOption:
            continue


def test_a_record_too_deep_or_too_long_is_refused() -> None:
    text = encode_record(a_record())
    for change in (f'{text[:-1]},"deep":{"[" * 100_000}{"]" * 100_000}}}', text + " " * (1 << 20)):
        with pytest.raises(InvalidOption):
            decode_record(change)
    assert msgspec.json.decode(text)["schema_version"] == 2
