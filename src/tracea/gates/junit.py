"""JUnit: verdicts as the XML that continuous integration shows, a test suite a verdict and a test case a check."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree

from tracea.gates.verdict import Verdict

__all__ = ["to_junit"]


def to_junit(verdicts: Iterable[Verdict]) -> str:
    """Return the verdicts as one JUnit document; characters that XML cannot hold become escapes."""
    root = ElementTree.Element("testsuites", name="tracea")
    tests = failures = 0
    for verdict in verdicts:
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_text(verdict.subject),
            tests=str(len(verdict.checks)),
            failures=str(len(verdict.failures)),
        )
        for check in verdict.checks:
            case = ElementTree.SubElement(suite, "testcase", name=_text(check.name), classname=_text(verdict.subject))
            if not check.passed:
                failure = ElementTree.SubElement(case, "failure", message=_text(str(check)))
                failure.text = _text(f"{check}\nseed {verdict.seed}")
        tests += len(verdict.checks)
        failures += len(verdict.failures)
    root.set("tests", str(tests))
    root.set("failures", str(failures))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _text(text: str) -> str:
    return "".join(
        char if char in "\n\t" or (char.isprintable() and ord(char) < 0xFFFE) else f"\\u{ord(char):04x}"
        for char in text
    )
