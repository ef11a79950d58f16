"""What a torch tensor says beside its memory: a negation still to be done, and the version that autograd checks."""

from __future__ import annotations

import pytest
import torch

import tracea
from tracea.errors import InvalidDevice, InvalidInput, InvalidStride

gemm, softmax = tracea.ops.gemm, tracea.ops.softmax


def negated(shape=(3, 4)):
    """A tensor whose memory holds the negatives of its values, row-major like any other."""
    found = torch._neg_view(torch.rand(shape))
    assert found.is_neg()
    assert found.is_contiguous()
    return found


def imaginary():
    found = torch.randn(3, 4, dtype=torch.complex64).conj().imag.as_strided((3, 4), (4, 1))
    assert found.is_neg()
    return found


@pytest.mark.parametrize("lazy", [negated, imaginary])
@pytest.mark.parametrize("warm", [False, True])
def test_a_negation_that_is_still_to_be_done_is_refused(lazy, warm):
    x, b = torch.rand(3, 4), torch.rand(4, 2)
    if warm:
        gemm(x, b), softmax(x), softmax(x, out=torch.empty(3, 4))
    for call in (
        lambda: gemm(lazy(), b),
        lambda: softmax(lazy()),
        lambda: softmax(x, out=lazy()),
        lambda: gemm(x, b, residual=negated((3, 2))),
    ):
        with pytest.raises(InvalidStride, match="negated"):
            call()


def test_an_optimized_module_refuses_it_too():
    fast = tracea.optimize(torch.nn.ReLU(), (torch.randn(3, 4),), budget=None, threads=1)
    fast(torch.randn(3, 4))
    for bad in (negated(), negated(), negated((4, 3)).t()):
        with pytest.raises(InvalidStride, match="negated"):
            fast(bad)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("strides", [(4, 1), (1, 3), (16, 2)])
def test_a_result_written_in_place_counts_as_written(warm, strides):
    x, out = torch.rand(3, 4), torch.empty(64).as_strided((3, 4), strides)
    if warm:
        softmax(x, out=out)
    before = out._version
    softmax(x, out=out)
    assert out._version > before


def test_a_value_saved_for_a_gradient_is_not_overwritten_unnoticed():
    x, saved, weight = torch.rand(3, 4), torch.rand(3, 4), torch.ones(3, 4, requires_grad=True)
    softmax(x, out=torch.empty(3, 4))
    product = weight * saved
    with torch.no_grad():
        softmax(x, out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_an_inference_tensor_has_no_version_and_is_written():
    x = torch.rand(3, 4)
    with torch.inference_mode():
        out = torch.empty(3, 4)
    for _ in range(2):
        torch.testing.assert_close(softmax(x, out=out), torch.softmax(x, -1))


def test_a_refused_call_counts_nothing_as_written():
    x, out = torch.rand(3, 4), torch.empty(3, 5)
    before = out._version
    with pytest.raises(InvalidInput):
        softmax(x, out=out)
    assert out._version == before


def cut_off(found, nbytes=24):
    found.untyped_storage().resize_(nbytes)
    return found


@pytest.mark.parametrize("warm", [False, True])
def test_a_tensor_whose_memory_ends_before_it_does_is_refused(warm):
    x, b, out = torch.rand(3, 4), torch.rand(4, 2), torch.empty(3, 4)
    if warm:
        gemm(x, b), gemm(x, torch.rand(2, 4).t()), softmax(x), softmax(x[:2]), softmax(x, out=out)
    for call in (
        lambda: gemm(x, cut_off(torch.rand(4, 2))),
        lambda: gemm(x, cut_off(torch.rand(2, 8)[:, ::2].t(), 56)),
        lambda: softmax(cut_off(torch.rand(3, 4)[1:])),
        lambda: softmax(cut_off(torch.rand(3, 4), 47)),
        lambda: softmax(x, out=cut_off(torch.empty(3, 4))),
    ):
        with pytest.raises(InvalidDevice, match=r"a storage of \d+ bytes, expected"):
            call()
    torch.testing.assert_close(softmax(cut_off(x, 60)[:2]), torch.softmax(x[:2], -1))
    y = torch.rand(3, 4)
    wanted, part = torch.softmax(y[:2], -1), y[:2]
    torch.testing.assert_close(softmax(cut_off(part, 32)), wanted)  # what is left holds all of it


def test_an_optimized_module_refuses_it_before_it_is_read():
    class Rows(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(5, 4)

        def forward(self, x, index):
            return x + self.table(index)

    x, index = torch.rand(3, 4), torch.tensor([0, 4, 2])
    fast = tracea.optimize(Rows().eval(), (x, index), budget=None, threads=1, listener=lambda *_: None)
    for bad in (cut_off(torch.rand(3, 4)), cut_off(torch.rand(4, 3).t()), cut_off(torch.rand(5, 4))):
        with pytest.raises(InvalidDevice, match="a storage of 24 bytes, expected"):
            fast(bad, index)
    with pytest.raises(InvalidDevice, match="a storage of 16 bytes, expected 24"):
        fast(x, cut_off(index.clone(), 16))
    with pytest.raises(InvalidDevice, match="a storage of 24 bytes, expected 48"):
        tracea.optimize(torch.nn.ReLU(), (cut_off(torch.rand(3, 4)),), budget=None)
