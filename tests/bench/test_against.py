"""Against: convolutions and rows are timed beside PyTorch's call of the same op, and of nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from tracea.bench import against
from tracea.bench.against import against_torch, time_against_torch, torch_peers
from tracea.bench.conv_suite import conv_problem
from tracea.bench.peers.peer import Allocation, Contender, Peer
from tracea.bench.suites import row_problem
from tracea.core.dtype import DType
from tracea.core.expr import Input, activation
from tracea.core.op import AttentionOp, Conv2dOp, Epilogue, GemmOp, Op, PointwiseOp, RowKind, RowOp
from tracea.core.tensor_type import TensorType
from tracea.flow.evaluate import Candidate, Request
from tracea.flow.verify import verify_op
from tracea.gates import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

SOFTMAX = RowOp(kind=RowKind.SOFTMAX, x=(TensorType((32, 80), DType.F32),))
ROWS = Candidate(variant="rows.normalize")
_QUERIES, _KEYS = (TensorType((2, heads, 33, 16), DType.F32) for heads in (4, 2))
ATTENTION = AttentionOp(q=_QUERIES, k=_KEYS, v=_KEYS, causal=True, window=9, scale=0.5)


@pytest.mark.parametrize(
    ("op", "names"),
    [
        (SOFTMAX, ["torch.rows"]),
        (row_problem(RowKind.LAYER_NORM, 8, 64).op, ["torch.rows"]),
        (row_problem(RowKind.RMS_NORM, 8, 64).op, ["torch.rows"]),
        (conv_problem(8, 8, 3, 1, 8).op, ["torch.conv", "torch.conv_last", "torch.conv_onednn"]),
        (ATTENTION, ["torch.sdpa"]),
        # What PyTorch would compute differently, in another type, or only in several steps.
        (RowOp(kind=RowKind.LOG_SOFTMAX, x=SOFTMAX.x), []),
        (replace(ATTENTION, score=Epilogue.identity().then(activation("tanh"))), []),
        (replace(SOFTMAX, epilogue=Epilogue.identity().then(activation("relu"))), []),
        (replace(row_problem(RowKind.LAYER_NORM, 8, 64).op, epilogue=Epilogue.identity()), []),
        (RowOp(kind=RowKind.SOFTMAX, x=(TensorType((8, 64), DType.F16),)), []),
        (conv_problem(8, 8, 3, 1, 8, activation="gelu").op, []),
        (Conv2dOp.of(batch=1, channels=8, size=(8, 8), filters=8, kernel=(3, 3), dtype=DType.F16), []),
        (GemmOp.of(m=8, n=8, k=8), []),  # has a library variant
        (PointwiseOp(expr=Input(0) + Input(0), inputs=SOFTMAX.x, out_dtype=DType.F32), []),
    ],
)
def test_only_the_same_op_is_a_rival(op: Op, names: list[str]) -> None:
    assert [peer.name for peer in torch_peers(op)] == names


@pytest.mark.parametrize(("op", "rival"), [(SOFTMAX, "torch.softmax(out=)"), (ATTENTION, "torch SDPA")])
def test_rows_and_attention_have_a_latency_gate(op: Op, rival: str) -> None:
    found = verify_op(op, seed=1, latency=True, rival=against_torch)
    (check,) = [check for check in found.verdict.checks if check.name.startswith("latency")]
    assert check.name == f"latency: {rival} / ours"
    assert found.not_checked == ()
    assert isinstance(check.figure, float)
    assert 0.01 < check.figure < 100
    assert "interleaved runs" in check.detail


def test_what_pytorch_has_no_call_for_is_not_checked() -> None:
    op = RowOp(kind=RowKind.LOG_SOFTMAX, x=SOFTMAX.x)
    text = against_torch(op, ROWS, constants=(), threads=1, seed=1)
    assert isinstance(text, str)
    assert text.startswith(f"latency: {op.key} has no library call")


def test_without_pytorch_the_remedy_is_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(against, "find_spec", lambda name: None)
    assert "pip install 'torch>=" in str(against_torch(SOFTMAX, ROWS, constants=(), threads=1, seed=1))


def _peer(value: float) -> Peer:
    def build(problem: Any, arrays: Sequence[np.ndarray[Any, Any]], threads: int) -> Contender:
        out = np.full((32, 80), value, np.float32)
        return Contender(name="planted", version="0", run=out.copy, result=out.copy, allocation=Allocation.OUT)

    return Peer(name="torch.planted", supports=lambda problem: True, build=build)


def _request() -> Any:
    request = Request(op=SOFTMAX.to_dict(), constants=(), threads=1, seed=1, candidates=(ROWS,))
    return msgspec.to_builtins(request)


def test_a_call_that_computes_something_else_is_no_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(against, "torch_peers", lambda op, constants: (_peer(0.5),))
    assert "computes something else" in str(time_against_torch(_request()))


def test_the_largest_result_says_how_far_off_a_call_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(against, "torch_peers", lambda op, constants: (_peer(0.0),))
    monkeypatch.setattr(against, "evaluate", lambda op, arrays: np.full((32, 80), 1e-3, np.float32))
    assert "is 0.001 from float64, above 2e-06" in str(time_against_torch(_request()))


def test_a_call_that_is_faster_for_certain_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its result is what the reference is told to be; its call does nothing at all.
    idle = _peer(0.0)
    monkeypatch.setattr(against, "torch_peers", lambda op, constants: (idle,))
    big = RowOp(kind=RowKind.SOFTMAX, x=(TensorType((512, 768), DType.F32),))
    monkeypatch.setattr(against, "evaluate", lambda op, arrays: np.zeros((32, 80), np.float32))
    request = Request(op=big.to_dict(), constants=(), threads=1, seed=1, candidates=(ROWS,))
    check = msgspec.convert(time_against_torch(msgspec.to_builtins(request)), Check)
    assert not check.passed
    assert isinstance(check.figure, float)
    assert check.figure < 0.5
