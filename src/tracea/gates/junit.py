"""JUnit: verdicts as the XML that continuous integration shows, a test suite a verdict and a test case a check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from xml.etree import ElementTree

from tracea.gates.verdict import Verdict

__all__ = ["to_junit"]


def to_junit(
    verdicts: Iterable[Verdict],
    *,
    not_checked: Mapping[str, Sequence[str]] | None = None,
    inconclusive: str = "",
) -> str:
    """Return the verdicts as one JUnit document; characters that XML cannot hold become escapes.

    ``not_checked`` says of a verdict's subject what nothing looked at, as ``what: why``: skipped test cases.
    ``inconclusive`` says why checks that did not pass prove nothing: those are skipped test cases too.
    """
    root = ElementTree.Element("testsuites", name="tracea")
    tests = failures = 0
    for verdict in verdicts:
        failed = 0 if inconclusive else sum(not check.is_unclear for check in verdict.failures)
        unseen = () if not_checked is None else not_checked.get(verdict.subject, ())
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_text(verdict.subject),
            tests=str(len(verdict.checks) + len(unseen)),
            failures=str(failed),
            skipped=str(len(unseen) + len(verdict.failures) - failed),
        )
        for check in verdict.checks:
            case = ElementTree.SubElement(suite, "testcase", name=_text(check.name), classname=_text(verdict.subject))
            if not check.passed and (inconclusive or check.is_unclear):
                why = inconclusive or "too noisy to tell"
                skipped = ElementTree.SubElement(case, "skipped", message=_text(f"inconclusive: {why}"))
                skipped.text = _text(str(check))
            elif not check.passed:
                failure = ElementTree.SubElement(case, "failure", message=_text(str(check)))
                failure.text = _text(f"{check}" if verdict.seed is None else f"{check}\nseed {verdict.seed}")
        for text in unseen:
            what, _, why = text.partition(": ")
            case = ElementTree.SubElement(suite, "testcase", name=_text(what), classname=_text(verdict.subject))
            ElementTree.SubElement(case, "skipped", message=_text(why or text))
        tests += len(verdict.checks) + len(unseen)
        failures += failed
    root.set("tests", str(tests))
    root.set("failures", str(failures))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _text(text: str) -> str:
    return "".join(
        char if char in "\n\t" or (char.isprintable() and ord(char) < 0xFFFE) else f"\\u{ord(char):04x}"
        for char in text
    )
