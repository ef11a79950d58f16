"""Tests for tracea.core.names: what a name may have meant."""

from __future__ import annotations

import pytest

from tracea.core.names import meant, near

KNOWN = ("gelu", "gelu_tanh", "hardswish", "relu", "sigmoid", "silu", "softplus")


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("GELU", ("gelu",)),
        ("gel", ("gelu", "gelu_tanh")),
        ("plus", ("softplus",)),
        ("sigmiod", ("sigmoid",)),
        ("swish", ("silu",)),  # not what merely contains it
        ("Swish", ("silu",)),
        ("nothing alike", ()),
        ("", ()),
    ],
)
def test_near_names(name, close):
    assert near(name, KNOWN) == close


def test_another_word_counts_only_where_its_meaning_is_known():
    assert near("swish", ("hardswish", "relu")) == ("hardswish",)


def test_a_remedy_begins_with_what_may_have_been_meant():
    assert meant(("silu",)) == "use silu, if that was meant; "
    assert meant(()) == ""
