"""Kept certificates: taken for the very kernel that was proved, by the code that proved it, and for nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tracea.core.op import GemmOp
from tracea.doctor import host
from tracea.emitters.kernel_source import KernelSource
from tracea.errors import CacheCorrupt, ProofFailed
from tracea.flow import certificates, kernel
from tracea.flow.kernel import build
from tracea.kernels.registry import find
from tracea.runtime.cache import default_store
from tracea.semantic.proofs import Certificate

VARIANT = "gemm.packed"


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(tmp_path))
    build.cache_clear()
    yield
    build.cache_clear()


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that were proved, not looked up."""
    made: list[str] = []
    monkeypatch.setattr(kernel, "prove", lambda each, prove=kernel.prove: made.append(each.name) or prove(each))
    return made


def built(m: int = 48, **changes: object) -> kernel.Built:
    build.cache_clear()
    op, target = GemmOp.of(m=m, n=40, k=32), host()
    schedule = find(VARIANT).default_schedule(op, target)
    return build(op, VARIANT, schedule.with_values(**changes), target, kept=True)


def kept() -> list[str]:
    return [entry.key for entry in default_store().entries() if entry.ingredients["kind"] == "certificate"]


def test_a_kernel_is_proved_once_and_its_certificate_is_the_same(proofs: list[str]) -> None:
    first = built()
    again = built()
    assert len(proofs) == len(kept()) == 1
    assert again.certificate == first.certificate
    assert again == first
    assert len(first.certificate.facts) > 10


def test_another_op_schedule_target_text_or_code_is_proved(proofs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    built()
    built(m=49)
    assert len(proofs) == 2
    op, target = GemmOp.of(m=48, n=40, k=32), host()
    schedule = find(VARIANT).default_schedule(op, target)
    build(op, VARIANT, schedule, replace(target, cores=target.cores + 1), kept=True)
    assert len(proofs) == 3

    def other_text(*given: Any, **more: Any) -> KernelSource:
        source = printed(*given, **more)
        return replace(source, text=f"{source.text}\n")

    printed = kernel.print_unproved
    monkeypatch.setattr(kernel, "print_unproved", other_text)
    built()
    assert len(proofs) == 4
    monkeypatch.setattr(certificates, "code_digest", lambda: "another release")
    built()
    assert len(proofs) == len(kept()) == 5


def test_a_kernel_that_is_not_proved_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(each: object) -> Certificate:
        raise ProofFailed(proof="bounds", node="x", detail="planted")

    monkeypatch.setattr(kernel, "prove", refuse)
    with pytest.raises(ProofFailed, match="planted"):
        built()
    assert kept() == []


def test_a_damaged_certificate_is_proved_again(proofs: list[str]) -> None:
    first = built()
    (key,) = kept()
    store = default_store()
    path = next(entry.path for entry in store.entries() if entry.key == key) / "certificate.json"
    path.write_bytes(path.read_bytes().replace(b"bounds", b"bounce", 1))
    store._sound.clear()  # as another process would find it
    with pytest.warns(CacheCorrupt):
        again = built()
    assert len(proofs) == 2
    assert again.certificate == first.certificate


def test_without_being_asked_nothing_is_kept(proofs: list[str]) -> None:
    op, target = GemmOp.of(m=48, n=40, k=32), host()
    build(op, VARIANT, find(VARIANT).default_schedule(op, target), target)
    assert proofs
    assert not (default_store().root / "v1").exists()


def test_the_code_is_all_that_builds_proves_and_prints() -> None:
    root = Path(certificates.tracea.__file__).parent
    assert certificates.code_digest() == certificates.code_digest.__wrapped__()
    assert {path.name for path in root.iterdir() if path.name in certificates._PACKAGES} == set(certificates._PACKAGES)
