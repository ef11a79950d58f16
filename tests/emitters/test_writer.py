"""The structured writer keeps indentation and lines in one place."""

from __future__ import annotations

import pytest

from tracea.emitters.writer import Writer


def test_block_indents_what_is_inside_and_closes_its_brace() -> None:
    writer = Writer()
    with writer.block("for (;;)"):
        writer.line("step();")
        with writer.block("if (done)"):
            writer.line("break;")
    assert writer.text() == "for (;;) {\n  step();\n  if (done) {\n    break;\n  }\n}\n"


def test_two_lines_in_one_call_are_refused() -> None:
    with pytest.raises(ValueError, match="one line a call"):
        Writer().line("a;\nb;")


@pytest.mark.parametrize("hostile", ["ends here\nint x;", "continues \\", "carriage\rreturn", "both \\\n"])
def test_comment_stays_one_comment_whatever_it_holds(hostile: str) -> None:
    writer = Writer()
    writer.comment(hostile)
    text = writer.text()
    assert text.count("\n") == 1
    assert text.startswith("// ")
    assert not text.rstrip("\n").endswith("\\")


def test_text_of_an_open_block_is_refused() -> None:
    writer = Writer()
    with writer.block("{"), pytest.raises(ValueError, match="still open"):
        writer.text()
