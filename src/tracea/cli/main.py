"""``tracea``: reads the command line, runs a verb, and turns what is raised into one line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, Final, TextIO, cast, get_args

from cyclopts import App, CycloptsError, Parameter, Token, convert

import tracea
from tracea.cli import bench, cache, doctor, emit, explain, gate, optimize, targets, tune, verify
from tracea.cli.console import PatientOutput, discard_output, prepare_streams, print_error, print_json
from tracea.cli.problem_flags import flag_of
from tracea.errors import (
    InvalidInput,
    InvalidOption,
    ResourceExceeded,
    RunError,
    TraceaError,
    TraceaWarning,
    UnsupportedNode,
)

__all__ = ["BAD_USAGE", "FAILED", "GOOD", "app", "main"]

GOOD: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2
_INTERRUPTED: Final = 130  # as a shell reports SIGINT
_DIGITS: Final = 40  # of a fraction that are looked at
_NO_EXIT: Final = "take sys.exit() and what parses a command line out of what the file does when it is imported"
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def _exactly(type_: Any, tokens: Sequence[Token]) -> Any:
    """Convert as ever, but take no fraction for a whole number: the parser would round it, and say nothing."""
    wants_whole = int in (type_, *get_args(type_)) and float not in get_args(type_)
    for token in tokens if wants_whole else ():
        fraction = re.split("[eE]", token.value.partition(".")[2])[0]
        if fraction.isdecimal() and int(fraction[:_DIGITS]) > 0:
            raise ValueError(f"{token.value} is no whole number.")
    return cast("Any", convert(type_, tokens))


app = App(
    name="tracea",
    default_parameter=Parameter(converter=_exactly),
    help="Finds, proves, measures and runs the fastest kernel for the machine at hand.\n\n"
    "Example: tracea optimize examples/mlp.py:build --trials 50",
    help_epilogue="Exit codes: 0 good, 1 a verdict failed or a tool is missing, 2 bad usage, "
    "3 inconclusive under load (gate).",
    help_format="plaintext",
    version=tracea.__version__,
    version_flags=("--version",),
    suppress_keyboard_interrupt=False,
)
app.command(doctor.doctor)
app.command(optimize.optimize)
app.command(tune.tune)
app.command(emit.emit)
app.command(explain.explain)
app.command(verify.verify)
app.command(bench.bench)
app.command(gate.gate)
app.command(cache.app)
app.command(targets.app)


def main(tokens: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if tokens is None else tokens)
    as_json = "--json" in given
    with warnings.catch_warnings():
        warnings.simplefilter("default", TraceaWarning)
        warnings.showwarning = _show_warning
        try:
            prepare_streams()
            _check_log()
            with contextlib.redirect_stdout(PatientOutput(sys.stdout)):
                result: Any = app(given, exit_on_error=False, print_error=False, result_action="return_value")
                sys.stdout.flush()
        except CycloptsError as error:
            return _report_usage(error, given, as_json=as_json)
        except TraceaError as error:
            return _report(error, given, as_json=as_json)
        except KeyboardInterrupt:
            return _report_interrupt()
        except SystemExit as error:  # no command of ours ends this way
            left = RunError(kernel="a model's code", detail=f"ended the process, SystemExit: {error}", remedy=_NO_EXIT)
            return _report(left, given, as_json=as_json)
        except OSError as error:
            if error.errno in _NO_ROOM:
                return _report_no_room(error)
            return _report_unexpected(error, as_json=as_json)
        except Exception as error:
            if _was_interrupted(error):
                return _report_interrupt()
            return _report_unexpected(error, as_json=as_json)
    return result if isinstance(result, int) else GOOD


def _report(error: TraceaError, given: list[str], *, as_json: bool) -> int:
    _debug()
    if as_json:
        _print_object(error.to_dict())
    text = str(error)
    if isinstance(error, InvalidOption) and text.startswith(error.field):
        flag = flag_of(error.field)
        if flag in {token.partition("=")[0] for token in given}:  # what the caller wrote, not the argument's name
            text = f"{flag}{text.removeprefix(error.field)}"
    print_error(_one_line(f"{type(error).__name__}: {text}"))
    return BAD_USAGE if isinstance(error, InvalidInput | UnsupportedNode | ResourceExceeded) else FAILED


def _report_interrupt() -> int:
    print_error("interrupted; finished trials are kept")
    return _INTERRUPTED


def _was_interrupted(error: BaseException | None) -> bool:
    """Tell whether an error came of Ctrl-C: NumPy, interrupted at its import, raises an ImportError of its own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _report_no_room(error: OSError) -> int:
    _debug()
    where = error.filename or "the output"
    print_error(_one_line(f"{where} could not be written: {error.strerror}. Remedy: make room, or write elsewhere"))
    discard_output()
    return FAILED


def _print_object(error: dict[str, Any]) -> None:
    try:
        print_json(error)
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]  # it was closed, which is the error
            sys.stdout.flush()
    except OSError:  # what went wrong is said on standard error in any case
        discard_output()


def _report_usage(error: CycloptsError, given: list[str], *, as_json: bool) -> int:
    _debug()
    verbs = [name for name in app if not name.startswith("-")]
    verb = given[0] if given and given[0] in verbs else ""
    remedy = " ".join(part for part in ("tracea", verb, "--help") if part)
    text = _one_line(str(error))
    if as_json:
        _print_object({"error": "BadUsage", "message": text, "remedy": remedy})
    print_error(f"bad usage: {text} Remedy: {remedy}")
    return BAD_USAGE


def _report_unexpected(error: Exception, *, as_json: bool) -> int:
    _debug()
    text = _one_line(f"{type(error).__name__}: {error}")
    remedy = "TRACEA_LOG=debug shows where; if it is not in your own code, please report it"
    if as_json:
        _print_object({"error": type(error).__name__, "message": text, "remedy": remedy})
    print_error(f"unexpected {text}. Remedy: {remedy}")
    return FAILED


def _check_log() -> None:
    log = os.environ.get("TRACEA_LOG", "")
    if log.lower() not in ("", "debug"):
        raise InvalidOption(field="TRACEA_LOG", got=log, expected="debug, or nothing", remedy="TRACEA_LOG=debug")


def _debug() -> None:
    if os.environ.get("TRACEA_LOG", "").lower() == "debug":
        traceback.print_exc()


def _one_line(text: str) -> str:
    """Return text as one line that a terminal prints and does not obey: no control characters."""
    spaced = " ".join(text.split())
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in spaced)


def _show_warning(  # noqa: PLR0917  # the signature of warnings.showwarning
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, TraceaWarning):
        name = "" if category is TraceaWarning else f"{category.__name__}: "
        print(f"warning: {name}{_one_line(str(message))}", file=file or sys.stderr)
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        print(text, end="", file=file or sys.stderr)
