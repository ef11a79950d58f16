"""Features beside the instruction set: tiles only where they are granted and tried, none that the user withholds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracea.core.op import GemmOp
from tracea.doctor import decide
from tracea.doctor.probe import Machine, probe_machine
from tracea.errors import InvalidOption


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.delenv("TRACEA_WITHOUT", raising=False)
    return probe_machine()


def test_tiles_that_are_not_granted_are_no_feature(machine: Machine) -> None:
    refused = replace(machine, hardware=replace(machine.hardware, tiles=False))
    assert not [flag for flag in refused.target.features if flag.startswith("amx")]
    decision = decide(GemmOp.of(m=512, n=512, k=512), refused.target)
    rejected = {rejection.variant: rejection for rejection in decision.rejections}
    assert rejected["gemm.amx"].needed == "amx_bf16"


def test_withheld_feature_rejects_what_needs_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEA_WITHOUT", "amx_bf16, avx512_bf16")
    target = probe_machine().target
    assert not {"amx_bf16", "avx512_bf16"} & target.features
    assert target.isa == machine.target.isa
    decision = decide(GemmOp.of(m=512, n=512, k=512), target)
    assert "gemm.amx" in {rejection.variant for rejection in decision.rejections}


def test_a_feature_that_nobody_knows_cannot_be_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEA_WITHOUT", "amx")
    with pytest.raises(InvalidOption, match="TRACEA_WITHOUT"):
        probe_machine()
