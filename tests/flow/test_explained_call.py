"""What a call of an op's function runs is what is explained: a convolution of one tap is a product of matrices."""

from __future__ import annotations

import json

import pytest

from tracea import targets
from tracea.cli import main as cli
from tracea.core.op import Conv2dOp, GemmOp
from tracea.doctor.precision import Magnitudes
from tracea.flow.explanation import explain, explain_call
from tracea.flow.pixel_products import product_of

POINTWISE = Conv2dOp.of(batch=1, channels=512, size=(14, 14), filters=256, kernel=(1, 1))
WORDS = ("explain", "conv2d", "--channels", "512", "--size", "14", "--filters", "256", "--target", "zen4")


def test_a_convolution_of_one_tap_is_explained_as_the_product_that_runs() -> None:
    found = explain_call(POINTWISE, target="zen4", magnitudes=Magnitudes(least=0.1, most=10.0))
    assert found.asked == POINTWISE
    assert found.op == product_of(POINTWISE, targets.load("zen4"))
    assert found.decision == explain(found.op, target="zen4").decision
    first, second, *_ = str(found).splitlines()
    assert first.startswith("Operation        conv2d 1x512x14x14_by_256x512x1x1_f32: 51.4 million operations")
    assert second == (
        "Runs as          gemm 256x196x512_f32: filters times pixels, a matrix product, which the rest is about"
    )


def test_what_searches_it_is_named() -> None:
    here = {"library": False, "measure": False}
    plain = explain_call(POINTWISE, **here)
    if isinstance(plain.op, GemmOp):  # a core with matrix tiles, or another instruction set, runs the convolution
        assert "Measured         not yet; tracea tune gemm -m 256 -n 196 -k 512 measures it" in str(plain)
    column = Conv2dOp.of(batch=1, channels=16, size=(101, 1), filters=16, kernel=(23, 1))
    laid = str(explain_call(column, **here))
    assert "Runs as          conv2d 1x16x1x101_by_16x16x1x23_f32: of one row, not one column" in laid
    assert "not yet; tracea.tune in Python measures it" in laid


def test_what_runs_as_it_is_is_explained_as_it_is() -> None:
    wide = Conv2dOp.of(batch=1, channels=512, size=(14, 14), filters=256, kernel=(3, 3))
    last = Conv2dOp.of(batch=1, channels=512, size=(14, 14), filters=256, kernel=(1, 1), channels_last=True)
    for found in (
        explain_call(wide, target="zen4"),
        explain_call(last, target="zen4"),
        explain_call(POINTWISE, target="zen4", constants=(1,)),
        explain_call(POINTWISE, target="zen4", variant="conv.packed"),
    ):
        assert found.asked is None
        assert found.decision.variant.startswith("conv.")
        assert "Runs as" not in str(found)
    assert explain_call(POINTWISE, target="zen4", variant="gemm.direct").decision.variant == "gemm.direct"


def test_the_verb_explains_what_the_function_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*WORDS, "--kernel", "1"]) == 0
    assert "Runs as          gemm 256x196x512_f32" in capsys.readouterr().out
    assert cli.main([*WORDS, "--kernel", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["asked"], told["op"]) == (POINTWISE.to_dict(), explain_call(POINTWISE, target="zen4").op.to_dict())
    assert cli.main([*WORDS, "--kernel", "3", "--padding", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["asked"] is None


def test_the_verb_says_how_many_heads_and_keys_an_attention_reads(capsys: pytest.CaptureFixture[str]) -> None:
    words = "explain attention --heads 8 --kv-heads 2 --seq 16 --kv-seq 40 --dim 64 --target zen4"
    assert cli.main(words.split()) == 0
    said = capsys.readouterr().out
    assert said.startswith("Operation        attention 1x8x16x64_f32 over 2 key heads of 40 keys: ")
